/* Convolutions and linear layers of the CPU against the reference: odd sizes, strides, padding,
 * dilation, groups, bias, relu; lanes and chunks that do not divide the batch. */
#include <stdio.h>
#include <string.h>

#include "tests/kernel/kernel_case.h"
#include "tests/test.h"
#include "trainer/winograd.h"

/* Sums of a few thousand products in f32; bf16 is rounded once, to 8 bits. */
#define F32_TOLERANCE  2e-5
#define BF16_TOLERANCE 6e-3

struct conv_case {
    int batch, h, w, in, out, kernel, stride, pad, dilation, groups;
    bool bias, relu;
};

static const struct conv_case conv_cases[] = {
    {5, 8, 8, 16, 16, 3, 1, 1, 1, 1, false, false},
    {5, 9, 7, 16, 32, 3, 1, 1, 1, 1, false, false},
    {4, 9, 11, 16, 32, 3, 2, 1, 1, 1, false, false},
    {5, 10, 10, 8, 24, 1, 1, 0, 1, 1, true, false},
    {3, 9, 9, 16, 8, 1, 2, 0, 1, 1, false, false},
    {3, 13, 12, 3, 16, 3, 1, 1, 1, 1, true, true},
    {2, 19, 17, 3, 8, 7, 2, 3, 1, 1, true, true},
    {2, 14, 13, 1, 6, 5, 1, 2, 1, 1, true, true},
    {3, 12, 12, 5, 7, 3, 1, 1, 1, 1, true, false},
    {3, 12, 11, 8, 8, 3, 1, 2, 2, 1, false, false},
    {3, 9, 9, 16, 16, 3, 1, 1, 1, 4, true, false},
    {3, 9, 9, 8, 8, 3, 2, 1, 1, 8, false, false},
    {3, 6, 6, 64, 64, 3, 1, 1, 1, 1, false, false},
    {3, 7, 5, 24, 40, 3, 1, 1, 1, 1, true, true},
    {2, 3, 3, 32, 16, 3, 1, 1, 1, 1, false, false},
    {2, 1, 1, 16, 16, 3, 1, 1, 1, 1, false, false},
    {2, 8, 8, 16, 16, 3, 1, 0, 1, 1, false, false},
    {2, 8, 8, 16, 16, 3, 1, 2, 1, 1, false, false},
    {3, 10, 9, 136, 24, 3, 1, 1, 1, 1, true, false}, /* more channels than a row of the cache */
    {3, 11, 11, 24, 136, 3, 1, 1, 1, 1, true, true},
    {5, 6, 16, 5, 8, 1, 2, 0, 1, 1, true, false}, /* oneDNN's scratchpad is too small for these */
    {5, 18, 12, 1, 8, 1, 6, 0, 1, 1, true, false},
    {5, 13, 9, 19, 21, 1, 2, 0, 1, 1, false, true},
};

static int out_size(int in, const struct conv_case *c)
{
    return (in + 2 * c->pad - c->dilation * (c->kernel - 1) - 1) / c->stride + 1;
}

static void make_conv(
    struct kernel_case *kase, const struct conv_case *c, enum np_op op, enum np_dtype dtype)
{
    int oh = out_size(c->h, c), ow = out_size(c->w, c);
    const int weight[4] = {c->out, c->in / c->groups, c->kernel, c->kernel}, bias[4] = {c->out};
    bool forward = op == NP_OP_CONV, wgrad = op == NP_OP_CONV_WGRAD;

