/* Activation functions, each a row of the layer table; relu is in layers_shape.c. Config time, one
 * thread. */
#include <stddef.h>

#include "trainer/graph/layer_site.h"

static const struct np_option no_options[] = {NP_OPTIONS_END};

static int add_act(const struct np_layer_site *site, enum np_act act, double slope)
{
    int node = np_site_simple(site, NP_OP_ACT, np_site_shape(site, site->ins[0]));

    if (node >= 0) {
        site->graph->nodes[node].attrs.act = act;
        site->graph->nodes[node].attrs.slope = slope;
    }
    return np_site_output(site, node);
}

static int add_relu6(const struct np_layer_site *site, const void *object)
{
    return add_act(site, NP_ACT_RELU6, 0);
}

static int add_sigmoid(const struct np_layer_site *site, const void *object)
{
    return add_act(site, NP_ACT_SIGMOID, 0);
}

static int add_hardsigmoid(const struct np_layer_site *site, const void *object)
{
    return add_act(site, NP_ACT_HARDSIGMOID, 0);
}

static int add_tanh(const struct np_layer_site *site, const void *object)
{
    return add_act(site, NP_ACT_TANH, 0);
}

static int add_silu(const struct np_layer_site *site, const void *object)
{
    return add_act(site, NP_ACT_SILU, 0);
}

static int add_hardswish(const struct np_layer_site *site, const void *object)
{
    return add_act(site, NP_ACT_HARDSWISH, 0);
}

struct leaky_relu {
    double slope;
};
static const struct np_option leaky_relu_options[] = {
    {"slope", NP_OPT_FLOAT, offsetof(struct leaky_relu, slope), "0.01", -1000, 1000, NULL,
        "Factor of negative numbers (torch's negative_slope)."},
    NP_OPTIONS_END,
};

static int add_leaky_relu(const struct np_layer_site *site, const void *object)
{
    const struct leaky_relu *leaky = object;

    return add_act(site, NP_ACT_LEAKY_RELU, leaky->slope);
}

struct gelu {
    int approximate;
};
static const struct np_option gelu_options[] = {
    {"approximate", NP_OPT_WORD, offsetof(struct gelu, approximate), "none", 0, 0, "none|tanh",
        "`tanh`: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) instead of the exact one."},
    NP_OPTIONS_END,
};

static int add_gelu(const struct np_layer_site *site, const void *object)
{
    const struct gelu *gelu = object;

    return add_act(site, gelu->approximate ? NP_ACT_GELU_TANH : NP_ACT_GELU, 0);
}

const struct np_layer np_layer_relu6 = {
    "relu6", no_options, 1, 1, add_relu6, "min(max(x, 0), 6) (arXiv:1801.04381)."};
const struct np_layer np_layer_leaky_relu = {"leaky_relu", leaky_relu_options,
    sizeof(struct leaky_relu), 1, add_leaky_relu, "x for positive x, else slope * x."};
const struct np_layer np_layer_sigmoid = {
    "sigmoid", no_options, 1, 1, add_sigmoid, "1 / (1 + e^-x)."};
const struct np_layer np_layer_hardsigmoid = {
    "hardsigmoid", no_options, 1, 1, add_hardsigmoid, "min(max(x + 3, 0), 6) / 6."};
const struct np_layer np_layer_tanh = {
    "tanh", no_options, 1, 1, add_tanh, "The hyperbolic tangent."};
const struct np_layer np_layer_silu = {
    "silu", no_options, 1, 1, add_silu, "x / (1 + e^-x), also named swish (arXiv:1710.05941)."};
const struct np_layer np_layer_hardswish = {"hardswish", no_options, 1, 1, add_hardswish,
    "x * min(max(x + 3, 0), 6) / 6 (arXiv:1905.02244)."};
const struct np_layer np_layer_gelu = {"gelu", gelu_options, sizeof(struct gelu), 1, add_gelu,
    "x times the share of a normal distribution below x (arXiv:1606.08415)."};
