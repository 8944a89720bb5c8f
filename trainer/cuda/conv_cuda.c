#include "trainer/cuda/conv_cuda.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"

#define MAX_WORKSPACE (1ull << 30)

const char *const np_conv_patterns[] = {
    "conv", "conv + bias", "conv + relu", "conv + bias + relu", "conv + stats"};

static cudnnDataType_t type_of(enum np_dtype dtype)
{
    return dtype == NP_BF16  ? CUDNN_DATA_BFLOAT16
           : dtype == NP_F16 ? CUDNN_DATA_HALF
                             : CUDNN_DATA_FLOAT;
}

/* Adds an activation (n, h, w, c) of the graph, in cuDNN's order of dimensions. */
static int activation(struct np_dnn *dnn, const struct np_graph *graph, int t,
    enum np_dnn_kind kind, cudnnDataType_t type)
{
    const int *d = graph->tensors[t].dims;

    return np_dnn_tensor(dnn, kind, type, (const int64_t[]){d[0], d[3], d[1], d[2]});
}

/* Adds a weight (out, in, kh, kw): its half-precision copy, or f32. */
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
    cudnnDataType_t type = type_of(graph->tensors[node->ins[0]].dtype);
    struct np_dnn *dnn = np_dnn_new(target);
    int a, b, c;

    if (node->op == NP_OP_CONV) {
        build_forward(dnn, graph, node, type, pattern);
        return dnn;
    }
    a = activation(dnn, graph, node->ins[0], NP_DNN_REAL, type);
    if (node->op == NP_OP_CONV_DGRAD) {
        b = weight(dnn, graph, node->ins[1], type);
        c = activation(dnn, graph, node->outs[0], NP_DNN_REAL, type);
        np_dnn_dgrad(dnn, &node->attrs.window, a, b, c);
    } else {
        b = activation(dnn, graph, node->ins[1], NP_DNN_REAL, type);
        c = weight(dnn, graph, node->outs[0], type); /* cuDNN sums halves only into halves */
        np_dnn_wgrad(dnn, &node->attrs.window, a, b, c);
    }
    return dnn;
}

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

/* --- a shape's plans -------------------------------------------------------------------------- */

static bool build_known(const struct np_dnn_target *target, struct np_conv_shape *shape,
    const struct np_dnn_offer *offers, int n, const char *id)
{
    for (int i = 0; i < n; i++)
        if (strcmp(offers[i].id, id) == 0)
            return np_dnn_build(target, &offers[i], &shape->plans[0], NULL) == 0;
    return false;
}

/* Builds up to `max` plans in cuDNN's order. Leaves out plans that need too much workspace; if
 * there are no others, takes the smallest. */
static void build_all(const struct np_cuda_convs *convs, struct np_conv_shape *shape,
    const struct np_dnn_offer *offers, int n, int max)
{
    const struct np_cudnn *cudnn = convs->target->cudnn;
    struct np_dnn_plan spare = {0}, plan;
    int nr_large = 0;

    for (int i = 0; i < n && (shape->nr_plans == 0 || shape->nr_plans + nr_large < max); i++) {
        if (np_dnn_build(convs->target, &offers[i], &plan, NULL) < 0)
            continue;
        if (plan.workspace_bytes <= convs->workspace_max) {
            shape->plans[shape->nr_plans++] = plan;
            continue;
        }
        nr_large++;
        if (spare.plan && spare.workspace_bytes <= plan.workspace_bytes) {
            np_dnn_plan_free(cudnn, &plan);
        } else {
            np_dnn_plan_free(cudnn, &spare);
            spare = plan;
        }
    }
    if (shape->nr_plans == 0 && spare.plan)
        shape->plans[shape->nr_plans++] = spare;
    else
        np_dnn_plan_free(cudnn, &spare);
}

