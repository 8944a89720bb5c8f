/* The last step of a row for AVX-512: 16 values a vector. Any thread, on a CPU that has it. */
#include "loader/pixels/format_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw")))
#define INLINE static inline __attribute__((always_inline))

#define VECTOR 16 /* values */
#define STEP   (3 * VECTOR)

_Static_assert(STEP == NP_FORMAT_RUN, "the constants of three vectors");

TARGET INLINE __m512 value_of(const struct np_format_run *run, const uint8_t *src, int at)
{
    const __m512 pixel =
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(src + at))));
    const __m512 low = _mm512_mul_ps(pixel, _mm512_set1_ps(run->unit_low));
    const __m512 unit = _mm512_fmadd_ps(pixel, _mm512_set1_ps(run->unit), low);
    const __m512 centred = _mm512_sub_ps(unit, _mm512_load_ps(run->mean + at));

    return _mm512_fmadd_ps(centred, _mm512_load_ps(run->inverse + at),
        _mm512_mul_ps(centred, _mm512_load_ps(run->inverse_low + at)));
}

/* To the nearest, ties to even. No value is a NaN. */
TARGET INLINE __m256i to_bf16(__m512 value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));

    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_add_epi32(bits, half), 16));
}

TARGET INLINE void store(enum np_row_type type, __m512 value, uint8_t *dst, bool stream)
{
    __m256i half;

    if (type == NP_ROW_F32 && stream)
        _mm512_stream_ps((float *)(void *)dst, value);
    else if (type == NP_ROW_F32)
        _mm512_storeu_ps(dst, value);
    if (type == NP_ROW_F32)
        return;
    half = type == NP_ROW_BF16 ? to_bf16(value) : _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    if (stream)
        _mm256_stream_si256((__m256i *)dst, half);
    else
        _mm256_storeu_si256((__m256i *)dst, half);
}

#include "loader/pixels/format_simd.h"

const struct np_format_kernels np_format_avx512 = {np_format_channel_avx2, values, fence};
#endif
