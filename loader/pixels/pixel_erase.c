/* A box of one colour. See pixel_op.h. */
#include <string.h>

#include "loader/pixels/pixel_op.h"

static void erase(const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t channels = (size_t)picture->channels;
    const size_t stride = (size_t)picture->width * channels;
    const size_t x = (size_t)values[0], y = (size_t)values[1];
    const size_t w = (size_t)values[2], h = (size_t)values[3];

    uint8_t *const first = picture->pixels + y * stride + x * channels;

    (void)scratch;
    for (size_t i = 0; h > 0 && i < w; i++)
        for (size_t c = 0; c < channels; c++)
            first[i * channels + c] = (uint8_t)values[4 + c];
    for (size_t i = 1; i < h; i++)
        memcpy(first + i * stride, first, w * channels);
}
const struct np_pixel_op np_pixel_erase = {erase, false};
