/* Layers with parameters: conv, linear, batchnorm. Defaults and initial values are torch.nn's.
 * Config time, one thread. */
#include <stddef.h>

#include "trainer/graph/layer_site.h"

/* --- conv ---------------------------------------------------------------------------------- */

/* The words of `init:` and their meaning; a bias keeps torch's default. */
#define INITS "default|kaiming_normal|kaiming_uniform|xavier_uniform|normal|zero|one"
static const enum np_init inits[] = {NP_INIT_FAN_IN_UNIFORM, NP_INIT_KAIMING_NORMAL,
    NP_INIT_KAIMING_UNIFORM, NP_INIT_XAVIER_UNIFORM, NP_INIT_NORMAL, NP_INIT_ZERO, NP_INIT_ONE};
#define INIT_HELP                                                                                  \
    "Initial weights: `default` is torch's of a new layer (uniform, 1/sqrt(fan_in)), "             \
    "kaiming_uniform is torch.nn.init's (uniform, sqrt(6/fan_in)), kaiming_normal is by fan_out, " \
    "normal has a deviation of 0.01."

struct conv {
    int64_t out, kernel, stride, pad, dilation, groups;
    bool bias;
    int init;
};
#define AT(field) offsetof(struct conv, field)
static const struct np_option conv_options[] = {
    {"out", NP_OPT_INT, AT(out), NULL, 1, 1048576, NULL, "Number of output channels."},
    {"kernel", NP_OPT_INT, AT(kernel), NULL, 1, 1024, NULL, "Height and width of the window."},
    {"stride", NP_OPT_INT, AT(stride), "1", 1, 1024, NULL, "Step of the window."},
    {"pad", NP_OPT_INT, AT(pad), "0", 0, 1024, "same",
        "Zeros on each side; `same` keeps the size at stride 1."},
    {"dilation", NP_OPT_INT, AT(dilation), "1", 1, 1024, NULL, "Distance of the window's taps."},
    {"groups", NP_OPT_INT, AT(groups), "1", 1, 1048576, NULL,
        "Number of groups that channels are divided into, each with its own weights."},
    {"bias", NP_OPT_BOOL, AT(bias), "true", 0, 0, NULL, "Adds a bias to each channel."},
    {"init", NP_OPT_WORD, AT(init), "default", 0, 0, INITS, INIT_HELP},
    NP_OPTIONS_END,
};

static int check_conv(
    const struct np_layer_site *site, const struct conv *conv, struct np_window *ret_window)
{
    struct np_shape x = np_site_shape(site, site->ins[0]);
    int64_t reach = conv->dilation * (conv->kernel - 1), pad = conv->pad;

    if (pad < 0 && reach % 2 != 0)
        return np_layer_mistake(site, "pad: same needs an odd kernel, not %d", (int)conv->kernel);
    if (x.c % conv->groups != 0)
        return np_layer_mistake(
            site, "its %d input channels cannot be divided into %d groups", x.c, (int)conv->groups);
    if (conv->out % conv->groups != 0)
        return np_layer_mistake(site, "its %d output channels cannot be divided into %d groups",
            (int)conv->out, (int)conv->groups);
    *ret_window = (struct np_window){.kernel_h = (int)conv->kernel,
        .kernel_w = (int)conv->kernel,
        .stride = (int)conv->stride,
        .pad = (int)(pad < 0 ? reach / 2 : pad),
        .dilation = (int)conv->dilation,
        .groups = (int)conv->groups};
    return 0;
}

