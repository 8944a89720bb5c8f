/* Gradient checkpointing (Chen et al., arXiv:1604.06174): the forward pass is cut into segments. Of
 * all but the last, only what a later segment reads stays in memory; the backward pass runs a
 * segment's nodes again, from that, before it needs their outputs. Less memory for about one more
 * forward pass. At prepare, one thread. */
#ifndef NP_RECOMPUTE_H
#define NP_RECOMPUTE_H

#include "trainer/plan.h"

/* Rewrites a graph that has a backward pass, after fusion: no other pass may follow. The nodes
 * added have `again` set. Operations, operands and draws are those of the forward pass, so are the
 * bits where the device takes the same kernels. What runs once, as before: the input's
 * normalisation (the batch is gone by then), statistics of batchnorm (they move the running
 * averages), the loss. */
void np_recompute(struct np_graph *graph, int nr_segments);

struct np_recomputed {
    int nr_segments; /* 0: no number of segments takes less memory; the graph is as it was */
    int nr_nodes;    /* that run a second time */
    /* of activations, by np_memory_plan(), one node after the other */
    uint64_t bytes_before, bytes;
};
/* np_recompute() with the number of segments that takes the least memory. */
struct np_recomputed np_recompute_best(struct np_graph *graph);
/* The same where the options want it, and a line for the log. */
void np_recompute_as(struct np_graph *graph, const struct np_plan_options *options);

#endif
