/* The inner loops of a resize in SIMD, with the bytes of plain C. Private to resize*.c. A weight
 * with NP_RESIZE_BITS of fraction is too wide for the vectors' multiplications. So each version
 * cuts it into digits, adds up a sum for each digit, and joins the sums by shifts. This arithmetic
 * is exact, and Pillow's 32-bit sum never overflows: the bytes are equal. */
#ifndef NP_RESIZE_KERNELS_H
#define NP_RESIZE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "loader/pixels/axis.h"
#include "loader/pixels/geometry.h"

#define NP_RESIZE_ROWS 16 /* rows that across() works on at once, at most */
#define NP_RESIZE_PAD  64 /* bytes past the end of padded rows that may be read and written */
#define NP_RESIZE_MIN  32 /* bytes that down() works on at once, at least */

/* The weights of an axis in a kernel's layout. */
struct np_packed {
    uint8_t *data; /* the weights; behind them, memory that across() uses */
    size_t data_bytes;
    int pixels; /* of a row that across() computes at once; AVX-512 */
    int steps;  /* multiplications for the maximum number of taps */
};

struct np_resize_kernels {
    int rows; /* that across() works on at once */
    /* Set pixels and steps, and return the bytes of data that the pack functions below fill. */
    size_t (*across_layout)(const struct np_taps *taps, struct np_packed *packed);
    size_t (*down_layout)(const struct np_taps *taps, struct np_packed *packed);
    void (*across_pack)(const struct np_taps *taps, struct np_packed *packed);
    void (*down_pack)(const struct np_taps *taps, struct np_packed *packed);
    int across_reads; /* bytes that across() reads from each fourth tap on */
    /* The horizontal pass over rows of three channels. dst: rows with NP_RESIZE_PAD. */
    void (*across)(const struct np_taps *taps, const struct np_packed *packed,
        const uint8_t *const src[], uint8_t *const dst[]);
    /* The vertical pass for scaled row i: `bytes` of dst from rows of src, stride bytes apart.
     * Reads at least NP_RESIZE_MIN bytes of each row. */
    void (*down)(const struct np_taps *taps, const struct np_packed *packed, int i,
        const uint8_t *src, ptrdiff_t stride, int bytes, uint8_t *dst);
};

extern const struct np_resize_kernels np_resize_avx2;
extern const struct np_resize_kernels np_resize_avx512; /* for np_vectors_vnni() */

#endif
