/* The JPEG decoder's kernels in SIMD, for vectors of any width. jpeg_avx2.c and jpeg_avx512.c
 * include it and define
 *     V, OP(name)   a vector of bytes, and the intrinsic of that name for it
 *     TARGET        the instruction set, as an attribute
 *     LANES         128-bit lanes of a vector: each works by itself
 *     JOIN(p, i)    the 16 bytes at p[0] + i, p[1] + i ..., one pointer a lane
 *     REPEAT(p)     LANES times the 16 bytes at p
 *     LANE(v, i)    lane i, as __m128i
 *     WORDS_AT(p)   16-bit values from the bytes at p
 *     STORE_ROWS(out, stride, v)   lower halves of all lanes to out, upper ones to out + stride
 *     LOAD, STORE, XOR, OR, IS_ZERO */
#include "loader/pixels/jpeg_consts.h"
#include "loader/pixels/jpeg_parts.h"

#define INLINE static inline __attribute__((always_inline)) TARGET

enum { BYTES = 16 * LANES, WORDS = 8 * LANES };

/* 32-bit results of 16-bit lines: those of the lower and of the upper four columns of each lane. */
struct wide {
    V low, high;
};

/* Two factors for madd, of the values that unpack puts side by side. */
INLINE V factors(int a, int b)
{
    return OP(set1_epi32)((int)((uint32_t)(uint16_t)b << 16 | (uint16_t)a));
}

INLINE struct wide dot(V a, int fa, V b, int fb)
{
    const V f = factors(fa, fb);

    return (struct wide){
        OP(madd_epi16)(OP(unpacklo_epi16)(a, b), f), OP(madd_epi16)(OP(unpackhi_epi16)(a, b), f)};
}

INLINE struct wide add(struct wide a, struct wide b)
{
    return (struct wide){OP(add_epi32)(a.low, b.low), OP(add_epi32)(a.high, b.high)};
}

INLINE struct wide sub(struct wide a, struct wide b)
{
    return (struct wide){OP(sub_epi32)(a.low, b.low), OP(sub_epi32)(a.high, b.high)};
}

/* a << IDCT_BITS, and half of 1 << shift for rounding. */
INLINE struct wide scale(V a, int shift)
{
    const V zero = XOR(a, a), round = OP(set1_epi32)(1 << (shift - 1));
    const struct wide wide = {OP(srai_epi32)(OP(unpacklo_epi16)(zero, a), 16 - IDCT_BITS),
        OP(srai_epi32)(OP(unpackhi_epi16)(zero, a), 16 - IDCT_BITS)};

    return (struct wide){OP(add_epi32)(wide.low, round), OP(add_epi32)(wide.high, round)};
}

INLINE V descale(struct wide a, int shift)
{
    return OP(packs_epi32)(OP(srai_epi32)(a.low, shift), OP(srai_epi32)(a.high, shift));
}

/* idct_line() of jpeg_kernels.c, for the 8 columns of each lane. */
INLINE void idct_lines(V row[8], int shift)
{
    const struct wide even2 = dot(row[2], F_0_541, row[6], F_0_541 - F_1_847);
    const struct wide even3 = dot(row[2], F_0_541 + F_0_765, row[6], F_0_541);
    const struct wide even0 = scale(OP(add_epi16)(row[0], row[4]), shift);
    const struct wide even1 = scale(OP(sub_epi16)(row[0], row[4]), shift);
    const V sum73 = OP(add_epi16)(row[7], row[3]), sum51 = OP(add_epi16)(row[5], row[1]);
    const struct wide z3 = dot(sum73, F_1_175 - F_1_961, sum51, F_1_175);
    const struct wide z4 = dot(sum73, F_1_175, sum51, F_1_175 - F_0_390);
    const struct wide odd0 = add(dot(row[7], F_0_298 - F_0_899, row[1], -F_0_899), z3);
    const struct wide odd1 = add(dot(row[5], F_2_053 - F_2_562, row[3], -F_2_562), z4);
    const struct wide odd2 = add(dot(row[5], -F_2_562, row[3], F_3_072 - F_2_562), z3);
    const struct wide odd3 = add(dot(row[7], -F_0_899, row[1], F_1_501 - F_0_899), z4);
    const struct wide sum0 = add(even0, even3), sum1 = add(even1, even2);
    const struct wide sum2 = sub(even1, even2), sum3 = sub(even0, even3);

    row[0] = descale(add(sum0, odd3), shift);
    row[1] = descale(add(sum1, odd2), shift);
    row[2] = descale(add(sum2, odd1), shift);
    row[3] = descale(add(sum3, odd0), shift);
    row[4] = descale(sub(sum3, odd0), shift);
    row[5] = descale(sub(sum2, odd1), shift);
    row[6] = descale(sub(sum1, odd2), shift);
    row[7] = descale(sub(sum0, odd3), shift);
}

