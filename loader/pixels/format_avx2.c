/* The last step of a row for AVX2 with FMA and F16C: eight values a vector. Any thread, on a CPU
 * that has them. */
#include "loader/pixels/format_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline))

#define LANE   16 /* bytes */
#define VECTOR 8  /* values */
#define STEP   (3 * VECTOR)

/* --- one channel ------------------------------------------------------------------------------ */

/* Each third byte, 0xff; from byte (3 - i) % 3 on: the bytes p of a lane with p % 3 == i. */
static const uint8_t thirds[LANE + 2] = {
    0xff, 0, 0, 0xff, 0, 0, 0xff, 0, 0, 0xff, 0, 0, 0xff, 0, 0, 0xff, 0, 0};

TARGET INLINE __m256i each_third(int i)
{
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128((const __m128i *)(thirds + (3 - i % 3) % 3)));
}

TARGET INLINE __m256i two_lanes(const uint8_t *low, const uint8_t *high)
{
    return _mm256_loadu2_m128i((const __m128i *)high, (const __m128i *)low);
}

/* 16 pixels are three lanes, and byte p of channel c is in lane l where (16 l + p) % 3 == c: of the
 * three lanes each place has one byte of the channel. The places of pixel i are (3 i + c) % 16. */
TARGET size_t np_format_channel_avx2(const uint8_t *src, size_t n, int channel, uint8_t *dst)
{
    const __m256i second = each_third(channel + 2), third = each_third(channel + 1);
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13));
    const __m256i places = _mm256_and_si256(
        _mm256_add_epi8(first, _mm256_set1_epi8((char)channel)), _mm256_set1_epi8(LANE - 1));
    size_t i = 0;

    for (; i + 2 * LANE <= n; i += 2 * LANE, src += 6 * LANE) {
        __m256i all = two_lanes(src, src + 3 * LANE);

        all = _mm256_blendv_epi8(all, two_lanes(src + LANE, src + 4 * LANE), second);
        all = _mm256_blendv_epi8(all, two_lanes(src + 2 * LANE, src + 5 * LANE), third);
        _mm256_storeu_si256((__m256i *)(dst + i), _mm256_shuffle_epi8(all, places));
    }
    return i;
}

/* --- values --------------------------------------------------------------------------------- */

TARGET INLINE __m256 value_of(const struct np_format_run *run, const uint8_t *src, int at)
{
    const __m256 pixel =
        _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(src + at))));
    const __m256 low = _mm256_mul_ps(pixel, _mm256_set1_ps(run->unit_low));
    const __m256 unit = _mm256_fmadd_ps(pixel, _mm256_set1_ps(run->unit), low);
    const __m256 centred = _mm256_sub_ps(unit, _mm256_load_ps(run->mean + at));

    return _mm256_fmadd_ps(centred, _mm256_load_ps(run->inverse + at),
        _mm256_mul_ps(centred, _mm256_load_ps(run->inverse_low + at)));
}

/* To the nearest, ties to even. No value is a NaN. */
TARGET INLINE __m128i to_bf16(__m256 value)
{
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i high = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);

    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

TARGET INLINE void store(enum np_row_type type, __m256 value, uint8_t *dst, bool stream)
{
    __m128i half;

    if (type == NP_ROW_F32 && stream)
        _mm256_stream_ps((float *)(void *)dst, value);
    else if (type == NP_ROW_F32)
        _mm256_storeu_ps((float *)(void *)dst, value);
    if (type == NP_ROW_F32)
        return;
    half = type == NP_ROW_BF16 ? to_bf16(value) : _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    if (stream)
        _mm_stream_si128((__m128i *)dst, half);
    else
        _mm_storeu_si128((__m128i *)dst, half);
}

TARGET INLINE size_t convert(const struct np_format_run *run, enum np_row_type type,
    const uint8_t *src, size_t n, uint8_t *dst, bool stream)
{
    const size_t bytes = type == NP_ROW_F32 ? 4 : 2;
    size_t i = 0;

    for (; i + STEP <= n; i += STEP)
#pragma GCC unroll 3
        for (int v = 0; v < 3; v++)
            store(type, value_of(run, src + i, v * VECTOR),
                dst + (i + (size_t)(v * VECTOR)) * bytes, stream);
    return i;
}

TARGET static size_t values(const struct np_format_run *run, enum np_row_type type,
    const uint8_t *src, size_t n, void *dst, bool stream)
{
    switch (type) { /* a constant makes it faster */
    case NP_ROW_F32:
        return stream ? convert(run, NP_ROW_F32, src, n, dst, true)
                      : convert(run, NP_ROW_F32, src, n, dst, false);
    case NP_ROW_BF16:
        return stream ? convert(run, NP_ROW_BF16, src, n, dst, true)
                      : convert(run, NP_ROW_BF16, src, n, dst, false);
    case NP_ROW_F16:
        return stream ? convert(run, NP_ROW_F16, src, n, dst, true)
                      : convert(run, NP_ROW_F16, src, n, dst, false);
    default: return 0;
    }
}

static void fence(void)
{
    _mm_sfence();
}

const struct np_format_kernels np_format_avx2 = {
    .channel = np_format_channel_avx2, .values = values, .fence = fence};
#endif
