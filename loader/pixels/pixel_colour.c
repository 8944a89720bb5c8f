/* Operations that mix the three channels of a pixel; they leave a picture of one channel as it is.
 * See pixel_op.h. */
#include "loader/pixels/pixel_loops.h"

static void grayscale(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    (void)values;
    (void)scratch;
    if (picture->channels == 3)
        np_pixel_loops()->grey(picture->pixels, np_canvas_bytes(picture) / 3);
}
const struct np_pixel_op np_pixel_grayscale = {grayscale, false};

/* ImageEnhance.Color: blended with the picture in grey. */
static void saturation(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    (void)scratch;
    if (picture->channels == 3)
        np_pixel_loops()->saturate(picture->pixels, np_canvas_bytes(picture) / 3, (float)values[0]);
}
const struct np_pixel_op np_pixel_saturation = {saturation, false};

/* torchvision's adjust_hue() of a Pillow picture: the byte of the hue is moved around the
 * circle. */
static void hue(const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    (void)scratch;
    if (picture->channels == 3)
        np_pixel_loops()->hue(
            picture->pixels, np_canvas_bytes(picture) / 3, (int)(values[0] * 255));
}
const struct np_pixel_op np_pixel_hue = {hue, false};
