/* The inner loops of a resize for AVX-512 with VNNI and VBMI: vpdpbusd adds the products of four
 * taps, u8 pixels by signed 8-bit digits of a weight, to a 32-bit sum. Any thread, on a CPU that
 * has them. */
#include "loader/pixels/resize_kernels.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi")))
#define INLINE static inline __attribute__((always_inline))

#define DIGITS 3
#define TAPS   4  /* of a step */
#define PIXELS 5  /* at most: 15 of the 16 sums of a vector */
#define VECTOR 64 /* bytes */
#define ROWS   4  /* that across() works on at once */
#define HALF   (1 << (NP_RESIZE_BITS - 1))

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* --- weights ------------------------------------------------------------------------------- */

/* Four weights -> i32 d[3], each with a byte a tap: w = d[2] 2^16 + d[1] 2^8 + d[0], digits of
 * -128..127. w + 0x8080 has their bytes, d[1] and d[0] with the highest bit inverted. |w| must be
 * below 2^23 - 2^16 (1.98); bilinear's are at most 1, bicubic's 1.13 (two taps, where the edge of
 * the picture cuts off the others). */
AVX512 INLINE __m128i digits(const int32_t *weight, int count)
{
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i invert = _mm_setr_epi32((int)0x80808080u, (int)0x80808080u, 0, 0);
    const int n = count < 0 ? 0 : min(count, TAPS);
    const __m128i w = _mm_maskz_loadu_epi32((__mmask8)((1 << n) - 1), weight);

    return _mm_xor_si128(_mm_shuffle_epi8(_mm_add_epi32(w, _mm_set1_epi32(0x8080)), order), invert);
}

static int steps_of(int count)
{
    return (count + TAPS - 1) / TAPS;
}

/* Starts rise, or fall if the row is flipped. */
static int first_start(const struct np_taps *taps, int i, int pixels)
{
    return min(taps->start[i], taps->start[min(i + pixels, taps->n) - 1]);
}

static int last_start(const struct np_taps *taps, int i, int pixels)
{
    const int a = taps->start[i], b = taps->start[min(i + pixels, taps->n) - 1];

    return a > b ? a : b;
}

/* True if one load has the first four taps of each `pixels` pixels. */
static bool fit(const struct np_taps *taps, int pixels)
{
    for (int i = 0; i < taps->n; i += pixels)
        if (3 * (last_start(taps, i, pixels) - first_start(taps, i, pixels) + TAPS) > VECTOR)
            return false;
    return true;
}

/* Even: across() computes two groups at a time. */
static int groups_of(const struct np_taps *taps, const struct np_packed *packed)
{
    return (taps->n + 2 * packed->pixels - 1) / (2 * packed->pixels) * 2;
}

static size_t group_bytes(int steps)
{
    return (size_t)(1 + DIGITS * steps) * VECTOR;
}

/* A vector with the place that each byte of four groups has when their sums are packed. Then, for
 * each group: the byte of the load for each byte of the vector; for each step, a vector of each
 * digit. The last of the 16 sums is not used: the first vector has the load's offset there. */
static size_t across_layout(const struct np_taps *taps, struct np_packed *packed)
{
    packed->pixels = PIXELS;
    while (packed->pixels > 1 && !fit(taps, packed->pixels))
        packed->pixels--;
    packed->steps = steps_of(taps->max_count);
    return VECTOR + (size_t)groups_of(taps, packed) * group_bytes(packed->steps);
}

/* A pixel: three sums, one a channel. The next pixel overwrites the fourth. */
AVX512 INLINE void pack_pixel(const struct np_taps *taps, int i, int first, int steps, uint8_t *out)
{
    const __m128i channels = _mm_setr_epi32(0x09060300, 0x0a070401, 0x0b080502, 0);
    const int32_t *weight = taps->weight + (size_t)i * taps->room;

    _mm_storeu_si128((__m128i *)out,
        _mm_add_epi32(channels, _mm_set1_epi32(3 * (taps->start[i] - first) * 0x01010101)));
    out += VECTOR;
    for (int s = 0; s < steps; s++, out += DIGITS * VECTOR) {
        const __m128i d = digits(weight + TAPS * s, taps->count[i] - TAPS * s);

        _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi32(d, 0x00));
        _mm_storeu_si128((__m128i *)(out + VECTOR), _mm_shuffle_epi32(d, 0x55));
        _mm_storeu_si128((__m128i *)(out + 2 * VECTOR), _mm_shuffle_epi32(d, 0xaa));
    }
}

AVX512 static void across_pack(const struct np_taps *taps, struct np_packed *packed)
{
    const int pixels = packed->pixels;
    uint8_t *out = packed->data;

    for (int b = 0; b < VECTOR; b++) {
        const int group = b / (3 * pixels), sum = b % (3 * pixels);

        out[b] = (uint8_t)(sum / 4 * 16 + group * 4 + sum % 4);
    }
    out += VECTOR;
    for (int g = 0; g < groups_of(taps, packed); g++, out += group_bytes(packed->steps)) {
        const int i = min(g * pixels, taps->n - 1), first = first_start(taps, i, pixels);
        const int32_t offset = 3 * first;

        for (int p = 0; p < pixels; p++)
            pack_pixel(taps, min(i + p, taps->n - 1), first, packed->steps, out + 12 * p);
        memcpy(out + VECTOR - 4, &offset, sizeof(offset));
    }
}

