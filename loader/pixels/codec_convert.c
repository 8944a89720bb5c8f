/* See codec_convert.h. Any thread. */
#include "loader/pixels/codec_convert.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"

/* ITU-R BT.601 luma in 16-bit fixed point, rounded. */
static uint8_t luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

/* a * b / 255, rounded, without a division: exact for bytes. */
static int times(int a, int b)
{
    int product = a * b + 128;

    return ((product >> 8) + product) >> 8;
}

/* Ink stored as 255 - ink. */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t rgb[3])
{
    int white = cmyk[3]; /* 255 - black */

    for (int c = 0; c < 3; c++)
        rgb[c] = (uint8_t)(white - times(255 - cmyk[c], white));
}

static void convert_row(
    const uint8_t *from, int width, int from_channels, int to_channels, uint8_t *to)
{
    uint8_t rgb[3];

    for (int x = 0; x < width; x++, from += from_channels, to += to_channels) {
        if (from_channels == 1) {
            to[0] = to[1] = to[2] = from[0];
        } else if (from_channels == 3) {
            to[0] = luma(from);
        } else {
            cmyk_to_rgb(from, rgb);
            if (to_channels == 1)
                to[0] = luma(rgb);
            else
                memcpy(to, rgb, 3);
        }
    }
}

int np_convert(struct np_pixels *pixels, int channels, uint8_t **buffer, size_t *buffer_bytes,
    struct np_err *err)
{
    size_t stride = (size_t)pixels->width * (size_t)channels;

    assert(channels == 1 || channels == 3);
    if (pixels->channels == channels)
        return 0;
    if (np_hold(buffer, buffer_bytes, stride * (size_t)pixels->height, err))
        return -ENOMEM;
    for (int y = 0; y < pixels->height; y++)
        convert_row(pixels->data + y * pixels->stride, pixels->width, pixels->channels, channels,
            *buffer + (size_t)y * stride);
    pixels->data = *buffer;
    pixels->stride = (ptrdiff_t)stride;
    pixels->channels = channels;
    return 0;
}
