/* The inner loops of a resize for AVX2. Any thread; only if the processor has it. */
#include "loader/pixels/resize_kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

#define HALF (1 << (NP_RESIZE_BITS - 1))

int np_across_groups(const struct np_taps *taps)
{
    return (taps->max_count + 3) / 4;
}

static int16_t high(int32_t weight)
{
    return (int16_t)(weight >> NP_WEIGHT_LOW_BITS);
}

static int16_t low(int32_t weight)
{
    return (int16_t)(weight & ((1 << NP_WEIGHT_LOW_BITS) - 1));
}

void np_across_pack(const struct np_taps *taps, int16_t *packed)
{
    int groups = np_across_groups(taps);

    for (int i = 0; i < taps->n; i++) {
        const int32_t *weight = taps->weight + (size_t)i * taps->room;

        for (int g = 0; g < groups; g++, packed += 32) {
            int32_t w[4];

            for (int k = 0; k < 4; k++)
                w[k] = 4 * g + k < taps->count[i] ? weight[4 * g + k] : 0;
            for (int k = 0; k < 16; k++) {
                packed[k] = high(w[k % 2 + k / 8 * 2]);
                packed[16 + k] = low(w[k % 2 + k / 8 * 2]);
            }
        }
    }
}

/* Sums of the lanes of a and b: [a.low + a.high, b.low + b.high]. */
AVX2 static inline __m256i add_lanes(__m256i a, __m256i b)
{
    return _mm256_add_epi32(
        _mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/* The loop of np_across3_avx2; a constant number of groups makes it faster. */
AVX2 static inline __attribute__((always_inline)) void across3(const struct np_taps *taps,
    const int16_t *packed, int groups, const uint8_t *const src[NP_RESIZE_ROWS],
    uint8_t *const dst[NP_RESIZE_ROWS])
{
    /* Four pixels rgb rgb rgb rgb -> i16 pairs r0r1 g0g1 b0b1 0 | r2r3 g2g3 b2b3 0. */
    const __m256i pairs = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,
        6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i half = _mm256_setr_epi32(HALF, HALF, HALF, HALF, 0, 0, 0, 0); /* lanes add up */
    const uint8_t *s[NP_RESIZE_ROWS] = {src[0], src[1], src[2], src[3]};
    uint8_t *d[NP_RESIZE_ROWS] = {dst[0], dst[1], dst[2], dst[3]};
    const int *start = taps->start;
    int n = taps->n;

    for (int i = 0; i < n; i++) {
        ptrdiff_t at = 3 * (ptrdiff_t)start[i];
        __m256i highs[NP_RESIZE_ROWS] = {zero, zero, zero, zero};
        __m256i lows[NP_RESIZE_ROWS] = {half, half, half, half}, ab, cd;
        __m128i bytes;

        for (int g = 0; g < groups; g++, packed += 32, at += 12) {
            __m256i high_weights = _mm256_loadu_si256((const __m256i *)packed);
            __m256i low_weights = _mm256_loadu_si256((const __m256i *)(packed + 16));

#pragma GCC unroll 4
            for (int r = 0; r < NP_RESIZE_ROWS; r++) {
                __m256i pixels = _mm256_shuffle_epi8(
                    _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(s[r] + at))),
                    pairs);
                __m256i high_sum = _mm256_madd_epi16(pixels, high_weights);
                __m256i low_sum = _mm256_madd_epi16(pixels, low_weights);

                highs[r] = _mm256_add_epi32(highs[r], high_sum);
                lows[r] = _mm256_add_epi32(lows[r], low_sum);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < NP_RESIZE_ROWS; r++)
            lows[r] = _mm256_add_epi32(lows[r], _mm256_slli_epi32(highs[r], NP_WEIGHT_LOW_BITS));
        ab = _mm256_srai_epi32(add_lanes(lows[0], lows[1]), NP_RESIZE_BITS);
        cd = _mm256_srai_epi32(add_lanes(lows[2], lows[3]), NP_RESIZE_BITS);
        ab = _mm256_packs_epi32(ab, cd); /* a c | b d */
        ab = _mm256_packus_epi16(ab, ab);
        bytes = _mm_unpacklo_epi32(_mm256_castsi256_si128(ab), _mm256_extracti128_si256(ab, 1));
#pragma GCC unroll 4
        for (int r = 0; r < NP_RESIZE_ROWS; r++, bytes = _mm_srli_si128(bytes, 4)) {
            int pixel = _mm_cvtsi128_si32(bytes);

            memcpy(d[r] + 3 * (ptrdiff_t)i, &pixel, 4);
        }
    }
}

AVX2 void np_across3_avx2(const struct np_taps *taps, const int16_t *packed,
    const uint8_t *const src[NP_RESIZE_ROWS], uint8_t *const dst[NP_RESIZE_ROWS])
{
    switch (np_across_groups(taps)) {
    case 1: across3(taps, packed, 1, src, dst); break;
    case 2: across3(taps, packed, 2, src, dst); break;
    default: across3(taps, packed, np_across_groups(taps), src, dst); break;
    }
}

/* 32 bytes of one row down. */
AVX2 static inline __m256i down32(
    const uint8_t *src, ptrdiff_t stride, const int32_t *weight, int count)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i highs[4] = {zero, zero, zero, zero}, lows[4];

#pragma GCC unroll 4
    for (int v = 0; v < 4; v++)
        lows[v] = _mm256_set1_epi32(HALF);
    for (int k = 0; k < count; k += 2, src += 2 * stride) {
        int32_t w0 = weight[k], w1 = k + 1 < count ? weight[k + 1] : 0;
        __m256i w_high =
            _mm256_set1_epi32((uint16_t)high(w0) | (int32_t)((uint32_t)high(w1) << 16));
        __m256i w_low = _mm256_set1_epi32((uint16_t)low(w0) | (int32_t)((uint32_t)low(w1) << 16));
        __m256i a = _mm256_loadu_si256((const __m256i *)src);
        __m256i b = k + 1 < count ? _mm256_loadu_si256((const __m256i *)(src + stride)) : zero;
        __m256i ab_low = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b);
        __m256i pairs[4] = {_mm256_unpacklo_epi8(ab_low, zero), _mm256_unpackhi_epi8(ab_low, zero),
            _mm256_unpacklo_epi8(ab_high, zero), _mm256_unpackhi_epi8(ab_high, zero)};

#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            highs[v] = _mm256_add_epi32(highs[v], _mm256_madd_epi16(pairs[v], w_high));
            lows[v] = _mm256_add_epi32(lows[v], _mm256_madd_epi16(pairs[v], w_low));
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++)
        lows[v] = _mm256_srai_epi32(
            _mm256_add_epi32(lows[v], _mm256_slli_epi32(highs[v], NP_WEIGHT_LOW_BITS)),
            NP_RESIZE_BITS);
    return _mm256_packus_epi16(
        _mm256_packs_epi32(lows[0], lows[1]), _mm256_packs_epi32(lows[2], lows[3]));
}

