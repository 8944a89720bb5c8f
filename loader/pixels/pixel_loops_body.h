/* The loops of pixel_loops.h; a file that includes this one defines LOOPS, the name of its
 * table. Plain C, written for the compiler's vectorizer: no branches, and pixels of three
 * channels in blocks, one array a channel. */
#include "loader/pixels/pixel_loops.h"

#include <math.h>
#include <string.h>

#define BLOCK 64
#ifndef LOOK_UP
#define LOOK_UP look_up
#endif

static inline uint8_t clip(float value)
{
    value = value < 0 ? 0 : value;
    return (uint8_t)(int)(value > 255 ? 255 : value);
}

static void blend(uint8_t *values, size_t n, float factor, int from)
{
    for (size_t i = 0; i < n; i++)
        values[i] = clip((float)from + factor * (float)(values[i] - from));
}

static void solarize(uint8_t *values, size_t n, int threshold)
{
    for (size_t i = 0; i < n; i++)
        values[i] = (uint8_t)(values[i] < threshold ? values[i] : 255 - values[i]);
}

static void mask_values(uint8_t *values, size_t n, int mask)
{
    for (size_t i = 0; i < n; i++)
        values[i] = (uint8_t)(values[i] & mask);
}

/* --- pixels of three channels -------------------------------------------------------------- */

struct block {
    uint8_t r[BLOCK], g[BLOCK], b[BLOCK];
};

#if defined(__AVX__)

typedef uint8_t bytes __attribute__((vector_size(16)));

static inline bytes load(const uint8_t *from)
{
    bytes v;

    memcpy(&v, from, sizeof(v));
    return v;
}

static inline void store(bytes v, uint8_t *to)
{
    memcpy(to, &v, sizeof(v));
}

/* 16 pixels; the masks name bytes of both vectors, the second's from 16 on. A zero is any byte. */
static inline void take_16(const uint8_t *pixels, uint8_t *r, uint8_t *g, uint8_t *b)
{
    const bytes x = load(pixels), y = load(pixels + 16), z = load(pixels + 32);
    const bytes r_xy = {0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30};
    const bytes r_z = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 20, 23, 26, 29};
    const bytes g_xy = {1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31};
    const bytes g_z = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18, 21, 24, 27, 30};
    const bytes b_xy = {2, 5, 8, 11, 14, 17, 20, 23, 26, 29};
    const bytes b_z = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 19, 22, 25, 28, 31};

    store(__builtin_shuffle(__builtin_shuffle(x, y, r_xy), z, r_z), r);
    store(__builtin_shuffle(__builtin_shuffle(x, y, g_xy), z, g_z), g);
    store(__builtin_shuffle(__builtin_shuffle(x, y, b_xy), z, b_z), b);
}

static inline void put_16(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *pixels)
{
    const bytes x = load(r), y = load(g), z = load(b);
    const bytes first_xy = {0, 16, 0, 1, 17, 0, 2, 18, 0, 3, 19, 0, 4, 20, 0, 5};
    const bytes first_z = {0, 1, 16, 3, 4, 17, 6, 7, 18, 9, 10, 19, 12, 13, 20, 15};
    const bytes second_xy = {21, 0, 6, 22, 0, 7, 23, 0, 8, 24, 0, 9, 25, 0, 10, 26};
    const bytes second_z = {0, 21, 2, 3, 22, 5, 6, 23, 8, 9, 24, 11, 12, 25, 14, 15};
    const bytes third_xy = {0, 11, 27, 0, 12, 28, 0, 13, 29, 0, 14, 30, 0, 15, 31, 0};
    const bytes third_z = {26, 1, 2, 27, 4, 5, 28, 7, 8, 29, 10, 11, 30, 13, 14, 31};

    store(__builtin_shuffle(__builtin_shuffle(x, y, first_xy), z, first_z), pixels);
    store(__builtin_shuffle(__builtin_shuffle(x, y, second_xy), z, second_z), pixels + 16);
    store(__builtin_shuffle(__builtin_shuffle(x, y, third_xy), z, third_z), pixels + 32);
}

#else

static inline void take_16(const uint8_t *pixels, uint8_t *r, uint8_t *g, uint8_t *b)
{
    for (size_t i = 0; i < 16; i++) {
        r[i] = pixels[3 * i];
        g[i] = pixels[3 * i + 1];
        b[i] = pixels[3 * i + 2];
    }
}

static inline void put_16(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *pixels)
{
    for (size_t i = 0; i < 16; i++) {
        pixels[3 * i] = r[i];
        pixels[3 * i + 1] = g[i];
        pixels[3 * i + 2] = b[i];
    }
}

