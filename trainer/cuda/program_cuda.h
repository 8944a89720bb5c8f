/* One graph prepared for the GPU: fused, its memory planned, a call for each node (calls_cuda.h),
 * and all calls captured as one CUDA graph. tune_cuda.c chooses cuDNN's plans. Trainer thread. */
#ifndef NP_PROGRAM_CUDA_H
#define NP_PROGRAM_CUDA_H

#include "trainer/cuda/calls_cuda.h"

/* Arguments of all programs of a plan; borrowed while they live. */
struct np_cuda_parts {
    struct np_cuda *cuda;
    struct np_cuda_convs *convs; /* plans of convolutions, one set per shape */
    struct np_engines *known;    /* choices of an earlier run: only these are built; NULL: none */
    const struct np_plan_options *options;
};
/* graph: as built, unfused, the files' shapes; borrowed for the call. rules->runtime is set
 * here. */
int np_cuda_program_new(const struct np_cuda_parts *parts, const struct np_graph *graph,
    const struct np_cuda_arrays *arrays, const struct np_dnn_rules *rules,
    struct np_cuda_program **ret_program, struct np_err *err);
void np_cuda_program_free(struct np_cuda_program *program);
/* The maximum over all plans that may run; smaller once np_cuda_program_tune() has chosen. */
uint64_t np_cuda_program_workspace_bytes(const struct np_cuda_program *program);
/* Call before the first run, and again when the arena or the workspace moves; programs that run at
 * other times may share both. */
int np_cuda_program_bind(
    struct np_cuda_program *program, void *arena, void *workspace, struct np_err *err);
/* Call after bind. Times the plans of shapes without a known choice, which destroys the contents
 * of arena and parameters, keeps the fastest and puts it into engines. Adds the number of timed
 * shapes to *timed. */
int np_cuda_program_tune(
    struct np_cuda_program *program, struct np_engines *engines, int *timed, struct np_err *err);
/* Queues all calls on the compute stream, one by one. */
int np_cuda_program_queue(struct np_cuda_program *program, struct np_err *err);
/* Queues the cast of the convolutions' gradients, which are halves, into the others' f32 array, as
 * np_cuda_program_queue() does unless program->leaves_halves. */
void np_cuda_program_cast(struct np_cuda_program *program);

#endif
