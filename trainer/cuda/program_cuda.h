/* One graph made ready for the GPU: fused, its memory planned, a call for each node, and the whole
 * list captured as one CUDA graph. Trainer thread. */
#ifndef NP_PROGRAM_CUDA_H
#define NP_PROGRAM_CUDA_H

#include "trainer/cuda/device_cuda.h"
#include "trainer/cuda/engines_cuda.h"
#include "trainer/cuda/kernels_cuda.h"
#include "trainer/cuda/layout_cuda.h"

/* Memory that the programs of a plan share, on the device unless noted; flat arrays have the
 * device's layout. */
struct np_cuda_arrays {
    const struct np_cuda_layout *layout;
    float *params, *grads;   /* grads: NULL when there is no training */
    void *half, *half_grads; /* (nr_params), (nr_convs) in the graph's precision; NULL for f32 */
    float *buffers;          /* as in the files */
    struct np_cuda_step *step;
    struct np_cuda_scaler *scaler;
    struct np_cuda_numbers *numbers; /* of the host, mapped */
};

struct np_cuda_program;
struct np_cuda_convs;
/* Arguments of all programs of a plan; borrowed while they live. */
struct np_cuda_parts {
    struct np_cuda *cuda;
    struct np_cuda_convs *convs; /* plans of convolutions, one set a shape */
    struct np_engines *known;    /* choices of an earlier run: only these are built; NULL: none */
};
/* graph: as built, unfused, the files' shapes; borrowed for the call. rules->runtime is set
 * here. */
int np_cuda_program_new(const struct np_cuda_parts *parts, const struct np_graph *graph,
    const struct np_cuda_arrays *arrays, const struct np_dnn_rules *rules,
    struct np_cuda_program **ret_program, struct np_err *err);
void np_cuda_program_free(struct np_cuda_program *program);
uint64_t np_cuda_program_arena_bytes(const struct np_cuda_program *program);
/* The maximum over all plans that may run; smaller once np_cuda_program_tune() has chosen. */
uint64_t np_cuda_program_workspace_bytes(const struct np_cuda_program *program);
/* Call before the first run, and again when one of them moves; both may be shared with programs
 * that run at other times. */
int np_cuda_program_bind(
    struct np_cuda_program *program, void *arena, void *workspace, struct np_err *err);
/* Call after bind. Times the plans of shapes without a known choice, which destroys the contents
 * of arena and parameters, keeps the fastest and puts it into engines. Adds the number of timed
 * shapes to *timed. */
int np_cuda_program_tune(
    struct np_cuda_program *program, struct np_engines *engines, int *timed, struct np_err *err);
/* Queues all calls on the compute stream, one by one. */
int np_cuda_program_queue(struct np_cuda_program *program, struct np_err *err);
const void *np_cuda_program_tensor(const struct np_cuda_program *program, int tensor);
/* The fused graph, and what each node became: "cudnn conv + bias + relu", "own bn_apply". */
const struct np_graph *np_cuda_program_graph(const struct np_cuda_program *program);
const char *np_cuda_program_call(const struct np_cuda_program *program, int node);

#endif
