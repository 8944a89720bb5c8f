/* Hostile bytes through sniffing, header, decode of a box, and resize. The box has the verdict and the
 * pixels of the whole. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/pixels/codec.h"
#include "loader/pixels/geometry.h"
#include "loader/pixels/resize.h"

#define MAX_PIXELS (1 << 20) /* larger ones are slow, not interesting */

static void geometry_of(
    uint32_t noise, const struct np_image_info *info, struct np_geometry *ret_geometry)
{
    struct np_geometry g = {0};
    int w = info->width, h = info->height;

    g.left = (int)(noise % (unsigned)w);
    g.top = (int)(noise / 7 % (unsigned)h);
    g.right = g.left + 1 + (int)(noise / 11 % (unsigned)(w - g.left));
    g.bottom = g.top + 1 + (int)(noise / 13 % (unsigned)(h - g.top));
    g.scaled_w = noise & 1 ? 1 + (int)(noise / 17 % 40) : g.right - g.left;
    g.scaled_h = noise & 1 ? 1 + (int)(noise / 19 % 40) : g.bottom - g.top;
    g.window_x = (int)(noise / 23 % 9) - 4;
    g.window_y = (int)(noise / 29 % 9) - 4;
    g.window_w = 1 + (int)(noise / 31 % 40);
    g.window_h = 1 + (int)(noise / 37 % 40);
    g.flip = noise >> 1 & 1;
    g.border = noise >> 2 & 1;
    g.filter = noise >> 3 & 1;
    *ret_geometry = g;
}

/* Aborts unless the whole picture ends with the code, and with the part's pixels in what the
 * geometry needs. */
static void hold_against_whole(const uint8_t *data, size_t n, const struct np_geometry *g,
    int channels, int code, const struct np_pixels *part)
{
    static struct np_decoder *decoder;
    struct np_image_info info;
    struct np_geometry all = {0};
    struct np_pixels whole;
    struct np_rect need;
    int whole_code;

    if (!decoder && np_decoder_new(&decoder, NULL))
        return;
    if (np_decoder_open(decoder, data, n, NULL, &info, NULL))
        abort();
    all.right = all.scaled_w = all.window_w = info.width;
    all.bottom = all.scaled_h = all.window_h = info.height;
    whole_code = np_decoder_decode(decoder, &all, channels, &whole, NULL);
    if (code == -ENOMEM || whole_code == -ENOMEM)
        return;
    if (code != whole_code)
        abort();
    np_geometry_need(g, &need);
    for (int y = need.top; y < need.bottom && code == 0; y++)
        if (memcmp(whole.data + (y - whole.origin_y) * whole.stride +
                       (ptrdiff_t)(need.left - whole.origin_x) * channels,
                part->data + (y - part->origin_y) * part->stride +
                    (ptrdiff_t)(need.left - part->origin_x) * channels,
                (size_t)(need.right - need.left) * (size_t)channels) != 0)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct np_decoder *decoder;
    static struct np_resizer *resizer;
    static uint8_t row[40 * 40 * 3];
    struct np_image_info info;
    struct np_geometry g;
    struct np_pixels pixels;
    uint32_t noise = (uint32_t)n * 2654435761u;
    int channels, code;

    if (!decoder && (np_decoder_new(&decoder, NULL) || !(resizer = np_resizer_new(NULL))))
        return 0;
    for (size_t i = 0; i < n; i += 1 + n / 16)
        noise = noise * 31 + data[i];
    if (np_decoder_open(decoder, data, n, NULL, &info, NULL))
        return 0;
    if (info.width < 1 || info.height < 1)
        abort(); /* an image has pixels */
    if ((uint64_t)info.width * (uint64_t)info.height > MAX_PIXELS)
        return 0;
    geometry_of(noise, &info, &g);
    channels = noise >> 4 & 1 ? 3 : 1;
    code = np_decoder_decode(decoder, &g, channels, &pixels, NULL);
    hold_against_whole(data, n, &g, channels, code, &pixels);
    if (code == 0)
        np_resize(resizer, &pixels, &g, row, NULL);
    return 0;
}
