/* The inner loops of a resize for AVX2: pmaddwd adds the products of two taps, i16 pixels by one of
 * two digits of a weight. Any thread; only if the processor has it. */
#include "loader/pixels/resize_kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2   __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline))

#define DIGIT_BITS 11 /* of the low digit */
#define TAPS       2  /* of a step */
#define PIXELS     2
#define VECTOR     32 /* bytes */
#define HALF       (1 << (NP_RESIZE_BITS - 1))

/* --- weights ------------------------------------------------------------------------------- */

static int steps_of(int count)
{
    return (count + TAPS - 1) / TAPS;
}

/* Two weights w = high 2^11 + low -> an i16 of each in *ret_high and in *ret_low. */
static void digits(const int32_t *weight, int count, int32_t *ret_high, int32_t *ret_low)
{
    const uint32_t a = (uint32_t)weight[0], b = count > 1 ? (uint32_t)weight[1] : 0;
    const uint32_t low = (1 << DIGIT_BITS) - 1;

    *ret_high = (int32_t)((a >> DIGIT_BITS & 0xffff) | b >> DIGIT_BITS << 16);
    *ret_low = (int32_t)((a & low) | (b & low) << 16);
}

/* For each two pixels and each step: a vector of the high digits, a vector of the low ones; a lane
 * of 128 bits a pixel. */
static size_t across_layout(const struct np_taps *taps, struct np_packed *packed)
{
    packed->pixels = PIXELS;
    packed->steps = steps_of(taps->max_count);
    return (size_t)(taps->n + 1) / PIXELS * (size_t)packed->steps * 2 * VECTOR;
}

static void across_pack(const struct np_taps *taps, struct np_packed *packed)
{
    const size_t ints = (size_t)packed->steps * 2 * VECTOR / 4;

    memset(packed->data, 0, (size_t)(taps->n + 1) / PIXELS * ints * 4);
    for (int i = 0; i < taps->n; i++) {
        const int32_t *weight = taps->weight + (size_t)i * taps->room;
        int32_t *out = (int32_t *)packed->data + (size_t)(i / PIXELS) * ints + i % PIXELS * 4;

        for (int k = 0; k < taps->count[i]; k += TAPS, out += 2 * VECTOR / 4) {
            digits(weight + k, taps->count[i] - k, &out[0], &out[VECTOR / 4]);
            for (int c = 1; c < 3; c++) {
                out[c] = out[0];
                out[VECTOR / 4 + c] = out[VECTOR / 4];
            }
        }
    }
}

/* For each scaled row and step: the high digits, the low digits. */
static size_t down_layout(const struct np_taps *taps, struct np_packed *packed)
{
    packed->pixels = 0;
    packed->steps = steps_of(taps->max_count);
    return (size_t)taps->n * (size_t)packed->steps * 2 * sizeof(int32_t);
}

static void down_pack(const struct np_taps *taps, struct np_packed *packed)
{
    for (int i = 0; i < taps->n; i++) {
        const int32_t *weight = taps->weight + (size_t)i * taps->room;
        int32_t *out = (int32_t *)packed->data + (size_t)i * (size_t)packed->steps * 2;

        for (int k = 0; k < taps->count[i]; k += TAPS)
            digits(weight + k, taps->count[i] - k, &out[k], &out[k + 1]);
    }
}

/* --- sums ---------------------------------------------------------------------------------- */

struct sums {
    __m256i high, low;
};

AVX2 INLINE struct sums sums_start(void)
{
    return (struct sums){_mm256_setzero_si256(), _mm256_set1_epi32(HALF)};
}

AVX2 INLINE void sums_add(struct sums *sums, __m256i pixels, __m256i high, __m256i low)
{
    sums->high = _mm256_add_epi32(sums->high, _mm256_madd_epi16(pixels, high));
    sums->low = _mm256_add_epi32(sums->low, _mm256_madd_epi16(pixels, low));
}

AVX2 INLINE __m256i sums_join(const struct sums *sums)
{
    return _mm256_srai_epi32(
        _mm256_add_epi32(_mm256_slli_epi32(sums->high, DIGIT_BITS), sums->low), NP_RESIZE_BITS);
}

/* Clips the joined sums. Each lane of 128 bits: four bytes of each. */
AVX2 INLINE __m256i clip(const struct sums sums[4])
{
    return _mm256_packus_epi16(_mm256_packs_epi32(sums_join(&sums[0]), sums_join(&sums[1])),
        _mm256_packs_epi32(sums_join(&sums[2]), sums_join(&sums[3])));
}

/* --- across -------------------------------------------------------------------------------- */

/* The bytes of four taps, or fewer, of pixel a and of pixel b. */
AVX2 INLINE __m256i load_two(const uint8_t *a, const uint8_t *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
        _mm_loadu_si128((const __m128i *)b), 1);
}

