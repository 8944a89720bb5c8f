/* A graph made ready to run on a device: memory plan, prepared kernels, a list of calls.
 * plan.c places tensors (shared by all devices); plan_cpu.c runs the calls on the CPU. */
#ifndef NP_PLAN_H
#define NP_PLAN_H

#include "trainer/device.h"
#include "trainer/graph.h"

/* Where each activation and saved tensor lies in one arena: liveness over node order,
 * best fit by size, offsets in bytes, aligned to 64. in_place: outs[0] may take ins[0]'s
 * place where that dies (RELU, ADD). */
struct np_memory {
    uint64_t
        *offsets; /* (nr_tensors); UINT64_MAX: not in the arena (params, grads, buffers, inputs) */
    uint64_t arena_bytes;
};
int np_memory_plan(const struct np_graph *graph, struct np_memory *ret_memory, struct np_err *err);
void np_memory_fini(struct np_memory *memory);

struct np_plan_options {
    int lanes;      /* of the batch; 0: as many as threads */
    int threads;    /* compute threads */
    bool reference; /* kernels_ref only */
    bool deterministic;
};

/* A network on a device: weights, optimizer state, the training and the evaluation calls. */
struct np_plan;

#endif