#endif

/* All BLOCK pixels are defined, whatever n is. */
static inline void take(const uint8_t *pixels, size_t n, struct block *block)
{
    uint8_t all[3 * BLOCK];

    if (n < BLOCK) {
        memset(all, 0, sizeof(all));
        pixels = memcpy(all, pixels, 3 * n);
    }
    for (size_t i = 0; i < BLOCK; i += 16)
        take_16(pixels + 3 * i, block->r + i, block->g + i, block->b + i);
}

static inline void put_all(const struct block *block, uint8_t *pixels)
{
    for (size_t i = 0; i < BLOCK; i += 16)
        put_16(block->r + i, block->g + i, block->b + i, pixels + 3 * i);
}

static inline void put(const struct block *block, size_t n, uint8_t *pixels)
{
    if (n < BLOCK) {
        uint8_t all[3 * BLOCK] = {0};

        put_all(block, all);
        memcpy(pixels, all, 3 * n);
    } else {
        put_all(block, pixels);
    }
}

static inline void to_luma(const struct block *block, uint8_t *luma)
{
    for (size_t i = 0; i < BLOCK; i++)
        luma[i] =
            (uint8_t)((block->r[i] * 19595 + block->g[i] * 38470 + block->b[i] * 7471 + 0x8000) >>
                      16);
}

static uint64_t sum_luma(const uint8_t *pixels, size_t n)
{
    uint64_t sum = 0;

    for (size_t at = 0; at < n; at += BLOCK) {
        uint32_t part = 0;
        uint8_t luma[BLOCK];
        struct block block;

        take(pixels + 3 * at, n - at < BLOCK ? n - at : BLOCK, &block); /* the rest is black */
        to_luma(&block, luma);
        for (size_t i = 0; i < BLOCK; i++)
            part += luma[i];
        sum += part;
    }
    return sum;
}

static void grey(uint8_t *pixels, size_t n)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        struct block block;

        take(pixels + 3 * at, count, &block);
        to_luma(&block, block.r);
        memcpy(block.g, block.r, BLOCK);
        memcpy(block.b, block.r, BLOCK);
        put(&block, count, pixels + 3 * at);
    }
}

static inline void saturate_channel(const uint8_t *luma, float factor, uint8_t *channel)
{
    for (size_t i = 0; i < BLOCK; i++)
        channel[i] = clip((float)luma[i] + factor * (float)(channel[i] - luma[i]));
}

static void saturate(uint8_t *pixels, size_t n, float factor)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        uint8_t luma[BLOCK];
        struct block block;

        take(pixels + 3 * at, count, &block);
        to_luma(&block, luma);
        saturate_channel(luma, factor, block.r);
        saturate_channel(luma, factor, block.g);
        saturate_channel(luma, factor, block.b);
        put(&block, count, pixels + 3 * at);
    }
}

/* --- values by channel --------------------------------------------------------------------- */

static void look_up(const uint8_t tables[3][256], int channels, uint8_t *values, size_t n)
{
    if (channels == 1)
        for (size_t i = 0; i < n; i++)
            values[i] = tables[0][values[i]];
    else
        for (size_t i = 0; i + 2 < n; i += 3) {
            values[i] = tables[0][values[i]];
            values[i + 1] = tables[1][values[i + 1]];
            values[i + 2] = tables[2][values[i + 2]];
        }
}

/* A lane of the block is always of one channel. */
static void range(
    const uint8_t *values, int channels, size_t n, uint8_t ret_lo[3], uint8_t ret_hi[3])
{
    uint8_t lo[3 * BLOCK], hi[3 * BLOCK];
    size_t at = 0;

    memset(lo, 255, sizeof(lo));
    memset(hi, 0, sizeof(hi));
    for (; at + 3 * BLOCK <= n; at += 3 * BLOCK)
        for (size_t i = 0; i < 3 * BLOCK; i++) {
            const uint8_t value = values[at + i];

            lo[i] = value < lo[i] ? value : lo[i];
            hi[i] = value > hi[i] ? value : hi[i];
        }
    for (size_t i = 0; at + i < n; i++) {
        const uint8_t value = values[at + i];

        lo[i] = value < lo[i] ? value : lo[i];
        hi[i] = value > hi[i] ? value : hi[i];
    }
    memset(ret_lo, 255, 3);
    memset(ret_hi, 0, 3);
    for (size_t i = 0; i < 3 * BLOCK; i++) {
        const size_t c = i % (size_t)channels;

        ret_lo[c] = lo[i] < ret_lo[c] ? lo[i] : ret_lo[c];
        ret_hi[c] = hi[i] > ret_hi[c] ? hi[i] : ret_hi[c];
    }
}

