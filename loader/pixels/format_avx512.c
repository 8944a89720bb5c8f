/* The last step of a row for AVX-512: 16 values of float32 are computed, 32 of a 16-bit type looked
 * up, in a vector. Any thread, on a CPU that has it. */
#include "loader/pixels/format_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw")))
#define INLINE static inline __attribute__((always_inline))

#define VECTOR 16 /* values of float32 */
#define HALVES 32 /* values of 16 bits */
#define TABLE  8  /* vectors of 256 values of 16 bits */

_Static_assert(3 * VECTOR == NP_FORMAT_RUN, "the constants of three vectors");

/* --- float32 -------------------------------------------------------------------------------- */

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

TARGET INLINE size_t compute(
    const struct np_format_run *run, const uint8_t *src, size_t n, float *dst, bool stream)
{
    size_t i = 0;

    for (; i + 3 * VECTOR <= n; i += 3 * VECTOR)
#pragma GCC unroll 3
        for (int v = 0; v < 3; v++) {
            const __m512 value = value_of(run, src + i, v * VECTOR);

            if (stream)
                _mm512_stream_ps(dst + i + v * VECTOR, value);
            else
                _mm512_storeu_ps(dst + i + v * VECTOR, value);
        }
    return i;
}

TARGET static size_t values(const struct np_format_run *run, enum np_row_type type,
    const uint8_t *src, size_t n, void *dst, bool stream)
{
    if (type != NP_ROW_F32)
        return 0;
    return stream ? compute(run, src, n, dst, true) : compute(run, src, n, dst, false);
}

/* --- 16 bits -------------------------------------------------------------------------------- */

struct table {
    __m512i part[TABLE];
};

TARGET INLINE struct table load_table(const uint16_t *values)
{
    struct table table;

    for (int i = 0; i < TABLE; i++)
        table.part[i] = _mm512_loadu_si512(values + i * HALVES);
    return table;
}

/* One instruction finds a value among 64 of them. */
TARGET INLINE __m512i find(const struct table *table, __m512i pixels)
{
    const __mmask32 bit_6 = _mm512_test_epi16_mask(pixels, _mm512_set1_epi16(0x40));
    const __mmask32 bit_7 = _mm512_test_epi16_mask(pixels, _mm512_set1_epi16(0x80));
    __m512i of[4];

    for (int i = 0; i < 4; i++)
        of[i] = _mm512_permutex2var_epi16(table->part[2 * i], pixels, table->part[2 * i + 1]);
    return _mm512_mask_blend_epi16(bit_7, _mm512_mask_blend_epi16(bit_6, of[0], of[1]),
        _mm512_mask_blend_epi16(bit_6, of[2], of[3]));
}

TARGET INLINE __m512i load_pixels(const uint8_t *src)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)src));
}

TARGET INLINE void store(__m512i halves, uint16_t *dst, bool stream)
{
    if (stream)
        _mm512_stream_si512((__m512i *)(void *)dst, halves);
    else
        _mm512_storeu_si512(dst, halves);
}

TARGET INLINE size_t find_line(
    const uint16_t *values, const uint8_t *src, size_t n, uint16_t *dst, bool stream)
{
    const struct table table = load_table(values);
    size_t i = 0;

    for (; i + HALVES <= n; i += HALVES)
        store(find(&table, load_pixels(src + i)), dst + i, stream);
    return i;
}

/* The places of three vectors of which each third value is of a channel. A value is taken from two
 * of them, and then from these and the last one. */
struct places {
    __m512i split[3][2], merge[3][2]; /* by channel; by vector */
};

TARGET static struct places find_places(void)
{
    struct places places;
    uint16_t numbers[HALVES];
    __m512i iota;

    for (int i = 0; i < HALVES; i++)
        numbers[i] = (uint16_t)i;
    iota = _mm512_loadu_si512(numbers);
    for (int i = 0; i < 3; i++) {
        const __m512i from = _mm512_add_epi16(/* pixel p of channel i is value 3 p + i */
            _mm512_mullo_epi16(iota, _mm512_set1_epi16(3)), _mm512_set1_epi16((short)i));
        const __m512i to = _mm512_add_epi16(iota, _mm512_set1_epi16((short)(i * HALVES)));
        const __m512i pixel = _mm512_mulhi_epu16(to, _mm512_set1_epi16(65536 / 3 + 1));
        const __m512i channel =
            _mm512_sub_epi16(to, _mm512_mullo_epi16(pixel, _mm512_set1_epi16(3)));
        const __m512i next = _mm512_add_epi16(pixel, _mm512_set1_epi16(HALVES));

        places.split[i][0] = from;
        places.split[i][1] = _mm512_mask_sub_epi16(iota,
            _mm512_cmpge_epu16_mask(from, _mm512_set1_epi16(64)), from, _mm512_set1_epi16(HALVES));
        places.merge[i][0] = _mm512_mask_blend_epi16(
            _mm512_cmpeq_epi16_mask(channel, _mm512_set1_epi16(1)), pixel, next);
        places.merge[i][1] = _mm512_mask_blend_epi16(
            _mm512_cmpeq_epi16_mask(channel, _mm512_set1_epi16(2)), iota, next);
    }
    return places;
}

/* Value p of the result is value places[..][p] of three vectors. */
TARGET INLINE __m512i pick(const __m512i of[3], const __m512i places[2])
{
    return _mm512_permutex2var_epi16(
        _mm512_permutex2var_epi16(of[0], places[0], of[1]), places[1], of[2]);
}

TARGET INLINE size_t find_mixed(
    const uint16_t *values, const uint8_t *src, size_t n, uint16_t *dst, bool stream)
{
    const struct table tables[3] = {
        load_table(values), load_table(values + 256), load_table(values + 512)};
    const struct places places = find_places();
    size_t i = 0;

    for (; i + 3 * HALVES <= n; i += 3 * HALVES) {
        const __m512i pixels[3] = {
            load_pixels(src + i), load_pixels(src + i + HALVES), load_pixels(src + i + 2 * HALVES)};
        __m512i halves[3];

#pragma GCC unroll 3
        for (int c = 0; c < 3; c++)
            halves[c] = find(&tables[c], pick(pixels, places.split[c]));
#pragma GCC unroll 3
        for (int v = 0; v < 3; v++)
            store(pick(halves, places.merge[v]), dst + i + v * HALVES, stream);
    }
    return i;
}

TARGET static size_t halves(const uint16_t (*values)[256], int period, const uint8_t *src, size_t n,
    uint16_t *dst, bool stream)
{
    if (period == 1)
        return stream ? find_line(values[0], src, n, dst, true)
                      : find_line(values[0], src, n, dst, false);
    if (period == 3)
        return stream ? find_mixed(values[0], src, n, dst, true)
                      : find_mixed(values[0], src, n, dst, false);
    return 0;
}

static void fence(void)
{
    _mm_sfence();
}

const struct np_format_kernels np_format_avx512 = {
    .channel = np_format_channel_avx2, .values = values, .halves = halves, .fence = fence};
#endif
