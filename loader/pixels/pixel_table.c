/* Operations on each value alone: one function of it, or a table for each channel. See
 * pixel_op.h. */
#include <math.h>
#include <string.h>

#include "loader/pixels/pixel_loops.h"

struct tables {
    uint8_t of[3][256]; /* by channel */
};

static void look_up(const struct tables *tables, struct np_canvas *picture)
{
    const size_t bytes = np_canvas_bytes(picture);
    uint8_t *pixels = picture->pixels;

    if (picture->channels == 1)
        for (size_t i = 0; i < bytes; i++)
            pixels[i] = tables->of[0][pixels[i]];
    else
        for (size_t i = 0; i < bytes; i += 3) {
            pixels[i] = tables->of[0][pixels[i]];
            pixels[i + 1] = tables->of[1][pixels[i + 1]];
            pixels[i + 2] = tables->of[2][pixels[i + 2]];
        }
}

/* --- one function of all values ------------------------------------------------------------ */

/* ImageEnhance.Brightness: blended with black. */
static void brightness(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    (void)scratch;
    np_pixel_loops()->blend(picture->pixels, np_canvas_bytes(picture), (float)values[0], 0);
}
const struct np_pixel_op np_pixel_brightness = {brightness, false};

static void solarize(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    (void)scratch;
    np_pixel_loops()->solarize(picture->pixels, np_canvas_bytes(picture), (int)ceil(values[0]));
}
const struct np_pixel_op np_pixel_solarize = {solarize, false};

static void posterize(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    (void)scratch;
    np_pixel_loops()->mask(
        picture->pixels, np_canvas_bytes(picture), ~((1 << (8 - (int)values[0])) - 1));
}
const struct np_pixel_op np_pixel_posterize = {posterize, false};

static void invert(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    (void)values;
    (void)scratch;
    np_pixel_loops()->solarize(picture->pixels, np_canvas_bytes(picture), 0);
}
const struct np_pixel_op np_pixel_invert = {invert, false};

/* --- tables that the picture makes --------------------------------------------------------- */

/* ImageEnhance.Contrast: blended with the mean of the picture's luma, rounded. */
static void contrast(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t bytes = np_canvas_bytes(picture), step = (size_t)picture->channels;
    uint64_t sum = 0;
    int mean;

    (void)scratch;
    for (size_t i = 0; i < bytes; i += step)
        sum += step == 1 ? picture->pixels[i] : np_luma(&picture->pixels[i]);
    mean = (int)((double)sum / (double)(bytes / step) + 0.5);
    np_pixel_loops()->blend(picture->pixels, bytes, (float)values[0], mean);
}
const struct np_pixel_op np_pixel_contrast = {contrast, false};

struct histogram {
    uint32_t of[3][256]; /* by channel */
};

static void count(const struct np_canvas *picture, struct histogram *ret_histogram)
{
    const size_t bytes = np_canvas_bytes(picture);
    const int channels = picture->channels;
    const uint8_t *pixels = picture->pixels;

    memset(ret_histogram, 0, sizeof(*ret_histogram));
    for (size_t i = 0; i < bytes; i += (size_t)channels)
        for (int c = 0; c < channels; c++)
            ret_histogram->of[c][pixels[i + (size_t)c]]++;
}

/* ImageOps.autocontrast() without a cutoff. */
static void stretch(const uint32_t histogram[256], uint8_t ret_table[256])
{
    int lo = 0, hi = 255;
    double scale, offset;

    while (lo < 255 && !histogram[lo])
        lo++;
    while (hi > 0 && !histogram[hi])
        hi--;
    scale = hi > lo ? 255.0 / (hi - lo) : 1;
    offset = hi > lo ? -lo * scale : 0;
    for (int v = 0; v < 256; v++) {
        const int value = (int)(v * scale + offset);

        ret_table[v] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

/* ImageOps.equalize(). */
static void flatten(const uint32_t histogram[256], uint8_t ret_table[256])
{
    uint64_t sum = 0, last = 0, step, n;

    for (int v = 0; v < 256; v++) {
        sum += histogram[v];
        last = histogram[v] ? histogram[v] : last;
    }
    step = (sum - last) / 255;
    n = step / 2;
    for (int v = 0; v < 256; v++) {
        const uint64_t value = step ? n / step : (uint64_t)v;

        ret_table[v] = (uint8_t)(value > 255 ? 255 : value);
        n += histogram[v];
    }
}

static void look_up_histogram(
    struct np_canvas *picture, void (*make)(const uint32_t histogram[256], uint8_t ret_table[256]))
{
    struct histogram histogram;
    struct tables tables = {0};

    count(picture, &histogram);
    for (int c = 0; c < picture->channels; c++)
        make(histogram.of[c], tables.of[c]);
    look_up(&tables, picture);
}

static void autocontrast(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    (void)values;
    (void)scratch;
    look_up_histogram(picture, stretch);
}
const struct np_pixel_op np_pixel_autocontrast = {autocontrast, false};

static void equalize(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    (void)values;
    (void)scratch;
    look_up_histogram(picture, flatten);
}
const struct np_pixel_op np_pixel_equalize = {equalize, false};
