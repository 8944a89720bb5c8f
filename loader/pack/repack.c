/* Passes the bytes of a sample on, or decodes it and encodes it again. */
#include <errno.h>

#include "loader/base/mem.h"
#include "loader/pixels/codec.h"
#include "loader/pixels/geometry.h"
#include "loader/pack/pack.h"
#include "loader/pixels/resize.h"

#define DEFAULT_QUALITY 90

struct np_repacker {
    struct np_repack options;
    struct np_raw raw;
    struct np_decoder *decoder;
    struct np_resizer *resizer;
    uint8_t *pixels, *encoded;
    size_t pixels_room;
};

int np_repacker_new(const struct np_repack *options, const struct np_raw *raw,
    struct np_repacker **ret_repacker, struct np_err *err)
{
    struct np_repacker *repacker = np_try_alloc(sizeof(*repacker), err);

    if (!repacker)
        return -ENOMEM;
    repacker->options = *options;
    repacker->raw = *raw;
    repacker->resizer = np_resizer_new(err);
    if (!repacker->resizer || np_decoder_new(&repacker->decoder, err)) {
        np_repacker_free(repacker);
        return -ENOMEM;
    }
    np_decoder_limit(repacker->decoder, options->max_pixels);
    *ret_repacker = repacker;
    return 0;
}

void np_repacker_free(struct np_repacker *repacker)
{
    if (!repacker)
        return;
    np_decoder_free(repacker->decoder);
    np_resizer_free(repacker->resizer);
    np_free(repacker->pixels);
    np_free(repacker->encoded);
    np_free(repacker);
}

/* The whole picture, its shorter side at most `resize`, rounded as by torchvision's Resize. */
static void make_geometry(
    const struct np_image_info *info, int64_t resize, struct np_geometry *geometry)
{
    const int64_t w = info->width, h = info->height, shorter = w < h ? w : h;

    *geometry = (struct np_geometry){.right = info->width, .bottom = info->height};
    geometry->scaled_w = info->width;
    geometry->scaled_h = info->height;
    if (resize && resize < shorter) {
        geometry->scaled_w = (int32_t)(w <= h ? resize : resize * w / h);
        geometry->scaled_h = (int32_t)(h <= w ? resize : resize * h / w);
    }
    geometry->window_w = geometry->scaled_w;
    geometry->window_h = geometry->scaled_h;
}

static int decode(struct np_repacker *repacker, const struct np_geometry *geometry, int channels,
    struct np_err *err)
{
    const size_t bytes = (size_t)geometry->window_w * (size_t)geometry->window_h * (size_t)channels;
    struct np_pixels pixels;
    int code = np_decoder_decode(repacker->decoder, geometry, channels, &pixels, err);

    if (!code)
        code = np_hold(&repacker->pixels, &repacker->pixels_room, bytes, err);
    return code ? code : np_resize(repacker->resizer, &pixels, geometry, repacker->pixels, err);
}

/* True: the pixels must be encoded again. */
static bool is_rewritten(const struct np_repacker *repacker, const struct np_image_info *info)
{
    const struct np_repack *options = &repacker->options;
    const int shorter = info->width < info->height ? info->width : info->height;

    return repacker->raw.kind != NP_RAW_NONE || options->raw || options->quality ||
           (options->resize && options->resize < shorter);
}

/* Checks a picture that stays unchanged as training does: the decoding of any part checks the
 * whole. */
static int judge(struct np_repacker *repacker, const struct np_image_info *info, struct np_err *err)
{
    const struct np_geometry corner = {
        .right = 1, .bottom = 1, .scaled_w = 1, .scaled_h = 1, .window_w = 1, .window_h = 1};
    struct np_pixels pixels;

    return np_decoder_decode(repacker->decoder, &corner, info->channels == 1 ? 1 : 3, &pixels, err);
}

int np_repack(struct np_repacker *repacker, const uint8_t *bytes, uint32_t nr_bytes,
    const uint8_t **ret_bytes, uint32_t *ret_nr_bytes, const char **ret_extension,
    struct np_err *err)
{
    const struct np_repack *options = &repacker->options;
    /* Pixels without a format stay exact unless a quality is given. */
    const bool as_pnm = options->raw || (repacker->raw.kind != NP_RAW_NONE && !options->quality);
    const struct np_codec *codec = as_pnm ? &np_codec_raw : &np_codec_jpeg;
    struct np_image_info info;
    struct np_geometry geometry;
    size_t encoded_bytes;
    int channels, code;

    code = np_decoder_open(repacker->decoder, bytes, nr_bytes, &repacker->raw, &info, err);
    if (code)
        return code;
    if (!is_rewritten(repacker, &info)) {
        if ((code = judge(repacker, &info, err)) < 0)
            return code;
        *ret_bytes = bytes;
        *ret_nr_bytes = nr_bytes;
        *ret_extension = NULL;
        return 0;
    }
    channels = info.channels == 1 ? 1 : 3;
    make_geometry(&info, options->resize, &geometry);
    np_geometry_order(&geometry, options->pixels);
    code = decode(repacker, &geometry, channels, err);
    if (code)
        return code;
    np_free(repacker->encoded);
    repacker->encoded = NULL;
    code = codec->encode(repacker->pixels, geometry.window_w, geometry.window_h, channels,
        options->quality ? (int)options->quality : DEFAULT_QUALITY, &repacker->encoded,
        &encoded_bytes, err);
    if (code)
        return code;
    if (encoded_bytes > UINT32_MAX)
        return np_err_set(err, -EFBIG, "a picture of over 4 GiB");
    *ret_bytes = repacker->encoded;
    *ret_nr_bytes = (uint32_t)encoded_bytes;
    *ret_extension = !as_pnm ? "jpg" : channels == 1 ? "pgm" : "ppm";
    return 0;
}
