/* The inner loops of the operations on pixels, compiled three times from pixel_loops_body.h: the
 * compiler makes vectors of them. Bytes are equal for all. */
#ifndef NP_PIXEL_LOOPS_H
#define NP_PIXEL_LOOPS_H

#include "loader/pixels/pixel_op.h"

/* Pixel i of the line is at x + i of the result, and shows the point m[0] (x + i + 0.5) + row_x,
 * m[3] (x + i + 0.5) + row_y of the picture, which is inside it. One byte behind the picture is
 * read. */
struct np_mix {
    const uint8_t *before; /* u8 (height, width, channels) */
    int width, height, channels;
    double step_x, step_y; /* m[0], m[3] */
    double part_x, part_y; /* m[1] (y + 0.5), m[4] (y + 0.5) */
    double plus_x, plus_y; /* m[2], m[5] */
    int x;
};

struct np_pixel_loops {
    /* Each of n values, blended with one value; inverted from a threshold on; masked. */
    void (*blend)(uint8_t *values, size_t n, float factor, int from);
    void (*solarize)(uint8_t *values, size_t n, int threshold);
    void (*mask)(uint8_t *values, size_t n, int mask);
    /* Each of n values, looked up in the table of its channel; channels is 1 or 3. */
    void (*look_up)(const uint8_t tables[3][256], int channels, uint8_t *values, size_t n);
    /* The smallest and the largest of n values, by channel; n > 0. */
    void (*range)(
        const uint8_t *values, int channels, size_t n, uint8_t ret_lo[3], uint8_t ret_hi[3]);
    /* n pixels of three channels: the sum of their luma; made grey; blended with their luma; their
     * hue moved by shift / 255 turns. */
    uint64_t (*sum_luma)(const uint8_t *pixels, size_t n);
    void (*grey)(uint8_t *pixels, size_t n);
    void (*saturate)(uint8_t *pixels, size_t n, float factor);
    void (*hue)(uint8_t *pixels, size_t n, int shift);
    /* n values of a line blended with the smoothed ones; step: from pixel to pixel, stride: from
     * line to line. */
    void (*sharpen)(
        const uint8_t *before, size_t step, size_t stride, size_t n, float factor, uint8_t *out);
    /* n pixels of a line, each a bilinear sum of four. */
    void (*mix)(const struct np_mix *mix, size_t n, uint8_t *out);
    /* line[i] += weight * from[i]; the same into sums of floats; and sums, rounded to even. */
    void (*add_bytes)(const uint8_t *from, float weight, size_t n, float *line);
    void (*add_floats)(const float *from, float weight, size_t n, float *sums);
    void (*round)(const float *sums, size_t n, uint8_t *out);
};
extern const struct np_pixel_loops np_pixel_loops_any, np_pixel_loops_avx2, np_pixel_loops_avx512;
/* Those for this CPU. */
const struct np_pixel_loops *np_pixel_loops(void);

#endif
