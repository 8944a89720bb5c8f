/* With whom a process exchanges what when all of them make one value of theirs: a sum, say. Pure.
 *
 * The value is a binary tree over the ranks: 0 and 1, 2 and 3, then these two, and so on; a last one without
 * a neighbour goes up as it is, as in the trees of lanes (trainer/lanes.h). Both halves of a node exchange
 * theirs, rank by rank (recursive doubling: comm.h). Where the right half has fewer ranks, those of the left
 * half that were left out get the result from those that have it, in as many more hops as it takes to double
 * their number. All hops are between rank and rank ^ 2^k. */
#ifndef NP_COMM_HOPS_H
#define NP_COMM_HOPS_H

#define NP_MAX_LINKS 10 /* 1024 processes */
#define NP_MAX_HOPS  (2 * NP_MAX_LINKS)

enum np_hop_kind {
    NP_HOP_SWAP, /* both send theirs, and both join them */
    NP_HOP_GIVE, /* sends the joined value */
    NP_HOP_TAKE  /* receives it */
};
struct np_hop {
    enum np_hop_kind kind;
    int link;  /* with rank ^ (1 << link) */
    int level; /* of the node's halves, 2^level ranks at most */
};

/* Fills the hops of a rank, in their order, and returns their number. */
int np_hops_find(int rank, int world, struct np_hop ret_hops[NP_MAX_HOPS]);

/* The ranks of the subtree of this level that `rank` is in. */
struct np_ranks_part {
    int first, nr;
};
struct np_ranks_part np_hops_part(int rank, int world, int level);

#endif
