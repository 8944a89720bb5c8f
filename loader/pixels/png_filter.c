/* See png_filter.h. A byte is predicted from a, the byte of the previous pixel, b, of the pixel
 * above, and c, of the pixel before that above. */
#include "loader/pixels/png_filter.h"

#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum filter { NONE, SUB, UP, AVERAGE, PAETH };

static int predict(enum filter filter, int a, int b, int c)
{
    const int to_a = abs(b - c), to_b = abs(a - c), to_c = abs(a + b - 2 * c);

    switch (filter) {
    case NONE: break;
    case SUB: return a;
    case UP: return b;
    case AVERAGE: return (a + b) / 2;
    case PAETH: return to_a <= to_b && to_a <= to_c ? a : to_b <= to_c ? b : c;
    }
    return 0;
}

static void unfilter_plain(int filter, uint8_t *row, const uint8_t *above, size_t n, int pixel)
{
    const size_t before = (size_t)pixel;

    for (size_t i = 0; i < n; i++)
        row[i] = (uint8_t)(row[i] + predict((enum filter)filter, i < before ? 0 : row[i - before],
                                        above[i], i < before ? 0 : above[i - before]));
}

#if defined(__x86_64__)
#include <emmintrin.h>

/* The bytes of a pixel, in lanes of 16 bits. */
INLINE __m128i load(const uint8_t *at, size_t pixel)
{
    uint32_t bytes = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;

    if (pixel == 4)
        bytes |= (uint32_t)at[3] << 24;
    return _mm_unpacklo_epi8(_mm_cvtsi32_si128((int)bytes), _mm_setzero_si128());
}

INLINE void store(uint8_t *at, size_t pixel, __m128i v)
{
    const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(v, v));

    memcpy(at, &bytes, pixel);
}

INLINE __m128i absolute(__m128i v)
{
    return _mm_max_epi16(v, _mm_sub_epi16(_mm_setzero_si128(), v));
}

INLINE __m128i choose(__m128i where, __m128i a, __m128i b)
{
    return _mm_or_si128(_mm_and_si128(where, a), _mm_andnot_si128(where, b));
}

INLINE __m128i paeth(__m128i a, __m128i b, __m128i c)
{
    const __m128i bc = _mm_sub_epi16(b, c), ac = _mm_sub_epi16(a, c);
    const __m128i to_a = absolute(bc), to_b = absolute(ac), to_c = absolute(_mm_add_epi16(bc, ac));
    const __m128i least = _mm_min_epi16(to_c, _mm_min_epi16(to_a, to_b));

    return choose(_mm_cmpeq_epi16(least, to_a), a, choose(_mm_cmpeq_epi16(least, to_b), b, c));
}

INLINE void unfilter(enum filter filter, uint8_t *row, const uint8_t *above, size_t n, size_t pixel)
{
    const __m128i bytes = _mm_set1_epi16(255);
    __m128i a = _mm_setzero_si128(), c = a;

    for (size_t i = 0; i < n; i += pixel) {
        const __m128i x = load(row + i, pixel), b = load(above + i, pixel);
        const __m128i predicted = filter == SUB       ? a
                                  : filter == AVERAGE ? _mm_srli_epi16(_mm_add_epi16(a, b), 1)
                                                      : paeth(a, b, c);

        a = _mm_and_si128(_mm_add_epi16(x, predicted), bytes);
        c = b;
        store(row + i, pixel, a);
    }
}

static void add(uint8_t *row, const uint8_t *above, size_t n)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        _mm_storeu_si128(
            (__m128i *)(row + i), _mm_add_epi8(_mm_loadu_si128((const __m128i *)(row + i)),
                                      _mm_loadu_si128((const __m128i *)(above + i))));
    for (; i < n; i++)
        row[i] = (uint8_t)(row[i] + above[i]);
}

void np_png_unfilter(int filter, uint8_t *row, const uint8_t *above, size_t n, int pixel)
{
    switch (filter << 4 | pixel) {
    case UP << 4 | 1:
    case UP << 4 | 3:
    case UP << 4 | 4: add(row, above, n); break;
    case SUB << 4 | 3: unfilter(SUB, row, above, n, 3); break;
    case SUB << 4 | 4: unfilter(SUB, row, above, n, 4); break;
    case AVERAGE << 4 | 3: unfilter(AVERAGE, row, above, n, 3); break;
    case AVERAGE << 4 | 4: unfilter(AVERAGE, row, above, n, 4); break;
    case PAETH << 4 | 3: unfilter(PAETH, row, above, n, 3); break;
    case PAETH << 4 | 4: unfilter(PAETH, row, above, n, 4); break;
    default: unfilter_plain(filter, row, above, n, pixel);
    }
}

#else

void np_png_unfilter(int filter, uint8_t *row, const uint8_t *above, size_t n, int pixel)
{
    unfilter_plain(filter, row, above, n, pixel);
}
#endif
