/* Activation functions on the CPU: each is one function that gives eight values and their slopes,
 * of which a loop uses one. Any pool thread, each its own lane.
 *
 * Errors against the exact function, found over all of its range by tests/kernel/test_act.c: at
 * most ACT_ERROR (1e-6) of the larger of 1 and the result, and each keeps its digits where it is
 * small, except gelu's tail below -5, of which it keeps five. */
#include <math.h>

#include "trainer/cpu/kernels_cpu.h"
#include "trainer/cpu/simd.h"

/* The functions take vectors by address: by value they have another ABI without AVX2. */
#define FUNCTION(name)                                                                             \
    NP_INLINE void name(const np_v8 *x_at, float a, np_v8 *ret_y, np_v8 *ret_slope)

/* s(x) = 1 / (1 + e^-x), and s(-x) = 1 - s(x) with all its digits. */
NP_INLINE void sigmoids(const np_v8 *x, np_v8 *ret_s, np_v8 *ret_rest)
{
    const np_v8 e = np_exp(-np_abs(*x)), large = np_set(1) / (np_set(1) + e), small = e * large;

    *ret_s = np_pick(*x < np_zero(), small, large);
    *ret_rest = np_pick(*x < np_zero(), large, small);
}

/* min(max(x, 0), 6); a NaN stays. */
#define CLAMP(x) np_pick((x) < np_zero(), np_zero(), np_pick((x) > np_set(6), np_set(6), (x)))

FUNCTION(relu6)
{
    const np_v8 x = *x_at;

    *ret_y = CLAMP(x);
    *ret_slope = np_mask(~((x <= np_zero()) | (x >= np_set(6))), np_set(1));
}

FUNCTION(leaky_relu)
{
    const np_v8 x = *x_at;

    *ret_slope = np_pick(x > np_zero(), np_set(1), np_set(a));
    *ret_y = x * *ret_slope;
}

FUNCTION(sigmoid)
{
    np_v8 rest;

    sigmoids(x_at, ret_y, &rest);
    *ret_slope = *ret_y * rest;
}

FUNCTION(hardsigmoid)
{
    const np_v8 x = *x_at, moved = x + np_set(3);

    *ret_y = CLAMP(moved) / np_set(6);
    *ret_slope = np_mask((x > np_set(-3)) & (x < np_set(3)), np_set(1.0f / 6));
}

/* x + x z P(z), z = x^2, for |x| < 0.625 (P: least largest error, 5e-9, by Lawson's iteration);
 * beyond, (1 - e) / (1 + e) with e = e^-2|x|. */
FUNCTION(hyperbolic)
{
    const np_v8 x = *x_at, size = np_abs(x), z = x * x, e = np_exp(size * np_set(-2));
    const np_v8 all = np_set(1) / (np_set(1) + e), large = (np_set(1) - e) * all;
    np_v8 p = np_set(-0.005704949609935284f);

    p = p * z + np_set(0.020639054477214813f);
    p = p * z + np_set(-0.05373970419168472f);
    p = p * z + np_set(0.13331441581249237f);
    p = p * z + np_set(-0.3333328068256378f);
    *ret_y = np_pick(size < np_set(0.625f), x + x * z * p, np_pick(x < np_zero(), -large, large));
    *ret_slope = np_set(4) * e * all * all;
}

FUNCTION(silu)
{
    const np_v8 x = *x_at;
    np_v8 s, rest;

    sigmoids(&x, &s, &rest);
    *ret_y = x * s;
    *ret_slope = s + x * s * rest;
}

FUNCTION(hardswish)
{
    const np_v8 x = *x_at, moved = x + np_set(3);

    *ret_y = x * (CLAMP(moved) / np_set(6));
    *ret_slope = np_pick(x <= np_set(-3), np_zero(),
        np_pick(x >= np_set(3), np_set(1), x / np_set(3) + np_set(0.5f)));
}

/* Phi(x), the share of a normal distribution below x: for x < 0, e^(-x^2/2) Q(t), t = 1 / (1 - 0.35
 * x), which keeps the digits of small shares. Q: least largest relative error, 3e-8, up to |x| = 14
 * by Lawson's iteration. */
FUNCTION(gelu)
{
    const np_v8 x = *x_at, e = np_exp(x * x * np_set(-0.5f));
    const np_v8 t = np_set(1) / (np_set(1) + np_set(0.35f) * np_abs(x));
    np_v8 q = np_set(-0.029145730659365654f), tail, below;

    q = q * t + np_set(0.14397083222866058f);
    q = q * t + np_set(-0.25571268796920776f);
    q = q * t + np_set(0.15917262434959412f);
    q = q * t + np_set(-0.023108946159482002f);
    q = q * t + np_set(0.10550769418478012f);
    q = q * t + np_set(0.11983292549848557f);
    q = q * t + np_set(0.13986186683177948f);
    q = q * t + np_set(0.13962140679359436f);
    tail = q * t * e;
    below = np_pick(x < np_zero(), tail, np_set(1) - tail);
    *ret_y = x * below;
    *ret_slope = below + x * e * np_set(0.3989422804f); /* 1 / sqrt(2 pi) */
}

