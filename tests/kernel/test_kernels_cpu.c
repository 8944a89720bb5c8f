/* The CPU's own kernels against the reference: batchnorm, pooling and what works element by element;
 * channels that are no multiple of a vector, lanes and chunks that do not divide the batch. */
#include <stdio.h>

#include "tests/kernel/kernel_case.h"
#include "tests/test.h"
#include "trainer/kernels_cpu.h"

#define F32_TOLERANCE  1e-5
#define BF16_TOLERANCE 5e-3 /* half a unit in the last place of 8 bits, and a sum's rounding */

static const int sizes[][3] = {
    {5, 7, 16}, {3, 4, 3}, {1, 1, 10}, {6, 5, 24}, {4, 4, 65}, {2, 3, 1}};
#define NR_SIZES 6

static bool check(
    struct kernel_case *kase, enum np_dtype dtype, int lanes, int chunk, int first_out)
{
    bool found = kernel_case_run(kase, lanes, chunk);
    double error = kernel_case_error(kase, first_out);
    bool right = found && error <= (dtype == NP_F32 ? F32_TOLERANCE : BF16_TOLERANCE);

    if (!right)
        fprintf(
            stderr, "%s: off by %g\n", found ? kase->kernel : "no kernel but the reference", error);
    kernel_case_fini(kase);
    return right;
}

static void channel(struct kernel_case *kase, int c, float scale, float offset, bool out)
{
    kernel_case_values(kase, (const int[4]){c}, scale, offset, NP_ROLE_PARAM, out);
}

/* --- element by element -------------------------------------------------------------------- */

static bool elements_are_right(enum np_op op, int nr_ins, bool relu)
{
    bool right = true;

    for (int s = 0; s < NR_SIZES; s++)
        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;
            struct kernel_case kase;

            kernel_case_init(&kase, op, 7);
            kernel_case_node(&kase)->attrs.relu = relu;
            for (int i = 0; i <= nr_ins; i++)
                kernel_case_activation(
                    &kase, dtype, sizes[s][0], sizes[s][1], sizes[s][2], i == nr_ins);
            right = check(&kase, dtype, 2, 3, 0) && right;
        }
    return right;
}

Test(kernels_cpu, relu_and_its_gradient_are_the_reference)
{
    cr_assert(elements_are_right(NP_OP_RELU, 1, false));
    cr_assert(elements_are_right(NP_OP_RELU_DGRAD, 2, false));
}

/* Of every bf16 number, in vectors and one by one, in place: -0, infinities and every NaN among them. */
Test(kernels_cpu, relu_of_each_bf16_number_has_the_references_bits)
{
    struct kernel_case kase;
    uint16_t *numbers, *alone;

    kernel_case_init(&kase, NP_OP_RELU, 1);
    kernel_case_activation(&kase, NP_BF16, 256, 256, 1, false);
    kernel_case_activation(&kase, NP_BF16, 256, 256, 1, true);
    numbers = kase.reference[0];
    alone = kase.tested[0];
    for (int i = 0; i < 1 << 16; i++)
        numbers[i] = alone[i] = (uint16_t)i;
    kernel_case_reference(&kase);
    np_cpu_relu(true, numbers, numbers, 1 << 16);
    for (int i = 0; i < 1 << 16; i++)
        np_cpu_relu(true, alone + i, alone + i, 1);
    cr_assert_arr_eq(numbers, kase.reference[1], 2 << 16);
    cr_assert_arr_eq(alone, kase.reference[1], 2 << 16);
    cr_assert_eq(((uint16_t *)kase.reference[1])[0x8000], 0x8000);
    cr_assert_eq(((uint16_t *)kase.reference[1])[0xff80], 0);
    kernel_case_fini(&kase);
}

Test(kernels_cpu, add_is_the_reference_with_and_without_relu)
{
    cr_assert(elements_are_right(NP_OP_ADD, 2, false));
    cr_assert(elements_are_right(NP_OP_ADD, 2, true));
}