/* Stores the six bytes of each row and two more, which the next store overwrites. */
AVX2 INLINE void store_two(__m256i bytes, ptrdiff_t at, uint8_t *const dst[NP_RESIZE_ROWS])
{
    const __m256i by_row = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i dense = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, 8, 9, 10, 12, 13, 14, -1, -1));
    __m128i rows01, rows23;

    bytes = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(bytes, by_row), dense);
    rows01 = _mm256_castsi256_si128(bytes);
    rows23 = _mm256_extracti128_si256(bytes, 1);
    _mm_storel_epi64((__m128i *)(dst[0] + at), rows01);
    _mm_storel_epi64((__m128i *)(dst[1] + at), _mm_unpackhi_epi64(rows01, rows01));
    _mm_storel_epi64((__m128i *)(dst[2] + at), rows23);
    _mm_storel_epi64((__m128i *)(dst[3] + at), _mm_unpackhi_epi64(rows23, rows23));
}

AVX2 INLINE void across_steps(const struct np_taps *taps, const struct np_packed *packed, int steps,
    const uint8_t *const src[NP_RESIZE_ROWS], uint8_t *const dst[NP_RESIZE_ROWS])
{
    /* rgb rgb rgb rgb -> i16 pairs r0r1 g0g1 b0b1 0, or r2r3 g2g3 b2b3 0 */
    const __m256i taps01 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const __m256i taps23 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    const uint8_t *s[NP_RESIZE_ROWS] = {src[0], src[1], src[2], src[3]};
    uint8_t *const d[NP_RESIZE_ROWS] = {dst[0], dst[1], dst[2], dst[3]};
    const __m256i *table = (const __m256i *)packed->data;
    const int n = taps->n;

    for (int i = 0; i < n; i += PIXELS) {
        const struct sums start = sums_start();
        struct sums sums[NP_RESIZE_ROWS] = {start, start, start, start};
        ptrdiff_t a = 3 * (ptrdiff_t)taps->start[i];
        ptrdiff_t b = 3 * (ptrdiff_t)taps->start[i + 1 < n ? i + 1 : i];

        for (int step = 0; step < steps; step += 2, a += 12, b += 12) {
            const bool both = step + 1 < steps;
            const __m256i high01 = _mm256_loadu_si256(table++);
            const __m256i low01 = _mm256_loadu_si256(table++);
            const __m256i high23 = both ? _mm256_loadu_si256(table++) : high01;
            const __m256i low23 = both ? _mm256_loadu_si256(table++) : low01;

#pragma GCC unroll 4
            for (int r = 0; r < NP_RESIZE_ROWS; r++) {
                const __m256i bytes = load_two(s[r] + a, s[r] + b);

                sums_add(&sums[r], _mm256_shuffle_epi8(bytes, taps01), high01, low01);
                if (both)
                    sums_add(&sums[r], _mm256_shuffle_epi8(bytes, taps23), high23, low23);
            }
        }
        store_two(clip(sums), 3 * (ptrdiff_t)i, d);
    }
}

AVX2 static void across(const struct np_taps *taps, const struct np_packed *packed,
    const uint8_t *const src[NP_RESIZE_ROWS], uint8_t *const dst[NP_RESIZE_ROWS])
{
    switch (packed->steps) { /* a constant makes it faster */
    case 1: across_steps(taps, packed, 1, src, dst); break;
    case 2: across_steps(taps, packed, 2, src, dst); break;
    default: across_steps(taps, packed, packed->steps, src, dst); break;
    }
}

/* --- down ---------------------------------------------------------------------------------- */

/* 32 bytes of one row down. */
AVX2 INLINE __m256i down32(
    const uint8_t *src, ptrdiff_t stride, const int32_t *digit, int steps, int count)
{
    const struct sums start = sums_start();
    const __m256i zero = _mm256_setzero_si256();
    struct sums sums[4] = {start, start, start, start};

    for (int s = 0; s < steps; s++, digit += 2, src += TAPS * stride, count -= TAPS) {
        /* a row past the last has a weight of 0 */
        const __m256i a = _mm256_loadu_si256((const __m256i *)src);
        const __m256i b = _mm256_loadu_si256((const __m256i *)(count > 1 ? src + stride : src));
        const __m256i ab = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b);
        const __m256i high = _mm256_set1_epi32(digit[0]), low = _mm256_set1_epi32(digit[1]);

        sums_add(&sums[0], _mm256_unpacklo_epi8(ab, zero), high, low);
        sums_add(&sums[1], _mm256_unpackhi_epi8(ab, zero), high, low);
        sums_add(&sums[2], _mm256_unpacklo_epi8(ab_high, zero), high, low);
        sums_add(&sums[3], _mm256_unpackhi_epi8(ab_high, zero), high, low);
    }
    return clip(sums);
}

AVX2 INLINE void down_steps(const uint8_t *src, ptrdiff_t stride, const int32_t *digit, int steps,
    int count, int bytes, uint8_t *dst)
{
    int x = 0;

    for (; x + VECTOR <= bytes; x += VECTOR)
        _mm256_storeu_si256((__m256i *)(dst + x), down32(src + x, stride, digit, steps, count));
    if (x < bytes) { /* the last bytes, some of them again */
        const int from = bytes < VECTOR ? 0 : bytes - VECTOR;
        uint8_t tail[VECTOR];

        _mm256_storeu_si256((__m256i *)tail, down32(src + from, stride, digit, steps, count));
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
    .across_layout = across_layout,
    .down_layout = down_layout,
    .across_pack = across_pack,
    .down_pack = down_pack,
    .across_reads = 16,
    .across = across,
    .down = down,
};
#endif