/* For each scaled row and step: the digits. */
static size_t down_layout(const struct np_taps *taps, struct np_packed *packed)
{
    packed->pixels = 0;
    packed->steps = steps_of(taps->max_count);
    return (size_t)taps->n * (size_t)packed->steps * TAPS * sizeof(int32_t);
}

AVX512 static void down_pack(const struct np_taps *taps, struct np_packed *packed)
{
    for (int i = 0; i < taps->n; i++) {
        const int32_t *weight = taps->weight + (size_t)i * taps->room;
        int32_t *out = (int32_t *)packed->data + (size_t)i * (size_t)packed->steps * TAPS;

        for (int k = 0; k < taps->count[i]; k += TAPS)
            _mm_storeu_si128((__m128i *)(out + k), digits(weight + k, taps->count[i] - k));
    }
}

/* --- sums ---------------------------------------------------------------------------------- */

struct sums {
    __m512i digit[DIGITS];
};

AVX512 INLINE struct sums sums_start(void)
{
    return (struct sums){{_mm512_set1_epi32(HALF), _mm512_setzero_si512(), _mm512_setzero_si512()}};
}

AVX512 INLINE __m512i dot(__m512i sum, __m512i pixels, __m512i weights)
{
    return _mm512_dpbusd_epi32(sum, pixels, weights);
}

AVX512 INLINE void sums_add(struct sums *sums, __m512i pixels, const struct sums *weights)
{
#pragma GCC unroll 3
    for (int k = 0; k < DIGITS; k++)
        sums->digit[k] = dot(sums->digit[k], pixels, weights->digit[k]);
}

/* Adds the last step and returns floor(sum / 2^16): a sum rounded down after each digit and then
 * again is the sum rounded down once. only: it is the only step. */
AVX512 INLINE __m512i sums_end(
    const struct sums *sums, __m512i pixels, const struct sums *weights, bool only)
{
    __m512i sum = _mm512_srai_epi32(dot(sums->digit[0], pixels, weights->digit[0]), 8);

    if (!only)
        sum = _mm512_add_epi32(sum, sums->digit[1]);
    sum = _mm512_srai_epi32(dot(sum, pixels, weights->digit[1]), 8);
    if (!only)
        sum = _mm512_add_epi32(sum, sums->digit[2]);
    return dot(sum, pixels, weights->digit[2]);
}

/* Divides sums by what remains of 2^22. Each lane of 128 bits: four i16 of a, four of b. What does
 * not fit 16 bits clips to the same byte. */
AVX512 INLINE __m512i narrow(__m512i a, __m512i b)
{
    return _mm512_srai_epi16(_mm512_packs_epi32(a, b), NP_RESIZE_BITS - 16);
}

/* --- across -------------------------------------------------------------------------------- */

AVX512 INLINE struct sums load_weights(const uint8_t *table)
{
    return (struct sums){{_mm512_loadu_si512(table), _mm512_loadu_si512(table + VECTOR),
        _mm512_loadu_si512(table + 2 * VECTOR)}};
}

/* One group of pixels of each row. */
AVX512 INLINE void across_group(
    const uint8_t *table, int steps, const uint8_t *const s[ROWS], __m512i ret_sums[ROWS])
{
    const struct sums start = sums_start();
    const __m512i order = _mm512_loadu_si512(table);
    struct sums sums[ROWS] = {start, start, start, start}, weights;
    int32_t offset;
    ptrdiff_t at;

    memcpy(&offset, table + VECTOR - 4, sizeof(offset));
    at = offset;
    table += VECTOR;
    for (int step = 1; step < steps; step++, at += 3 * TAPS, table += DIGITS * VECTOR) {
        weights = load_weights(table);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++)
            sums_add(
                &sums[r], _mm512_permutexvar_epi8(order, _mm512_loadu_si512(s[r] + at)), &weights);
    }
    weights = load_weights(table);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
        ret_sums[r] = sums_end(&sums[r],
            _mm512_permutexvar_epi8(order, _mm512_loadu_si512(s[r] + at)), &weights, steps == 1);
}

/* Two groups: each lane of 128 bits has four sums of either, as i16. */
AVX512 INLINE void across_two(
    const uint8_t *table, int steps, const uint8_t *const s[ROWS], __m512i ret_sums[ROWS])
{
    __m512i a[ROWS], b[ROWS];

    across_group(table, steps, s, a);
    across_group(table + group_bytes(steps), steps, s, b);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
        ret_sums[r] = narrow(a[r], b[r]);
}