Test(kernels_cpu, input_is_the_reference)
{
    for (int s = 0; s < 2; s++)
        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;
            int c = s ? 1 : 3;
            struct kernel_case kase;

            kernel_case_init(&kase, NP_OP_INPUT, 5);
            kernel_case_node(&kase)->attrs.mean[0] = 0.5f;
            kernel_case_node(&kase)->attrs.mean[1] = 0.4f;
            for (int i = 0; i < 4; i++)
                kernel_case_node(&kase)->attrs.std[i] = 0.25f + 0.01f * (float)i;
            kernel_case_activation(&kase, NP_U8, 7, 9, c, false);
            kernel_case_activation(&kase, dtype, 7, 9, c, true);
            kase.graph->tensors[0].role = NP_ROLE_INPUT;
            cr_assert(check(&kase, dtype, 2, 2, 0));
        }
}

Test(kernels_cpu, flatten_and_its_gradient_are_the_reference)
{
    for (int s = 0; s < NR_SIZES; s++)
        for (int back = 0; back < 4; back++) {
            enum np_dtype dtype = back < 2 ? NP_F32 : NP_BF16;
            int flat = sizes[s][0] * sizes[s][1] * sizes[s][2];
            struct kernel_case kase;

            kernel_case_init(&kase, back % 2 ? NP_OP_FLATTEN_DGRAD : NP_OP_FLATTEN, 5);
            if (back % 2)
                kernel_case_activation(&kase, dtype, 1, 1, flat, false);
            kernel_case_activation(&kase, dtype, sizes[s][0], sizes[s][1], sizes[s][2], back % 2);
            if (back % 2 == 0)
                kernel_case_activation(&kase, dtype, 1, 1, flat, true);
            cr_assert(check(&kase, dtype, 2, 2, 0));
        }
}

/* --- batchnorm ----------------------------------------------------------------------------- */

static bool stats_are_right(enum np_dtype dtype, const int size[3], int lanes, int chunk)
{
    struct kernel_case kase;

    kernel_case_init(&kase, NP_OP_BN_STATS, 7);
    kernel_case_node(&kase)->attrs.momentum = 0.1;
    kernel_case_node(&kase)->attrs.eps = 1e-5;
    kernel_case_activation(&kase, dtype, size[0], size[1], size[2], false);
    /* a mean of nearly 0 would be compared with itself, not with what it is the mean of */
    for (int i = 0; dtype == NP_F32 && i < 7 * size[0] * size[1] * size[2]; i++) {
        ((float *)kase.reference[0])[i] += 0.5f;
        ((float *)kase.tested[0])[i] += 0.5f;
    }
    channel(&kase, size[2], 0.1f, 0, false);
    channel(&kase, size[2], 0.1f, 1, false);
    channel(&kase, size[2], 1, 0, true);
    channel(&kase, size[2], 1, 0, true);
    return check(&kase, NP_F32, lanes, chunk, 0);
}

Test(kernels_cpu, batchnorm_statistics_are_the_reference)
{
    for (int s = 0; s < NR_SIZES; s++) {
        cr_assert(stats_are_right(NP_F32, sizes[s], 1, 7));
        cr_assert(stats_are_right(NP_F32, sizes[s], 2, 3));
        cr_assert(stats_are_right(NP_BF16, sizes[s], 3, 1));
    }
    cr_assert(stats_are_right(NP_F32, (const int[3]){40, 30, 16}, 2, 3));
}