AVX2 void np_down_avx2(
    const uint8_t *src, ptrdiff_t stride, const int32_t *weight, int count, int bytes, uint8_t *dst)
{
    int x = 0;

    for (; x + NP_RESIZE_MIN <= bytes; x += NP_RESIZE_MIN)
        _mm256_storeu_si256((__m256i *)(dst + x), down32(src + x, stride, weight, count));
    if (x < bytes) { /* the last bytes, some of them again */
        const int from = bytes < NP_RESIZE_MIN ? 0 : bytes - NP_RESIZE_MIN;
        uint8_t tail[NP_RESIZE_MIN];

        _mm256_storeu_si256((__m256i *)tail, down32(src + from, stride, weight, count));
        memcpy(dst + from, tail, (size_t)(bytes - from));
    }
}

AVX2 void np_flip3_avx2(const uint8_t *src, int n, uint8_t *dst)
{
    /* Five pixels in reverse, after one byte that the next store overwrites. */
    const __m128i reverse = _mm_setr_epi8(15, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2);
    int i = 0;

    for (; i + 6 <= n; i += 5) {
        __m128i pixels = _mm_loadu_si128((const __m128i *)(src + 3 * (ptrdiff_t)i));

        _mm_storeu_si128(
            (__m128i *)(dst + 3 * (ptrdiff_t)(n - 5 - i) - 1), _mm_shuffle_epi8(pixels, reverse));
    }
    for (; i < n; i++)
        memcpy(dst + 3 * (ptrdiff_t)(n - 1 - i), src + 3 * (ptrdiff_t)i, 3);
}
#endif
