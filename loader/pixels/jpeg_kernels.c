/* The JPEG decoder's kernels in plain C; those of jpeg_simd.h give the same bits. The inverse DCT
 * has 16-bit values that wrap or saturate where those of libjpeg-turbo's SIMD code do; for the
 * values of an undamaged file this equals jidctint.c's arithmetic. */
#include <string.h>

#include "loader/pixels/jpeg_parts.h"
#include "loader/pixels/jpeg_consts.h"

static int16_t wrap16(int value)
{
    return (int16_t)(uint16_t)value;
}

static int16_t clamp16(int value)
{
    return (int16_t)(value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value);
}

static uint8_t clamp8(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* 32-bit sums wrap. */
static int32_t dot(int a, int fa, int b, int fb)
{
    return (int32_t)((uint32_t)(a * fa) + (uint32_t)(b * fb));
}

static int16_t descale(int32_t a, uint32_t b, int shift)
{
    return clamp16((int32_t)((uint32_t)a + b + (1u << (shift - 1))) >> shift);
}

/* The inverse DCT of 8 values, `step` apart, after Loeffler, Ligtenberg and Moschytz, "Practical
 * fast 1-D DCT algorithms with 11 multiplications", ICASSP 1989, figure 1 (as in jidctint.c). */
static void idct_line(int16_t *at, int step, int shift)
{
    const int in0 = at[0], in1 = at[step], in2 = at[2 * step], in3 = at[3 * step];
    const int in4 = at[4 * step], in5 = at[5 * step], in6 = at[6 * step], in7 = at[7 * step];
    const int32_t even2 = dot(in2, F_0_541, in6, F_0_541 - F_1_847);
    const int32_t even3 = dot(in2, F_0_541 + F_0_765, in6, F_0_541);
    const int32_t even0 = (int32_t)((uint32_t)wrap16(in0 + in4) << IDCT_BITS);
    const int32_t even1 = (int32_t)((uint32_t)wrap16(in0 - in4) << IDCT_BITS);
    const int sum73 = wrap16(in7 + in3), sum51 = wrap16(in5 + in1);
    const uint32_t z3 = (uint32_t)dot(sum73, F_1_175 - F_1_961, sum51, F_1_175);
    const uint32_t z4 = (uint32_t)dot(sum73, F_1_175, sum51, F_1_175 - F_0_390);
    const uint32_t odd0 = (uint32_t)dot(in7, F_0_298 - F_0_899, in1, -F_0_899) + z3;
    const uint32_t odd1 = (uint32_t)dot(in5, F_2_053 - F_2_562, in3, -F_2_562) + z4;
    const uint32_t odd2 = (uint32_t)dot(in5, -F_2_562, in3, F_3_072 - F_2_562) + z3;
    const uint32_t odd3 = (uint32_t)dot(in7, -F_0_899, in1, F_1_501 - F_0_899) + z4;
    const int32_t sum0 = (int32_t)((uint32_t)even0 + (uint32_t)even3);
    const int32_t sum1 = (int32_t)((uint32_t)even1 + (uint32_t)even2);
    const int32_t sum2 = (int32_t)((uint32_t)even1 - (uint32_t)even2);
    const int32_t sum3 = (int32_t)((uint32_t)even0 - (uint32_t)even3);

    at[0] = descale(sum0, odd3, shift);
    at[step] = descale(sum1, odd2, shift);
    at[2 * step] = descale(sum2, odd1, shift);
    at[3 * step] = descale(sum3, odd0, shift);
    at[4 * step] = descale(sum3, -odd0, shift);
    at[5 * step] = descale(sum2, -odd1, shift);
    at[6 * step] = descale(sum1, -odd2, shift);
    at[7 * step] = descale(sum0, -odd3, shift);
}

static void clear(struct np_jpeg_block *blocks, int n)
{
    for (int i = 0; i < n; i++)
        memset(blocks[i].coef, 0, sizeof(blocks[i].coef));
}

static bool idct(const int16_t *const *block, const uint16_t *quant, uint8_t *out, ptrdiff_t stride)
{
    int16_t work[64];
    bool fits = true;

    for (int i = 0; i < 64; i++)
        work[i] = wrap16(block[0][i] * (int16_t)quant[i]);
    for (int i = 0; i < 8; i++)
        fits &= work[i] >= -IDCT_LIMIT && work[i] <= IDCT_LIMIT;
    for (int i = 0; i < 8; i++)
        idct_line(work + i, 8, IDCT_SHIFT1);
    for (int i = 0; i < 8; i++)
        idct_line(work + 8 * i, 1, IDCT_SHIFT2);
    for (int y = 0; y < 8; y++, out += stride)
        for (int x = 0; x < 8; x++)
            out[x] = clamp8(work[8 * y + x] + 128);
    return fits;
}

/* Sample i of two rows blended 3 to 1, or of one row. */
static int blended(const uint8_t *near, const uint8_t *far, int i)
{
    return far ? 3 * near[i] + far[i] : near[i];
}

static void widen(const uint8_t *near, const uint8_t *far, int n, uint8_t *out)
{
    const int shift = far ? 4 : 2, left = far ? 8 : 1, right = far ? 7 : 2;

    for (int i = 0; i < n; i++) {
        const int mid = 3 * blended(near, far, i);

        out[2 * i] = (uint8_t)((mid + blended(near, far, i - 1) + left) >> shift);
        out[2 * i + 1] = (uint8_t)((mid + blended(near, far, i + 1) + right) >> shift);
    }
}

static void blend(const uint8_t *near, const uint8_t *far, int n, int bias, uint8_t *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (uint8_t)((blended(near, far, i) + bias) >> 2);
}

/* JFIF 1.02, page 4, in 16-bit fixed point (as in jdcolor.c). */
static void rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++, out += 3) {
        const int b = cb[i] - 128, r = cr[i] - 128;

        out[0] = clamp8(y[i] + r + ((RGB_RED * r + 32768) >> 16));
        out[1] = clamp8(y[i] - r + ((RGB_GREEN_CB * b + RGB_GREEN_CR * r + 32768) >> 16));
        out[2] = clamp8(y[i] + 2 * b + ((2 * RGB_BLUE * b + 32768) >> 16));
    }
}

static void grey(const uint8_t *y, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++, out += 3)
        out[0] = out[1] = out[2] = y[i];
}

const struct np_jpeg_kernels np_jpeg_plain = {1, clear, idct, widen, blend, rgb, grey};