/* Transposes the 8 x 8 values of each lane. */
INLINE void transpose(V row[8])
{
    const V a0 = OP(unpacklo_epi16)(row[0], row[1]), a1 = OP(unpackhi_epi16)(row[0], row[1]);
    const V a2 = OP(unpacklo_epi16)(row[2], row[3]), a3 = OP(unpackhi_epi16)(row[2], row[3]);
    const V a4 = OP(unpacklo_epi16)(row[4], row[5]), a5 = OP(unpackhi_epi16)(row[4], row[5]);
    const V a6 = OP(unpacklo_epi16)(row[6], row[7]), a7 = OP(unpackhi_epi16)(row[6], row[7]);
    const V b0 = OP(unpacklo_epi32)(a0, a2), b1 = OP(unpackhi_epi32)(a0, a2);
    const V b2 = OP(unpacklo_epi32)(a4, a6), b3 = OP(unpackhi_epi32)(a4, a6);
    const V b4 = OP(unpacklo_epi32)(a1, a3), b5 = OP(unpackhi_epi32)(a1, a3);
    const V b6 = OP(unpacklo_epi32)(a5, a7), b7 = OP(unpackhi_epi32)(a5, a7);

    row[0] = OP(unpacklo_epi64)(b0, b2);
    row[1] = OP(unpackhi_epi64)(b0, b2);
    row[2] = OP(unpacklo_epi64)(b1, b3);
    row[3] = OP(unpackhi_epi64)(b1, b3);
    row[4] = OP(unpacklo_epi64)(b4, b6);
    row[5] = OP(unpackhi_epi64)(b4, b6);
    row[6] = OP(unpacklo_epi64)(b5, b7);
    row[7] = OP(unpackhi_epi64)(b5, b7);
}

TARGET static void clear(struct np_jpeg_block *blocks, int n)
{
    const V zero = OP(set1_epi16)(0);

    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int k = 0; k < 64; k += WORDS)
            STORE(blocks[i].coef + k, zero);
}

TARGET static bool idct(
    const int16_t *const *block, const uint16_t *quant, uint8_t *out, ptrdiff_t stride)
{
    const V offset = OP(set1_epi8)(-128);
    V row[8], limit;

#pragma GCC unroll 8
    for (int y = 0; y < 8; y++)
        row[y] = OP(mullo_epi16)(JOIN(block, 8 * y), REPEAT(quant + 8 * y));
    limit = OP(abs_epi16)(row[0]);
    idct_lines(row, IDCT_SHIFT1);
    transpose(row);
    idct_lines(row, IDCT_SHIFT2);
    transpose(row);
#pragma GCC unroll 4
    for (int y = 0; y < 8; y += 2, out += 2 * stride)
        STORE_ROWS(out, stride, XOR(OP(packs_epi16)(row[y], row[y + 1]), offset));
    return IS_ZERO(OP(subs_epu16)(limit, OP(set1_epi16)(IDCT_LIMIT)));
}

/* The samples from near[i] on, blended with row far if there is one. */
INLINE V blended(const uint8_t *near, const uint8_t *far, int i)
{
    const V sum = WORDS_AT(near + i);

    return far ? OP(add_epi16)(OP(mullo_epi16)(sum, OP(set1_epi16)(3)), WORDS_AT(far + i)) : sum;
}

INLINE void widen_by(
    const uint8_t *near, const uint8_t *far, int n, int shift, int left, int right, uint8_t *out)
{
    const V left_bias = OP(set1_epi16)((short)left), right_bias = OP(set1_epi16)((short)right);

    for (int i = 0; i < n; i += WORDS, out += BYTES) {
        const V mid = OP(mullo_epi16)(blended(near, far, i), OP(set1_epi16)(3));
        const V even = OP(add_epi16)(OP(add_epi16)(mid, blended(near, far, i - 1)), left_bias);
        const V odd = OP(add_epi16)(OP(add_epi16)(mid, blended(near, far, i + 1)), right_bias);

        STORE(out, OR(OP(srli_epi16)(even, shift), OP(slli_epi16)(OP(srli_epi16)(odd, shift), 8)));
    }
}