/* x s(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): tanh(u) = 2 s(2u) - 1. Beyond |x| = 10, s is 0 or
 * 1: the square stops there, so that nothing overflows. */
FUNCTION(gelu_tanh)
{
    const np_v8 x = *x_at, square = x * x, scale = np_set(1.5957691216f);
    const np_v8 z = np_pick(square > np_set(100), np_set(100), square);
    const np_v8 u = x * scale * (np_set(1) + np_set(0.044715f) * z);
    np_v8 s, rest;

    sigmoids(&u, &s, &rest);
    *ret_y = x * s;
    *ret_slope = s + x * s * rest * scale * (np_set(1) + np_set(0.134145f) * z);
}

/* --- the loops ------------------------------------------------------------------------------- */

/* Up to eight of n elements from i on. */
NP_INLINE void load_some(np_v8 *v, const void *x, size_t i, size_t n, bool half)
{
    if (n - i >= 8) {
        *v = np_get(x, i, half);
        return;
    }
    *v = np_zero();
    for (size_t k = 0; k < n - i; k++)
        (*v)[k] = np_get1(x, i + k, half);
}

NP_INLINE void store_some(void *y, const np_v8 *v, size_t i, size_t n, bool half)
{
    if (n - i >= 8) {
        np_put(y, i, half, *v);
        return;
    }
    for (size_t k = 0; k < n - i; k++)
        np_put1(y, i + k, half, (*v)[k]);
}

/* Two loops for each function: y = f(x), and dx = dy f'(x). */
#define LOOPS(name)                                                                                \
    NP_LOOP_HALF(name##_forward, (void *y, const void *x, size_t n, float a), (y, x, n, a))        \
    {                                                                                              \
        for (size_t i = 0; i < n; i += 8) {                                                        \
            np_v8 v, value, slope;                                                                 \
                                                                                                   \
            load_some(&v, x, i, n, half);                                                          \
            name(&v, a, &value, &slope);                                                           \
            store_some(y, &value, i, n, half);                                                     \
        }                                                                                          \
    }                                                                                              \
    NP_LOOP_HALF(name##_back, (void *dx, const void *dy, const void *x, size_t n, float a),        \
        (dx, dy, x, n, a))                                                                         \
    {                                                                                              \
        for (size_t i = 0; i < n; i += 8) {                                                        \
            np_v8 v, d, value, slope;                                                              \
                                                                                                   \
            load_some(&v, x, i, n, half);                                                          \
            load_some(&d, dy, i, n, half);                                                         \
            name(&v, a, &value, &slope);                                                           \
            d = d * slope;                                                                         \
            store_some(dx, &d, i, n, half);                                                        \
        }                                                                                          \
    }

LOOPS(relu6)
LOOPS(leaky_relu)
LOOPS(sigmoid)
LOOPS(hardsigmoid)
LOOPS(hyperbolic)
LOOPS(silu)
LOOPS(hardswish)
LOOPS(gelu)
LOOPS(gelu_tanh)

static const struct {
    void (*forward)(bool half, void *y, const void *x, size_t n, float a);
    void (*back)(bool half, void *dx, const void *dy, const void *x, size_t n, float a);
} loops[NP_NR_ACTS] = {
    [NP_ACT_RELU6] = {relu6_forward, relu6_back},
    [NP_ACT_LEAKY_RELU] = {leaky_relu_forward, leaky_relu_back},
    [NP_ACT_SIGMOID] = {sigmoid_forward, sigmoid_back},
    [NP_ACT_HARDSIGMOID] = {hardsigmoid_forward, hardsigmoid_back},
    [NP_ACT_TANH] = {hyperbolic_forward, hyperbolic_back},
    [NP_ACT_SILU] = {silu_forward, silu_back},
    [NP_ACT_HARDSWISH] = {hardswish_forward, hardswish_back},
    [NP_ACT_GELU] = {gelu_forward, gelu_back},
    [NP_ACT_GELU_TANH] = {gelu_tanh_forward, gelu_tanh_back},
};

static void act_run(void *state, const struct np_run *run)
{
    const struct np_cpu *cpu = state;
    const size_t row = np_cpu_row(cpu), first = np_cpu_first(run, row);
    const size_t n = row * (size_t)run->nr_rows;
    const float a = (float)cpu->attrs.slope;
    void *operands[3];

    for (int i = 0; i < cpu->nr_ins + 1; i++)
        operands[i] = np_cpu_at(cpu, run->operands->ptr[i], first);
    if (cpu->op == NP_OP_ACT)
        loops[cpu->attrs.act].forward(cpu->half, operands[1], operands[0], n, a);
    else
        loops[cpu->attrs.act].back(cpu->half, operands[2], operands[0], operands[1], n, a);
}

const struct np_kernel np_kernels_act[] = {
    NP_KERNEL_ROWS("cpu act", NP_OP_ACT, np_cpu_prepare, NULL, act_run, NULL),
    NP_KERNEL_ROWS("cpu act_dgrad", NP_OP_ACT_DGRAD, np_cpu_prepare, NULL, act_run, NULL),
    {NULL},
};
