/* The JPEG decoder's kernels for AVX2: two blocks at a time. */
#if defined(__x86_64__)
#include <immintrin.h>

#define V                          __m256i
#define OP(name)                   _mm256_##name
#define TARGET                     __attribute__((target("avx2")))
#define LANES                      2
#define LOAD(p)                    _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v)                _mm256_storeu_si256((__m256i *)(p), v)
#define XOR                        _mm256_xor_si256
#define OR                         _mm256_or_si256
#define IS_ZERO(v)                 _mm256_testz_si256(v, v)
#define AT(p)                      _mm_loadu_si128((const __m128i *)(p))
#define JOIN(p, i)                 _mm256_set_m128i(AT((p)[1] + (i)), AT((p)[0] + (i)))
#define REPEAT(p)                  _mm256_broadcastsi128_si256(AT(p))
#define LANE(v, i)                 ((i) ? _mm256_extracti128_si256(v, 1) : _mm256_castsi256_si128(v))
#define WORDS_AT(p)                _mm256_cvtepu8_epi16(AT(p))
#define STORE_ROWS(out, stride, v) store_rows(out, stride, v)

TARGET static inline void store_rows(unsigned char *out, long stride, __m256i v)
{
    v = _mm256_permute4x64_epi64(v, 0xd8);
    _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)(out + stride), _mm256_extracti128_si256(v, 1));
}

#include "loader/pixels/jpeg_simd.h"

const struct np_jpeg_kernels np_jpeg_avx2 = {LANES, clear, idct, widen, blend, rgb, grey};
#endif
