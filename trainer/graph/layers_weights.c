/* Layers with parameters: conv, linear, batchnorm. Defaults and initial values are torch.nn's.
 * Config time, one thread. */
#include <stddef.h>
#include <string.h>

#include "trainer/graph/layer_site.h"

/* --- parameters ---------------------------------------------------------------------------- */

/* Appends the weight, outputs first in dims, and the bias. Returns the node's output, or -1. */
static int add_weights(const struct np_layer_site *site, int node, struct np_site_param weight,
    int nr_dims, const int *dims, bool has_bias)
{
    struct np_site_param bias = weight;

    weight.suffix = "weight";
    weight.decay = true;
    bias.suffix = "bias";
    bias.init = weight.init == NP_INIT_NORMAL_002 ? NP_INIT_ZERO : NP_INIT_FAN_IN_UNIFORM;
    if (!np_site_param(site, node, &weight, nr_dims, dims) ||
        (has_bias && !np_site_param(site, node, &bias, 1, dims)))
        return -1;
    return np_site_output(site, node);
}

/* --- conv ---------------------------------------------------------------------------------- */

/* The words of `init:` and their meaning; a bias keeps torch's default, but for trunc_normal's. */
#define INITS                                                                                      \
    "default|kaiming_normal|kaiming_uniform|xavier_uniform|normal|zero|one|trunc_normal|dirac"
static const enum np_init inits[] = {NP_INIT_FAN_IN_UNIFORM, NP_INIT_KAIMING_NORMAL,
    NP_INIT_KAIMING_UNIFORM, NP_INIT_XAVIER_UNIFORM, NP_INIT_NORMAL, NP_INIT_ZERO, NP_INIT_ONE,
    NP_INIT_NORMAL_002, NP_INIT_DIRAC, NP_INIT_WHITENING};
#define INIT_HELP                                                                                  \
    "Initial weights: `default` is torch's of a new layer (uniform, 1/sqrt(fan_in)), "             \
    "kaiming_uniform is torch.nn.init's (uniform, sqrt(6/fan_in)), kaiming_normal is by fan_out, " \
    "normal has a deviation of 0.01; trunc_normal, of transformers and ConvNeXt, has 0.02, and "   \
    "biases of 0; dirac: output i begins as input i, where there is one, the rest as `default`."
#define WHITENING                                                                                  \
    " whitening, for the first conv: the principal axes of the kernel's windows in 5,000 "         \
    "training "                                                                                    \
    "pictures, each scaled to a variance of 1, then the same with the other sign."

struct conv {
    int64_t out, kernel[2], stride[2], pad[2], dilation[2], groups;
    bool bias;
    int init;
};
#define AT(field) offsetof(struct conv, field)
static const struct np_option conv_options[] = {
    {"out", NP_OPT_INT, AT(out), NULL, 1, 1048576, "classes",
        "Number of output channels; `classes`: one for each class of the training set."},
    {"kernel", NP_OPT_PAIR, AT(kernel), NULL, 1, 1024, NULL, "Height and width of the window."},
    {"stride", NP_OPT_PAIR, AT(stride), "1", 1, 1024, NULL, "Step of the window."},
    {"pad", NP_OPT_PAIR, AT(pad), "0", 0, 1024, "same",
        "Zeros on each side; `same` keeps the size at stride 1."},
    {"dilation", NP_OPT_PAIR, AT(dilation), "1", 1, 1024, NULL, "Distance of the window's taps."},
    {"groups", NP_OPT_INT, AT(groups), "1", 1, 1048576, NULL,
        "Number of groups that channels are divided into, each with its own weights."},
    {"bias", NP_OPT_BOOL, AT(bias), "true", 0, 0, NULL, "Adds a bias to each channel."},
    {"init", NP_OPT_WORD, AT(init), "default", 0, 0, INITS "|whitening", INIT_HELP WHITENING},
    NP_OPTIONS_END,
};

