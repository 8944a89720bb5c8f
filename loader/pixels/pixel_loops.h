/* The inner loops of the operations on pixels, compiled three times from pixel_loops_body.h: the
 * compiler makes vectors of them. Bytes are equal for all. */
#ifndef NP_PIXEL_LOOPS_H
#define NP_PIXEL_LOOPS_H

#include "loader/pixels/pixel_op.h"

struct np_pixel_loops {
    /* Each of n values, blended with one value; inverted from a threshold on; masked. */
    void (*blend)(uint8_t *values, size_t n, float factor, int from);
    void (*solarize)(uint8_t *values, size_t n, int threshold);
    void (*mask)(uint8_t *values, size_t n, int mask);
    /* n pixels of three channels: blended with their luma; their hue moved by shift / 255 turns. */
    void (*saturate)(uint8_t *pixels, size_t n, float factor);
    void (*hue)(uint8_t *pixels, size_t n, int shift);
    /* n values of a line blended with the smoothed ones; step: from pixel to pixel, stride: from
     * line to line. */
    void (*sharpen)(
        const uint8_t *before, size_t step, size_t stride, size_t n, float factor, uint8_t *out);
    /* line[i] += weight * from[i]; the same into sums of floats; and sums, rounded to even. */
    void (*add_bytes)(const uint8_t *from, float weight, size_t n, float *line);
    void (*add_floats)(const float *from, float weight, size_t n, float *sums);
    void (*round)(const float *sums, size_t n, uint8_t *out);
};
extern const struct np_pixel_loops np_pixel_loops_any, np_pixel_loops_avx2, np_pixel_loops_avx512;
/* Those for this CPU. */
const struct np_pixel_loops *np_pixel_loops(void);

#endif
