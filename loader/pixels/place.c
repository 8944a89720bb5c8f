#include "loader/pixels/place.h"

#include <string.h>

#include "loader/base/vectors.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2   __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vbmi,bmi2")))

#define CHUNK   21 /* pixels of three bytes in a vector */
#define AT_ONCE 16 /* rows, for which a mask is computed once */

/* Bits 3 * from to 3 * to - 1, of the part inside 0..CHUNK-1. */
static uint64_t mask_of(int from, int to)
{
    from = from < 0 ? 0 : from;
    to = to > CHUNK ? CHUNK : to;
    return from < to ? ((1ull << 3 * (to - from)) - 1) << 3 * from : 0;
}

/* Three channels. A masked load reads nothing outside of the picture and gives 0 there, which is
 * the border. */
AVX512 static void rows_avx512(const struct np_placing *placing, int nr_rows, uint8_t *out)
{
    static const uint8_t reverse[64] = {60, 61, 62, 57, 58, 59, 54, 55, 56, 51, 52, 53, 48, 49, 50,
        45, 46, 47, 42, 43, 44, 39, 40, 41, 36, 37, 38, 33, 34, 35, 30, 31, 32, 27, 28, 29, 24, 25,
        26, 21, 22, 23, 18, 19, 20, 15, 16, 17, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2};
    const __m512i order = _mm512_loadu_si512(reverse);
    const int n = placing->n;

    for (int y = 0; y < nr_rows; y += AT_ONCE) {
        const int end = y + AT_ONCE < nr_rows ? y + AT_ONCE : nr_rows;

        for (int x = 0; x < n; x += CHUNK) {
            const int column =
                placing->flip ? n - x - CHUNK : x; /* first of the chunk, unflipped */
            const __mmask64 load = mask_of(placing->first - column, placing->end - column);
            const __mmask64 store = mask_of(0, n - x);
            const uint8_t *src = placing->src + y * placing->stride + 3 * (column - placing->first);
            uint8_t *dst = out + 3 * ((ptrdiff_t)y * n + x);

            for (int i = y; i < end; i++, src += placing->stride, dst += 3 * (ptrdiff_t)n) {
                __m512i pixels = _mm512_maskz_loadu_epi8(load, src);

                if (placing->flip)
                    pixels = _mm512_permutexvar_epi8(order, pixels);
                _mm512_mask_storeu_epi8(dst, store, pixels);
            }
        }
    }
}

/* n >= 6 pixels of three bytes. */
AVX2 static void flip3_avx2(const uint8_t *src, int n, uint8_t *dst)
{
    /* Five pixels in reverse, after one byte that the next store overwrites; or before it. */
    const __m128i after = _mm_setr_epi8(15, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2);
    const __m128i before = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0);

    for (int i = 0; i + 6 <= n; i += 5) {
        __m128i pixels = _mm_loadu_si128((const __m128i *)(src + 3 * (ptrdiff_t)i));

        _mm_storeu_si128(
            (__m128i *)(dst + 3 * (ptrdiff_t)(n - 5 - i) - 1), _mm_shuffle_epi8(pixels, after));
    }
    src += 3 * (ptrdiff_t)(n - 6);
    _mm_storeu_si128(
        (__m128i *)dst, _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(src + 2)), before));
    dst[15] = src[0];
}

/* n >= 32. */
AVX2 static void copy_avx2(const uint8_t *src, int n, uint8_t *dst)
{
    for (int i = 0; i + 32 < n; i += 32)
        _mm256_storeu_si256((__m256i *)(dst + i), _mm256_loadu_si256((const __m256i *)(src + i)));
    _mm256_storeu_si256(
        (__m256i *)(dst + n - 32), _mm256_loadu_si256((const __m256i *)(src + n - 32)));
}
#endif

static void place_row(
    bool vectors, const uint8_t *src, int n, int channels, bool flip, uint8_t *dst)
{
#if defined(__x86_64__)
    if (vectors && !flip && n * channels >= 32) {
        copy_avx2(src, n * channels, dst);
        return;
    }
    if (vectors && flip && channels == 3 && n >= 6) {
        flip3_avx2(src, n, dst);
        return;
    }
#endif
    if (!flip)
        memcpy(dst, src, (size_t)n * channels);
    for (int i = 0; flip && i < n; i++)
        for (int c = 0; c < channels; c++)
            dst[(size_t)(n - 1 - i) * channels + c] = src[(size_t)i * channels + c];
}

void np_place_rows(const struct np_placing *placing, int nr_rows, uint8_t *out)
{
    const int channels = placing->channels, n = placing->n;
    const int first = placing->flip ? n - placing->end : placing->first;
    const int end = placing->flip ? n - placing->first : placing->end;
    const bool vectors = np_vectors_used() >= NP_AVX2;

#if defined(__x86_64__)
    /* Vectors without masks are faster for a long row that is not flipped. */
    if (channels == 3 && np_vectors_vnni() && (placing->flip || n < 128)) {
        rows_avx512(placing, nr_rows, out);
        return;
    }
#endif
    for (int y = 0; y < nr_rows; y++, out += (size_t)n * channels) {
        if (first > 0)
            memset(out, 0, (size_t)first * channels);
        place_row(vectors, placing->src + y * placing->stride, end - first, channels, placing->flip,
            out + (size_t)first * channels);
        if (end < n)
            memset(out + (size_t)end * channels, 0, (size_t)(n - end) * channels);
    }
}

#define STEP 32

/* gcc vectorizes a loop of a constant length. */
static inline __attribute__((always_inline)) void interleave(
    const uint8_t *restrict planes, size_t plane, size_t n, uint8_t *restrict out)
{
    size_t i = 0;

    for (; i + STEP <= n; i += STEP)
        for (size_t k = i; k < i + STEP; k++) {
            out[3 * k] = planes[k];
            out[3 * k + 1] = planes[plane + k];
            out[3 * k + 2] = planes[2 * plane + k];
        }
    for (; i < n; i++)
        for (size_t c = 0; c < 3; c++)
            out[3 * i + c] = planes[c * plane + i];
}

#if defined(__x86_64__)
AVX2 static void planes_avx2(const uint8_t *planes, size_t plane, size_t n, uint8_t *out)
{
    interleave(planes, plane, n, out);
}
#endif

void np_place_planes(const uint8_t *planes, size_t plane, size_t n, uint8_t *out)
{
#if defined(__x86_64__)
    if (np_vectors_used() >= NP_AVX2) {
        planes_avx2(planes, plane, n, out);
        return;
    }
#endif
    interleave(planes, plane, n, out);
}
