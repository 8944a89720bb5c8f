/* Runs a graph node by node with the kernel table: every tensor in memory of its own, no plan, no
 * threads. The batch may be cut into lanes and chunks, as the executor does. */
#ifndef NP_INTERP_H
#define NP_INTERP_H

#include "trainer/cpu/kernels.h"

#define INTERP_SEED 5 /* of the initial weights */

struct interp {
    const struct np_graph *graph;    /* borrowed */
    float *params, *buffers, *grads; /* flat; params and buffers hold the initial values */
    void **memory;                   /* (nr_tensors) where each lies */
    struct interp_call *calls;
    int nr_lanes, chunk_rows;
    const char *missing; /* the op without a kernel, if init fails */
};

/* One lane, row by row, unless set otherwise before a run. Returns 0, or an errno of a kernel. */
int interp_init(struct interp *interp, const struct np_graph *graph, bool reference);
/* With lanes and chunks of so many rows; kernels are prepared for these numbers. */
int interp_init_cut(struct interp *interp, const struct np_graph *graph, bool reference,
    int nr_lanes, int chunk_rows);
void interp_fini(struct interp *interp);
void interp_run(struct interp *interp, const uint8_t *images, const int32_t *labels, uint64_t step);
/* Up to the loss; gradients stay those of the run before. */
void interp_run_forward(
    struct interp *interp, const uint8_t *images, const int32_t *labels, uint64_t step);
/* Element i of an activation, f32 or bf16, as f32. */
float interp_get(const struct interp *interp, int tensor, uint64_t i);
/* Sum over the rows of the loss tensor: the objective whose gradient loss_scale = 1 gives. */
double interp_loss(const struct interp *interp);
/* Random images and labels from a seed, with values of 0, 1 or, for a loss of numbers, any; both
 * malloc'd. */
void interp_batch(
    const struct np_graph *graph, uint64_t seed, uint8_t **ret_images, int32_t **ret_labels);

#endif
