/* The JPEG decoder's kernels for AVX-512 (F and BW): four blocks at a time. */
#if defined(__x86_64__)
#include <immintrin.h>

#define V                          __m512i
#define OP(name)                   _mm512_##name
#define TARGET                     __attribute__((target("avx512f,avx512bw")))
#define LANES                      4
#define LOAD(p)                    _mm512_loadu_si512(p)
#define STORE(p, v)                _mm512_storeu_si512(p, v)
#define XOR                        _mm512_xor_si512
#define OR                         _mm512_or_si512
#define IS_ZERO(v)                 (_mm512_test_epi64_mask(v, v) == 0)
#define AT(p)                      _mm_loadu_si128((const __m128i *)(p))
#define JOIN(p, i)                 join(AT((p)[0] + (i)), AT((p)[1] + (i)), AT((p)[2] + (i)), AT((p)[3] + (i)))
#define REPEAT(p)                  _mm512_broadcast_i32x4(AT(p))
#define LANE(v, i)                 lane_of(v, i)
#define WORDS_AT(p)                _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(p)))
#define STORE_ROWS(out, stride, v) store_rows(out, stride, v)

#define INLINE512 TARGET static inline __attribute__((always_inline))

INLINE512 __m512i join(__m128i a, __m128i b, __m128i c, __m128i d)
{
    const __m256i low = _mm256_set_m128i(b, a), high = _mm256_set_m128i(d, c);

    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

INLINE512 __m128i lane_of(__m512i v, int i)
{
    return i == 0   ? _mm512_castsi512_si128(v)
           : i == 1 ? _mm512_extracti32x4_epi32(v, 1)
           : i == 2 ? _mm512_extracti32x4_epi32(v, 2)
                    : _mm512_extracti32x4_epi32(v, 3);
}

INLINE512 void store_rows(unsigned char *out, long stride, __m512i v)
{
    v = _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), v);
    _mm256_storeu_si256((__m256i *)out, _mm512_castsi512_si256(v));
    _mm256_storeu_si256((__m256i *)(out + stride), _mm512_extracti64x4_epi64(v, 1));
}

#include "loader/pixels/jpeg_simd.h"

const struct np_jpeg_kernels np_jpeg_avx512 = {LANES, clear, idct, widen, blend, rgb, grey};
#endif