    kernel_case_init(kase, op, NP_TIMES(c->batch, 2));
    kernel_case_node(kase)->attrs.window =
        (struct np_window){c->kernel, c->kernel, c->stride, c->pad, c->dilation, c->groups};
    kernel_case_node(kase)->attrs.relu = c->relu && forward;
    if (forward || wgrad)
        kernel_case_activation(kase, dtype, c->h, c->w, c->in, false);
    if (!forward)
        kernel_case_activation(kase, dtype, oh, ow, c->out, false);
    kernel_case_values(kase, weight, 0.2f, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (c->bias && (forward || wgrad))
        kernel_case_values(kase, bias, 1, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (forward)
        kernel_case_activation(kase, dtype, oh, ow, c->out, true);
    else if (!wgrad)
        kernel_case_activation(kase, dtype, c->h, c->w, c->in, true);
}

static bool conv_is_right(enum np_op op, enum np_dtype dtype, int lanes, int chunk)
{
    bool right = true;

    for (size_t i = 0; i < sizeof(conv_cases) / sizeof(*conv_cases); i++) {
        struct kernel_case kase;
        double error;

        make_conv(&kase, &conv_cases[i], op, dtype);
        if (!kernel_case_run(&kase, lanes, chunk)) {
            fprintf(stderr, "conv case %zu: no kernel but the reference\n", i);
            right = false;
        }
        error = kernel_case_error(&kase, 0);
        if (!(error <=
                (dtype == NP_F32 || op == NP_OP_CONV_WGRAD ? F32_TOLERANCE : BF16_TOLERANCE))) {
            fprintf(stderr, "conv case %zu, %s: off by %g\n", i, kase.kernel, error);
            right = false;
        }
        kernel_case_fini(&kase);
    }
    return right;
}

Test(kernels_conv, forward_is_the_reference_in_f32)
{
    cr_assert(conv_is_right(NP_OP_CONV, NP_F32, 1, 1));
    cr_assert(conv_is_right(NP_OP_CONV, NP_F32, 2, 2));
}

Test(kernels_conv, forward_is_the_reference_in_bf16)
{
    cr_assert(conv_is_right(NP_OP_CONV, NP_BF16, 2, 2));
}

Test(kernels_conv, input_gradient_is_the_reference_in_f32)
{
    cr_assert(conv_is_right(NP_OP_CONV_DGRAD, NP_F32, 1, 3));
    cr_assert(conv_is_right(NP_OP_CONV_DGRAD, NP_F32, 2, 1));
}

Test(kernels_conv, input_gradient_is_the_reference_in_bf16)
{
    cr_assert(conv_is_right(NP_OP_CONV_DGRAD, NP_BF16, 2, 2));
}

Test(kernels_conv, weight_gradient_is_the_reference_in_f32)
{
    cr_assert(conv_is_right(NP_OP_CONV_WGRAD, NP_F32, 1, 2));
    cr_assert(conv_is_right(NP_OP_CONV_WGRAD, NP_F32, 2, 3));
}

Test(kernels_conv, weight_gradient_is_the_reference_in_bf16)
{
    cr_assert(conv_is_right(NP_OP_CONV_WGRAD, NP_BF16, 2, 2));
}

Test(kernels_conv, winograd_takes_what_it_is_made_for)
{
    static const enum np_op ops[] = {NP_OP_CONV, NP_OP_CONV_DGRAD, NP_OP_CONV_WGRAD};

    for (int i = 0; np_winograd_usable() && i < 3; i++) {
        struct kernel_case kase;

        make_conv(&kase, &conv_cases[0], ops[i], NP_F32);
        cr_assert(kernel_case_run(&kase, 2, 2));
        cr_assert_not_null(strstr(kase.kernel, "winograd"));
        kernel_case_fini(&kase);
    }
}

static void make_linear(
    struct kernel_case *kase, enum np_op op, enum np_dtype dtype, int in, int out)
{
    const int weight[4] = {out, in}, bias[4] = {out};
    bool wgrad = op == NP_OP_LINEAR_WGRAD;

    kernel_case_init(kase, op, 7);
    if (op != NP_OP_LINEAR_DGRAD)
        kernel_case_activation(kase, dtype, 1, 1, in, false);
    if (op != NP_OP_LINEAR)
        kernel_case_activation(kase, dtype, 1, 1, out, false);
    kernel_case_values(kase, weight, 0.2f, 0, NP_ROLE_PARAM, wgrad);
    if (op != NP_OP_LINEAR_DGRAD)
        kernel_case_values(kase, bias, 1, 0, NP_ROLE_PARAM, wgrad);
    kernel_case_node(kase)->attrs.relu = op == NP_OP_LINEAR && out % 2;
    if (!wgrad)
        kernel_case_activation(kase, dtype, 1, 1, op == NP_OP_LINEAR ? out : in, true);
}

/* One run a lane: chunk is at least a lane. */
static bool linear_is_right(enum np_op op, enum np_dtype dtype)
{
    static const int sizes[][2] = {{64, 10}, {17, 129}, {300, 65}, {1, 1}};
    bool right = true;

    for (int i = 0; i < 4; i++)
        for (int lanes = 1; lanes <= 3; lanes++) {
            struct kernel_case kase;
            double error;

            make_linear(&kase, op, dtype, sizes[i][0], sizes[i][1]);
            right = kernel_case_run(&kase, lanes, 7) && right;
            error = kernel_case_error(&kase, 0);
            if (!(error <= (dtype == NP_F32 || op == NP_OP_LINEAR_WGRAD ? F32_TOLERANCE
                                                                        : BF16_TOLERANCE))) {
                fprintf(stderr, "%s, %d -> %d: off by %g\n", kase.kernel, sizes[i][0], sizes[i][1],
                    error);
                right = false;
            }
            kernel_case_fini(&kase);
        }
    return right;
}

Test(kernels_linear, forward_is_the_reference)
{
    cr_assert(linear_is_right(NP_OP_LINEAR, NP_F32));
    cr_assert(linear_is_right(NP_OP_LINEAR, NP_BF16));
}

Test(kernels_linear, gradients_are_the_reference)
{
    cr_assert(linear_is_right(NP_OP_LINEAR_DGRAD, NP_F32));
    cr_assert(linear_is_right(NP_OP_LINEAR_DGRAD, NP_BF16));
    cr_assert(linear_is_right(NP_OP_LINEAR_WGRAD, NP_F32));
    cr_assert(linear_is_right(NP_OP_LINEAR_WGRAD, NP_BF16));
}
