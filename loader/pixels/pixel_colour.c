/* Operations that mix the three channels of a pixel; they leave a picture of one channel as it is.
 * See pixel_op.h. */
#include <math.h>

#include "loader/pixels/pixel_op.h"

struct np_blend np_blend_of(double factor)
{
    const float rounded = (float)factor;

    return (struct np_blend){rounded, !(rounded >= 0 && rounded <= 1)};
}

static void grayscale(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t bytes = np_canvas_bytes(picture);
    uint8_t *pixels = picture->pixels;

    (void)values;
    (void)scratch;
    for (size_t i = 0; picture->channels == 3 && i < bytes; i += 3)
        pixels[i] = pixels[i + 1] = pixels[i + 2] = np_luma(&pixels[i]);
}
const struct np_pixel_op np_pixel_grayscale = {grayscale, false};

/* ImageEnhance.Color: blended with the picture in grey. */
static void saturation(
    const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const struct np_blend blend = np_blend_of(values[0]);
    const size_t bytes = np_canvas_bytes(picture);
    uint8_t *pixels = picture->pixels;

    (void)scratch;
    for (size_t i = 0; picture->channels == 3 && i < bytes; i += 3) {
        const int luma = np_luma(&pixels[i]);

        for (size_t c = 0; c < 3; c++)
            pixels[i + c] = np_blend(blend, luma, pixels[i + c]);
    }
}
const struct np_pixel_op np_pixel_saturation = {saturation, false};

/* --- hue ----------------------------------------------------------------------------------- */

struct hsv {
    uint8_t h, s, v;
};

static int max3(int a, int b, int c)
{
    const int most = a > b ? a : b;

    return most > c ? most : c;
}

/* Pillow's conversion (src/libImaging/Convert.c), where doubles and floats take turns. */
static struct hsv to_hsv(const uint8_t *rgb)
{
    const int r = rgb[0], g = rgb[1], b = rgb[2];
    const int max = max3(r, g, b), min = 255 - max3(255 - r, 255 - g, 255 - b);
    const float range = (float)(max - min);
    float h, from_r, from_g, from_b;

    if (max == min)
        return (struct hsv){0, 0, (uint8_t)max};
    from_r = (float)(max - r) / range;
    from_g = (float)(max - g) / range;
    from_b = (float)(max - b) / range;
    if (r == max)
        h = from_b - from_g;
    else if (g == max)
        h = (float)(2.0 + (double)from_r - (double)from_b);
    else
        h = (float)(4.0 + (double)from_g - (double)from_r);
    h = (float)fmod((double)h / 6.0 + 1.0, 1.0);
    return (struct hsv){(uint8_t)((double)h * 255.0),
        (uint8_t)((double)(range / (float)max) * 255.0), (uint8_t)max};
}

static void from_hsv(struct hsv hsv, uint8_t *rgb)
{
    static const uint8_t places[6][3] = {/* of v, p, q, t in r, g, b, by sixth of the circle */
        {0, 3, 1}, {2, 0, 1}, {1, 0, 3}, {1, 2, 0}, {3, 1, 0}, {0, 1, 2}};
    const double turns = (double)hsv.h * 6.0 / 255.0, v = hsv.v;
    const int sixth = (int)turns;
    const float rest = (float)(turns - (double)sixth), s = (float)((double)hsv.s / 255.0);
    const uint8_t made[4] = {hsv.v, (uint8_t)round(v * (1.0 - (double)s)),
        (uint8_t)round(v * (1.0 - (double)(s * rest))),
        (uint8_t)round(v * (1.0 - (double)s * (1.0 - (double)rest)))};

    for (int c = 0; c < 3; c++)
        rgb[c] = made[hsv.s ? places[sixth % 6][c] : 0];
}

/* torchvision's adjust_hue() of a Pillow picture: the byte of the hue is moved around the circle. */
static void hue(const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t bytes = np_canvas_bytes(picture);
    const int shift = (int)(values[0] * 255);

    (void)scratch;
    for (size_t i = 0; picture->channels == 3 && i < bytes; i += 3) {
        struct hsv hsv = to_hsv(&picture->pixels[i]);

        hsv.h = (uint8_t)(hsv.h + shift);
        from_hsv(hsv, &picture->pixels[i]);
    }
}
const struct np_pixel_op np_pixel_hue = {hue, false};
