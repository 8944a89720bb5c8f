/* Normalisation, scale, tokens, attention and linear layers of tokens: the kernels of the CPU and of
 * the emulated GPU against the reference, in lanes and chunks that do not divide the batch, and widths
 * that are no multiple of a vector or a warp. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kernel/kernel_case_cuda.h"
#include "tests/test.h"

#define F32_TOLERANCE  1e-5
#define BF16_TOLERANCE 0.008 /* a unit in the last place of the largest: 2^-7 */
#define BATCH          7
#define LANES          2
#define CHUNK          3

struct size {
    int h, w, c;
};
static const struct size sizes[] = {
    {5, 7, 16}, {3, 4, 3}, {1, 1, 10}, {6, 5, 24}, {9, 1, 65}, {2, 3, 1}};
#define NR_SIZES 6

static void activation(struct kernel_case *the_case, enum np_dtype dtype, struct size s, bool out)
{
    kernel_case_activation(the_case, dtype, s.h, s.w, s.c, out);
}

static void values(struct kernel_case *the_case, int n, bool out)
{
    kernel_case_values(
        the_case, (const int[4]){n}, 0.5f, 1, out ? NP_ROLE_GRAD : NP_ROLE_PARAM, out);
}

static bool is_linear(enum np_op op)
{
    return op == NP_OP_LINEAR || op == NP_OP_LINEAR_DGRAD || op == NP_OP_LINEAR_WGRAD;
}

/* The device's result in the place of the CPU's. */
static bool device_is_right(struct kernel_case *the_case, enum np_dtype dtype, double tolerance)
{
    double error = 0;

#ifdef NP_EMULATED_CUDA
    const struct np_op_node *node = kernel_case_node(the_case);

    for (int o = 0; o < node->nr_outs; o++) {
        const struct np_tensor *out = &the_case->graph->tensors[node->outs[o]];

        memset(the_case->tested[node->nr_ins + o], 0x3f,
            np_tensor_elements(out) * np_dtype_bytes(out->dtype));
    }
    kernel_case_run_cuda(the_case, dtype);
    error = kernel_case_error(the_case, 0);
    if (!(error <= tolerance))
        fprintf(stderr, "%s on the device: off by %g\n", np_op_names[node->op], error);
#endif
    return error <= tolerance;
}

static bool check(struct kernel_case *the_case)
{
    const struct np_op_node *node = kernel_case_node(the_case);
    const struct np_tensor *tensors = the_case->graph->tensors;
    const double tolerance =
        tensors[node->outs[0]].dtype == NP_F32 ? F32_TOLERANCE : BF16_TOLERANCE;
    bool right =
        kernel_case_run(the_case, LANES, CHUNK) && kernel_case_error(the_case, 0) <= tolerance;

    if (!right)
        kernel_case_say(the_case, kernel_case_error(the_case, 0));
    if (!is_linear(node->op)) /* on the device a library's */
        right = device_is_right(the_case, tensors[node->ins[0]].dtype, tolerance) && right;
    kernel_case_fini(the_case);
    return right;
}

/* --- normalisation, scale ------------------------------------------------------------------- */

static bool norm_is_right(enum np_op op, int groups, enum np_dtype dtype, struct size s)
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, op, BATCH);
    kernel_case_node(&the_case)->attrs.groups = groups;
    kernel_case_node(&the_case)->attrs.eps = 0.1; /* few values may lie close together */
    the_case.typical = op == NP_OP_NORM_WGRAD ? sqrt((double)BATCH * s.h * s.w) : 1;
    activation(&the_case, dtype, s, false);
    if (op != NP_OP_NORM)
        activation(&the_case, dtype, s, false);
    for (int i = 0; i < (op == NP_OP_NORM_DGRAD ? 1 : 2); i++)
        values(&the_case, s.c, op == NP_OP_NORM_WGRAD);
    if (op != NP_OP_NORM_WGRAD)
        activation(&the_case, dtype, s, true);
    return check(&the_case);
}

static bool norms_are_right(enum np_op op)
{
    bool right = true;

    for (int s = 0; s < NR_SIZES; s++)
        for (int half = 0; half < 2; half++)
            for (int groups = 0; groups <= sizes[s].c && groups < 6; groups++)
                if (!groups || sizes[s].c % groups == 0)
                    right = norm_is_right(op, groups, half ? NP_BF16 : NP_F32, sizes[s]) && right;
    return right;
}

Test(kernels_token, normalisation_and_its_gradients_are_the_reference)
{
    cr_assert(norms_are_right(NP_OP_NORM));
    cr_assert(norms_are_right(NP_OP_NORM_WGRAD));
    cr_assert(norms_are_right(NP_OP_NORM_DGRAD));
}

