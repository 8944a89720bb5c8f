/* In which parts gradients are handed to the other processes: a part as soon as no group of the program
 * writes or reads it any more, so that it is on its way while the backward pass goes on. Made with the
 * program, the same in all processes. Trainer thread. */
#ifndef NP_BUCKETS_H
#define NP_BUCKETS_H

#include "trainer/graph/graph.h"

struct np_bucket {
    uint64_t first, n; /* elements of the flat array of gradients */
    int group;         /* ready after this one */
};
struct np_buckets {
    struct np_bucket *buckets; /* by group; all gradients are in one of them */
    int nr;
};

/* groups: (nr_nodes), the group of each node, below nr_groups. */
void np_buckets_make(
    const struct np_graph *graph, const int *groups, int nr_groups, struct np_buckets *ret_buckets);
/* Where groups should end so that buckets are ready early. groups: (nr_nodes), those that there are without
 * such ends. ret_ends: (nr_nodes), true at a node that completes a bucket and whose group goes on to the
 * gradients of another layer's weights. */
void np_buckets_ends(const struct np_graph *graph, const int *groups, bool *ret_ends);
void np_buckets_fini(struct np_buckets *buckets);

#endif
