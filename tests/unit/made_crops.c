/* Decoding parts of a picture. */
#include "tests/unit/made_crops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct np_geometry made_box(int left, int top, int right, int bottom)
{
    return (struct np_geometry){.left = left,
        .top = top,
        .right = right,
        .bottom = bottom,
        .scaled_w = right - left,
        .scaled_h = bottom - top,
        .window_w = right - left,
        .window_h = bottom - top};
}

int made_decode(struct np_decoder *decoder, const uint8_t *bytes, size_t nr_bytes,
    const struct np_geometry *geometry, int channels, struct np_pixels *ret_pixels,
    struct np_err *err)
{
    struct np_image_info info;
    int code = np_decoder_open(decoder, bytes, nr_bytes, NULL, &info, err);

    return code ? code : np_decoder_decode(decoder, geometry, channels, ret_pixels, err);
}

bool made_same(
    const struct np_pixels *all, const struct np_pixels *part, const struct np_geometry *g)
{
    int c = all->channels;

    for (int y = g->top; y < g->bottom; y++)
        if (part->channels != c || memcmp(all->data + y * all->stride + (size_t)g->left * c,
                                       part->data + (y - part->origin_y) * part->stride +
                                           (ptrdiff_t)(g->left - part->origin_x) * c,
                                       (size_t)(g->right - g->left) * c) != 0)
            return false;
    return true;
}

bool made_crops_end(
    const uint8_t *bytes, size_t nr_bytes, int width, int height, int channels, int code)
{
    struct np_decoder *whole, *crop;
    struct np_geometry all = made_box(0, 0, width, height);
    struct np_pixels pixels, part;
    uint32_t noise = 1;
    bool good;

    np_decoder_new(&whole, NULL);
    np_decoder_new(&crop, NULL);
    good =
        made_decode(whole, bytes, nr_bytes, &all, channels, &pixels, NULL) == code &&
        (code || (pixels.width == width && pixels.height == height && pixels.channels == channels));
    for (int i = 0; i < 60 && good; i++) {
        int at[4];
        struct np_geometry g;

        for (int k = 0; k < 4; k++) {
            noise = noise * 1664525u + 1013904223u;
            at[k] = (int)(noise >> 8);
        }
        g.left = at[0] % width;
        g.top = at[1] % height;
        g = made_box(g.left, g.top, g.left + 1 + at[2] % (i % 2 ? width - g.left : 1),
            g.top + 1 + at[3] % (i % 3 ? height - g.top : 1));
        good = made_decode(crop, bytes, nr_bytes, &g, channels, &part, NULL) == code &&
               (code || made_same(&pixels, &part, &g));
    }
    np_decoder_free(whole);
    np_decoder_free(crop);
    return good;
}

bool made_refuses(
    const uint8_t *bytes, size_t nr_bytes, const struct np_geometry *g, const char *want)
{
    struct np_decoder *decoder;
    struct np_pixels pixels;
    struct np_err err = {0};
    bool refused;

    np_decoder_new(&decoder, NULL);
    refused = made_decode(decoder, bytes, nr_bytes, g, 3, &pixels, &err) == -EBADMSG &&
              strstr(err.text, want);
    if (!refused)
        fprintf(stderr, "%zu bytes: '%s'\n", nr_bytes, err.text);
    np_decoder_free(decoder);
    return refused;
}