static void lose(struct np_cuda_convs *convs, const struct np_op_node *node, const char *id)
{
    if (convs->nr_lost++ > 0)
        return;
    snprintf(convs->lost_node, sizeof(convs->lost_node), "%s", node->name);
    snprintf(convs->lost_id, sizeof(convs->lost_id), "%s", id);
}

static struct np_engine *find_known(const struct np_conv_request *request, const char *key)
{
    return request->known ? np_engines_find(request->known, key) : NULL;
}

static int build_plans(struct np_cuda_convs *convs, struct np_conv_shape *shape,
    const struct np_conv_request *request, struct np_err *err)
{
    struct np_engine *engine = find_known(request, shape->key);
    struct np_dnn_offer offers[NP_DNN_OFFERS];
    int n = np_dnn_offers(shape->dnn, request->rules, offers, err);

    if (n > 0 && engine && build_known(convs->target, shape, offers, n, engine->id)) {
        shape->nr_plans = 1;
        shape->settled = true;
        engine->used = true;
    } else if (n > 0) {
        if (engine && strcmp(engine->id, NP_ENGINE_APART) != 0)
            lose(convs, request->node, engine->id);
        build_all(
            convs, shape, offers, n, request->max < NP_CONV_PLANS ? request->max : NP_CONV_PLANS);
    }
    np_dnn_offers_free(convs->target->cudnn, offers, n);
    if (n > 0 && shape->nr_plans == 0)
        n = np_err_set(err, -ENOTSUP, "cuDNN builds none of the %d plans that it offers", n);
    return n < 0 ? n : 0;
}

/* Stores a shape without a plan too, so that cuDNN is asked only once. */
static int add_shape(struct np_cuda_convs *convs, const struct np_conv_request *request,
    enum np_conv_pattern pattern, const char *key, struct np_err *err)
{
    struct np_conv_shape *shape = np_alloc(sizeof(*shape));
    int code;

    snprintf(shape->key, sizeof(shape->key), "%s", key);
    shape->pattern = pattern;
    shape->next = convs->shapes;
    convs->shapes = shape;
    shape->dnn = build(convs->target, request->graph, request->node, pattern);
    code = np_dnn_finish(shape->dnn, err);
    return code == 0 ? build_plans(convs, shape, request, err) : code;
}

static int find_shape(struct np_cuda_convs *convs, const struct np_conv_request *request,
    enum np_conv_pattern pattern, struct np_conv_shape **ret_shape, struct np_err *err)
{
    char key[NP_ENGINE_KEY];
    struct np_conv_shape *shape;

    np_engine_key(request->graph, request->node, np_conv_patterns[pattern], request->rules, key);
    for (shape = convs->shapes; shape && strcmp(shape->key, key) != 0; shape = shape->next)
        ;
    if (!shape) {
        int code = add_shape(convs, request, pattern, key, err);

        if (code < 0)
            return code;
        shape = convs->shapes;
    }
    if (shape->nr_plans == 0)
        return np_err_set(err, -ENOTSUP, "cuDNN has no plan for it");
    *ret_shape = shape;
    return 0;
}

struct np_cuda_convs *np_cuda_convs_new(const struct np_dnn_target *target, uint64_t device_bytes)
{
    struct np_cuda_convs *convs = np_alloc(sizeof(*convs));
    uint64_t part = device_bytes / 20;

    convs->target = target;
    convs->workspace_max = part > 0 && part < MAX_WORKSPACE ? part : MAX_WORKSPACE;
    return convs;
}

void np_cuda_convs_free(struct np_cuda_convs *convs)
{
    while (convs && convs->shapes) {
        struct np_conv_shape *shape = convs->shapes;

        convs->shapes = shape->next;
        for (int i = 0; i < shape->nr_plans; i++)
            np_dnn_plan_free(convs->target->cudnn, &shape->plans[i]);
        np_dnn_free(shape->dnn);
        np_free(shape);
    }
    np_free(convs);
}

/* --- a node ----------------------------------------------------------------------------------- */

