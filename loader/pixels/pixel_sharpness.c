/* ImageEnhance.Sharpness: blended with ImageFilter.SMOOTH, 3 x 3 weights of which the middle is 5 and
 * the others 1, over 13; the picture's edge is not filtered. Pillow's sums are float32, line by line
 * from below. See pixel_op.h. */
#include "loader/pixels/pixel_op.h"

static const float side = 1.0f / 13.0f, middle = 5.0f / 13.0f;

static float sum_of(const uint8_t *line, size_t left, size_t right, float weight)
{
    return (float)line[-(ptrdiff_t)left] * side + (float)line[0] * weight +
           (float)line[right] * side;
}

static void sharpness(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const struct np_blend blend = np_blend_of(values[0]);
    const size_t step = (size_t)picture->channels, stride = (size_t)picture->width * step;

    for (int y = 1; y < picture->height - 1; y++) {
        const uint8_t *line = scratch->before + (size_t)y * stride;
        uint8_t *out = picture->pixels + (size_t)y * stride;

        for (size_t i = step; i + step < stride; i++) {
            float sum = 0.5f;

            sum += sum_of(line + stride + i, step, step, side);
            sum += sum_of(line + i, step, step, middle);
            sum += sum_of(line + i - stride, step, step, side);
            out[i] = np_blend(blend, (int)sum, line[i]);
        }
    }
}
const struct np_pixel_op np_pixel_sharpness = {sharpness, true};