AVX512 INLINE void across_steps(const struct np_taps *taps, const struct np_packed *packed,
    int steps, const uint8_t *const src[ROWS], uint8_t *const dst[ROWS])
{
    const __m512i dense = _mm512_loadu_si512(packed->data);
    const uint8_t *s[ROWS] = {src[0], src[1], src[2], src[3]};
    uint8_t *d[ROWS] = {dst[0], dst[1], dst[2], dst[3]};
    const size_t bytes = group_bytes(steps);
    const uint8_t *table = packed->data + VECTOR;
    const int n = taps->n, pixels = packed->pixels;

    for (int i = 0; i < n; i += 4 * pixels, table += 4 * bytes) {
        __m512i low[ROWS], high[ROWS];

        across_two(table, steps, s, low);
        if (i + 2 * pixels < n)
            across_two(table + 2 * bytes, steps, s, high);
        else
            memcpy(high, low, sizeof(high));
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++)
            _mm512_storeu_si512(
                d[r] + 3 * i, _mm512_permutexvar_epi8(dense, _mm512_packus_epi16(low[r], high[r])));
    }
}

AVX512 static void across(const struct np_taps *taps, const struct np_packed *packed,
    const uint8_t *const src[], uint8_t *const dst[])
{
    switch (packed->steps) { /* a constant makes it faster */
    case 1: across_steps(taps, packed, 1, src, dst); break;
    case 2: across_steps(taps, packed, 2, src, dst); break;
    default: across_steps(taps, packed, packed->steps, src, dst); break;
    }
}

/* --- down ---------------------------------------------------------------------------------- */

/* Four rows to columns of four: each lane of ret_columns[i] has bytes 4i..4i+3 of that lane. A row
 * past the last one is the last one again: its weight is 0. */
AVX512 INLINE void load_rows(
    const uint8_t *src, ptrdiff_t stride, int count, __mmask64 mask, __m512i ret_columns[4])
{
    const __m512i a = _mm512_maskz_loadu_epi8(mask, src);
    const __m512i b = _mm512_maskz_loadu_epi8(mask, src + min(1, count - 1) * stride);
    const __m512i c = _mm512_maskz_loadu_epi8(mask, src + min(2, count - 1) * stride);
    const __m512i d = _mm512_maskz_loadu_epi8(mask, src + min(3, count - 1) * stride);
    const __m512i ab = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
    const __m512i cd = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);

    ret_columns[0] = _mm512_unpacklo_epi16(ab, cd);
    ret_columns[1] = _mm512_unpackhi_epi16(ab, cd);
    ret_columns[2] = _mm512_unpacklo_epi16(ab_high, cd_high);
    ret_columns[3] = _mm512_unpackhi_epi16(ab_high, cd_high);
}

AVX512 INLINE struct sums set_weights(const int32_t *digit)
{
    return (struct sums){
        {_mm512_set1_epi32(digit[0]), _mm512_set1_epi32(digit[1]), _mm512_set1_epi32(digit[2])}};
}

AVX512 INLINE __m512i down64(const uint8_t *src, ptrdiff_t stride, const int32_t *digit, int steps,
    int count, __mmask64 mask)
{
    struct sums sums[4] = {sums_start(), sums_start(), sums_start(), sums_start()}, weights;
    __m512i columns[4];

    for (int s = 1; s < steps; s++, digit += TAPS, src += TAPS * stride, count -= TAPS) {
        load_rows(src, stride, TAPS, mask, columns);
        weights = set_weights(digit);
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            sums_add(&sums[v], columns[v], &weights);
    }
    load_rows(src, stride, count, mask, columns);
    weights = set_weights(digit);
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++)
        columns[v] = sums_end(&sums[v], columns[v], &weights, steps == 1);
    return _mm512_packus_epi16(narrow(columns[0], columns[1]), narrow(columns[2], columns[3]));
}

AVX512 INLINE void down_steps(const uint8_t *src, ptrdiff_t stride, const int32_t *digit, int steps,
    int count, int bytes, uint8_t *dst)
{
    const int whole = bytes / VECTOR * VECTOR;
    const __mmask64 rest = ((__mmask64)1 << (bytes - whole)) - 1;

    for (int x = 0; x < whole; x += VECTOR)
        _mm512_storeu_si512(dst + x, down64(src + x, stride, digit, steps, count, ~(__mmask64)0));
    if (rest)
        _mm512_mask_storeu_epi8(
            dst + whole, rest, down64(src + whole, stride, digit, steps, count, rest));
}

AVX512 static void down(const struct np_taps *taps, const struct np_packed *packed, int i,
    const uint8_t *src, ptrdiff_t stride, int bytes, uint8_t *dst)
{
    const int32_t *digit = (const int32_t *)packed->data + (size_t)i * (size_t)packed->steps * TAPS;
    const int count = taps->count[i];

    if (count <= TAPS)
        down_steps(src, stride, digit, 1, count, bytes, dst);
    else
        down_steps(src, stride, digit, steps_of(count), count, bytes, dst);
}

const struct np_resize_kernels np_resize_avx512 = {
    .rows = ROWS,
    .across_layout = across_layout,
    .down_layout = down_layout,
    .across_pack = across_pack,
    .down_pack = down_pack,
    .across_reads = VECTOR,
    .across = across,
    .down = down,
};
#endif