static int prepare(struct np_cuda_convs *convs, const struct np_conv_request *request,
    enum np_conv_pattern pattern, bool or_plain, struct np_cuda_conv **ret_conv, struct np_err *err)
{
    const int *d = request->graph->tensors[request->node->ins[0]].dims;
    struct np_cuda_conv *conv = np_alloc(sizeof(*conv));
    bool again = or_plain && pattern != NP_CONV_PLAIN;
    int code;

    conv->target = convs->target;
    code = find_shape(convs, request, pattern, &conv->shape, again ? NULL : err);
    if (code < 0 && again)
        code = find_shape(convs, request, NP_CONV_PLAIN, &conv->shape, err);
    if (code < 0) {
        np_err_context(err, "%s: %s of (%d, %d, %d, %d)", request->node->name,
            np_op_names[request->node->op], d[0], d[1], d[2], d[3]);
        np_free(conv);
        return code;
    }
    *ret_conv = conv;
    return 0;
}

int np_cuda_conv_new(struct np_cuda_convs *convs, const struct np_conv_request *request,
    struct np_cuda_conv **ret_conv, struct np_err *err)
{
    return prepare(convs, request, wanted(request->node), true, ret_conv, err);
}

int np_cuda_conv_stats_new(struct np_cuda_convs *convs, const struct np_conv_request *request,
    struct np_cuda_conv **ret_conv, struct np_err *err)
{
    const struct np_op_node *node = request->node;
    struct np_engine *engine;
    char key[NP_ENGINE_KEY];

    assert(node->op == NP_OP_CONV && node->nr_ins == 2 && !node->attrs.relu);
    if (request->rules->deterministic)
        return np_err_set(
            err, -ENOTSUP, "%s: cuDNN's sums of channels come in any order", node->name);
    np_engine_key(request->graph, node, np_conv_patterns[NP_CONV_STATS], request->rules, key);
    engine = find_known(request, key);
    if (engine && strcmp(engine->id, NP_ENGINE_APART) == 0) {
        engine->used = true;
        return np_err_set(err, -ENOTSUP, "%s: two kernels are faster", node->name);
    }
    return prepare(convs, request, NP_CONV_STATS, false, ret_conv, err);
}

void np_cuda_conv_free(struct np_cuda_conv *conv)
{
    if (!conv)
        return;
    np_dnn_drop(conv->target->cudnn, &conv->pack, 1);
    np_free(conv);
}

const char *np_cuda_conv_taken(const struct np_cuda_conv *conv)
{
    return conv->shape->plans[conv->shape->taken].id;
}

void np_cuda_conv_keep(struct np_cuda_conv *conv)
{
    struct np_conv_shape *shape = conv->shape;
    struct np_dnn_plan kept = shape->plans[shape->taken];

    for (int i = 0; i < shape->nr_plans; i++)
        if (i != shape->taken)
            np_dnn_plan_free(conv->target->cudnn, &shape->plans[i]);
    shape->plans[0] = kept;
    shape->nr_plans = 1;
    shape->taken = 0;
    shape->settled = true;
}

uint64_t np_cuda_conv_workspace(const struct np_cuda_conv *conv)
{
    uint64_t max = 0;

    for (int i = 0; i < conv->shape->nr_plans; i++)
        if (conv->shape->plans[i].workspace_bytes > max)
            max = conv->shape->plans[i].workspace_bytes;
    return max;
}

int np_cuda_conv_bind(struct np_cuda_conv *conv, void *const operands[NP_CONV_OPERANDS],
    void *workspace, struct np_err *err)
{
    return np_dnn_bind(conv->shape->dnn, operands, workspace, &conv->pack, err);
}

int np_cuda_conv_run(struct np_cuda_conv *conv, struct np_err *err)
{
    return np_dnn_run(conv->target, &conv->shape->plans[conv->shape->taken], conv->pack, err);
}
