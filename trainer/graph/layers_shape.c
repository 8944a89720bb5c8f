/* Layers without parameters: pooling, element by element, joining. Windows are torch.nn's.
 * Config time, one thread. */
#include <stddef.h>

#include "trainer/graph/layer_site.h"

struct pool {
    int64_t kernel[2], stride[2], pad[2];
    bool ceil_mode;
};
#undef AT
#define AT(field) offsetof(struct pool, field)
#define POOL_OPTIONS(max)                                                                          \
    {"kernel", NP_OPT_PAIR, AT(kernel), NULL, 1, max, NULL, "Height and width of the window."},    \
        {"stride", NP_OPT_PAIR, AT(stride), "kernel", 1, 1024, "kernel", "Step of the window."},   \
        {"pad", NP_OPT_PAIR, AT(pad), "0", 0, 512, NULL,                                           \
            "On each side, at most half the kernel."},                                             \
    {                                                                                              \
        "ceil_mode", NP_OPT_BOOL, AT(ceil_mode), "false", 0, 0, NULL,                              \
            "Rounds sizes up: the last window may stick out, and what sticks out does not count."  \
    }
/* The place of a maximum is one byte: 16 x 16 at most. */
static const struct np_option maxpool_options[] = {POOL_OPTIONS(16), NP_OPTIONS_END};
static const struct np_option avgpool_options[] = {POOL_OPTIONS(1024), NP_OPTIONS_END};

static int add_pool(const struct np_layer_site *site, const struct pool *pool, enum np_op op)
{
    struct np_shape y = np_site_shape(site, site->ins[0]);
    struct np_window w = {.kernel_h = (int)pool->kernel[0],
        .kernel_w = (int)pool->kernel[1],
        .stride_h = (int)(pool->stride[0] < 0 ? pool->kernel[0] : pool->stride[0]),
        .stride_w = (int)(pool->stride[1] < 0 ? pool->kernel[1] : pool->stride[1]),
        .pad_h = (int)pool->pad[0],
        .pad_w = (int)pool->pad[1],
        .dilation_h = 1,
        .dilation_w = 1,
        .groups = 1};
    int node;

    for (int i = 0; i < 2; i++)
        if (pool->pad[i] * 2 > pool->kernel[i])
            return np_layer_mistake(site, "pad %d is more than half of kernel %d",
                (int)pool->pad[i], (int)pool->kernel[i]);
    if (np_site_window(site, &w, pool->ceil_mode, &y) < 0 ||
        (node = np_site_simple(site, op, y)) < 0)
        return -1;
    site->graph->nodes[node].attrs.window = w;
    return node;
}

static int add_maxpool(const struct np_layer_site *site, const void *object)
{
    int node = add_pool(site, object, NP_OP_MAXPOOL), argmax;

    if (node < 0)
        return -1;
    argmax = np_site_tensor(site, "argmax", NP_ROLE_SAVED, NP_U8, 4,
        site->graph->tensors[np_site_output(site, node)].dims);
    np_graph_out(site->graph, node, argmax);
    return np_site_output(site, node);
}

static int add_avgpool(const struct np_layer_site *site, const void *object)
{
    return np_site_output(site, add_pool(site, object, NP_OP_AVGPOOL));
}

static int add_global_avgpool(const struct np_layer_site *site, const void *object)
{
    return np_site_output(site, np_site_simple(site, NP_OP_GLOBAL_AVGPOOL,
                                    (struct np_shape){1, 1, np_site_shape(site, site->ins[0]).c}));
}

static const struct np_option no_options[] = {NP_OPTIONS_END};

static int add_relu(const struct np_layer_site *site, const void *object)
{
    return np_site_output(
        site, np_site_simple(site, NP_OP_RELU, np_site_shape(site, site->ins[0])));
}

struct dropout {
    double rate;
};
static const struct np_option dropout_options[] = {
    {"rate", NP_OPT_SHARE, offsetof(struct dropout, rate), "0.5", 0, 0.999, NULL,
        "Share of the values set to 0 in training; the others are scaled by 1 / (1 - rate)."},
    NP_OPTIONS_END,
};

static int add_drop(const struct np_layer_site *site, const struct dropout *dropout, enum np_op op)
{
    int node;

    if (dropout->rate == 0)
        return site->ins[0];
    node = np_site_simple(site, op, np_site_shape(site, site->ins[0]));
    if (node >= 0) {
        site->graph->nodes[node].attrs.rate = dropout->rate;
        /* a random stream for each layer */
        site->graph->nodes[node].attrs.seed =
            np_graph_hash(site->input->seed * 0x9e3779b97f4a7c15ull, site->name);
    }
    return np_site_output(site, node);
}

static int add_dropout(const struct np_layer_site *site, const void *object)
{
    return add_drop(site, object, NP_OP_DROPOUT);
}

static const struct np_option stochastic_depth_options[] = {
    {"rate", NP_OPT_SHARE, offsetof(struct dropout, rate), "0.2", 0, 0.999, NULL,
        "Share of the rows set to 0 in training; the others are scaled by 1 / (1 - rate)."},
    NP_OPTIONS_END,
};

static int add_stochastic_depth(const struct np_layer_site *site, const void *object)
{
    return add_drop(site, object, NP_OP_DROP_ROWS);
}

