/* The picture upside down. See pixel_op.h. */
#include "loader/pixels/pixel_op.h"

static void flip_down(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t stride = (size_t)picture->width * (size_t)picture->channels;

    (void)values;
    (void)scratch;
    for (int y = 0; y < picture->height / 2; y++) {
        uint8_t *upper = picture->pixels + (size_t)y * stride;
        uint8_t *lower = picture->pixels + (size_t)(picture->height - 1 - y) * stride;

        for (size_t i = 0; i < stride; i++) {
            const uint8_t value = upper[i];

            upper[i] = lower[i];
            lower[i] = value;
        }
    }
}
const struct np_pixel_op np_pixel_flip_down = {flip_down, false};
