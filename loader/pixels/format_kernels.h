/* The inner loops of np_format_row() in SIMD. Private to format*.c. AVX-512 looks up values of 16
 * bits. The others are computed, since a CPU computes 8 or 16 values in the time of three look-ups:
 *
 *   value = (pixel * unit - mean) * inverse
 *
 * A product by a constant that float32 cannot hold (1 / 255, 1 / std) is fma(x, high, x * low),
 * with high + low the constant to twice the digits; for nearly all constants it is x divided by the
 * reciprocal, correctly rounded (Brisebarre and Muller, "Correctly rounded multiplication by
 * arbitrary precision constants", IEEE Transactions on Computers 57, 2008). format.c tries all 256
 * pixels, and uses the result only if each has the bits of the table. */
#ifndef NP_FORMAT_KERNELS_H
#define NP_FORMAT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/batch.h"

#define NP_FORMAT_RUN 48 /* values: three vectors, so that channels stand in their places again */

struct np_format_run { /* the constants of value i at i % NP_FORMAT_RUN */
    _Alignas(64) float mean[NP_FORMAT_RUN];
    _Alignas(64) float inverse[NP_FORMAT_RUN];
    _Alignas(64) float inverse_low[NP_FORMAT_RUN];
    float unit, unit_low;
};

struct np_format_kernels {
    /* One channel of src, u8 (n, 3), to dst, u8 (n). Returns the number of pixels done: at most
     * n. */
    size_t (*channel)(const uint8_t *src, size_t n, int channel, uint8_t *dst);
    /* n pixels to n values of a float type. stream: past the cache; dst is aligned to 64 bytes.
     * Returns the number of values done: a multiple of NP_FORMAT_RUN, or of half of it. */
    size_t (*values)(const struct np_format_run *run, enum np_row_type type, const uint8_t *src,
        size_t n, void *dst, bool stream);
    /* The same for a 16-bit type with any values: of pixel i, values[i % period][pixel]. NULL: not
     * here. */
    size_t (*halves)(const uint16_t (*values)[256], int period, const uint8_t *src, size_t n,
        uint16_t *dst, bool stream);
    void (*fence)(void); /* after the last values() or halves(), if it streamed */
};

size_t np_format_channel_avx2(const uint8_t *src, size_t n, int channel, uint8_t *dst);
extern const struct np_format_kernels np_format_avx2; /* with FMA and F16C */
extern const struct np_format_kernels np_format_avx512;

#endif
