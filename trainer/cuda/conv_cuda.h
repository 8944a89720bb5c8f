/* A convolution on the GPU, forward or backward, by cuDNN: the operation graph of one node, its
 * plans, and the one that is taken. Patterns are tried from the most fused to the plain one; what a
 * pattern leaves over (bias, relu) is said and done by our own kernels. Trainer thread. */
#ifndef NP_CONV_CUDA_H
#define NP_CONV_CUDA_H

#include "trainer/cuda/dnn.h"

enum np_conv_pattern {
    NP_CONV_PLAIN,
    NP_CONV_BIAS,
    NP_CONV_RELU,
    NP_CONV_BIAS_RELU,
    NP_CONV_STATS /* and, for a batchnorm behind, the sum and sum of squares of each channel of y */
};
extern const char *const np_conv_patterns[];

struct np_cuda_conv;
/* node: CONV, CONV_DGRAD or CONV_WGRAD of graph (the device's shapes). Asks cuDNN for up to `most`
 * plans of the most fused pattern it has. -ENOTSUP: cuDNN has no plan even for the plain one; the
 * message names the layer and its shapes. */
int np_cuda_conv_new(const struct np_dnn_target *target, const struct np_dnn_rules *rules,
    const struct np_graph *graph, const struct np_op_node *node, int most,
    struct np_cuda_conv **ret_conv, struct np_err *err);
/* The same node (CONV without bias and relu) with NP_CONV_STATS. -ENOTSUP: cuDNN has no plan for it, or
 * the rules are deterministic: cuDNN 9.19's kernels for it add f32 to memory in any order (red.add in
 * their code, for sm_80 to sm_100), and its engine carries no note that says so. */
int np_cuda_conv_stats_new(const struct np_dnn_target *target, const struct np_dnn_rules *rules,
    const struct np_graph *graph, const struct np_op_node *node, int most,
    struct np_cuda_conv **ret_conv, struct np_err *err);
/* Another node of the same shapes: `of`'s plans, compiled once, bound to operands of its own. `of` has to
 * be there as long as it runs. NULL: no memory. */
struct np_cuda_conv *np_cuda_conv_share(const struct np_cuda_conv *of);
void np_cuda_conv_free(struct np_cuda_conv *conv);

enum np_conv_pattern np_cuda_conv_pattern(const struct np_cuda_conv *conv);
int np_cuda_conv_plans(const struct np_cuda_conv *conv);
const struct np_dnn_plan *np_cuda_conv_plan(const struct np_cuda_conv *conv, int plan);
/* Which of the plans runs from now on; the first until then. */
void np_cuda_conv_take(struct np_cuda_conv *conv, int plan);
int np_cuda_conv_taken(const struct np_cuda_conv *conv);
uint64_t np_cuda_conv_workspace(const struct np_cuda_conv *conv); /* most of all plans, bytes */

/* Operands in the node's order, ins then out 0; bias f32, only where the pattern has it; then sums and
 * sums of squares, (c) f32 each, where it has these. All plans are bound to these and to workspace. */
#define NP_CONV_OPERANDS 5 /* at most */
int np_cuda_conv_bind(struct np_cuda_conv *conv, void *const operands[NP_CONV_OPERANDS],
    void *workspace, struct np_err *err);
/* Queues it on the target's stream. */
int np_cuda_conv_run(struct np_cuda_conv *conv, struct np_err *err);

#endif
