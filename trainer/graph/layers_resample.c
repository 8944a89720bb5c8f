/* Layers that give a picture another size: adaptive average pool and upsampling, as torch's; and
 * blur. Config time, one thread. */
#include <stddef.h>

#include "trainer/graph/layer_site.h"

static int add_resample(
    const struct np_layer_site *site, enum np_resample resample, int height, int width)
{
    const struct np_shape x = np_site_shape(site, site->ins[0]);
    int node;

    if (resample != NP_RESAMPLE_BLUR && height == x.h && width == x.w)
        return site->ins[0];
    node = np_site_simple(site, NP_OP_RESAMPLE, (struct np_shape){height, width, x.c});
    if (node >= 0)
        site->graph->nodes[node].attrs.resample = resample;
    return np_site_output(site, node);
}

struct adaptive_avgpool {
    int64_t size[2];
};
static const struct np_option adaptive_avgpool_options[] = {
    {"size", NP_OPT_PAIR, offsetof(struct adaptive_avgpool, size), NULL, 1, 65536, NULL,
        "Height and width of the output."},
    NP_OPTIONS_END,
};

static int add_adaptive_avgpool(const struct np_layer_site *site, const void *object)
{
    const struct adaptive_avgpool *pool = object;

    return add_resample(site, NP_RESAMPLE_MEAN, (int)pool->size[0], (int)pool->size[1]);
}

struct upsample {
    int64_t scale[2];
    int mode;
};
static const struct np_option upsample_options[] = {
    {"scale", NP_OPT_PAIR, offsetof(struct upsample, scale), "2", 1, 64, NULL,
        "Factor of height and width."},
    {"mode", NP_OPT_WORD, offsetof(struct upsample, mode), "nearest", 0, 0, "nearest|bilinear",
        "`bilinear` is torch's with align_corners=False."},
    NP_OPTIONS_END,
};

static int add_upsample(const struct np_layer_site *site, const void *object)
{
    const struct upsample *up = object;
    const struct np_shape x = np_site_shape(site, site->ins[0]);

    /* At most 2^31 / 64 along a side: np_site_activation() reports a picture that is too large. */
    if (x.h > (int)(NP_MAX_ELEMENTS / 64 - 1) || x.w > (int)(NP_MAX_ELEMENTS / 64 - 1))
        return np_layer_mistake(site, "its input, %dx%d, is too large", x.h, x.w);
    return add_resample(site, up->mode ? NP_RESAMPLE_BILINEAR : NP_RESAMPLE_NEAREST,
        x.h * (int)up->scale[0], x.w * (int)up->scale[1]);
}

struct blur {
    int64_t stride;
};
static const struct np_option blur_options[] = {
    {"stride", NP_OPT_INT, offsetof(struct blur, stride), "1", 1, 2, NULL, "Step of the window."},
    NP_OPTIONS_END,
};

static int add_blur(const struct np_layer_site *site, const void *object)
{
    const struct blur *blur = object;
    const struct np_shape x = np_site_shape(site, site->ins[0]);
    const int stride = (int)blur->stride;

    return add_resample(
        site, NP_RESAMPLE_BLUR, (x.h + stride - 1) / stride, (x.w + stride - 1) / stride);
}

const struct np_layer np_layer_blur = {"blur", blur_options, sizeof(struct blur), 1, add_blur,
    "Each channel's convolution with [1, 2, 1] / 4 along both sides, and zeros around it. Before a "
    "layer of stride 2 it prevents aliasing (arXiv:1904.11486)."};
const struct np_layer np_layer_adaptive_avgpool = {"adaptive_avgpool", adaptive_avgpool_options,
    sizeof(struct adaptive_avgpool), 1, add_adaptive_avgpool,
    "Means of bins, which overlap where sizes do not divide (torch.nn.AdaptiveAvgPool2d)."};
const struct np_layer np_layer_upsample = {"upsample", upsample_options, sizeof(struct upsample), 1,
    add_upsample, "A larger picture (torch.nn.Upsample)."};
