/* Layers of transformers and of ConvNeXt: normalisation of a row alone, scale, tokens, attention.
 * Names and shapes of parameters are torch's and timm's. Config time, one thread. */
#include <stddef.h>

#include "trainer/graph/layer_site.h"

/* --- layernorm, groupnorm ------------------------------------------------------------------ */

struct norm {
    int64_t groups; /* 0: layernorm, which has no such option */
    double eps;
};
#define AT(field) offsetof(struct norm, field)
#define EPS                                                                                        \
    {                                                                                              \
        "eps", NP_OPT_FLOAT, AT(eps), "1e-5", 1e-12, 1, NULL, "Added to the variance."             \
    }
static const struct np_option layernorm_options[] = {EPS, NP_OPTIONS_END};
static const struct np_option groupnorm_options[] = {
    {"groups", NP_OPT_INT, AT(groups), NULL, 1, 1048576, NULL,
        "Number of groups that channels are divided into; each has a mean and a variance."},
    EPS, NP_OPTIONS_END};

static int add_norm(const struct np_layer_site *site, const void *object)
{
    const struct norm *norm = object;
    struct np_shape x = np_site_shape(site, site->ins[0]);
    const struct np_site_param weight = {
        .suffix = "weight", .role = NP_ROLE_PARAM, .init = NP_INIT_ONE};
    const struct np_site_param bias = {
        .suffix = "bias", .role = NP_ROLE_PARAM, .init = NP_INIT_ZERO};
    int node;

    if (norm->groups && x.c % norm->groups != 0)
        return np_layer_mistake(
            site, "its %d channels cannot be divided into %d groups", x.c, (int)norm->groups);
    if ((node = np_site_simple(site, NP_OP_NORM, x)) < 0 ||
        !np_site_param(site, node, &weight, 1, &x.c) || !np_site_param(site, node, &bias, 1, &x.c))
        return -1;
    site->graph->nodes[node].attrs.groups = (int)norm->groups;
    site->graph->nodes[node].attrs.eps = norm->eps;
    return np_site_output(site, node);
}

/* --- scale --------------------------------------------------------------------------------- */

struct scale {
    double init;
    int64_t dims;
};
#undef AT
#define AT(field) offsetof(struct scale, field)
static const struct np_option scale_options[] = {
    {"init", NP_OPT_FLOAT, AT(init), "1", -1e6, 1e6, NULL, "Initial value of each factor."},
    {"dims", NP_OPT_INT, AT(dims), "1", 1, 3, NULL,
        "Dimensions of the parameter in files: 1 for (c), 3 for (c, 1, 1) as in torchvision's "
        "ConvNeXt."},
    NP_OPTIONS_END,
};

static int add_scale(const struct np_layer_site *site, const void *object)
{
    const struct scale *scale = object;
    struct np_shape x = np_site_shape(site, site->ins[0]);
    const struct np_site_param factors = {.suffix = "",
        .role = NP_ROLE_PARAM,
        .init = NP_INIT_VALUE,
        .init_value = (float)scale->init};
    int node = np_site_simple(site, NP_OP_SCALE, x);

    if (node < 0 ||
        !np_site_param(site, node, &factors, (int)scale->dims, (const int[]){x.c, 1, 1}))
        return -1;
    return np_site_output(site, node);
}

/* --- tokens -------------------------------------------------------------------------------- */

static const struct np_option no_options[] = {NP_OPTIONS_END};

static int add_class_token(const struct np_layer_site *site, const void *object)
{
    struct np_shape x = np_site_shape(site, site->ins[0]);
    const struct np_site_param token = {.suffix = "", .role = NP_ROLE_PARAM, .init = NP_INIT_ZERO};
    int node = np_site_simple(
        site, NP_OP_CLASS_TOKEN, (struct np_shape){.h = 1 + x.h * x.w, .w = 1, .c = x.c});

    if (node < 0 || !np_site_param(site, node, &token, 3, (const int[]){1, 1, x.c}))
        return -1;
    site->graph->nodes[node].attrs.first_token = 1;
    return np_site_output(site, node);
}

