/* The graph's data structure: tensors, nodes, copies, sizes, initial weights. One thread builds
 * and changes it at start; afterwards any thread reads it. */
#include "trainer/graph/graph.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"

const char *const np_op_names[NP_NR_OPS] = {"input", "conv", "conv_dgrad", "conv_wgrad", "bn_stats",
    "bn_apply", "bn_eval", "bn_reduce", "bn_dgrad", "relu", "relu_dgrad", "act", "act_dgrad",
    "maxpool", "maxpool_dgrad", "avgpool", "avgpool_dgrad", "global_avgpool",
    "global_avgpool_dgrad", "linear", "linear_dgrad", "linear_wgrad", "dropout", "dropout_dgrad",
    "flatten", "flatten_dgrad", "add", "resample", "resample_dgrad", "mul", "mul_sum", "drop_rows",
    "drop_rows_dgrad", "concat", "concat_dgrad", "cross_entropy", "cross_entropy_dgrad", "bce",
    "bce_dgrad", "regression", "regression_dgrad", "norm", "norm_wgrad", "norm_dgrad", "scale",
    "scale_wgrad", "bias", "bias_wgrad", "position", "class_token", "rows_sum", "tokens",
    "tokens_dgrad", "attention", "attention_dgrad", "views"};

const char *const np_act_names[NP_NR_ACTS] = {
    "relu6", "leaky_relu", "sigmoid", "hardsigmoid", "tanh", "silu", "hardswish", "gelu", "gelu"};

char *np_axes_text(char text[24], int h, int w)
{
    if (h == w)
        snprintf(text, 24, "%d", h);
    else
        snprintf(text, 24, "%dx%d", h, w);
    return text;
}

uint64_t np_dtype_bytes(enum np_dtype dtype)
{
    static const uint8_t bytes[] = {
        [NP_F32] = 4, [NP_BF16] = 2, [NP_F16] = 2, [NP_U8] = 1, [NP_I32] = 4};

    return bytes[dtype];
}

void np_dims_text(char text[NP_DIMS_TEXT], const struct np_tensor *tensor)
{
    size_t at = 0;

    for (int d = 0; d < tensor->nr_dims; d++)
        at +=
            (size_t)snprintf(text + at, NP_DIMS_TEXT - at, "%s%d", d ? " x " : "", tensor->dims[d]);
}

uint64_t np_tensor_elements(const struct np_tensor *tensor)
{
    uint64_t n = 1;

    for (int d = 0; d < tensor->nr_dims; d++)
        n *= (uint64_t)tensor->dims[d];
    return n;
}

int np_graph_tensor(struct np_graph *graph, const char *name, enum np_role role,
    enum np_dtype dtype, int nr_dims, const int *dims)
{
    struct np_tensor *tensor;
    int copy[4] = {0}; /* name and dims may point into the array that grows */
    char *own_name = np_strdup(name);

    assert(nr_dims <= 4);
    memcpy(copy, dims, (size_t)nr_dims * sizeof(*dims));
    np_grow(&graph->tensors, &graph->tensors_room, (size_t)graph->nr_tensors + 1, sizeof(*tensor));
    tensor = &graph->tensors[graph->nr_tensors];
    *tensor = (struct np_tensor){.name = own_name,
        .role = role,
        .dtype = dtype,
        .nr_dims = nr_dims,
        .grad = -1,
        .rule = {.lr = 1}};
    memcpy(tensor->dims, copy, sizeof(copy));
    if (role == NP_ROLE_PARAM) {
        tensor->offset = graph->nr_params;
        graph->nr_params += np_tensor_elements(tensor);
    } else if (role == NP_ROLE_BUFFER) {
        tensor->offset = graph->nr_buffers;
        graph->nr_buffers += np_tensor_elements(tensor);
    }
    return graph->nr_tensors++;
}

int np_graph_node(struct np_graph *graph, enum np_op op, const char *name, int line)
{
    char *own_name = np_strdup(name);

    np_grow(&graph->nodes, &graph->nodes_room, (size_t)graph->nr_nodes + 1, sizeof(*graph->nodes));
    graph->nodes[graph->nr_nodes] =
        (struct np_op_node){.op = op, .name = own_name, .line = line, .forward = -1, .again = -1};
    return graph->nr_nodes++;
}

void np_graph_in(struct np_graph *graph, int node, int tensor)
{
    struct np_op_node *at = &graph->nodes[node];

    assert(at->nr_ins < NP_MAX_OPERANDS);
    at->ins[at->nr_ins++] = tensor;
}

void np_graph_out(struct np_graph *graph, int node, int tensor)
{
    struct np_op_node *at = &graph->nodes[node];

    assert(at->nr_outs < NP_MAX_OPERANDS);
    at->outs[at->nr_outs++] = tensor;
}

struct np_graph *np_graph_copy(const struct np_graph *graph)
{
    struct np_graph *copy = np_alloc(sizeof(*copy));

