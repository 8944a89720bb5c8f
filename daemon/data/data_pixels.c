/* See data_pixels.h. One thread. */
#include "daemon/data/data_pixels.h"

#include <string.h>

int np_data_pixels_open(const struct np_index *index, uint64_t max_pixels,
    struct np_data_pixels *ret_pixels, struct np_err *err)
{
    struct np_data_pixels pixels = {.index = index};
    int code = np_fetch_open(index, &pixels.fetch, err);

    if (!code)
        code = np_decoder_new(&pixels.decoder, err);
    if (!code)
        np_decoder_limit(pixels.decoder, max_pixels);
    if (code)
        np_data_pixels_close(&pixels);
    else
        *ret_pixels = pixels;
    return code;
}

int np_data_pixels_get(struct np_data_pixels *pixels, uint64_t sample,
    struct np_data_sample *ret_sample, struct np_err *err)
{
    struct np_data_sample result;
    struct np_image_info info;
    struct np_geometry geometry = {0};
    int code = np_fetch_get(pixels->fetch, sample, &result.bytes, &result.nr_bytes, err);

    if (!code)
        code = np_decoder_open(
            pixels->decoder, result.bytes, result.nr_bytes, &pixels->index->raw, &info, err);
    if (code)
        return code;
    geometry.right = geometry.scaled_w = geometry.window_w = info.width;
    geometry.bottom = geometry.scaled_h = geometry.window_h = info.height;
    code = np_decoder_decode(
        pixels->decoder, &geometry, info.channels == 1 ? 1 : 3, &result.pixels, err);
    if (!code)
        *ret_sample = result;
    return code;
}

void np_data_pixels_close(struct np_data_pixels *pixels)
{
    np_fetch_close(pixels->fetch);
    np_decoder_free(pixels->decoder);
    memset(pixels, 0, sizeof(*pixels));
}