TARGET static void widen(const uint8_t *near, const uint8_t *far, int n, uint8_t *out)
{
    if (far)
        widen_by(near, far, n, 4, 8, 7, out);
    else
        widen_by(near, NULL, n, 2, 1, 2, out);
}

TARGET static void blend(const uint8_t *near, const uint8_t *far, int n, int bias, uint8_t *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (uint8_t)((3 * near[i] + far[i] + bias) >> 2);
}

/* Stores the 16 pixels of each lane, three bytes each. */
INLINE void store_rgb(V r, V g, V b, uint8_t *out)
{
    static const int8_t place[9][16] = {{0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5},
        {-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1},
        {-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1},
        {-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1},
        {5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10},
        {-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1},
        {-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1},
        {-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1},
        {10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15}};
    V third[3];

#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
        third[i] = OR(OR(OP(shuffle_epi8)(r, REPEAT(place[3 * i])),
                          OP(shuffle_epi8)(g, REPEAT(place[3 * i + 1]))),
            OP(shuffle_epi8)(b, REPEAT(place[3 * i + 2])));
#pragma GCC unroll 4
    for (int lane = 0; lane < LANES; lane++)
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++)
            _mm_storeu_si128((__m128i *)(out + 48 * lane + 16 * i), LANE(third[i], lane));
}

/* Sums of 16-bit halves: red, green and blue of 8 pixels a lane. */
INLINE void rgb_half(V y, V b, V r, V *ret_red, V *ret_green, V *ret_blue)
{
    const V one = OP(set1_epi16)(1), round = OP(set1_epi32)(32768);
    const V red = OP(mulhi_epi16)(OP(add_epi16)(r, r), OP(set1_epi16)((short)RGB_RED));
    const V f = factors(RGB_GREEN_CB, RGB_GREEN_CR);
    const V low = OP(madd_epi16)(OP(unpacklo_epi16)(b, r), f);
    const V high = OP(madd_epi16)(OP(unpackhi_epi16)(b, r), f);

    *ret_red = OP(add_epi16)(OP(add_epi16)(y, r), OP(srai_epi16)(OP(add_epi16)(red, one), 1));
    *ret_green = OP(add_epi16)(
        OP(sub_epi16)(y, r), OP(packs_epi32)(OP(srai_epi32)(OP(add_epi32)(low, round), 16),
                                 OP(srai_epi32)(OP(add_epi32)(high, round), 16)));
    *ret_blue = OP(add_epi16)(
        OP(add_epi16)(y, OP(add_epi16)(b, b)), OP(mulhrs_epi16)(b, OP(set1_epi16)(RGB_BLUE)));
}

TARGET static void rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int n, uint8_t *out)
{
    const V middle = OP(set1_epi16)(128);
    const V zero = OP(sub_epi16)(middle, middle);

    for (int i = 0; i < n; i += BYTES, out += 3 * BYTES) {
        const V y8 = LOAD(y + i), b8 = LOAD(cb + i), r8 = LOAD(cr + i);
        V red[2], green[2], blue[2];

        rgb_half(OP(unpacklo_epi8)(y8, zero), OP(sub_epi16)(OP(unpacklo_epi8)(b8, zero), middle),
            OP(sub_epi16)(OP(unpacklo_epi8)(r8, zero), middle), &red[0], &green[0], &blue[0]);
        rgb_half(OP(unpackhi_epi8)(y8, zero), OP(sub_epi16)(OP(unpackhi_epi8)(b8, zero), middle),
            OP(sub_epi16)(OP(unpackhi_epi8)(r8, zero), middle), &red[1], &green[1], &blue[1]);
        store_rgb(OP(packus_epi16)(red[0], red[1]), OP(packus_epi16)(green[0], green[1]),
            OP(packus_epi16)(blue[0], blue[1]), out);
    }
}

TARGET static void grey(const uint8_t *y, int n, uint8_t *out)
{
    for (int i = 0; i < n; i += BYTES, out += 3 * BYTES)
        store_rgb(LOAD(y + i), LOAD(y + i), LOAD(y + i), out);
}
