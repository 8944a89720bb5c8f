/* The loops of pixel_loops.h for AVX-512. Headers come first: their functions are for any CPU. */
#include "loader/pixels/pixel_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "loader/base/vectors.h"

static void look_up_wide(const uint8_t tables[3][256], int channels, uint8_t *values, size_t n);

#pragma GCC target("avx512f,avx512bw,prefer-vector-width=512")
#define LOOPS   np_pixel_loops_avx512
#define LOOK_UP look_up_wide
#include "loader/pixels/pixel_loops_body.h"

#define VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))

VBMI static inline __m512i look_up_64(const uint8_t table[256], __m512i values)
{
    const __m512i low =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(table), values, _mm512_loadu_si512(table + 64));
    const __m512i high = _mm512_permutex2var_epi8(
        _mm512_loadu_si512(table + 128), values, _mm512_loadu_si512(table + 192));

    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(values), low, high);
}

/* Of 192 values in three vectors, each third one is of one channel: its bits in the first vector,
 * and those of the next vectors, which begin with other channels. */
#define EACH_THIRD 0x9249249249249249ull

VBMI static size_t look_up_vbmi(
    const uint8_t tables[3][256], int channels, uint8_t *values, size_t n)
{
    const __mmask64 of[3] = {EACH_THIRD, EACH_THIRD << 1, EACH_THIRD << 2};
    size_t at = 0;

    for (; at + 192 <= n; at += 192)
        for (size_t i = 0; i < 3; i++) {
            uint8_t *const here = values + at + 64 * i;
            const __m512i v = _mm512_loadu_si512(here);
            __m512i out = look_up_64(tables[0], v);

            /* Value 64 i is of channel i, as 64 % 3 is 1. */
            if (channels == 3) {
                out = _mm512_mask_mov_epi8(out, of[(4 - i) % 3], look_up_64(tables[1], v));
                out = _mm512_mask_mov_epi8(out, of[(5 - i) % 3], look_up_64(tables[2], v));
            }
            _mm512_storeu_si512(here, out);
        }
    return at;
}

static void look_up_wide(const uint8_t tables[3][256], int channels, uint8_t *values, size_t n)
{
    const size_t done = np_vectors_vnni() ? look_up_vbmi(tables, channels, values, n) : 0;

    look_up(tables, channels, values + done, n - done);
}
#endif
