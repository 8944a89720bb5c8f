/* One graph made ready for the GPU: fused, its memory planned, a call for each node, and the whole
 * list captured as one CUDA graph. Trainer thread. */
#ifndef NP_PROGRAM_CUDA_H
#define NP_PROGRAM_CUDA_H

#include "trainer/cuda/device_cuda.h"
#include "trainer/cuda/engines_cuda.h"
#include "trainer/cuda/kernels_cuda.h"
#include "trainer/cuda/layout_cuda.h"

/* What the programs of a plan share, all in device memory unless said; flat arrays as in the
 * layout. */
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
/* What the programs of a plan are made with; borrowed while they live. */
struct np_cuda_parts {
    struct np_cuda *cuda;
    struct np_cuda_convs *convs; /* plans of convolutions, one set a shape */
    struct np_engines *known; /* choices of an earlier run: others need not be built; NULL: none */
};
/* graph: as built, unfused, the files' shapes; borrowed for the call. rules->runtime is set here. */
int np_cuda_program_new(const struct np_cuda_parts *parts, const struct np_graph *graph,
    const struct np_cuda_arrays *arrays, const struct np_dnn_rules *rules,
    struct np_cuda_program **ret_program, struct np_err *err);
void np_cuda_program_free(struct np_cuda_program *program);
uint64_t np_cuda_program_arena_bytes(const struct np_cuda_program *program);
/* Of all plans that may run: less once np_cuda_program_tune() has chosen. */
uint64_t np_cuda_program_workspace_bytes(const struct np_cuda_program *program);
/* Before the first run, and again when one of them moves; both may be shared with programs that run
 * at other times. */
int np_cuda_program_bind(
    struct np_cuda_program *program, void *arena, void *workspace, struct np_err *err);
/* Bound. Where a shape's choice was not known, its plans are timed on the arena and the parameters,
 * which hold nothing afterwards, and the fastest is kept and put into engines. *timed is raised by
 * how many were. */
int np_cuda_program_tune(
    struct np_cuda_program *program, struct np_engines *engines, int *timed, struct np_err *err);
/* Queues all calls on the compute stream, one by one. */
int np_cuda_program_queue(struct np_cuda_program *program, struct np_err *err);
const void *np_cuda_program_tensor(const struct np_cuda_program *program, int tensor);
/* The fused graph it runs, and what each node became: "cudnn conv + bias + relu", "own bn_apply". */
const struct np_graph *np_cuda_program_graph(const struct np_cuda_program *program);
const char *np_cuda_program_call(const struct np_cuda_program *program, int node);

#endif
