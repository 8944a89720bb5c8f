/* Operations on the pixels of a picture, with the arithmetic of Pillow's C code and of the
 * functions of torchvision over it: for the same values the bytes are theirs. A picture has one
 * channel (mode L) or three (RGB). Any thread. */
#ifndef NP_PIXEL_OP_H
#define NP_PIXEL_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NP_STEP_VALUES 8

struct np_canvas {
    uint8_t *pixels; /* u8 (height, width, channels), dense */
    int height, width, channels;
};

static inline size_t np_canvas_bytes(const struct np_canvas *picture)
{
    return (size_t)picture->height * (size_t)picture->width * (size_t)picture->channels;
}

/* For operations that want it. */
struct np_scratch {
    const uint8_t *before; /* a copy of the pixels */
    float *line;           /* (width + 2 * NP_MAX_RADIUS, channels), undefined */
};
#define NP_MAX_RADIUS 64 /* pixels beside a line's ends */

struct np_pixel_op {
    /* Required. Changes the picture; cannot fail. values: (NP_STEP_VALUES), as the operation's
     * comment says. */
    void (*apply)(
        const double *values, const struct np_scratch *scratch, struct np_canvas *picture);
    bool wants_scratch; /* else scratch is NULL */
};

/* pixel_table.c: each value is looked up in a table. */
extern const struct np_pixel_op np_pixel_brightness; /* factor */
extern const struct np_pixel_op np_pixel_contrast;   /* factor */
extern const struct np_pixel_op np_pixel_solarize;   /* threshold: values from here are inverted */
extern const struct np_pixel_op np_pixel_posterize;  /* bits kept, 1 to 8 */
extern const struct np_pixel_op np_pixel_invert;
extern const struct np_pixel_op np_pixel_autocontrast;
extern const struct np_pixel_op np_pixel_equalize;
/* pixel_colour.c */
extern const struct np_pixel_op np_pixel_grayscale;  /* all channels get the luma */
extern const struct np_pixel_op np_pixel_saturation; /* factor */
extern const struct np_pixel_op np_pixel_hue;        /* -0.5 to 0.5 turns */
/* pixel_sharpness.c */
extern const struct np_pixel_op np_pixel_sharpness; /* factor: 0 smooth, 1 as it is, 2 sharp */
/* pixel_blur.c: width and height of the kernel, odd and below 2 * NP_MAX_RADIUS; sigma in pixels */
extern const struct np_pixel_op np_pixel_blur;
/* pixel_affine.c: as affine.h makes its values */
extern const struct np_pixel_op np_pixel_affine;
/* pixel_erase.c: x, y, width, height, and the value of each channel */
extern const struct np_pixel_op np_pixel_erase;
/* pixel_flip.c */
extern const struct np_pixel_op np_pixel_flip_down; /* top to bottom */

/* Pillow's conversion of RGB to L. */
static inline uint8_t np_luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

#endif
