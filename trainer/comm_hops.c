#include "trainer/comm_hops.h"

struct np_ranks_part np_hops_part(int rank, int world, int level)
{
    const int first = rank >> level << level, left = world - first;

    return (struct np_ranks_part){first, left < 1 << level ? left : 1 << level};
}

/* Hands the value of a node on, from the first `have` ranks of its left half, to all 2^level of them. */
static int spread(int rank, int level, int have, struct np_hop *ret_hops)
{
    const int own = rank & ((1 << level) - 1);
    int nr = 0;

    for (int k = 0; k < level; k++) {
        const int other = own ^ (1 << k), end = 2 << k;

        if (end <= have)
            continue; /* all of these have it */
        if (own < have && other >= have && other < end)
            ret_hops[nr++] = (struct np_hop){NP_HOP_GIVE, k, level};
        else if (own >= have && own < end)
            ret_hops[nr++] = (struct np_hop){NP_HOP_TAKE, k, level};
        have = end;
    }
    return nr;
}

int np_hops_find(int rank, int world, struct np_hop ret_hops[NP_MAX_HOPS])
{
    int nr = 0;

    for (int level = 0; 1 << level < world; level++) {
        const int own = rank & ((1 << level) - 1), right = (rank | 1 << level) - own;
        const int have = right < world ? np_hops_part(right, world, level).nr : 0;

        if (own < have)
            ret_hops[nr++] = (struct np_hop){NP_HOP_SWAP, level, level};
        if (have > 0 && !(rank >> level & 1))
            nr += spread(rank, level, have, ret_hops + nr);
    }
    return nr;
}
