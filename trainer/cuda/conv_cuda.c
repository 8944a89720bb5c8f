/* See conv_cuda.h. */
#include "trainer/cuda/conv_cuda.h"

#include <assert.h>
#include <errno.h>

#include "loader/base/mem.h"

#define MAX_PLANS 24

struct np_cuda_conv {
    const struct np_dnn_target *target;
    struct np_dnn *dnn;
    struct np_dnn_plan plans[MAX_PLANS];
    int nr_plans, taken;
    enum np_conv_pattern pattern;
    bool shared; /* dnn and the plans are another's; only their packs are this one's */
};

const char *const np_conv_patterns[] = {
    "conv", "conv + bias", "conv + relu", "conv + bias + relu", "conv + stats"};

static cudnnDataType_t type_of(enum np_dtype dtype)
{
    return dtype == NP_BF16  ? CUDNN_DATA_BFLOAT16
           : dtype == NP_F16 ? CUDNN_DATA_HALF
                             : CUDNN_DATA_FLOAT;
}

/* An activation (n, h, w, c) of the graph, in cuDNN's order of dimensions. */
static int activation(struct np_dnn *dnn, const struct np_graph *graph, int t,
    enum np_dnn_kind kind, cudnnDataType_t type)
{
    const int *d = graph->tensors[t].dims;

    return np_dnn_tensor(dnn, kind, type, (const int64_t[]){d[0], d[3], d[1], d[2]});
}

/* A weight (out, in, kh, kw): the halves' copy, or f32. */
static int weight(struct np_dnn *dnn, const struct np_graph *graph, int t, cudnnDataType_t type)
{
    const int *d = graph->tensors[t].dims;

    return np_dnn_tensor(dnn, NP_DNN_REAL, type, (const int64_t[]){d[0], d[1], d[2], d[3]});
}

/* Real tensors are added in the order of the node's operands: np_cuda_conv_bind() relies on it. */
static void build_forward(struct np_dnn *dnn, const struct np_graph *graph,
    const struct np_op_node *node, cudnnDataType_t type, enum np_conv_pattern pattern)
{
    bool bias = pattern == NP_CONV_BIAS || pattern == NP_CONV_BIAS_RELU;
    bool relu = pattern == NP_CONV_RELU || pattern == NP_CONV_BIAS_RELU;
    int x = activation(dnn, graph, node->ins[0], NP_DNN_REAL, type);
    int w = weight(dnn, graph, node->ins[1], type), b = -1, y, from;

    if (bias)
        b = np_dnn_channels(dnn, graph->tensors[node->outs[0]].dims[3]);
    y = activation(dnn, graph, node->outs[0], NP_DNN_REAL, type);
    if (!bias && !relu) {
        np_dnn_conv(dnn, &node->attrs.window, x, w, y);
        if (pattern == NP_CONV_STATS) {
            int c = graph->tensors[node->outs[0]].dims[3], sum = np_dnn_channels(dnn, c);

            np_dnn_stats(dnn, y, sum, np_dnn_channels(dnn, c));
        }
        return;
    }
    from = activation(dnn, graph, node->outs[0], NP_DNN_VIRTUAL, CUDNN_DATA_FLOAT);
    np_dnn_conv(dnn, &node->attrs.window, x, w, from);
    if (bias) {
        int sum =
            relu ? activation(dnn, graph, node->outs[0], NP_DNN_VIRTUAL, CUDNN_DATA_FLOAT) : y;

        np_dnn_pointwise(dnn, CUDNN_POINTWISE_ADD, from, b, sum);
        from = sum;
    }
    if (relu)
        np_dnn_pointwise(dnn, CUDNN_POINTWISE_RELU_FWD, from, -1, y);
}

static struct np_dnn *build(const struct np_dnn_target *target, const struct np_graph *graph,
    const struct np_op_node *node, enum np_conv_pattern pattern)
{
    struct np_dnn *dnn = np_dnn_new(target);
    cudnnDataType_t type;
    int a, b, c;

    if (!dnn)
        return NULL;
    if (node->op == NP_OP_CONV) {
        type = type_of(graph->tensors[node->ins[0]].dtype);
        build_forward(dnn, graph, node, type, pattern);
    } else if (node->op == NP_OP_CONV_DGRAD) {
        type = type_of(graph->tensors[node->ins[0]].dtype);
        a = activation(dnn, graph, node->ins[0], NP_DNN_REAL, type);
        b = weight(dnn, graph, node->ins[1], type);
        c = activation(dnn, graph, node->outs[0], NP_DNN_REAL, type);
        np_dnn_dgrad(dnn, &node->attrs.window, a, b, c);
    } else {
        type = type_of(graph->tensors[node->ins[0]].dtype);
        a = activation(dnn, graph, node->ins[0], NP_DNN_REAL, type);
        b = activation(dnn, graph, node->ins[1], NP_DNN_REAL, type);
        c = weight(dnn, graph, node->outs[0], type); /* cuDNN sums halves into halves alone */
        np_dnn_wgrad(dnn, &node->attrs.window, a, b, c);
    }
    return dnn;
}

/* The most fused pattern first. */
static enum np_conv_pattern wanted(const struct np_op_node *node)
{
    bool bias = node->nr_ins > 2, relu = node->attrs.relu;

    if (node->op != NP_OP_CONV)
        return NP_CONV_PLAIN;
    return bias && relu ? NP_CONV_BIAS_RELU
           : bias       ? NP_CONV_BIAS
           : relu       ? NP_CONV_RELU
                        : NP_CONV_PLAIN;
}