Test(kernels_cpu, a_large_mean_costs_the_variance_no_digits)
{
    struct kernel_case kase;
    const float *inv_std, *right;
    float *x;

    kernel_case_init(&kase, NP_OP_BN_STATS, 8);
    kernel_case_activation(&kase, NP_F32, 16, 16, 4, false);
    for (int i = 0; i < 4; i++)
        channel(&kase, 4, 1, 0, i > 1);
    x = kase.tested[0];
    for (int i = 0; i < 8 * 16 * 16 * 4; i++)
        ((float *)kase.reference[0])[i] = x[i] = 1000 + x[i];
    cr_assert(kernel_case_run(&kase, 2, 2));
    inv_std = kase.tested[4];
    right = kase.reference[4];
    for (int c = 0; c < 4; c++)
        cr_assert_float_eq(inv_std[c], right[c], 1e-5);
    kernel_case_fini(&kase);
}

/* The operands of apply, reduce and dgrad in their order. */
static bool bn_is_right(enum np_op op, enum np_dtype dtype, const int size[3], bool relu, bool add)
{
    struct kernel_case kase;
    int h = size[0], w = size[1], c = size[2];
    bool forward = op == NP_OP_BN_APPLY || op == NP_OP_BN_EVAL;

    kernel_case_init(&kase, op, 7);
    kernel_case_node(&kase)->attrs.eps = 1e-5;
    kernel_case_node(&kase)->attrs.relu = relu;
    if (!forward)
        kernel_case_activation(&kase, dtype, h, w, c, false); /* dy */
    kernel_case_activation(&kase, dtype, h, w, c, false);
    channel(&kase, c, 0.1f, 0, false);
    channel(&kase, c, 0.05f, 1, false);
    channel(&kase, c, 0.5f, 1, false);
    channel(&kase, c, 0.5f, 0, false);
    if (op == NP_OP_BN_DGRAD) {
        channel(&kase, c, 10, 0, false);
        channel(&kase, c, 10, 0, false);
    }
    if (add)
        kernel_case_activation(&kase, dtype, h, w, c, false);
    if (op == NP_OP_BN_REDUCE) {
        channel(&kase, c, 1, 0, true);
        channel(&kase, c, 1, 0, true);
        return check(&kase, NP_F32, 2, 3, 0);
    }
    kernel_case_activation(&kase, dtype, h, w, c, true);
    if (op == NP_OP_BN_DGRAD && add)
        kernel_case_activation(&kase, dtype, h, w, c, true);
    return check(&kase, dtype, 2, 3, 0);
}

static bool all_bn_are_right(enum np_op op)
{
    bool right = true;

    for (int s = 0; s < NR_SIZES; s++)
        for (int variant = 0; variant < 4; variant++)
            for (int half = 0; half < 2; half++)
                right =
                    bn_is_right(op, half ? NP_BF16 : NP_F32, sizes[s], variant & 1, variant & 2) &&
                    right;
    return right;
}

Test(kernels_cpu, batchnorm_forward_is_the_reference)
{
    cr_assert(all_bn_are_right(NP_OP_BN_APPLY));
    cr_assert(all_bn_are_right(NP_OP_BN_EVAL));
}

Test(kernels_cpu, batchnorm_reductions_are_the_reference)
{
    cr_assert(all_bn_are_right(NP_OP_BN_REDUCE));
}

Test(kernels_cpu, batchnorm_input_gradient_is_the_reference)
{
    cr_assert(all_bn_are_right(NP_OP_BN_DGRAD));
}

/* --- pooling ------------------------------------------------------------------------------- */

struct pool_case {
    int h, w, c, kernel, stride, pad;
};
static const struct pool_case pool_cases[] = {{8, 8, 16, 2, 2, 0}, {9, 7, 5, 2, 2, 0},
    {9, 9, 24, 3, 2, 1}, {13, 13, 8, 3, 2, 0}, {5, 6, 9, 3, 1, 1}};