static int check_init(
    const struct np_layer_site *site, const struct conv *conv, int out, const struct np_window *w)
{
    const int c = np_site_shape(site, site->ins[0]).c, size = c * w->kernel_h * w->kernel_w;
    const enum np_init init = inits[conv->init];

    if (init == NP_INIT_DIRAC && w->groups > 1)
        return np_layer_mistake(site, "init: dirac needs groups: 1");
    if (init != NP_INIT_WHITENING)
        return 0;
    if (site->ins[0] != site->graph->input || w->groups > 1)
        return np_layer_mistake(
            site, "init: whitening is for the first layer, which reads the pictures, in one group");
    if (w->dilation_h > 1 || w->dilation_w > 1 || size > NP_MAX_WHITENED)
        return np_layer_mistake(site,
            "init: whitening needs dilation: 1 and a kernel of at most %d values, not %d",
            NP_MAX_WHITENED, size);
    if (out % 2 != 0 || out > 2 * size)
        return np_layer_mistake(site,
            "init: whitening makes an even number of outputs, up to twice the kernel's %d values, "
            "not %d",
            size, out);
    for (int t = 0; t < site->graph->nr_tensors; t++)
        if (site->graph->tensors[t].init == NP_INIT_WHITENING)
            return np_layer_mistake(site, "init: whitening is for one layer, and '%.*s' has it",
                (int)strcspn(site->graph->tensors[t].name, "."), site->graph->tensors[t].name);
    return 0;
}

static int check_conv(const struct np_layer_site *site, const struct conv *conv, int out,
    struct np_window *ret_window)
{
    struct np_shape x = np_site_shape(site, site->ins[0]);
    int64_t pad[2];

    for (int i = 0; i < 2; i++) {
        int64_t reach = conv->dilation[i] * (conv->kernel[i] - 1);

        if (conv->pad[i] < 0 && reach % 2 != 0)
            return np_layer_mistake(
                site, "pad: same needs an odd kernel, not %d", (int)conv->kernel[i]);
        pad[i] = conv->pad[i] < 0 ? reach / 2 : conv->pad[i];
    }
    if (x.c % conv->groups != 0)
        return np_layer_mistake(
            site, "its %d input channels cannot be divided into %d groups", x.c, (int)conv->groups);
    if (out % conv->groups != 0)
        return np_layer_mistake(site, "its %d output channels cannot be divided into %d groups",
            out, (int)conv->groups);
    *ret_window = (struct np_window){.kernel_h = (int)conv->kernel[0],
        .kernel_w = (int)conv->kernel[1],
        .stride_h = (int)conv->stride[0],
        .stride_w = (int)conv->stride[1],
        .pad_h = (int)pad[0],
        .pad_w = (int)pad[1],
        .dilation_h = (int)conv->dilation[0],
        .dilation_w = (int)conv->dilation[1],
        .groups = (int)conv->groups};
    return 0;
}

static int add_conv(const struct np_layer_site *site, const void *object)
{
    const struct conv *conv = object;
    struct np_window w;
    struct np_shape y = {.c = conv->out < 0 ? site->input->classes : (int)conv->out};
    int c = np_site_shape(site, site->ins[0]).c, node;

    if (check_conv(site, conv, y.c, &w) < 0 || np_site_window(site, &w, false, &y) < 0 ||
        (node = np_site_simple(site, NP_OP_CONV, y)) < 0)
        return -1;
    site->graph->nodes[node].attrs.window = w;
    if (check_init(site, conv, y.c, &w) < 0)
        return -1;
    int in = c / w.groups;
    double area = (double)w.kernel_h * w.kernel_w;
    if (area * in >= (double)NP_MAX_ELEMENTS || area * y.c >= (double)NP_MAX_ELEMENTS)
        return np_layer_mistake(site, "its weight has 2^31 elements or more");
    const struct np_site_param weight = {.role = NP_ROLE_PARAM,
        .init = inits[conv->init],
        .fan_in = in * w.kernel_h * w.kernel_w,
        .fan_out = y.c * w.kernel_h * w.kernel_w};
    return add_weights(site, node, weight, 4, (int[]){y.c, in, w.kernel_h, w.kernel_w}, conv->bias);
}

/* --- linear -------------------------------------------------------------------------------- */

struct linear {
    int64_t out;
    bool bias;
    int init;
};
#undef AT
#define AT(field) offsetof(struct linear, field)
static const struct np_option linear_options[] = {
    {"out", NP_OPT_INT, AT(out), NULL, 1, 16777216, "classes",
        "Number of outputs; `classes`: one for each class of the training set."},
    {"bias", NP_OPT_BOOL, AT(bias), "true", 0, 0, NULL, "Adds a bias to each output."},
    {"init", NP_OPT_WORD, AT(init), "default", 0, 0, INITS, INIT_HELP},
    NP_OPTIONS_END,
};

