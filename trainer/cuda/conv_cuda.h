/* A convolution on the GPU, forward or backward, by cuDNN: the operation graph of its shape, the
 * plans for it, and the chosen plan. Patterns are tried from the most fused to the plain one;
 * our own kernels do what a pattern lacks (bias, relu). Trainer thread. */
#ifndef NP_CONV_CUDA_H
#define NP_CONV_CUDA_H

#include "trainer/cuda/dnn.h"
#include "trainer/cuda/engines_cuda.h"

enum np_conv_pattern {
    NP_CONV_PLAIN,
    NP_CONV_BIAS,
    NP_CONV_RELU,
    NP_CONV_BIAS_RELU,
    NP_CONV_STATS /* and each channel's sum and sum of squares of y, for a batchnorm */
};
extern const char *const np_conv_patterns[];

#define NP_CONV_PLANS 24
/* The plans of all nodes with this key. */
struct np_conv_shape {
    char key[NP_ENGINE_KEY]; /* for np_engines */
    enum np_conv_pattern pattern;
    struct np_dnn *dnn;
    struct np_dnn_plan plans[NP_CONV_PLANS];
    int nr_plans; /* 0: cuDNN does not support this pattern */
    int taken;    /* the current plan, 0 at first */
    bool settled; /* final */
    struct np_conv_shape *next;
};

/* Makes plans once for all nodes with the same operation, shapes, types and rules, in all programs
 * that share it. Free it after its last convolution. */
struct np_cuda_convs {
    const struct np_dnn_target *target; /* borrowed */
    uint64_t workspace_max; /* bytes; plans that need more are left out if others need less */
    struct np_conv_shape *shapes;
    int nr_lost;                             /* shapes whose known engine cuDNN no longer offers */
    char lost_node[128], lost_id[NP_DNN_ID]; /* the first one's layer and engine */
};
struct np_cuda_convs *np_cuda_convs_new(const struct np_dnn_target *target, uint64_t device_bytes);
void np_cuda_convs_free(struct np_cuda_convs *convs);

struct np_cuda_conv { /* a node: a shape's plans, bound to operands */
    const struct np_dnn_target *target;
    struct np_conv_shape *shape;
    cudnnBackendDescriptor_t pack;
};
/* Arguments, borrowed for the call. */
struct np_conv_request {
    const struct np_graph *graph;  /* the device's shapes */
    const struct np_op_node *node; /* CONV, CONV_DGRAD or CONV_WGRAD of it */
    const struct np_dnn_rules *rules;
    struct np_engines *known; /* choices of an earlier run; NULL: none */
    int max;                  /* number of plans built for timing if the choice is not known */
};
/* Makes a convolution with the most fused pattern that cuDNN supports. If `known` has a choice
 * that cuDNN still offers, only its plan is built, and it is marked there as used. Plans that
 * need more workspace than 1 GiB or 5 % of the device's memory are left out if others remain.
 * -ENOTSUP: cuDNN has no plan even for the plain pattern; the message names the layer and its
 * shapes. */
int np_cuda_conv_new(struct np_cuda_convs *convs, const struct np_conv_request *request,
    struct np_cuda_conv **ret_conv, struct np_err *err);
/* The same node (CONV without bias and relu) with NP_CONV_STATS. -ENOTSUP: cuDNN has no plan for
 * it, two kernels are known to be faster, or the rules are deterministic: cuDNN 9.19's kernels
 * for it add f32 to memory in any order (red.add in their code, for sm_80 to sm_100), which
 * their engine's notes do not mention. */
int np_cuda_conv_stats_new(struct np_cuda_convs *convs, const struct np_conv_request *request,
    struct np_cuda_conv **ret_conv, struct np_err *err);
void np_cuda_conv_free(struct np_cuda_conv *conv);

/* The current plan's id. keep: makes the current plan final and frees the others. workspace: the
 * maximum over all plans, bytes. */
const char *np_cuda_conv_taken(const struct np_cuda_conv *conv);
void np_cuda_conv_keep(struct np_cuda_conv *conv);
uint64_t np_cuda_conv_workspace(const struct np_cuda_conv *conv);

/* Binds operands in the node's order, ins then out 0; bias f32, only if the pattern has it; then
 * sums and sums of squares, (c) f32 each, if it has these. Valid for any of the plans; may be
 * repeated. */
#define NP_CONV_OPERANDS 5 /* maximum */
int np_cuda_conv_bind(struct np_cuda_conv *conv, void *const operands[NP_CONV_OPERANDS],
    void *workspace, struct np_err *err);
/* Queues the convolution on the target's stream. */
int np_cuda_conv_run(struct np_cuda_conv *conv, struct np_err *err);

#endif
