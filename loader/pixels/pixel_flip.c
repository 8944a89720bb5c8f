/* The picture upside down. See pixel_op.h. */
#include <string.h>

#include "loader/pixels/pixel_op.h"

#define PIECE 1024 /* bytes */

static void flip_down(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t stride = (size_t)picture->width * (size_t)picture->channels;

    (void)values;
    (void)scratch;
    for (int y = 0; y < picture->height / 2; y++) {
        uint8_t *upper = picture->pixels + (size_t)y * stride;
        uint8_t *lower = picture->pixels + (size_t)(picture->height - 1 - y) * stride;

        for (size_t at = 0; at < stride; at += PIECE) {
            const size_t n = stride - at < PIECE ? stride - at : PIECE;
            uint8_t piece[PIECE];

            memcpy(piece, upper + at, n);
            memcpy(upper + at, lower + at, n);
            memcpy(lower + at, piece, n);
        }
    }
}
const struct np_pixel_op np_pixel_flip_down = {flip_down, false};