static int add_linear(const struct np_layer_site *site, const void *object)
{
    const struct linear *linear = object;
    struct np_shape x = np_site_shape(site, site->ins[0]);
    int out = linear->out < 0 ? site->input->classes : (int)linear->out, node;

    if (linear->out < 0 && (x.h != 1 || x.w != 1))
        return np_layer_mistake(site,
            "its input, %dx%dx%d, is not a list of numbers; put flatten or global_avgpool before "
            "it",
            x.h, x.w, x.c);
    if ((node = np_site_simple(site, NP_OP_LINEAR, (struct np_shape){x.h, x.w, out})) < 0)
        return -1;
    const struct np_site_param weight = {
        .role = NP_ROLE_PARAM, .init = inits[linear->init], .fan_in = x.c, .fan_out = out};
    return add_weights(site, node, weight, 2, (int[]){out, x.c}, linear->bias);
}

/* --- batchnorm ----------------------------------------------------------------------------- */

struct batchnorm {
    double momentum, eps;
    bool zero_init;
};
#undef AT
#define AT(field) offsetof(struct batchnorm, field)
static const struct np_option batchnorm_options[] = {
    {"momentum", NP_OPT_FLOAT, AT(momentum), "0.1", 0, 1, NULL,
        "running = (1 - momentum) * running + momentum * batch, as in torch."},
    {"eps", NP_OPT_FLOAT, AT(eps), "1e-5", 1e-12, 1, NULL, "Added to the variance."},
    {"zero_init", NP_OPT_BOOL, AT(zero_init), "false", 0, 0, NULL,
        "Starts with a scale of 0 instead of 1: for the last batchnorm of a residual block."},
    NP_OPTIONS_END,
};

/* Statistics, then scaling: two nodes, because the second needs the first one's whole sum. */
static int add_batchnorm(const struct np_layer_site *site, const void *object)
{
    const struct batchnorm *bn = object;
    struct np_shape x = np_site_shape(site, site->ins[0]);
    int stats = np_site_node(site, NP_OP_BN_STATS), apply;
    struct np_attrs attrs = {.momentum = bn->momentum, .eps = bn->eps};
    const struct np_site_param running[] = {
        {.suffix = "running_mean", .role = NP_ROLE_BUFFER, .init = NP_INIT_ZERO},
        {.suffix = "running_var", .role = NP_ROLE_BUFFER, .init = NP_INIT_ONE}};
    const struct np_site_param learned[] = {{.suffix = "weight",
                                                .role = NP_ROLE_PARAM,
                                                .init = bn->zero_init ? NP_INIT_ZERO : NP_INIT_ONE},
        {.suffix = "bias", .role = NP_ROLE_PARAM, .init = NP_INIT_ZERO}};
    static const char *const saved[] = {"mean", "inv_std"};

    np_graph_in(site->graph, stats, site->ins[0]);
    if (!np_site_param(site, stats, &running[0], 1, &x.c) ||
        !np_site_param(site, stats, &running[1], 1, &x.c) ||
        (apply = np_site_simple(site, NP_OP_BN_APPLY, x)) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        int t = np_site_tensor(site, saved[i], NP_ROLE_SAVED, NP_F32, 1, &x.c);

        np_graph_out(site->graph, stats, t);
        np_graph_in(site->graph, apply, t);
    }
    if (!np_site_param(site, apply, &learned[0], 1, &x.c) ||
        !np_site_param(site, apply, &learned[1], 1, &x.c))
        return -1;
    site->graph->nodes[stats].attrs = attrs;
    site->graph->nodes[apply].attrs = attrs;
    return np_site_output(site, apply);
}

const struct np_layer np_layer_conv = {
    "conv", conv_options, sizeof(struct conv), 1, add_conv, "Convolution (torch.nn.Conv2d)."};
const struct np_layer np_layer_linear = {"linear", linear_options, sizeof(struct linear), 1,
    add_linear,
    "Matrix product and bias (torch.nn.Linear), of each token or pixel where there are several."};
const struct np_layer np_layer_batchnorm = {"batchnorm", batchnorm_options,
    sizeof(struct batchnorm), 1, add_batchnorm,
    "Batch normalisation (torch.nn.BatchNorm2d; arXiv:1502.03167)."};