static int add_position(const struct np_layer_site *site, const void *object)
{
    struct np_shape x = np_site_shape(site, site->ins[0]);
    const struct np_site_param position = {
        .suffix = "", .role = NP_ROLE_PARAM, .init = NP_INIT_NORMAL_002};
    int node = np_site_simple(site, NP_OP_POSITION, x);

    if (node < 0 || !np_site_param(site, node, &position, 3, (const int[]){1, x.h * x.w, x.c}))
        return -1;
    return np_site_output(site, node);
}

static int add_first_token(const struct np_layer_site *site, const void *object)
{
    struct np_shape x = np_site_shape(site, site->ins[0]);

    if (x.h == 1 && x.w == 1)
        return site->ins[0];
    return np_site_output(
        site, np_site_simple(site, NP_OP_TOKENS, (struct np_shape){.h = 1, .w = 1, .c = x.c}));
}

/* --- attention ----------------------------------------------------------------------------- */

struct attention {
    int64_t heads;
};
#undef AT
#define AT(field) offsetof(struct attention, field)
static const struct np_option attention_options[] = {
    {"heads", NP_OPT_INT, AT(heads), NULL, 1, 1024, NULL,
        "Number of heads; each has a share of the output's channels, at most 128."},
    NP_OPTIONS_END,
};

static int add_attention(const struct np_layer_site *site, const void *object)
{
    const struct attention *attention = object;
    struct np_shape x = np_site_shape(site, site->ins[0]);
    int heads = (int)attention->heads, node;

    if (x.c % (3 * heads) != 0)
        return np_layer_mistake(site,
            "its %d input channels are not query, key and value of %d heads; put linear: {out: "
            "$in*3} before it",
            x.c, heads);
    if (x.c / (3 * heads) > NP_MAX_HEAD)
        return np_layer_mistake(site, "its %d heads have %d channels each; the maximum is %d",
            heads, x.c / (3 * heads), NP_MAX_HEAD);
    x.c /= 3;
    if ((node = np_site_simple(site, NP_OP_ATTENTION, x)) < 0)
        return -1;
    site->graph->nodes[node].attrs.heads = heads;
    return np_site_output(site, node);
}

const struct np_layer np_layer_layernorm = {"layernorm", layernorm_options, sizeof(struct norm), 1,
    add_norm,
    "Normalises the channels of each pixel or token (torch.nn.LayerNorm over the last "
    "dimension, torchvision's LayerNorm2d; arXiv:1607.06450)."};
const struct np_layer np_layer_groupnorm = {"groupnorm", groupnorm_options, sizeof(struct norm), 1,
    add_norm,
    "Normalises each group of channels of a picture (torch.nn.GroupNorm; "
    "arXiv:1803.08494)."};
const struct np_layer np_layer_scale = {"scale", scale_options, sizeof(struct scale), 1, add_scale,
    "A learned factor for each channel (layer scale, arXiv:2103.17239). The parameter has the "
    "layer's own name."};
const struct np_layer np_layer_class_token = {"class_token", no_options, 1, 1, add_class_token,
    "Puts a learned token before the pixels of a picture, which become tokens. The parameter has "
    "the layer's own name."};
const struct np_layer np_layer_position = {"position", no_options, 1, 1, add_position,
    "Adds a learned value to each channel of each token or pixel (position embedding, "
    "arXiv:2010.11929). The parameter has the layer's own name."};
const struct np_layer np_layer_attention = {"attention", attention_options,
    sizeof(struct attention), 1, add_attention,
    "Attention of the tokens to each other, softmax(q k' / sqrt(d)) v (arXiv:1706.03762). Its "
    "input has the channels of query, key and value: three times those of its output."};
const struct np_layer np_layer_first_token = {
    "first_token", no_options, 1, 1, add_first_token, "The first token alone: the class token."};
