/* A graph made ready to run on a device: memory plan, prepared kernels, a list of calls.
 * plan.c places tensors (shared by all devices); program.c runs the calls on the CPU. */
#ifndef NP_PLAN_H
#define NP_PLAN_H

#include "trainer/device.h"
#include "trainer/graph/graph.h"

/* Where each activation and saved tensor lies in one arena. Two tensors share bytes only when no
 * time is within both lives; best fit, biggest first (Pisarchyk and Lee, arXiv:2001.03288, "greedy
 * by size"). A node's first output takes an operand's very place where that dies with the node and
 * the operation is elementwise on it: kernels of these operations must read an
 * element before they write it. */
struct np_memory {
    uint64_t *offsets; /* (nr_tensors) bytes, aligned to 64; UINT64_MAX: not in the arena (params,
                          grads, buffers, inputs, tensors of no node) */
    uint64_t arena_bytes;
};
/* when: (nr_nodes) time of each node, not falling; nodes of one time may overlap in any order
 * across rows, and gradients of weights may come last of their time. NULL: one after the other. */
void np_memory_plan(const struct np_graph *graph, const int *when, struct np_memory *ret_memory);
void np_memory_fini(struct np_memory *memory);

struct np_plan_options {
    int lanes;      /* of the batch; 0: as many as threads */
    int threads;    /* compute threads */
    bool reference; /* kernels_ref only */
    bool deterministic;
    bool tf32;         /* a GPU's f32 products may round their factors to 10 bits */
    const char *state; /* what plan_ops->state() gave at a checkpoint; NULL: none */
    /* Optional. A line for the log, from prepare(): a kernel that is not used. */
    void (*note)(void *context, const char *text);
    void *note_context;
};

/* A network on a device: weights, optimizer state, the training and the evaluation calls. */
struct np_plan;

#endif