/* --- hue ----------------------------------------------------------------------------------- */

struct hsv {
    int32_t h[BLOCK], s[BLOCK], v[BLOCK];
};

static inline int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static inline int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Pillow's conversion (src/libImaging/Convert.c), where doubles and floats take turns. In a grey
 * pixel all divisors are 1 instead of 0, which makes hue and saturation 0. */
static inline void to_hsv(const struct block *block, struct hsv *hsv)
{
    for (size_t i = 0; i < BLOCK; i++) {
        const int32_t r = block->r[i], g = block->g[i], b = block->b[i];
        const int32_t max = larger(r, larger(g, b)), min = smaller(r, smaller(g, b));
        const float range = (float)(max - min), divisor = (float)(max == min ? 1 : max - min);
        const float from_r = (float)(max - r) / divisor, from_g = (float)(max - g) / divisor;
        const float from_b = (float)(max - b) / divisor;
        const float of_g = (float)(2.0 + (double)from_r - (double)from_b);
        const float of_b = (float)(4.0 + (double)from_g - (double)from_r);
        const float h = r == max ? from_b - from_g : g == max ? of_g : of_b;
        const double turns = (double)h / 6.0 + 1.0;
        const float part = (float)(turns >= 1.0 ? turns - 1.0 : turns);

        hsv->h[i] = (int32_t)((double)part * 255.0);
        hsv->s[i] = (int32_t)((double)(range / (float)(max == 0 ? 1 : max)) * 255.0);
        hsv->v[i] = max;
    }
}

/* Half away from zero; value >= 0. */
static inline int32_t rounded(double value)
{
    const int32_t whole = (int32_t)value;

    return whole + (value - (double)whole >= 0.5 ? 1 : 0);
}

struct circle {
    int32_t sixth[256];
    float rest[256];
};

static inline void from_hsv(
    const struct hsv *hsv, const int32_t *sixth, const float *rest, struct block *block)
{
    for (size_t i = 0; i < BLOCK; i++) {
        const double value = (double)hsv->v[i];
        const float s = (float)((double)hsv->s[i] / 255.0);
        const int32_t v = hsv->v[i], at = sixth[i];
        const int32_t p = rounded(value * (1.0 - (double)s));
        const int32_t q = rounded(value * (1.0 - (double)(s * rest[i])));
        const int32_t t = rounded(value * (1.0 - (double)s * (1.0 - (double)rest[i])));

        block->r[i] = at == 0 || at == 5 ? v : at == 1 ? q : at == 4 ? t : p;
        block->g[i] = at == 1 || at == 2 ? v : at == 3 ? q : at == 0 ? t : p;
        block->b[i] = at == 3 || at == 4 ? v : at == 5 ? q : at == 2 ? t : p;
    }
}

static void hue(uint8_t *pixels, size_t n, int shift)
{
    struct circle circle;
    struct hsv hsv = {0};

    for (int h = 0; h < 256; h++) {
        const double turns = (double)((h + shift) & 255) * 6.0 / 255.0;

        circle.sixth[h] = (int32_t)turns % 6;
        circle.rest[h] = (float)(turns - (double)(int32_t)turns);
    }
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        int32_t sixth[BLOCK];
        float rest[BLOCK];
        struct block block;

        take(pixels + 3 * at, count, &block);
        to_hsv(&block, &hsv);
        for (size_t i = 0; i < BLOCK; i++) {
            sixth[i] = circle.sixth[hsv.h[i]];
            rest[i] = circle.rest[hsv.h[i]];
        }
        from_hsv(&hsv, sixth, rest, &block);
        put(&block, count, pixels + 3 * at);
    }
}

/* --- lines --------------------------------------------------------------------------------- */

static const float side = 1.0f / 13.0f, middle = 5.0f / 13.0f;

static inline float three(
    const uint8_t *left, const uint8_t *at, const uint8_t *right, float weight)
{
    return (float)*left * side + (float)*at * weight + (float)*right * side;
}

static void sharpen(const uint8_t *before, size_t step, size_t stride, size_t n, float factor,
    uint8_t *restrict out)
{
    const uint8_t *above = before - stride, *below = before + stride;

    for (size_t i = 0; i < n; i++) {
        float sum = 0.5f;
        int smooth;

        sum += three(below + i - step, below + i, below + i + step, side);
        sum += three(before + i - step, before + i, before + i + step, middle);
        sum += three(above + i - step, above + i, above + i + step, side);
        smooth = (int)sum;
        out[i] = clip((float)smooth + factor * (float)(before[i] - smooth));
    }
}