static int try_pattern(struct np_cuda_conv *conv, const struct np_dnn_rules *rules,
    const struct np_graph *graph, const struct np_op_node *node, enum np_conv_pattern pattern,
    int most, struct np_err *err)
{
    int code;

    conv->dnn = build(conv->target, graph, node, pattern);
    if (!conv->dnn)
        return np_err_set(err, -ENOMEM, "no memory for a convolution");
    code = np_dnn_finish(conv->dnn, err);
    if (code == 0)
        code =
            np_dnn_plans(conv->dnn, rules, conv->plans, most < MAX_PLANS ? most : MAX_PLANS, err);
    if (code < 0) {
        np_dnn_free(conv->dnn);
        conv->dnn = NULL;
        return code;
    }
    conv->nr_plans = code;
    conv->pattern = pattern;
    return 0;
}

/* "layer1.0.conv2 (conv of (256, 56, 56, 64))". */
static int name_it(const struct np_graph *graph, const struct np_op_node *node, struct np_err *err)
{
    const int *d = graph->tensors[node->ins[0]].dims;

    return np_err_context(err, "%s: %s of (%d, %d, %d, %d)", node->name, np_op_names[node->op],
        d[0], d[1], d[2], d[3]);
}

/* Of the most fused pattern that cuDNN has; between that and the plain one there is none. */
static int prepare(const struct np_dnn_target *target, const struct np_dnn_rules *rules,
    const struct np_graph *graph, const struct np_op_node *node, enum np_conv_pattern pattern,
    bool or_plain, int most, struct np_cuda_conv **ret_conv, struct np_err *err)
{
    struct np_cuda_conv *conv = np_alloc(sizeof(*conv));
    bool plain = pattern == NP_CONV_PLAIN;
    int code;

    if (!conv)
        return np_err_set(err, -ENOMEM, "no memory for a convolution");
    conv->target = target;
    code = try_pattern(conv, rules, graph, node, pattern, most, or_plain && !plain ? NULL : err);
    if (code < 0 && or_plain && !plain)
        code = try_pattern(conv, rules, graph, node, NP_CONV_PLAIN, most, err);
    if (code < 0) {
        name_it(graph, node, err);
        np_cuda_conv_free(conv);
        return code;
    }
    *ret_conv = conv;
    return 0;
}

int np_cuda_conv_new(const struct np_dnn_target *target, const struct np_dnn_rules *rules,
    const struct np_graph *graph, const struct np_op_node *node, int most,
    struct np_cuda_conv **ret_conv, struct np_err *err)
{
    return prepare(target, rules, graph, node, wanted(node), true, most, ret_conv, err);
}

int np_cuda_conv_stats_new(const struct np_dnn_target *target, const struct np_dnn_rules *rules,
    const struct np_graph *graph, const struct np_op_node *node, int most,
    struct np_cuda_conv **ret_conv, struct np_err *err)
{
    assert(node->op == NP_OP_CONV && node->nr_ins == 2 && !node->attrs.relu);
    if (rules->deterministic)
        return np_err_set(
            err, -ENOTSUP, "%s: cuDNN's sums of channels come in any order", node->name);
    return prepare(target, rules, graph, node, NP_CONV_STATS, false, most, ret_conv, err);
}

struct np_cuda_conv *np_cuda_conv_share(const struct np_cuda_conv *of)
{
    struct np_cuda_conv *conv = np_alloc(sizeof(*conv));

    if (!conv)
        return NULL;
    *conv = *of;
    conv->shared = true;
    for (int i = 0; i < conv->nr_plans; i++)
        conv->plans[i].pack = NULL;
    return conv;
}

void np_cuda_conv_free(struct np_cuda_conv *conv)
{
    if (!conv)
        return;
    for (int i = 0; i < conv->nr_plans; i++) {
        if (conv->shared)
            conv->plans[i].plan = NULL;
        np_dnn_plan_free(conv->target->cudnn, &conv->plans[i]);
    }
    if (!conv->shared)
        np_dnn_free(conv->dnn);
    np_free(conv);
}

enum np_conv_pattern np_cuda_conv_pattern(const struct np_cuda_conv *conv)
{
    return conv->pattern;
}

int np_cuda_conv_plans(const struct np_cuda_conv *conv)
{
    return conv->nr_plans;
}

const struct np_dnn_plan *np_cuda_conv_plan(const struct np_cuda_conv *conv, int plan)
{
    return &conv->plans[plan];
}

void np_cuda_conv_take(struct np_cuda_conv *conv, int plan)
{
    conv->taken = plan;
}

int np_cuda_conv_taken(const struct np_cuda_conv *conv)
{
    return conv->taken;
}

uint64_t np_cuda_conv_workspace(const struct np_cuda_conv *conv)
{
    uint64_t most = 0;

    for (int i = 0; i < conv->nr_plans; i++)
        most = conv->plans[i].workspace_bytes > most ? conv->plans[i].workspace_bytes : most;
    return most;
}

int np_cuda_conv_bind(struct np_cuda_conv *conv, void *const operands[NP_CONV_OPERANDS],
    void *workspace, struct np_err *err)
{
    for (int i = 0; i < conv->nr_plans; i++) {
        int code = np_dnn_bind(conv->dnn, &conv->plans[i], operands, workspace, err);

        if (code < 0)
            return code;
    }
    return 0;
}

int np_cuda_conv_run(struct np_cuda_conv *conv, struct np_err *err)
{
    return np_dnn_run(conv->target, &conv->plans[conv->taken], err);
}