Test(kernels_token, a_large_mean_costs_the_variance_no_digits)
{
    struct kernel_case the_case;
    const struct size s = {3, 3, 40};

    kernel_case_init(&the_case, NP_OP_NORM, BATCH);
    kernel_case_node(&the_case)->attrs.eps = 1e-6;
    activation(&the_case, NP_F32, s, false);
    values(&the_case, s.c, false);
    values(&the_case, s.c, false);
    activation(&the_case, NP_F32, s, true);
    for (int i = 0; i < BATCH * s.h * s.w * s.c; i++) {
        float *x = the_case.tested[0];

        ((float *)the_case.reference[0])[i] = x[i] = 1000 + x[i];
    }
    cr_assert(kernel_case_run(&the_case, LANES, CHUNK));
    cr_assert(kernel_case_error(&the_case, 0) < 1e-4); /* 1000 has 2^-14 in its last place */
    kernel_case_fini(&the_case);
}

/* SCALE, BIAS, or their gradients, which are sums over rows and pixels. */
static bool by_channel_is_right(enum np_op op, enum np_dtype dtype, struct size s)
{
    const bool wgrad = op == NP_OP_SCALE_WGRAD || op == NP_OP_BIAS_WGRAD;
    struct kernel_case the_case;

    kernel_case_init(&the_case, op, BATCH);
    the_case.typical = wgrad ? sqrt((double)BATCH * s.h * s.w) : 0;
    activation(&the_case, dtype, s, false);
    if (op == NP_OP_SCALE_WGRAD)
        activation(&the_case, dtype, s, false);
    values(&the_case, s.c, wgrad);
    if (!wgrad)
        activation(&the_case, dtype, s, true);
    return check(&the_case);
}

Test(kernels_token, scale_bias_and_their_gradients_are_the_reference)
{
    static const enum np_op ops[] = {NP_OP_SCALE, NP_OP_SCALE_WGRAD, NP_OP_BIAS, NP_OP_BIAS_WGRAD};

    for (int i = 0; i < 8 * NR_SIZES; i++)
        cr_assert(by_channel_is_right(ops[i % 4], i & 4 ? NP_BF16 : NP_F32, sizes[i / 8]));
}

/* --- tokens --------------------------------------------------------------------------------- */

static bool tokens_are_right(enum np_op op, enum np_dtype dtype, struct size s)
{
    const int c = s.c, all = s.h * s.w;
    const struct size longer = {all + 1, 1, c}, one = {1, 1, c};
    struct kernel_case the_case;

    kernel_case_init(&the_case, op, BATCH);
    kernel_case_node(&the_case)->attrs.first_token = op == NP_OP_TOKENS || op == NP_OP_CLASS_TOKEN;
    activation(&the_case, dtype,
        op == NP_OP_TOKENS         ? longer
        : op == NP_OP_TOKENS_DGRAD ? one
                                   : s,
        false);
    if (op == NP_OP_POSITION || op == NP_OP_CLASS_TOKEN || op == NP_OP_ROWS_SUM)
        values(&the_case, op == NP_OP_POSITION ? all * c : c, op == NP_OP_ROWS_SUM);
    if (op != NP_OP_ROWS_SUM)
        activation(&the_case, dtype, op == NP_OP_CLASS_TOKEN ? longer : s, true);
    return check(&the_case);
}

Test(kernels_token, tokens_positions_and_their_gradients_are_the_reference)
{
    static const enum np_op ops[] = {
        NP_OP_POSITION, NP_OP_CLASS_TOKEN, NP_OP_ROWS_SUM, NP_OP_TOKENS, NP_OP_TOKENS_DGRAD};

    for (int i = 0; i < 5; i++)
        for (int s = 0; s < NR_SIZES; s++)
            for (int half = 0; half < 2; half++)
                cr_assert(tokens_are_right(ops[i], half ? NP_BF16 : NP_F32, sizes[s]));
}

/* --- linear layers of tokens ---------------------------------------------------------------- */

