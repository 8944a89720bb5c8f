/* ImageEnhance.Sharpness: blended with ImageFilter.SMOOTH, 3 x 3 weights of which the middle is
 * 5 and the others 1, over 13; the picture's edge is not filtered. Pillow's sums are float32,
 * line by line from below. See pixel_op.h. */
#include "loader/pixels/pixel_loops.h"

static void sharpness(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t step = (size_t)picture->channels, stride = (size_t)picture->width * step;

    for (int y = 1; y < picture->height - 1 && picture->width > 2; y++) {
        const size_t at = (size_t)y * stride + step;

        np_pixel_loops()->sharpen(scratch->before + at, step, stride, stride - 2 * step,
            (float)values[0], picture->pixels + at);
    }
}
const struct np_pixel_op np_pixel_sharpness = {sharpness, true};