/* --- points between pixels ----------------------------------------------------------------- */

struct corners {
    double share_x[BLOCK], share_y[BLOCK];
    int32_t at[4][BLOCK];     /* first byte of the pixel */
    uint32_t pixel[4][BLOCK]; /* first channel in the low byte */
};

static inline int32_t floor_of(double value)
{
    const int32_t whole = (int32_t)value;

    return whole - (value < (double)whole);
}

static inline int32_t clamp(int32_t at, int32_t n)
{
    at = at < 0 ? 0 : at;
    return at < n ? at : n - 1;
}

static inline void find_corners(const struct np_mix *mix, size_t from, struct corners *corners)
{
    const int32_t w = mix->width, h = mix->height, channels = mix->channels;
    const int32_t first = mix->x + (int32_t)from;

    for (int32_t i = 0; i < BLOCK; i++) {
        const double at_x = mix->step_x * ((double)(first + i) + 0.5) + mix->part_x + mix->plus_x;
        const double at_y = mix->step_y * ((double)(first + i) + 0.5) + mix->part_y + mix->plus_y;
        const int32_t x = floor_of(at_x - 0.5), y = floor_of(at_y - 0.5);
        const int32_t left = clamp(x, w), right = clamp(x + 1, w);
        const int32_t upper = clamp(y, h) * w, lower = clamp(y + 1, h) * w;

        corners->share_x[i] = at_x - 0.5 - (double)x;
        corners->share_y[i] = at_y - 0.5 - (double)y;
        corners->at[0][i] = (upper + left) * channels;
        corners->at[1][i] = (upper + right) * channels;
        corners->at[2][i] = (lower + left) * channels;
        corners->at[3][i] = (lower + right) * channels;
    }
}

/* A picture of one channel may end less than 4 bytes behind its last pixel. */
static inline void fetch_corners(const struct np_mix *mix, size_t n, struct corners *corners)
{
    for (int k = 0; k < 4; k++)
        for (size_t i = 0; i < n; i++)
            memcpy(&corners->pixel[k][i], mix->before + corners->at[k][i], sizeof(uint32_t));
}

static inline double between(double a, double b, double share)
{
    return a + (b - a) * share;
}

static inline void mix_channel(const struct corners *corners, int shift, uint8_t *out)
{
    for (size_t i = 0; i < BLOCK; i++) {
        const double a = (double)(int32_t)(corners->pixel[0][i] >> shift & 255);
        const double b = (double)(int32_t)(corners->pixel[1][i] >> shift & 255);
        const double c = (double)(int32_t)(corners->pixel[2][i] >> shift & 255);
        const double d = (double)(int32_t)(corners->pixel[3][i] >> shift & 255);
        const double upper = between(a, b, corners->share_x[i]);
        const double lower = between(c, d, corners->share_x[i]);

        out[i] = (uint8_t)(int32_t)between(upper, lower, corners->share_y[i]);
    }
}

static void mix_line(const struct np_mix *mix, size_t n, uint8_t *out)
{
    struct corners corners = {0};

    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        struct block block;

        find_corners(mix, at, &corners);
        fetch_corners(mix, count, &corners);
        mix_channel(&corners, 0, block.r);
        if (mix->channels == 1) {
            memcpy(out + at, block.r, count);
            continue;
        }
        mix_channel(&corners, 8, block.g);
        mix_channel(&corners, 16, block.b);
        put(&block, count, out + 3 * at);
    }
}

/* --- sums ---------------------------------------------------------------------------------- */

static void add_bytes(const uint8_t *from, float weight, size_t n, float *restrict line)
{
    for (size_t i = 0; i < n; i++)
        line[i] += weight * (float)from[i];
}

static void add_floats(const float *from, float weight, size_t n, float *restrict sums)
{
    for (size_t i = 0; i < n; i++)
        sums[i] += weight * from[i];
}

/* 1.5 * 2^23 is added and subtracted: the sum has no bits behind the point. */
static void round_all(const float *sums, size_t n, uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++) {
        const float whole = (sums[i] + 12582912.0f) - 12582912.0f;

        out[i] = clip(whole);
    }
}

const struct np_pixel_loops LOOPS = {
    .blend = blend,
    .solarize = solarize,
    .mask = mask_values,
    .look_up = LOOK_UP,
    .range = range,
    .sum_luma = sum_luma,
    .grey = grey,
    .saturate = saturate,
    .hue = hue,
    .sharpen = sharpen,
    .mix = mix_line,
    .add_bytes = add_bytes,
    .add_floats = add_floats,
    .round = round_all,
};
