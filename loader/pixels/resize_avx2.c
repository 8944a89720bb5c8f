/* The inner loops of a resize for AVX2: pmaddubsw and pmaddwd add the products of two taps, pixels
 * by the high digit and by the low digit of a weight. Any thread, on a CPU that has it. */
#include "loader/pixels/resize_kernels.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2   __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline))

#define TAPS   2  /* of a step */
#define VECTOR 32 /* bytes */
#define LANE   16
#define ROWS   16 /* that across() transposes */
#define HALF   (1 << (NP_RESIZE_BITS - 17))

/* --- weights ------------------------------------------------------------------------------- */

static int steps_of(int count)
{
    return (count + TAPS - 1) / TAPS;
}

/* Two weights w = high 2^16 + low -> an i8 of each in *ret_high, twice, and an i16 of each in
 * *ret_low. pmaddubsw needs |high| of both together <= 128: |w| of both together is below 1.3. */
static void digits(const int32_t *weight, int count, int32_t *ret_high, int32_t *ret_low)
{
    const uint32_t a = (uint32_t)weight[0], b = count > 1 ? (uint32_t)weight[1] : 0;
    const uint32_t high_a = (a + 0x8000) >> 16 & 0xff, high_b = (b + 0x8000) >> 16 & 0xff;

    *ret_high = (int32_t)((high_a | high_b << 8) * 0x10001);
    *ret_low = (int32_t)((a & 0xffff) | b << 16);
}

/* For each scaled position and step: the high digits, the low digits. */
static size_t down_layout(const struct np_taps *taps, struct np_packed *packed)
{
    packed->steps = steps_of(taps->max_count);
    return (size_t)taps->n * (size_t)packed->steps * 2 * sizeof(int32_t);
}

static void pack(const struct np_taps *taps, struct np_packed *packed)
{
    const size_t ints = (size_t)packed->steps * 2;

    memset(packed->data, 0, (size_t)taps->n * ints * sizeof(int32_t));
    for (int i = 0; i < taps->n; i++) {
        const int32_t *weight = taps->weight + (size_t)i * taps->room;
        int32_t *out = (int32_t *)packed->data + (size_t)i * ints;

        for (int k = 0; k < taps->count[i]; k += TAPS)
            digits(weight + k, taps->count[i] - k, &out[k], &out[k + 1]);
    }
}

/* --- sums ---------------------------------------------------------------------------------- */

/* The input of 32 sums: two lanes of 16 bytes of each tap, and the weights of each lane. */
struct lanes {
    const uint8_t *src[2];
    const int32_t *digit[2];
    bool apart; /* if not, the second lane follows the first and has the same weights */
};

AVX2 INLINE __m256i two_lanes(const uint8_t *a, const uint8_t *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
        _mm_loadu_si128((const __m128i *)b), 1);
}

AVX2 INLINE __m256i pixels_of(const struct lanes *lanes, ptrdiff_t at)
{
    return lanes->apart ? two_lanes(lanes->src[0] + at, lanes->src[1] + at)
                        : _mm256_loadu_si256((const __m256i *)(lanes->src[0] + at));
}

AVX2 INLINE __m256i digits_of(const struct lanes *lanes, int at)
{
    const __m256i both = _mm256_set1_epi32(lanes->digit[0][at]);

    return lanes->apart ? _mm256_blend_epi32(both, _mm256_set1_epi32(lanes->digit[1][at]), 0xf0)
                        : both;
}

/* 16 sums high 2^16 + low: high as i16, low as i32, of every other sum. high and low may wrap
 * around: a sum fits i32, and its bits do not depend on that. */
struct sums {
    __m256i high, even, odd;
};

/* pairs: the bytes of two taps, side by side. */
AVX2 INLINE struct sums products(__m256i pairs, __m256i high, __m256i low)
{
    const __m256i even = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1));
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1));

    return (struct sums){_mm256_maddubs_epi16(pairs, high),
        _mm256_madd_epi16(_mm256_shuffle_epi8(pairs, even), low),
        _mm256_madd_epi16(_mm256_shuffle_epi8(pairs, odd), low)};
}

AVX2 INLINE struct sums add(struct sums a, struct sums b)
{
    return (struct sums){_mm256_add_epi16(a.high, b.high), _mm256_add_epi32(a.even, b.even),
        _mm256_add_epi32(a.odd, b.odd)};
}

