/* A program's calls: one for each node of its graph, queued on the compute stream. Trainer
 * thread. */
#ifndef NP_CALLS_CUDA_H
#define NP_CALLS_CUDA_H

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
    float *losses;                   /* (NP_CUDA_SLOTS, batch) there; NULL: not wanted */
    float *class_weights;            /* (classes) of the training's loss; NULL: none */
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
    struct np_cuda_call *reader;  /* the BN_STATS; see below, too */
    uint64_t sums_at;             /* offset in the workspace of the sums, bytes */
    float *sum, *square_sum;      /* there, (c) each */
    float *spare[2];              /* there, for timing */
    /* That BN_STATS: */
    const struct np_cuda_call *source; /* the convolution; or NULL */

    /* A loss, whose kernel also writes the gradient: reader is that node, and source of that the loss. */
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
    uint64_t sums_bytes;      /* after that, of all summing convolutions */
    /* Called after each node is queued; then gradients that are halves are left so. NULL: not. */
    int (*after)(void *context, int node, struct np_err *err);
    void *after_context;
    bool leaves_halves; /* of gradients: the update reads them */
};

/* An operation's own kernels; run NULL: a library's call. */
struct np_cuda_lowering {
    const char *name;
    void (*run)(struct np_cuda_program *program, const struct np_cuda_call *call);
};
extern const struct np_cuda_lowering np_cuda_lowerings[NP_NR_OPS];

/* calls_token.c: normalisation of a row alone, scale, tokens, attention. */
void np_cuda_run_norm(struct np_cuda_program *program, const struct np_cuda_call *call);
void np_cuda_run_scale(struct np_cuda_program *program, const struct np_cuda_call *call);
void np_cuda_run_bias(struct np_cuda_program *program, const struct np_cuda_call *call);
void np_cuda_run_tokens(struct np_cuda_program *program, const struct np_cuda_call *call);
void np_cuda_run_attention(struct np_cuda_program *program, const struct np_cuda_call *call);
/* Bytes of workspace of one of these nodes; 0 for others. */
uint64_t np_cuda_token_scratch(
    const struct np_cuda_program *program, const struct np_op_node *node);

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
