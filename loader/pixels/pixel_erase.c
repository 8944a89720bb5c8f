/* A box of one colour. See pixel_op.h. */
#include "loader/pixels/pixel_op.h"

static void erase(const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t channels = (size_t)picture->channels;
    const size_t stride = (size_t)picture->width * channels;
    const size_t x = (size_t)values[0], y = (size_t)values[1];
    const size_t w = (size_t)values[2], h = (size_t)values[3];

    (void)scratch;
    for (size_t i = y; i < y + h; i++)
        for (size_t k = 0; k < w * channels; k++)
            picture->pixels[i * stride + x * channels + k] = (uint8_t)values[4 + k % channels];
}
const struct np_pixel_op np_pixel_erase = {erase, false};
