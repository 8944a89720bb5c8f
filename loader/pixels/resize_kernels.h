/* The AVX2 inner loops of a resize; their bytes equal those of plain C. Private to resize*.c. */
#ifndef NP_RESIZE_KERNELS_H
#define NP_RESIZE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "loader/pixels/geometry.h"

#define NP_RESIZE_ROWS 4  /* rows that np_across3_avx2 works on at once */
#define NP_RESIZE_PAD  64 /* bytes past the end of padded rows that may be read and written */
#define NP_RESIZE_MIN  32 /* bytes that np_down_avx2 works on at once */

/* A weight w is high * 2^11 + low, so that both halves fit the 16-bit factors of pmaddwd and
 * the sum of both products is exact in 32 bits. */
#define NP_WEIGHT_LOW_BITS 11

/* Packs weights for np_across3_avx2: groups of four taps, (n, groups, 32) i16: high halves of taps
 * 0 1 four times, of 2 3 four times, then the low halves likewise. */
int np_across_groups(const struct np_taps *taps);
void np_across_pack(const struct np_taps *taps, int16_t *packed);
/* The horizontal pass over four rows of three channels. Reads 12 * groups + 4 bytes from each start
 * and writes 4 bytes a pixel: rows need NP_RESIZE_PAD. */
void np_across3_avx2(const struct np_taps *taps, const int16_t *packed,
    const uint8_t *const src[NP_RESIZE_ROWS], uint8_t *const dst[NP_RESIZE_ROWS]);
/* The vertical pass for one row: `bytes` of dst from count rows of src, stride bytes apart. Reads
 * at least NP_RESIZE_MIN bytes of each row. */
void np_down_avx2(const uint8_t *src, ptrdiff_t stride, const int32_t *weight, int count, int bytes,
    uint8_t *dst);
/* Reverses n pixels of three bytes. src and dst do not overlap. */
void np_flip3_avx2(const uint8_t *src, int n, uint8_t *dst);

#endif