static bool linear_is_right(enum np_op op, enum np_dtype dtype, struct size s, bool bias)
{
    const struct size y = {s.h, s.w, 19};
    const int weight[4] = {y.c, s.c}, wide[4] = {y.c};
    const bool wgrad = op == NP_OP_LINEAR_WGRAD;
    struct kernel_case the_case;

    kernel_case_init(&the_case, op, BATCH);
    the_case.typical = sqrt(wgrad ? (double)BATCH * s.h * s.w : (double)s.c) * 0.2;
    if (op != NP_OP_LINEAR_DGRAD)
        activation(&the_case, dtype, s, false);
    if (op != NP_OP_LINEAR)
        activation(&the_case, dtype, y, false);
    kernel_case_values(&the_case, weight, 0.2f, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (bias && op != NP_OP_LINEAR_DGRAD)
        kernel_case_values(&the_case, wide, 1, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (!wgrad)
        activation(&the_case, dtype, op == NP_OP_LINEAR ? y : s, true);
    return check(&the_case);
}

Test(kernels_token, linear_layers_of_tokens_are_the_reference)
{
    static const enum np_op ops[] = {NP_OP_LINEAR, NP_OP_LINEAR_DGRAD, NP_OP_LINEAR_WGRAD};

    for (int i = 0; i < 3; i++)
        for (int s = 0; s < NR_SIZES; s++)
            for (int variant = 0; variant < 4 && sizes[s].h * sizes[s].w > 1; variant++)
                cr_assert(
                    linear_is_right(ops[i], variant & 1 ? NP_BF16 : NP_F32, sizes[s], variant & 2));
}

/* --- attention ------------------------------------------------------------------------------ */

static bool attention_is_right(enum np_dtype dtype, struct size s, int heads, bool back)
{
    const struct size x = {s.h, s.w, 3 * s.c};
    struct kernel_case the_case;

    kernel_case_init(&the_case, back ? NP_OP_ATTENTION_DGRAD : NP_OP_ATTENTION, 3);
    kernel_case_node(&the_case)->attrs.heads = heads;
    the_case.typical = 1;
    if (back)
        activation(&the_case, dtype, s, false);
    activation(&the_case, dtype, x, false);
    activation(&the_case, dtype, back ? x : s, true);
    return check(&the_case);
}

/* 70 tokens: more than a block of queries. */
Test(kernels_token, attention_and_its_gradient_are_the_reference)
{
    static const struct {
        struct size size;
        int heads;
    } cases[] = {
        {{5, 7, 16}, 2}, {{3, 4, 3}, 1}, {{1, 1, 10}, 5}, {{70, 1, 6}, 1}, {{9, 1, 64}, 1}};

    for (int i = 0; i < 5; i++)
        for (int variant = 0; variant < 4; variant++)
            cr_assert(attention_is_right(
                variant & 1 ? NP_BF16 : NP_F32, cases[i].size, cases[i].heads, variant & 2));
}

/* --- NaN ------------------------------------------------------------------------------------ */

/* Of the first row's outputs; of the others none is one. */
static bool shows_nan(const struct kernel_case *the_case)
{
    const struct np_op_node *node = &the_case->graph->nodes[0];
    const uint64_t n = np_tensor_elements(&the_case->graph->tensors[node->outs[0]]);
    const float *out = the_case->tested[node->nr_ins];
    bool first = false, others = false;

    for (uint64_t i = 0; i < n; i++)
        *(i < n / BATCH ? &first : &others) |= isnan(out[i]) != 0;
    return first && !others;
}

/* A NaN at element `at` of the first operand, the last one of a vector or behind it. */
static bool keeps_nan(enum np_op op, int groups, int at)
{
    const struct size s = {3, 2, 18};
    struct kernel_case the_case;
    bool right;

    kernel_case_init(&the_case, op, BATCH);
    kernel_case_node(&the_case)->attrs.groups = groups;
    kernel_case_node(&the_case)->attrs.heads = 2;
    kernel_case_node(&the_case)->attrs.eps = 1e-5;
    activation(&the_case, NP_F32, s, false);
    for (int i = 0; i < (op == NP_OP_NORM ? 2 : op == NP_OP_ATTENTION ? 0 : 1); i++)
        values(&the_case, op == NP_OP_POSITION ? s.h * s.w * s.c : s.c, false);
    activation(&the_case, NP_F32, op == NP_OP_ATTENTION ? (struct size){3, 2, 6} : s, true);
    ((float *)the_case.tested[0])[at] = ((float *)the_case.reference[0])[at] = NAN;
    right = kernel_case_run(&the_case, LANES, CHUNK) && shows_nan(&the_case);
    kernel_case_fini(&the_case);
    return right;
}

Test(kernels_token, no_operation_loses_a_nan)
{
    for (int at = 0; at < 18; at++) {
        cr_assert(keeps_nan(NP_OP_NORM, 0, at));
        cr_assert(keeps_nan(NP_OP_NORM, 3, at));
        cr_assert(keeps_nan(NP_OP_SCALE, 0, at));
        cr_assert(keeps_nan(NP_OP_BIAS, 0, at));
        cr_assert(keeps_nan(NP_OP_POSITION, 0, at));
        cr_assert(keeps_nan(NP_OP_ATTENTION, 0, at)); /* in query, key and value */
    }
}