static bool maxpool_is_right(const struct pool_case *p, enum np_dtype dtype, bool back, bool saves)
{
    int oh = (p->h + 2 * p->pad - p->kernel) / p->stride + 1;
    int ow = (p->w + 2 * p->pad - p->kernel) / p->stride + 1;
    struct kernel_case kase;

    kernel_case_init(&kase, back ? NP_OP_MAXPOOL_DGRAD : NP_OP_MAXPOOL, 5);
    kernel_case_node(&kase)->attrs.window =
        (struct np_window){p->kernel, p->kernel, p->stride, p->pad, 1, 1};
    if (back) {
        uint8_t *argmax[2];

        kernel_case_activation(&kase, dtype, oh, ow, p->c, false);
        kernel_case_activation(&kase, NP_U8, oh, ow, p->c, false);
        kase.graph->tensors[1].role = NP_ROLE_SAVED;
        argmax[0] = kase.reference[1];
        argmax[1] = kase.tested[1];
        for (int i = 0; i < 5 * oh * ow * p->c; i++) /* within the window and the picture */
            argmax[0][i] = argmax[1][i] =
                (uint8_t)(p->pad ? p->kernel + 1 : argmax[0][i] % (p->kernel * p->kernel));
        kernel_case_activation(&kase, dtype, p->h, p->w, p->c, true);
    } else {
        kernel_case_activation(&kase, dtype, p->h, p->w, p->c, false);
        kernel_case_activation(&kase, dtype, oh, ow, p->c, true);
        if (saves) {
            kernel_case_activation(&kase, NP_U8, oh, ow, p->c, true);
            kase.graph->tensors[2].role = NP_ROLE_SAVED;
        }
    }
    return check(&kase, dtype, 2, 2, 0);
}

Test(kernels_cpu, maxpool_and_its_gradient_are_the_reference)
{
    for (size_t i = 0; i < sizeof(pool_cases) / sizeof(*pool_cases); i++)
        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;

            cr_assert(maxpool_is_right(&pool_cases[i], dtype, false, true));
            cr_assert(maxpool_is_right(&pool_cases[i], dtype, false, false));
            cr_assert(maxpool_is_right(&pool_cases[i], dtype, true, true));
        }
}

Test(kernels_cpu, global_average_and_its_gradient_are_the_reference)
{
    for (int s = 0; s < NR_SIZES; s++)
        for (int variant = 0; variant < 4; variant++) {
            enum np_dtype dtype = variant & 2 ? NP_BF16 : NP_F32;
            bool back = variant & 1;
            struct kernel_case kase;

            kernel_case_init(&kase, back ? NP_OP_GLOBAL_AVGPOOL_DGRAD : NP_OP_GLOBAL_AVGPOOL, 5);
            if (back)
                kernel_case_activation(&kase, dtype, 1, 1, sizes[s][2], false);
            kernel_case_activation(&kase, dtype, sizes[s][0], sizes[s][1], sizes[s][2], back);
            if (!back)
                kernel_case_activation(&kase, dtype, 1, 1, sizes[s][2], true);
            cr_assert(check(&kase, dtype, 2, 2, 0));
        }
}

/* --- bf16 ---------------------------------------------------------------------------------- */

Test(kernels_cpu, bf16_rounds_to_nearest_even_and_keeps_nan)
{
    const uint32_t words[] = {0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff,
        0x7f800000, 0x7f800001, 0xffc00000, 0x7f7fffff, 0x00000001, 0x80008000};
    const uint16_t right[] = {
        0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x7f80, 0x7fc0, 0xffc0, 0x7f80, 0x0000, 0x8000};
    float values[11], back[11];
    uint16_t halves[11];

    memcpy(values, words, sizeof(words));
    np_bf16_from_f32(halves, values, 11); /* eight as a vector, three one by one */
    cr_assert_arr_eq(halves, right, sizeof(right));
    np_bf16_from_f32(halves + 1, values + 1, 10);
    np_bf16_from_f32(halves, values, 1);
    cr_assert_arr_eq(halves, right, sizeof(right));
    np_f32_from_bf16(back, halves, 11);
    for (int i = 0; i < 11; i++) {
        uint32_t word;

        memcpy(&word, &back[i], sizeof(word));
        cr_assert_eq(word, (uint32_t)right[i] << 16);
    }
}
