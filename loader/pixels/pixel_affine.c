/* An affine map, as Pillow's Image.transform(AFFINE) makes it (src/libImaging/Geometry.c): the
 * nearest pixel, in 16.16 fixed point, or a bilinear sum in float64. See pixel_op.h and
 * affine.h. */
#include <math.h>
#include <string.h>

#include "loader/pixels/affine.h"
#include "loader/pixels/pixel_loops.h"

#define FIXED_LIMIT 32768.0 /* pixels: the whole part of a 16.16 number */

struct map {
    const double *m; /* (6) */
    const uint8_t *before;
    struct np_canvas *canvas;
};

static uint8_t *pixel_at(const struct np_canvas *canvas, int x, int y)
{
    return canvas->pixels +
           ((size_t)y * (size_t)canvas->width + (size_t)x) * (size_t)canvas->channels;
}

static const uint8_t *source_at(const struct map *map, int x, int y)
{
    return map->before + (pixel_at(map->canvas, x, y) - map->canvas->pixels);
}

static bool is_inside(const struct np_canvas *canvas, int x, int y)
{
    return x >= 0 && x < canvas->width && y >= 0 && y < canvas->height;
}

/* Where the pixels of a line of the result come from: the first one, and the way to the next. */
struct line {
    uint32_t x, y, step_x, step_y; /* 16.16 */
};

static int whole(uint32_t position)
{
    return (int32_t)position >> 16;
}

static bool shows(const struct map *map, const struct line *line, int x)
{
    return is_inside(map->canvas, whole(line->x + (uint32_t)x * line->step_x),
        whole(line->y + (uint32_t)x * line->step_y));
}

static void copy_pixel(const uint8_t *in, int channels, uint8_t *out)
{
    out[0] = in[0];
    if (channels == 3) {
        out[1] = in[1];
        out[2] = in[2];
    }
}

/* The pixels of a line that show the picture are neighbours. */
static void copy_line(const struct map *map, const struct line *line, int y)
{
    const int channels = map->canvas->channels;
    const int stride = map->canvas->width * channels;
    int lo = 0, hi = map->canvas->width;
    uint32_t from_x, from_y;
    uint8_t *out;

    while (lo < hi && !shows(map, line, lo))
        lo++;
    while (hi > lo && !shows(map, line, hi - 1))
        hi--;
    from_x = line->x + (uint32_t)lo * line->step_x;
    from_y = line->y + (uint32_t)lo * line->step_y;
    out = pixel_at(map->canvas, lo, y);
    for (int x = lo; x < hi; x++) {
        const uint8_t *in = map->before + (ptrdiff_t)whole(from_y) * stride;

        copy_pixel(in + (ptrdiff_t)whole(from_x) * channels, channels, out);
        out += channels;
        from_x += line->step_x;
        from_y += line->step_y;
    }
}

static void copy(const struct map *map, int x, int y, int from_x, int from_y)
{
    uint8_t *out = pixel_at(map->canvas, x, y);

    if (is_inside(map->canvas, from_x, from_y))
        copy_pixel(source_at(map, from_x, from_y), map->canvas->channels, out);
}

static int below_zero_or_whole(double at)
{
    return at < 0 ? -1 : (int)at;
}

/* The nearest pixels where positions are added up in float64, x along a row and y along the
 * rows: for maps without rotation and shear, and for those beyond the range of fixed point. */
static void nearest_float(const struct map *map)
{
    const double *m = map->m;
    double row_x = m[2] + m[1] * 0.5 + m[0] * 0.5, row_y = m[5] + m[4] * 0.5 + m[3] * 0.5;

    for (int y = 0; y < map->canvas->height; y++) {
        double from_x = row_x, from_y = row_y;

        for (int x = 0; x < map->canvas->width; x++) {
            copy(map, x, y, below_zero_or_whole(from_x), below_zero_or_whole(from_y));
            from_x += m[0];
            from_y += m[3];
        }
        row_x += m[1];
        row_y += m[4];
    }
}

static bool fits_fixed(const double *m, double x, double y)
{
    return fabs(x * m[0] + y * m[1] + m[2]) < FIXED_LIMIT &&
           fabs(x * m[3] + y * m[4] + m[5]) < FIXED_LIMIT;
}

static uint32_t fixed(double value)
{
    return (uint32_t)(int64_t)floor(value * 65536.0 + 0.5);
}

static void nearest_fixed(const struct map *map)
{
    const double *m = map->m;
    const uint32_t row_step_x = fixed(m[1]), row_step_y = fixed(m[4]);
    struct line line = {fixed(m[2] + m[0] * 0.5 + m[1] * 0.5),
        fixed(m[5] + m[3] * 0.5 + m[4] * 0.5), fixed(m[0]), fixed(m[3])};

    for (int y = 0; y < map->canvas->height; y++) {
        copy_line(map, &line, y);
        line.x += row_step_x;
        line.y += row_step_y;
    }
}

static void nearest(const struct map *map)
{
    const double *m = map->m;
    const int w = map->canvas->width, h = map->canvas->height;
    const bool turns = m[1] < 0 || m[1] > 0 || m[3] < 0 || m[3] > 0;

    if (turns && fits_fixed(m, 0, 0) && fits_fixed(m, w, h) && fits_fixed(m, 0, h) &&
        fits_fixed(m, w, 0))
        nearest_fixed(map);
    else
        nearest_float(map);
}

static bool shows_point(const struct np_mix *mix, int x)
{
    const double at_x = mix->step_x * (x + 0.5) + mix->part_x + mix->plus_x;
    const double at_y = mix->step_y * (x + 0.5) + mix->part_y + mix->plus_y;

    return at_x >= 0 && at_x < mix->width && at_y >= 0 && at_y < mix->height;
}

/* Points go one way along a line, so that those of the picture are neighbours, here, too. */
static void bilinear(const struct map *map)
{
    const struct np_canvas *canvas = map->canvas;
    const double *m = map->m;
    struct np_mix mix = {.before = map->before,
        .width = canvas->width,
        .height = canvas->height,
        .channels = canvas->channels,
        .step_x = m[0],
        .step_y = m[3],
        .plus_x = m[2],
        .plus_y = m[5]};

    for (int y = 0; y < canvas->height; y++) {
        int lo = 0, hi = canvas->width;

        mix.part_x = m[1] * (y + 0.5);
        mix.part_y = m[4] * (y + 0.5);
        while (lo < hi && !shows_point(&mix, lo))
            lo++;
        while (hi > lo && !shows_point(&mix, hi - 1))
            hi--;
        mix.x = lo;
        np_pixel_loops()->mix(&mix, (size_t)(hi - lo), pixel_at(canvas, lo, y));
    }
}

static void fill(struct np_canvas *canvas, int colour)
{
    const size_t bytes = np_canvas_bytes(canvas), channels = (size_t)canvas->channels;

    if (colour == (colour & 255) * 0x10101) {
        memset(canvas->pixels, colour & 255, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += channels)
        for (size_t c = 0; c < channels; c++)
            canvas->pixels[i + c] = (uint8_t)(colour >> (8 * c));
}

/* values: the matrix, enum np_affine_filter, and the fill colour, red in the low byte. */
static void affine(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const struct map map = {values, scratch->before, picture};

    fill(picture, (int)values[7]);
    if ((int)values[6] == NP_AFFINE_BILINEAR)
        bilinear(&map);
    else
        nearest(&map);
}
const struct np_pixel_op np_pixel_affine = {affine, true};