static int add_conv(const struct np_layer_site *site, const void *object)
{
    const struct conv *conv = object;
    struct np_window w;
    struct np_shape y = {.c = (int)conv->out};
    int c = np_site_shape(site, site->ins[0]).c, node;

    if (check_conv(site, conv, &w) < 0 || np_site_window(site, &w, &y) < 0 ||
        (node = np_site_simple(site, NP_OP_CONV, y)) < 0)
        return -1;
    site->graph->nodes[node].attrs.window = w;
    int in = c / w.groups;
    double area = (double)w.kernel_h * w.kernel_w;
    if (area * in >= (double)NP_MAX_ELEMENTS || area * y.c >= (double)NP_MAX_ELEMENTS)
        return np_layer_mistake(site, "its weight has 2^31 elements or more");
    int fan_in = in * w.kernel_h * w.kernel_w, fan_out = y.c * w.kernel_h * w.kernel_w;
    if (np_site_param(site, node,
            &(struct np_site_param){"weight", inits[conv->init], fan_in, fan_out, true},
            NP_ROLE_PARAM, 4, (int[]){y.c, in, w.kernel_h, w.kernel_w}) < 0)
        return -1;
    if (conv->bias &&
        np_site_param(site, node,
            &(struct np_site_param){"bias", NP_INIT_FAN_IN_UNIFORM, fan_in, fan_out, false},
            NP_ROLE_PARAM, 1, &y.c) < 0)
        return -1;
    return np_site_output(site, node);
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

    if (x.h != 1 || x.w != 1)
        return np_layer_mistake(site,
            "its input, %dx%dx%d, is not a list of numbers; put flatten or global_avgpool before "
            "it",
            x.h, x.w, x.c);
    if ((node = np_site_simple(site, NP_OP_LINEAR, (struct np_shape){1, 1, out})) < 0)
        return -1;
    if (np_site_param(site, node,
            &(struct np_site_param){"weight", inits[linear->init], x.c, out, true}, NP_ROLE_PARAM,
            2, (int[]){out, x.c}) < 0)
        return -1;
    if (linear->bias &&
        np_site_param(site, node,
            &(struct np_site_param){"bias", NP_INIT_FAN_IN_UNIFORM, x.c, out, false}, NP_ROLE_PARAM,
            1, &out) < 0)
        return -1;
    return np_site_output(site, node);
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

    np_graph_in(site->graph, stats, site->ins[0]);
    if (np_site_param(site, stats,
            &(struct np_site_param){.suffix = "running_mean", .init = NP_INIT_ZERO}, NP_ROLE_BUFFER,
            1, &x.c) < 0 ||
        np_site_param(site, stats,
            &(struct np_site_param){.suffix = "running_var", .init = NP_INIT_ONE}, NP_ROLE_BUFFER,
            1, &x.c) < 0 ||
        (apply = np_site_simple(site, NP_OP_BN_APPLY, x)) < 0)
        return -1;
    static const char *const saved[] = {"mean", "inv_std"};
    for (int i = 0; i < 2; i++) {
        int t = np_site_tensor(site, saved[i], NP_ROLE_SAVED, NP_F32, 1, &x.c);

        np_graph_out(site->graph, stats, t);
        np_graph_in(site->graph, apply, t);
    }
    enum np_init scale = bn->zero_init ? NP_INIT_ZERO : NP_INIT_ONE;
    if (np_site_param(site, apply, &(struct np_site_param){.suffix = "weight", .init = scale},
            NP_ROLE_PARAM, 1, &x.c) < 0 ||
        np_site_param(site, apply, &(struct np_site_param){.suffix = "bias", .init = NP_INIT_ZERO},
            NP_ROLE_PARAM, 1, &x.c) < 0)
        return -1;
    site->graph->nodes[stats].attrs = attrs;
    site->graph->nodes[apply].attrs = attrs;
    return np_site_output(site, apply);
}

const struct np_layer np_layer_conv = {
    "conv", conv_options, sizeof(struct conv), 1, add_conv, "Convolution (torch.nn.Conv2d)."};
const struct np_layer np_layer_linear = {"linear", linear_options, sizeof(struct linear), 1,
    add_linear, "Matrix product and bias (torch.nn.Linear)."};
const struct np_layer np_layer_batchnorm = {"batchnorm", batchnorm_options,
    sizeof(struct batchnorm), 1, add_batchnorm,
    "Batch normalisation (torch.nn.BatchNorm2d; arXiv:1502.03167)."};
