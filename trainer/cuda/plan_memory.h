/* Internals of a plan, shared by plan_cuda.c (prepares and queues steps) and plan_memory.c
 * (device memory and copies). */
#ifndef NP_PLAN_MEMORY_H
#define NP_PLAN_MEMORY_H

#include "trainer/cuda/program_cuda.h"

/* The first time, a kind of step is queued call by call, so that every library has loaded what
 * it needs; then it is captured. If that fails, it is always queued call by call. */
struct np_cuda_captured {
    bool warm, refused;
    cudaGraphExec_t exec;
};

struct np_plan {
    struct np_device *device;
    struct np_cuda *cuda;
    struct np_cuda_layout train_layout, eval_layout; /* places are the same in both */
    const struct np_cuda_layout *layout;
    struct np_cuda_convs *convs;          /* of both programs */
    struct np_cuda_program *train, *eval; /* train NULL: evaluation only */
    struct np_cuda_arrays arrays;
    float *state[2], *sum; /* of the optimizer; of gradients over an accumulation */
    uint8_t *decay;
    void *arena, *workspace, *norm_scratch;
    uint64_t workspace_bytes;
    uint64_t nr_buffers; /* elements */
    struct np_cuda_captured step, step_update, eval_step;
    bool summing; /* sum holds batches that have not been applied yet */
    bool f16, decoupled;
    bool noted_refusal;                 /* the user has been told that a step cannot be captured */
    bool graphs;                        /* steps may be captured: NNPIPE_CUDA_GRAPH is not 0 */
    struct np_cuda_step now;            /* the values last sent to the device */
    struct np_cuda_scaler scaler_start; /* copied to the device without a wait */

    cudaEvent_t passed[NP_CUDA_SLOTS]; /* after the batch of that slot */
    uint64_t nr_batches, nr_folded;    /* queued so far; of these, in `metrics` */
    struct np_metrics metrics;
    struct np_engines *engines;         /* of this run */
    const struct np_cuda_program *last; /* whose logits are in the arena */
};

static inline cudaStream_t np_cuda_stream(const struct np_plan *plan)
{
    return plan->cuda->streams[NP_STREAM_COMPUTE];
}

static inline int np_cuda_plan_check(
    const struct np_plan *plan, cudaError_t status, const char *what, struct np_err *err)
{
    return np_cuda_check(plan->device, status, what, err);
}

/* Device memory, zeroed; a flat array in the layout. The plan's free() gives it back. */
int np_cuda_take(struct np_plan *plan, uint64_t bytes, void **ret_memory, struct np_err *err);
int np_cuda_take_floats(struct np_plan *plan, float **ret_memory, struct np_err *err);
/* All arrays but AdamW's second state; the host's memory for numbers; the arena, both programs
 * bound. */
int np_cuda_take_arrays(struct np_plan *plan, bool training, bool halves, struct np_err *err);
int np_cuda_take_numbers(struct np_plan *plan, struct np_err *err);
int np_cuda_take_arena(struct np_plan *plan, const struct np_graph *graph, struct np_err *err);
/* Call after engines are chosen: zeroes the arrays that timing wrote, and shrinks the workspace
 * to what the chosen engines need. */
int np_cuda_settle_memory(struct np_plan *plan, struct np_err *err);
void np_cuda_give_memory(struct np_plan *plan);
/* AdamW's second state, once. */
int np_cuda_second_state(struct np_plan *plan, struct np_err *err);
/* Sets the initial loss scale, or that of a checkpoint's state: "scaler SCALE GOOD". */
int np_cuda_set_scaler(struct np_plan *plan, const char *state, struct np_err *err);

/* Of np_cuda_plan_ops. */
int np_cuda_plan_read(struct np_plan *plan, int array, float *out, struct np_err *err);
int np_cuda_plan_write(struct np_plan *plan, int array, const float *in, struct np_err *err);
int np_cuda_plan_state(struct np_plan *plan, char **ret_text, struct np_err *err);
int np_cuda_plan_logits(struct np_plan *plan, float *out, struct np_err *err);

#endif
