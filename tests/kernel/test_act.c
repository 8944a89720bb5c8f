/* Activation functions: the CPU's against the reference in double over the whole range of each, and
 * on shapes that are no multiple of a vector, cut into lanes and chunks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kernel/kernel_case.h"
#include "tests/test.h"

#define ACT_ERROR   1e-6 /* of the larger of 1 and the result */
#define ALL_OF_BF16 65536

/* A node of one activation function, forward or back. */
static void make(struct kernel_case *the_case, enum np_act act, bool back, int batch)
{
    kernel_case_init(the_case, back ? NP_OP_ACT_DGRAD : NP_OP_ACT, batch);
    kernel_case_node(the_case)->attrs.act = act;
    kernel_case_node(the_case)->attrs.slope = 0.3; /* leaky_relu's */
}

static void put(struct kernel_case *the_case, int operand, int i, float value)
{
    ((float *)the_case->reference[operand])[i] = ((float *)the_case->tested[operand])[i] = value;
}

/* Every bf16 number as f32, and behind it a number of f32 that is close to it. */
static float number(int i)
{
    const uint16_t half = (uint16_t)(i / 2);
    float value;

    np_f32_from_bf16(&value, &half, 1);
    return i % 2 ? value * 1.0017f : value;
}

/* The largest error beside ACT_ERROR's scale over all finite numbers; of what is not finite, only
 * that NaNs stay. */
static double worst_error(enum np_act act, bool back)
{
    struct kernel_case the_case;
    double worst = 0;
    const int out = back ? 2 : 1;

    make(&the_case, act, back, 1);
    for (int i = 0; i < out; i++)
        kernel_case_activation(&the_case, NP_F32, 2 * ALL_OF_BF16 / 256, 256, 1, false);
    kernel_case_activation(&the_case, NP_F32, 2 * ALL_OF_BF16 / 256, 256, 1, true);
    for (int i = 0; i < 2 * ALL_OF_BF16; i++) {
        put(&the_case, back, i, number(i));
        if (back)
            put(&the_case, 0, i, 1);
    }
    cr_assert(kernel_case_run(&the_case, 1, 1));
    for (int i = 0; i < 2 * ALL_OF_BF16; i++) {
        const double want = (double)((float *)the_case.reference[out])[i];
        const double got = (double)((float *)the_case.tested[out])[i], x = (double)number(i);

        if (isnan(x) && !back)
            cr_assert(isnan(got));
        if (!isfinite(x) || !isfinite(want))
            continue;
        const double error = fabs(got - want) / fmax(1, fabs(want));
        if (!(error <= worst)) {
            worst = isnan(error) ? INFINITY : error;
            if (!(worst <= ACT_ERROR))
                fprintf(
                    stderr, "act %d, back %d: f(%.9g) = %.9g, not %.9g\n", act, back, x, got, want);
        }
    }
    kernel_case_fini(&the_case);
    return worst;
}

Test(act, functions_and_slopes_are_exact_to_a_millionth)
{
    for (int act = 0; act < NP_NR_ACTS; act++)
        for (int back = 0; back < 2; back++)
            cr_expect(worst_error((enum np_act)act, back) <= ACT_ERROR, "act %d", act);
}

/* Small results keep their digits: a gradient of 1e-6 is a gradient. */
Test(act, small_results_keep_their_digits)
{
    static const struct {
        enum np_act act;
        float x;
    } points[] = {{NP_ACT_SIGMOID, -30}, {NP_ACT_TANH, 1e-12f}, {NP_ACT_TANH, -0.3f},
        {NP_ACT_SILU, -40}, {NP_ACT_GELU, -4.9f}, {NP_ACT_GELU, 1e-9f}, {NP_ACT_GELU_TANH, -3}};

    for (int i = 0; i < 7; i++) {
        struct kernel_case the_case;

        make(&the_case, points[i].act, false, 1);
        kernel_case_activation(&the_case, NP_F32, 1, 1, 1, false);
        kernel_case_activation(&the_case, NP_F32, 1, 1, 1, true);
        put(&the_case, 0, 0, points[i].x);
        cr_assert(kernel_case_run(&the_case, 1, 1));
        cr_expect(kernel_case_error(&the_case, 0) <= 1e-5, "point %d", i);
        kernel_case_fini(&the_case);
    }
}

/* Half precisions are rounded once: neighbours at most. */
static bool shape_is_right(enum np_act act, bool back, enum np_dtype dtype, const int shape[3])
{
    struct kernel_case the_case;
    bool right;

    make(&the_case, act, back, 7);
    for (int i = 0; i <= back + 1; i++)
        kernel_case_activation(&the_case, dtype, shape[0], shape[1], shape[2], i == back + 1);
    right = kernel_case_run(&the_case, 3, 2);
    if (dtype == NP_BF16)
        right = right && kernel_case_ulps(&the_case).most <= 1;
    else
        right = right && kernel_case_error(&the_case, 0) <= ACT_ERROR;
    if (!right)
        kernel_case_say(&the_case, kernel_case_error(&the_case, 0));
    kernel_case_fini(&the_case);
    return right;
}

Test(act, odd_shapes_in_both_precisions_are_the_reference)
{
    static const int shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {2, 2, 16}, {1, 1, 33}};

    for (int act = 0; act < NP_NR_ACTS; act++)
        for (int back = 0; back < 2; back++)
            for (int s = 0; s < 8; s++)
                cr_expect(shape_is_right(
                    (enum np_act)act, back, s % 2 ? NP_BF16 : NP_F32, shapes[s / 2]));
}