AVX2 INLINE __m256i join(struct sums sums)
{
    const __m256i low = _mm256_blend_epi16(_mm256_srli_epi32(sums.even, 16), sums.odd, 0xaa);
    const __m256i sum = _mm256_add_epi16(_mm256_add_epi16(sums.high, low), _mm256_set1_epi16(HALF));

    return _mm256_srai_epi16(sum, NP_RESIZE_BITS - 16);
}

/* The products of two taps. count: of all taps; the weight of one past them is 0. */
AVX2 INLINE void sums_of_step(const struct lanes *lanes, ptrdiff_t stride, int step, int count,
    struct sums *ret_first, struct sums *ret_second)
{
    const ptrdiff_t at = TAPS * step * stride;
    const __m256i a = pixels_of(lanes, at);
    const __m256i b = pixels_of(lanes, at + (TAPS * step + 1 < count ? stride : 0));
    const __m256i high = digits_of(lanes, 2 * step), low = digits_of(lanes, 2 * step + 1);

    *ret_first = products(_mm256_unpacklo_epi8(a, b), high, low);
    *ret_second = products(_mm256_unpackhi_epi8(a, b), high, low);
}

/* stride: from tap to tap. */
AVX2 INLINE __m256i sum32(const struct lanes *lanes, ptrdiff_t stride, int steps, int count)
{
    struct sums first, second, more_first, more_second;

    sums_of_step(lanes, stride, 0, count, &first, &second);
    for (int step = 1; step < steps; step++) {
        sums_of_step(lanes, stride, step, count, &more_first, &more_second);
        first = add(first, more_first);
        second = add(second, more_second);
    }
    return _mm256_packus_epi16(join(first), join(second));
}

/* --- across -------------------------------------------------------------------------------- */

/* Blocks of rows are transposed, so that the bytes of a column are a lane. Then the pass across is
 * one down, and its output is transposed back. */
struct columns {
    int first;       /* source pixel */
    int n_in, n_out; /* columns of bytes, a multiple of VECTOR */
    uint8_t *in, *out;
};

static int round_up(int bytes)
{
    return (bytes + VECTOR - 1) / VECTOR * VECTOR;
}

/* In packed->data behind the weights. */
static struct columns columns_of(const struct np_taps *taps, const struct np_packed *packed)
{
    const int a = taps->start[0], b = taps->start[taps->n - 1]; /* starts fall in a flipped row */
    const int first = a < b ? a : b, last = a < b ? b : a;
    struct columns columns = {.first = first,
        .n_in = round_up(3 * (last - first + packed->steps * TAPS)),
        .n_out = round_up(3 * (taps->n + 1))};

    columns.in = packed->data + (size_t)taps->n * (size_t)packed->steps * 2 * sizeof(int32_t);
    columns.out = columns.in + (ptrdiff_t)columns.n_in * LANE;
    return columns;
}

static size_t across_layout(const struct np_taps *taps, struct np_packed *packed)
{
    const size_t bytes = down_layout(taps, packed);
    const struct columns columns = columns_of(taps, packed);

    return bytes + ((size_t)columns.n_in + (size_t)columns.n_out) * LANE;
}

/* Transposes the 16 x 16 bytes of the first lanes, and those of the second lanes. Byte i of vector
 * j has the number 16 j + i; a round rotates the bits of each number by one, and four swap i and
 * j. */
AVX2 INLINE void transpose(__m256i v[16])
{
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
        __m256i w[16];

#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            w[2 * i] = _mm256_unpacklo_epi8(v[i], v[i + 8]);
            w[2 * i + 1] = _mm256_unpackhi_epi8(v[i], v[i + 8]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            v[i] = w[i];
    }
}

AVX2 static void rows_to_columns(const uint8_t *const src[ROWS], const struct columns *columns)
{
    for (int c = 0; c < columns->n_in; c += VECTOR) {
        uint8_t *out = columns->in + (ptrdiff_t)c * LANE;
        __m256i v[16];

#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++)
            v[r] =
                _mm256_loadu_si256((const __m256i *)(src[r] + 3 * (ptrdiff_t)columns->first + c));
        transpose(v);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            _mm_storeu_si128((__m128i *)(out + i * LANE), _mm256_castsi256_si128(v[i]));
            _mm_storeu_si128((__m128i *)(out + (i + 16) * LANE), _mm256_extracti128_si256(v[i], 1));
        }
    }
}

