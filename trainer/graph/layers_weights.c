/* Layers with parameters: conv, conv_transpose, linear, batchnorm. Defaults and initial values are torch.nn's.
 * Config time, one thread. */
#include <stddef.h>
#include <string.h>

#include "trainer/graph/layer_site.h"

/* --- parameters ---------------------------------------------------------------------------- */

static void set_bias(struct np_site_param *like)
{
    like->suffix = "bias";
    like->decay = false;
    like->init = like->init == NP_INIT_NORMAL_002 ? NP_INIT_ZERO : NP_INIT_FAN_IN_UNIFORM;
}

/* Appends the weight, outputs first in dims, and the bias. Returns the node's output, or -1. */
static int add_weights(const struct np_layer_site *site, int node, struct np_site_param weight,
    int nr_dims, const int *dims, bool has_bias)
{
    struct np_site_param bias = weight;

    weight.suffix = "weight";
    weight.decay = true;
    set_bias(&bias);
    if (!np_site_param(site, node, &weight, nr_dims, dims) ||
        (has_bias && !np_site_param(site, node, &bias, 1, dims)))
        return -1;
    return np_site_output(site, node);
}

/* A node of its own that adds a bias to each channel of x, with the weight's fan. */
static int add_bias(const struct np_layer_site *site, int x, struct np_site_param like)
{
    const struct np_shape s = np_site_shape(site, x);
    const int y = np_site_activation(site, s), node = y < 0 ? -1 : np_site_node(site, NP_OP_BIAS);

    if (node < 0)
        return -1;
    np_graph_in(site->graph, node, x);
    np_graph_out(site->graph, node, y);
    set_bias(&like);
    return np_site_param(site, node, &like, 1, &s.c) ? y : -1;
}

/* torch's fans of a convolution's weight: of (dims[0], dims[1], kernel_h, kernel_w), whichever of the
 * first two is the input. Both products have to be less than 2^31. */
static int find_fans(
    const struct np_layer_site *site, const int dims[4], struct np_site_param *weight)
{
    const double area = (double)dims[2] * dims[3];

    if (area * dims[0] >= (double)NP_MAX_ELEMENTS || area * dims[1] >= (double)NP_MAX_ELEMENTS)
        return np_layer_mistake(site, "its weight has 2^31 elements or more");
    weight->fan_in = dims[1] * dims[2] * dims[3];
    weight->fan_out = dims[0] * dims[2] * dims[3];
    return 0;
}

/* --- conv ---------------------------------------------------------------------------------- */

/* The words of `init:` and their meaning; a bias keeps torch's default, but for trunc_normal's. */
#define INITS "default|kaiming_normal|kaiming_uniform|xavier_uniform|normal|zero|one|trunc_normal"
#define DIRAC "|dirac"
static const enum np_init inits[] = {NP_INIT_FAN_IN_UNIFORM, NP_INIT_KAIMING_NORMAL,
    NP_INIT_KAIMING_UNIFORM, NP_INIT_XAVIER_UNIFORM, NP_INIT_NORMAL, NP_INIT_ZERO, NP_INIT_ONE,
    NP_INIT_NORMAL_002, NP_INIT_DIRAC, NP_INIT_WHITENING};
#define INIT_HELP                                                                                  \
    "Initial weights: `default` is torch's of a new layer (uniform, 1/sqrt(fan_in)), "             \
    "kaiming_uniform is torch.nn.init's (uniform, sqrt(6/fan_in)), kaiming_normal is by fan_out, " \
    "normal has a deviation of 0.01; trunc_normal, of transformers and ConvNeXt, has 0.02, and "   \
    "biases of 0"
#define DIRAC_HELP "; dirac: output i begins as input i, where there is one, the rest as `default`."
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
    {"init", NP_OPT_WORD, AT(init), "default", 0, 0, INITS DIRAC "|whitening",
        INIT_HELP DIRAC_HELP WHITENING},
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

static int check_groups(const struct np_layer_site *site, int64_t groups, int out)
{
    const int in = np_site_shape(site, site->ins[0]).c;

    if (in % groups != 0)
        return np_layer_mistake(
            site, "its %d input channels cannot be divided into %d groups", in, (int)groups);
    if (out % groups != 0)
        return np_layer_mistake(
            site, "its %d output channels cannot be divided into %d groups", out, (int)groups);
    return 0;
}

static int check_conv(const struct np_layer_site *site, const struct conv *conv, int out,
    struct np_window *ret_window)
{
    int64_t pad[2];

    for (int i = 0; i < 2; i++) {
        int64_t reach = conv->dilation[i] * (conv->kernel[i] - 1);

        if (conv->pad[i] < 0 && reach % 2 != 0)
            return np_layer_mistake(
                site, "pad: same needs an odd kernel, not %d", (int)conv->kernel[i]);
        pad[i] = conv->pad[i] < 0 ? reach / 2 : conv->pad[i];
    }
    if (check_groups(site, conv->groups, out) < 0)
        return -1;
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
    const int dims[] = {y.c, c / w.groups, w.kernel_h, w.kernel_w};
    struct np_site_param weight = {.role = NP_ROLE_PARAM, .init = inits[conv->init]};
    return find_fans(site, dims, &weight) < 0
               ? -1
               : add_weights(site, node, weight, 4, dims, conv->bias);
}

