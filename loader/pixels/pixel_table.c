/* Operations on each value alone: one function of it, or a table for each channel. See
 * pixel_op.h. */
#include <math.h>
#include <string.h>

#include "loader/pixels/pixel_loops.h"

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
    if (step == 3)
        sum = np_pixel_loops()->sum_luma(picture->pixels, bytes / 3);
    for (size_t i = 0; step == 1 && i < bytes; i++)
        sum += picture->pixels[i];
    mean = (int)((double)sum / (double)(bytes / step) + 0.5);
    np_pixel_loops()->blend(picture->pixels, bytes, (float)values[0], mean);
}
const struct np_pixel_op np_pixel_contrast = {contrast, false};

/* ImageOps.autocontrast() without a cutoff. */
static void stretch(int lo, int hi, uint8_t ret_table[256])
{
    const double scale = hi > lo ? 255.0 / (hi - lo) : 1, offset = hi > lo ? -lo * scale : 0;

    for (int v = 0; v < 256; v++) {
        const int value = (int)(v * scale + offset);

        ret_table[v] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

static void autocontrast(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t bytes = np_canvas_bytes(picture);
    uint8_t lo[3], hi[3];
    uint8_t tables[3][256];

    (void)values;
    (void)scratch;
    np_pixel_loops()->range(picture->pixels, picture->channels, bytes, lo, hi);
    for (int c = 0; c < picture->channels; c++)
        stretch(lo[c], hi[c], tables[c]);
    np_pixel_loops()->look_up(tables, picture->channels, picture->pixels, bytes);
}
const struct np_pixel_op np_pixel_autocontrast = {autocontrast, false};

/* Neighbours are often equal: they count in turns, so that no count waits for the one before. */
#define TURNS 4

struct histogram {
    uint32_t of[3][TURNS][256]; /* by channel */
};

static void count(const struct np_canvas *picture, struct histogram *ret_histogram)
{
    const size_t step = (size_t)picture->channels, n = np_canvas_bytes(picture) / step;

    memset(ret_histogram, 0, sizeof(*ret_histogram));
    for (size_t c = 0; c < step; c++) {
        uint32_t(*const of)[256] = ret_histogram->of[c];
        const uint8_t *const values = picture->pixels + c;
        size_t i = 0;

        for (; i + TURNS <= n; i += TURNS) {
            of[0][values[i * step]]++;
            of[1][values[(i + 1) * step]]++;
            of[2][values[(i + 2) * step]]++;
            of[3][values[(i + 3) * step]]++;
        }
        for (; i < n; i++)
            of[0][values[i * step]]++;
    }
}

/* ImageOps.equalize(). */
static void flatten(uint32_t counts[TURNS][256], uint8_t ret_table[256])
{
    uint64_t sum = 0, last = 0, step, n;

    for (int v = 0; v < 256; v++) {
        for (int i = 1; i < TURNS; i++)
            counts[0][v] += counts[i][v];
        sum += counts[0][v];
        last = counts[0][v] ? counts[0][v] : last;
    }
    step = (sum - last) / 255;
    n = step / 2;
    for (int v = 0; v < 256; v++) {
        const uint64_t value = step ? n / step : (uint64_t)v;

        ret_table[v] = (uint8_t)(value > 255 ? 255 : value);
        n += counts[0][v];
    }
}

static void equalize(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    struct histogram histogram;
    uint8_t tables[3][256];

    (void)values;
    (void)scratch;
    count(picture, &histogram);
    for (int c = 0; c < picture->channels; c++)
        flatten(histogram.of[c], tables[c]);
    np_pixel_loops()->look_up(tables, picture->channels, picture->pixels, np_canvas_bytes(picture));
}
const struct np_pixel_op np_pixel_equalize = {equalize, false};