static int add_flatten(const struct np_layer_site *site, const void *object)
{
    struct np_shape x = np_site_shape(site, site->ins[0]);
    double all = (double)x.h * x.w * x.c;

    if (x.h == 1 && x.w == 1)
        return site->ins[0];
    if (all >=
        (double)NP_MAX_ELEMENTS) /* avoids an int overflow; np_site_activation() reports it */
        return np_site_activation(site, x);
    return np_site_output(
        site, np_site_simple(site, NP_OP_FLATTEN, (struct np_shape){1, 1, x.h * x.w * x.c}));
}

/* a + b, then + c ...: the graph's ADD has two operands. */
static int add_add(const struct np_layer_site *site, const void *object)
{
    struct np_layer_site pair = *site;
    struct np_shape x = np_site_shape(site, site->ins[0]);
    int sum = site->ins[0];

    for (int i = 1; i < site->nr_ins; i++) {
        struct np_shape y = np_site_shape(site, site->ins[i]);
        int node;

        if (x.h != y.h || x.w != y.w || x.c != y.c)
            return np_layer_mistake(site, "its inputs differ in shape: %dx%dx%d and %dx%dx%d", x.h,
                x.w, x.c, y.h, y.w, y.c);
        pair.ins[0] = sum;
        if ((node = np_site_simple(&pair, NP_OP_ADD, x)) < 0)
            return -1;
        np_graph_in(site->graph, node, site->ins[i]);
        sum = np_site_output(site, node);
    }
    return sum;
}

/* a * b; the one that has a number for each channel alone comes second. */
static int add_mul(const struct np_layer_site *site, const void *object)
{
    struct np_layer_site pair = *site;
    struct np_shape a = np_site_shape(site, site->ins[0]), b = np_site_shape(site, site->ins[1]);
    int node;

    if (a.h == 1 && a.w == 1 && (b.h > 1 || b.w > 1)) {
        pair.ins[0] = site->ins[1];
        pair.ins[1] = site->ins[0];
        return add_mul(&pair, object);
    }
    if (a.c != b.c || ((a.h != b.h || a.w != b.w) && (b.h != 1 || b.w != 1)))
        return np_layer_mistake(site,
            "its inputs, %dx%dx%d and %dx%dx%d, are not of one shape, and none is 1x1 with the "
            "other's channels",
            a.h, a.w, a.c, b.h, b.w, b.c);
    if ((node = np_site_simple(&pair, NP_OP_MUL, a)) >= 0)
        np_graph_in(site->graph, node, pair.ins[1]);
    return np_site_output(site, node);
}

static int add_concat(const struct np_layer_site *site, const void *object)
{
    struct np_shape whole = np_site_shape(site, site->ins[0]);
    int node;

    for (int i = 1; i < site->nr_ins; i++) {
        struct np_shape x = np_site_shape(site, site->ins[i]);

        if (x.h != whole.h || x.w != whole.w)
            return np_layer_mistake(site,
                "its inputs differ in height or width: %dx%dx%d and %dx%dx%d", whole.h, whole.w,
                whole.c, x.h, x.w, x.c);
        if (whole.c > (int)(NP_MAX_ELEMENTS / 2) - x.c)
            return np_layer_mistake(site, "its output has too many channels");
        whole.c += x.c;
    }
    node = np_site_simple(site, NP_OP_CONCAT, whole);
    for (int i = 1; node >= 0 && i < site->nr_ins; i++)
        np_graph_in(site->graph, node, site->ins[i]);
    return np_site_output(site, node);
}

const struct np_layer np_layer_maxpool = {
    "maxpool", maxpool_options, sizeof(struct pool), 1, add_maxpool, "Largest value of a window."};
const struct np_layer np_layer_avgpool = {"avgpool", avgpool_options, sizeof(struct pool), 1,
    add_avgpool, "Mean of a window; padding counts as zeros, as in torch."};
const struct np_layer np_layer_global_avgpool = {
    "global_avgpool", no_options, 1, 1, add_global_avgpool, "Mean of each channel."};
const struct np_layer np_layer_relu = {"relu", no_options, 1, 1, add_relu, "max(x, 0)."};
const struct np_layer np_layer_dropout = {"dropout", dropout_options, sizeof(struct dropout), 1,
    add_dropout, "Sets values to 0 at random, in training only (Srivastava et al., JMLR 15)."};
const struct np_layer np_layer_flatten = {"flatten", no_options, 1, 1, add_flatten,
    "Height, width and channels as one list, in torch's order (channels outermost)."};
const struct np_layer np_layer_add = {"add", no_options, 1, NP_MAX_OPERANDS - 1, add_add,
    "Sum of its inputs; `add: [a, b]` is short for `add: {from: [a, b]}`."};
const struct np_layer np_layer_concat = {"concat", no_options, 1, NP_MAX_OPERANDS - 1, add_concat,
    "Its inputs side by side on channels; `concat: [a, b]` is short for `concat: {from: [a, b]}`."};
const struct np_layer np_layer_mul = {"mul", no_options, 1, 2, add_mul,
    "Product of two inputs, such as `mul: [x, gate]`; one may be 1x1: a factor for each channel "
    "(squeeze-and-excite, arXiv:1709.01507)."};
const struct np_layer np_layer_stochastic_depth = {"stochastic_depth", stochastic_depth_options,
    sizeof(struct dropout), 1, add_stochastic_depth,
    "Sets whole rows of the batch to 0 at random, in training only: before the add of a residual "
    "block (arXiv:1603.09382)."};