/* --- conv_transpose ------------------------------------------------------------------------ */

struct transpose {
    int64_t out, kernel[2], stride[2], pad[2], output_pad[2], dilation[2], groups;
    bool bias;
    int init;
};
#undef AT
#define AT(field) offsetof(struct transpose, field)
static const struct np_option transpose_options[] = {
    {"out", NP_OPT_INT, AT(out), NULL, 1, 1048576, "classes",
        "Number of output channels; `classes`: one for each class of the training set."},
    {"kernel", NP_OPT_PAIR, AT(kernel), NULL, 1, 1024, NULL, "Height and width of the window."},
    {"stride", NP_OPT_PAIR, AT(stride), "1", 1, 1024, NULL,
        "Distance of adjacent inputs' windows in the output."},
    {"pad", NP_OPT_PAIR, AT(pad), "0", 0, 1024, NULL, "Pixels of the output cut off on each side."},
    {"output_pad", NP_OPT_PAIR, AT(output_pad), "0", 0, 1023, NULL,
        "Pixels added at the bottom and on the right, fewer than `stride`: with a stride, several "
        "sizes of output would give the same input."},
    {"dilation", NP_OPT_PAIR, AT(dilation), "1", 1, 1024, NULL, "Distance of the window's taps."},
    {"groups", NP_OPT_INT, AT(groups), "1", 1, 1048576, NULL,
        "Number of groups that channels are divided into, each with its own weights."},
    {"bias", NP_OPT_BOOL, AT(bias), "true", 0, 0, NULL, "Adds a bias to each channel."},
    {"init", NP_OPT_WORD, AT(init), "default", 0, 0, INITS, INIT_HELP "."},
    NP_OPTIONS_END,
};

/* Pixels of the output along side i, torch's (size - 1) stride - 2 pad + reach + output_pad; -1:
 * there are none. */
static int grown(const struct np_layer_site *site, const struct transpose *t, int size, int i)
{
    const int64_t out = (size - 1) * t->stride[i] - 2 * t->pad[i] +
                        t->dilation[i] * (t->kernel[i] - 1) + 1 + t->output_pad[i];

    if (t->output_pad[i] >= t->stride[i])
        return np_layer_mistake(site, "output_pad %d is not less than stride %d",
            (int)t->output_pad[i], (int)t->stride[i]);
    if (out < 1 || out > INT32_MAX)
        return np_layer_mistake(
            site, "%s %d becomes %lld pixels", i == 0 ? "height" : "width", size, (long long)out);
    return (int)out;
}

/* The data's gradient of a convolution, run forwards: the same weights, (in, out / groups, kh, kw). */
static int add_transpose(const struct np_layer_site *site, const void *object)
{
    const struct transpose *t = object;
    const struct np_shape x = np_site_shape(site, site->ins[0]);
    const int out = t->out < 0 ? site->input->classes : (int)t->out;
    const int h = grown(site, t, x.h, 0), w = h < 0 ? -1 : grown(site, t, x.w, 1);
    int node;

    if (w < 0 || check_groups(site, t->groups, out) < 0 ||
        (node = np_site_simple(site, NP_OP_CONV_DGRAD, (struct np_shape){h, w, out})) < 0)
        return -1;
    site->graph->nodes[node].attrs.window = (struct np_window){.kernel_h = (int)t->kernel[0],
        .kernel_w = (int)t->kernel[1],
        .stride_h = (int)t->stride[0],
        .stride_w = (int)t->stride[1],
        .pad_h = (int)t->pad[0],
        .pad_w = (int)t->pad[1],
        .dilation_h = (int)t->dilation[0],
        .dilation_w = (int)t->dilation[1],
        .groups = (int)t->groups};
    const int dims[] = {x.c, out / (int)t->groups, (int)t->kernel[0], (int)t->kernel[1]};
    struct np_site_param weight = {.role = NP_ROLE_PARAM, .init = inits[t->init]};
    if (find_fans(site, dims, &weight) < 0 || add_weights(site, node, weight, 4, dims, false) < 0)
        return -1;
    return t->bias ? add_bias(site, np_site_output(site, node), weight)
                   : np_site_output(site, node);
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
    {"init", NP_OPT_WORD, AT(init), "default", 0, 0, INITS DIRAC, INIT_HELP DIRAC_HELP},
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
const struct np_layer np_layer_conv_transpose = {"conv_transpose", transpose_options,
    sizeof(struct transpose), 1, add_transpose,
    "Transposed convolution, which makes pictures larger (torch.nn.ConvTranspose2d)."};
const struct np_layer np_layer_linear = {"linear", linear_options, sizeof(struct linear), 1,
    add_linear,
    "Matrix product and bias (torch.nn.Linear), of each token or pixel where there are several."};
const struct np_layer np_layer_batchnorm = {"batchnorm", batchnorm_options,
    sizeof(struct batchnorm), 1, add_batchnorm,
    "Batch normalisation (torch.nn.BatchNorm2d; arXiv:1502.03167)."};