    *copy = *graph;
    copy->tensors_room = (size_t)graph->nr_tensors;
    copy->nodes_room = (size_t)graph->nr_nodes;
    copy->tensors = np_alloc_array(copy->tensors_room, sizeof(*graph->tensors));
    copy->nodes = np_alloc_array(copy->nodes_room, sizeof(*graph->nodes));
    memcpy(copy->tensors, graph->tensors, copy->tensors_room * sizeof(*graph->tensors));
    memcpy(copy->nodes, graph->nodes, copy->nodes_room * sizeof(*graph->nodes));
    for (int t = 0; t < copy->nr_tensors; t++)
        copy->tensors[t].name = np_strdup(graph->tensors[t].name);
    for (int n = 0; n < copy->nr_nodes; n++)
        copy->nodes[n].name = np_strdup(graph->nodes[n].name);
    if (graph->class_weights) {
        copy->class_weights = np_alloc_array((size_t)graph->classes, sizeof(float));
        memcpy(copy->class_weights, graph->class_weights, (size_t)graph->classes * sizeof(float));
    }
    return copy;
}

void np_graph_free(struct np_graph *graph)
{
    if (!graph)
        return;
    for (int t = 0; t < graph->nr_tensors; t++)
        np_free(graph->tensors[t].name);
    for (int n = 0; n < graph->nr_nodes; n++)
        np_free(graph->nodes[n].name);
    np_free(graph->tensors);
    np_free(graph->nodes);
    np_free(graph->class_weights);
    np_free(graph);
}

bool np_op_is_wgrad(enum np_op op)
{
    return op == NP_OP_CONV_WGRAD || op == NP_OP_LINEAR_WGRAD;
}

bool np_op_is_loss(enum np_op op)
{
    return op == NP_OP_CROSS_ENTROPY || op == NP_OP_BCE || op == NP_OP_REGRESSION;
}

bool np_graph_has_sigmoids(const struct np_graph *graph)
{
    for (int n = 0; n < graph->nr_forward; n++)
        if (graph->nodes[n].op == NP_OP_BCE)
            return true;
    return false;
}

uint64_t np_node_flops(const struct np_graph *graph, const struct np_op_node *node)
{
    const struct np_tensor *y, *weight;

    if (node->op == NP_OP_ATTENTION) { /* each token's weights, and their sum of values */
        y = &graph->tensors[node->outs[0]];
        uint64_t tokens = (uint64_t)y->dims[1] * (uint64_t)y->dims[2];

        return 4 * tokens * tokens * (uint64_t)y->dims[3];
    }
    if (node->op != NP_OP_CONV && node->op != NP_OP_LINEAR && node->op != NP_OP_CONV_DGRAD)
        return 0;
    y = &graph->tensors[node->op == NP_OP_CONV_DGRAD ? node->ins[0] : node->outs[0]];
    weight = &graph->tensors[node->ins[1]];
    /* Each output element is a dot product with one filter; of a transposed convolution, each input
     * element goes to the output times one. */
    return 2 * (np_tensor_elements(y) / (uint64_t)y->dims[0]) *
           (np_tensor_elements(weight) / (uint64_t)weight->dims[0]);
}

/* --- initial weights ----------------------------------------------------------------------- */

uint64_t np_graph_hash(uint64_t seed, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325ull ^ seed;

    while (*name)
        hash = (hash ^ (uint8_t)*name++) * 0x100000001b3ull;
    return hash;
}

/* Kaiming: arXiv:1502.01852, with fan_out for normal, and as torch.nn.init.kaiming_uniform_()
 * does it, fan_in and relu's gain, for uniform. 1/sqrt(fan_in) is the default of torch's layers.
 * Xavier: Glorot and Bengio 2010. */
/* As torch.nn.init.dirac_() on the first filters: filter i is 1 at channel i's middle. */
static void pass_on(const struct np_tensor *tensor, float *values)
{
    const int out = tensor->dims[0], in = tensor->dims[1];
    const int h = tensor->nr_dims == 4 ? tensor->dims[2] : 1;
    const int w = tensor->nr_dims == 4 ? tensor->dims[3] : 1;

    for (int i = 0; i < out && i < in; i++) {
        float *filter = values + (size_t)i * (size_t)in * (size_t)h * (size_t)w;

        memset(filter, 0, (size_t)in * (size_t)h * (size_t)w * sizeof(*filter));
        filter[((size_t)i * (size_t)h + (size_t)(h / 2)) * (size_t)w + (size_t)(w / 2)] = 1;
    }
}

