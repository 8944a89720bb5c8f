/* The loops of pixel_loops.h; a file that includes this one defines LOOPS, the name of its
 * table. Plain C, written for the compiler's vectorizer: no branches, and pixels of three
 * channels in blocks, one array a channel. */
#include "loader/pixels/pixel_loops.h"

#include <math.h>

#define BLOCK 64

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
    int32_t r[BLOCK], g[BLOCK], b[BLOCK];
};

/* All BLOCK pixels are defined, whatever n is. */
static inline void take(const uint8_t *pixels, size_t n, struct block *block)
{
    for (size_t i = 0; i < BLOCK; i++) {
        const uint8_t *pixel = pixels + 3 * (i < n ? i : 0);

        block->r[i] = pixel[0];
        block->g[i] = pixel[1];
        block->b[i] = pixel[2];
    }
}

static inline void put(const struct block *block, size_t n, uint8_t *pixels)
{
    for (size_t i = 0; i < n; i++) {
        pixels[3 * i] = (uint8_t)block->r[i];
        pixels[3 * i + 1] = (uint8_t)block->g[i];
        pixels[3 * i + 2] = (uint8_t)block->b[i];
    }
}

static inline void saturate_channel(const int32_t *luma, float factor, int32_t *channel)
{
    for (size_t i = 0; i < BLOCK; i++)
        channel[i] = clip((float)luma[i] + factor * (float)(channel[i] - luma[i]));
}

static void saturate(uint8_t *pixels, size_t n, float factor)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        int32_t luma[BLOCK];
        struct block block;

        take(pixels + 3 * at, count, &block);
        for (size_t i = 0; i < BLOCK; i++)
            luma[i] = (block.r[i] * 19595 + block.g[i] * 38470 + block.b[i] * 7471 + 0x8000) >> 16;
        saturate_channel(luma, factor, block.r);
        saturate_channel(luma, factor, block.g);
        saturate_channel(luma, factor, block.b);
        put(&block, count, pixels + 3 * at);
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
    .saturate = saturate,
    .hue = hue,
    .sharpen = sharpen,
    .add_bytes = add_bytes,
    .add_floats = add_floats,
    .round = round_all,
};
