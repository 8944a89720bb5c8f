/* One graph made ready for the GPU: fused, its memory planned, a call for each node, and the whole
 * list captured as one CUDA graph. program_cuda.c prepares and binds, calls_cuda.c queues,
 * tune_cuda.c chooses cuDNN's plans. Trainer thread. */
#ifndef NP_PROGRAM_CUDA_H
#define NP_PROGRAM_CUDA_H

#include "trainer/cuda/conv_cuda.h"
#include "trainer/cuda/kernels_cuda.h"
#include "trainer/cuda/layout_cuda.h"
#include "trainer/cuda/linear_cuda.h"
#include "trainer/plan.h"

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

struct np_cuda_call { /* of a node */
    const struct np_op_node *node;
    struct np_cuda_conv *conv;
    struct np_cuda_linear *linear;
    void *p[2 * NP_MAX_OPERANDS]; /* operands: ins, then outs */
    uint64_t scratch_bytes;       /* in the workspace, of our own kernels */

    /* A convolution whose output a batchnorm normalises: */
    struct np_cuda_conv *summing; /* also sums the channels; NULL: cuDNN has no such plan */
    bool sums;                    /* summing runs, not conv */
    struct np_cuda_call *reader;  /* the BN_STATS */
    uint64_t sums_at;             /* offset in the workspace of the sums, bytes */
    float *sum, *square_sum;      /* there, (c) each */
    float *spare[2];              /* there, for timing */
    /* That BN_STATS: */
    const struct np_cuda_call *source; /* the convolution; or NULL */
};

struct np_cuda_program {
    struct np_cuda *cuda;
    struct np_graph *graph; /* fused, the device's shapes */
    struct np_cuda_arrays arrays;
    struct np_dnn_rules rules;
    struct np_memory memory;    /* of the arena */
    struct np_cuda_call *calls; /* (nr_nodes) */
    enum np_cuda_dtype dtype;
    void *arena, *workspace;
    uint64_t workspace_bytes; /* of one call at a time; set by np_cuda_program_bind() */
    uint64_t sums_bytes;      /* behind that, of all summing convolutions */
};

/* An operation's own kernels; run NULL: a library's call. */
struct np_cuda_lowering {
    const char *name;
    void (*run)(struct np_cuda_program *program, const struct np_cuda_call *call);
};
extern const struct np_cuda_lowering np_cuda_lowerings[NP_NR_OPS];

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

/* Names what a node became: "conv + stats", "own bn_apply". */
const char *np_cuda_call_name(const struct np_cuda_call *call);
/* Queues a node on the compute stream, by kernel or library. */
int np_cuda_call_queue(
    struct np_cuda_program *program, const struct np_cuda_call *call, struct np_err *err);

/* Elements of (c) floats, padded to the 16 byte alignment that cuDNN is promised. */
static inline int np_cuda_pitch(int c)
{
    return (c + 3) / 4 * 4;
}

/* Channels are the last dimension of an activation; rows are the product of the others. */
static inline int np_cuda_channels(const struct np_cuda_program *program, int t)
{
    const struct np_tensor *x = &program->graph->tensors[t];

    return x->dims[x->nr_dims - 1];
}

static inline uint64_t np_cuda_rows(const struct np_cuda_program *program, int t)
{
    return np_tensor_elements(&program->graph->tensors[t]) / (uint64_t)np_cuda_channels(program, t);
}

#endif