static void init_tensor(const struct np_tensor *tensor, uint64_t seed, float *values)
{
    uint64_t n = np_tensor_elements(tensor);
    struct np_draws draws;
    double scale;

    np_draws_init(&draws, seed ^ np_graph_hash(0, tensor->name), NP_STREAM_INIT, 0, 0, 0);
    switch (tensor->init) {
    case NP_INIT_KAIMING_NORMAL: scale = sqrt(2.0 / tensor->fan_out); break;
    case NP_INIT_KAIMING_UNIFORM: scale = sqrt(6.0 / tensor->fan_in); break;
    case NP_INIT_NORMAL: scale = 0.01; break;
    case NP_INIT_NORMAL_002: scale = 0.02; break;
    case NP_INIT_XAVIER_UNIFORM:
        scale = sqrt(6.0 / ((double)tensor->fan_in + tensor->fan_out));
        break;
    default: scale = 1 / sqrt(tensor->fan_in > 0 ? tensor->fan_in : 1); break;
    }
    for (uint64_t i = 0; i < n; i++) {
        switch (tensor->init) {
        case NP_INIT_ZERO: values[i] = 0; break;
        case NP_INIT_ONE: values[i] = 1; break;
        case NP_INIT_VALUE: values[i] = tensor->init_value; break;
        case NP_INIT_NORMAL_002:
        case NP_INIT_KAIMING_NORMAL:
        case NP_INIT_NORMAL: values[i] = (float)(scale * np_draw_normal(&draws)); break;
        default: values[i] = (float)(scale * (2 * np_draw_uniform(&draws) - 1)); break;
        }
    }
    if (tensor->init == NP_INIT_DIRAC)
        pass_on(tensor, values);
}

void np_graph_init(const struct np_graph *graph, uint64_t seed, float *params, float *buffers)
{
    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];

        if (tensor->role == NP_ROLE_PARAM)
            init_tensor(tensor, seed, params + tensor->offset);
        else if (tensor->role == NP_ROLE_BUFFER)
            init_tensor(tensor, seed, buffers + tensor->offset);
    }
}

/* The next parameter or buffer from t on; nr_tensors: there is none. */
static int next_kept(const struct np_graph *graph, int t)
{
    while (t < graph->nr_tensors && graph->tensors[t].role != NP_ROLE_PARAM &&
           graph->tensors[t].role != NP_ROLE_BUFFER)
        t++;
    return t;
}

int np_graph_differs(const struct np_graph *a, const struct np_graph *b, int *ret_other)
{
    int i = next_kept(a, 0), k = next_kept(b, 0);

    for (; i < a->nr_tensors && k < b->nr_tensors;
         i = next_kept(a, i + 1), k = next_kept(b, k + 1)) {
        const struct np_tensor *one = &a->tensors[i], *other = &b->tensors[k];

        *ret_other = k;
        if (one->role != other->role || one->offset != other->offset ||
            one->nr_dims != other->nr_dims || strcmp(one->name, other->name) != 0 ||
            memcmp(one->dims, other->dims, (size_t)one->nr_dims * sizeof(*one->dims)) != 0)
            return i;
    }
    assert(i == a->nr_tensors && k == b->nr_tensors); /* layers do not depend on the size */
    return -1;
}

/* --- evaluation ---------------------------------------------------------------------------- */

static void drop_node(struct np_graph *graph, int n)
{
    np_free(graph->nodes[n].name);
    memmove(graph->nodes + n, graph->nodes + n + 1,
        (size_t)(graph->nr_nodes - n - 1) * sizeof(*graph->nodes));
    graph->nr_nodes--;
}

void np_graph_redirect(struct np_graph *graph, int from, int to)
{
    for (int n = 0; n < graph->nr_nodes; n++)
        for (int i = 0; i < graph->nodes[n].nr_ins; i++)
            if (graph->nodes[n].ins[i] == from)
                graph->nodes[n].ins[i] = to;
    if (graph->logits == from)
        graph->logits = to;
}

int np_graph_use_running(struct np_graph *graph, int apply)
{
    struct np_op_node *node = &graph->nodes[apply];

    for (int n = 0; n < apply; n++)
        if (graph->nodes[n].op == NP_OP_BN_STATS && graph->nodes[n].outs[0] == node->ins[1]) {
            node->op = NP_OP_BN_EVAL;
            node->ins[1] = graph->nodes[n].ins[1];
            node->ins[2] = graph->nodes[n].ins[2];
            graph->nr_forward -= n < graph->nr_forward;
            drop_node(graph, n);
            return 1;
        }
    assert(!"a batchnorm without its statistics");
    return 0;
}

struct np_graph *np_graph_eval(const struct np_graph *graph)
{
    struct np_graph *eval = np_graph_copy(graph);

    while (eval->nr_nodes > eval->nr_forward)
        drop_node(eval, eval->nr_nodes - 1);
    for (int n = 0; n < eval->nr_nodes; n++)
        if (eval->nodes[n].op == NP_OP_BN_APPLY)
            n -= np_graph_use_running(eval, n);
    for (int n = eval->nr_nodes - 1; n >= 0; n--) {
        struct np_op_node *node = &eval->nodes[n];

        const bool drops = node->op == NP_OP_DROPOUT || node->op == NP_OP_DROP_ROWS;

        if (drops)
            np_graph_redirect(eval, node->outs[0], node->ins[0]);
        else if (node->op == NP_OP_MAXPOOL)
            node->nr_outs = 1; /* no backward pass: no argmax */
        if (drops)
            drop_node(eval, n);
    }
    for (int n = 0; n < eval->nr_nodes; n++)
        eval->nodes[n].attrs.mix = (struct np_mix){0};
    eval->nr_forward = eval->nr_nodes;
    np_free(eval->class_weights); /* their mean would depend on the size of the batches */
    eval->class_weights = NULL;
    return eval;
}