AVX2 static void columns_to_rows(const struct columns *columns, uint8_t *const dst[ROWS])
{
    for (int c = 0; c < columns->n_out; c += VECTOR) {
        const uint8_t *in = columns->out + (ptrdiff_t)c * LANE;
        __m256i v[16];

#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            v[i] = two_lanes(in + i * LANE, in + (i + 16) * LANE);
        transpose(v);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++)
            _mm256_storeu_si256((__m256i *)(dst[r] + c), v[r]);
    }
}

/* Two pixels at a time: six columns, three vectors, the second with a column of each pixel. */
AVX2 INLINE void across_steps(const struct np_taps *taps, const struct np_packed *packed,
    const struct columns *columns, int steps)
{
    const int32_t *digit = (const int32_t *)packed->data;
    uint8_t *out = columns->out;

    for (int i = 0; i < taps->n; i += 2, out += 6 * LANE) {
        const int j = i + 1 < taps->n ? i + 1 : i;
        const uint8_t *a = columns->in + 3 * LANE * (ptrdiff_t)(taps->start[i] - columns->first);
        const uint8_t *b = columns->in + 3 * LANE * (ptrdiff_t)(taps->start[j] - columns->first);
        const int32_t *digit_a = digit + 2 * (ptrdiff_t)steps * i;
        const int32_t *digit_b = digit + 2 * (ptrdiff_t)steps * j;
        const struct lanes lanes[3] = {{{a}, {digit_a}, false},
            {{a + 2 * LANE, b}, {digit_a, digit_b}, true}, {{b + LANE}, {digit_b}, false}};

#pragma GCC unroll 3
        for (int v = 0; v < 3; v++)
            _mm256_storeu_si256(
                (__m256i *)(out + v * VECTOR), sum32(&lanes[v], 3 * LANE, steps, TAPS * steps));
    }
}

AVX2 static void across(const struct np_taps *taps, const struct np_packed *packed,
    const uint8_t *const src[], uint8_t *const dst[])
{
    const struct columns columns = columns_of(taps, packed);

    rows_to_columns(src, &columns);
    switch (packed->steps) { /* a constant makes it faster */
    case 1: across_steps(taps, packed, &columns, 1); break;
    case 2: across_steps(taps, packed, &columns, 2); break;
    default: across_steps(taps, packed, &columns, packed->steps); break;
    }
    columns_to_rows(&columns, dst);
}

AVX2 INLINE void down_steps(const uint8_t *src, ptrdiff_t stride, const int32_t *digit, int steps,
    int count, int bytes, uint8_t *dst)
{
    struct lanes lanes = {{src}, {digit}, false};
    int x = 0;

    for (; x + VECTOR <= bytes; x += VECTOR, lanes.src[0] += VECTOR)
        _mm256_storeu_si256((__m256i *)(dst + x), sum32(&lanes, stride, steps, count));
    if (x < bytes) { /* the last bytes, some of them again */
        const int from = bytes < VECTOR ? 0 : bytes - VECTOR;
        uint8_t tail[VECTOR];

        lanes.src[0] = src + from;
        _mm256_storeu_si256((__m256i *)tail, sum32(&lanes, stride, steps, count));
        memcpy(dst + from, tail, (size_t)(bytes - from));
    }
}

AVX2 static void down(const struct np_taps *taps, const struct np_packed *packed, int i,
    const uint8_t *src, ptrdiff_t stride, int bytes, uint8_t *dst)
{
    const int32_t *digit = (const int32_t *)packed->data + (size_t)i * (size_t)packed->steps * 2;
    const int count = taps->count[i];

    switch (steps_of(count)) {
    case 1: down_steps(src, stride, digit, 1, count, bytes, dst); break;
    case 2: down_steps(src, stride, digit, 2, count, bytes, dst); break;
    default: down_steps(src, stride, digit, steps_of(count), count, bytes, dst); break;
    }
}

const struct np_resize_kernels np_resize_avx2 = {
    .rows = ROWS,
    .across_layout = across_layout,
    .down_layout = down_layout,
    .across_pack = pack,
    .down_pack = pack,
    .across_reads = 48,
    .across = across,
    .down = down,
};
#endif
