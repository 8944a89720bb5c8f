/* A NaN in an operand shows in the result, as in torch, whichever kernel computes it: no operation may
 * turn it into a number. Some spread it further than the plain sum does (Winograd: over a tile). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kernel/kernel_case.h"
#include "tests/test.h"

static bool is_nan_at(const void *data, enum np_dtype dtype, uint64_t i)
{
    float value;

    if (dtype == NP_U8)
        return false;
    if (dtype == NP_F32)
        return isnan(((const float *)data)[i]);
    np_f32_from_bf16(&value, (const uint16_t *)data + i, 1);
    return isnan(value);
}

static void put_nan(struct kernel_case *the_case, int operand, uint64_t i)
{
    const enum np_dtype dtype =
        the_case->graph->tensors[kernel_case_node(the_case)->ins[operand]].dtype;
    const float nan_ = NAN;

    for (int side = 0; side < 2; side++) {
        void *data = (side ? the_case->tested : the_case->reference)[operand];

        if (dtype == NP_F32)
            ((float *)data)[i] = nan_;
        else
            np_bf16_from_f32((uint16_t *)data + i, &nan_, 1);
    }
}

/* Runs the case; the reference has at least one NaN, and the kernel has each NaN of the reference. */
static bool stays(struct kernel_case *the_case, const char *what)
{
    const struct np_op_node *node = kernel_case_node(the_case);
    uint64_t nr_nans = 0, nr_lost = 0;

    if (!kernel_case_run(the_case, 2, 2))
        fprintf(stderr, "%s: no kernel but the reference\n", what);
    for (int o = 0; o < node->nr_outs; o++) {
        const struct np_tensor *tensor = &the_case->graph->tensors[node->outs[o]];

        for (uint64_t i = 0; i < np_tensor_elements(tensor); i++) {
            bool want = is_nan_at(the_case->reference[node->nr_ins + o], tensor->dtype, i);

            nr_nans += want;
            nr_lost += want && !is_nan_at(the_case->tested[node->nr_ins + o], tensor->dtype, i);
        }
    }
    if (nr_nans == 0 || nr_lost > 0)
        fprintf(stderr, "%s, %s: of %llu NaN %llu are lost\n", what,
            the_case->kernel ? the_case->kernel : "no kernel", (unsigned long long)nr_nans,
            (unsigned long long)nr_lost);
    return nr_nans > 0 && nr_lost == 0;
}

/* --- convolutions ---------------------------------------------------------------------------- */

struct conv_case {
    int side, in, out, kernel, stride, pad, groups;
};

static const struct conv_case conv_cases[] = {
    {8, 16, 16, 3, 1, 1, 1}, /* Winograd's, where that is used */
    {9, 3, 16, 3, 1, 1, 1},
    {9, 16, 24, 1, 1, 0, 1},
    {9, 16, 15, 1, 1, 0, 1},
    {9, 5, 7, 5, 2, 2, 1},
    {9, 8, 8, 3, 1, 1, 8},
};

static void make_conv(
    struct kernel_case *the_case, const struct conv_case *c, enum np_op op, enum np_dtype dtype)
{
    const int out_side = (c->side + 2 * c->pad - c->kernel) / c->stride + 1;
    const int weight[4] = {c->out, c->in / c->groups, c->kernel, c->kernel}, bias[4] = {c->out};
    bool forward = op == NP_OP_CONV, wgrad = op == NP_OP_CONV_WGRAD;

    kernel_case_init(the_case, op, 5);
    kernel_case_node(the_case)->attrs.window =
        (struct np_window)NP_SQUARE(c->kernel, c->stride, c->pad, 1, c->groups);
    kernel_case_node(the_case)->attrs.relu = forward;
    if (op != NP_OP_CONV_DGRAD)
        kernel_case_activation(the_case, dtype, c->side, c->side, c->in, false);
    if (!forward)
        kernel_case_activation(the_case, dtype, out_side, out_side, c->out, false);
    kernel_case_values(the_case, weight, 0.2f, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (forward)
        kernel_case_values(the_case, bias, 1, 0, NP_ROLE_PARAM, false);
    if (forward)
        kernel_case_activation(the_case, dtype, out_side, out_side, c->out, true);
    else if (!wgrad)
        kernel_case_activation(the_case, dtype, c->side, c->side, c->in, true);
}

static bool conv_keeps(const struct conv_case *c, enum np_op op, enum np_dtype dtype)
{
    bool kept = true;

    for (int operand = 0; operand < (op == NP_OP_CONV ? 3 : 2); operand++) {
        struct kernel_case the_case;

        make_conv(&the_case, c, op, dtype);
        put_nan(&the_case, operand, operand == 2 ? 3 : 5 * (uint64_t)c->in + 1);
        kept = stays(&the_case, np_op_names[op]) && kept;
        kernel_case_fini(&the_case);
    }
    return kept;
}

static bool convs_keep(enum np_op op)
{
    bool kept = true;

    for (size_t i = 0; i < sizeof(conv_cases) / sizeof(*conv_cases); i++)
        for (int half = 0; half < 2; half++)
            kept = conv_keeps(&conv_cases[i], op, half ? NP_BF16 : NP_F32) && kept;
    return kept;
}

Test(nan, stays_after_a_convolution_with_relu)
{
    cr_assert(convs_keep(NP_OP_CONV));
}

Test(nan, stays_in_the_gradients_of_a_convolution)
{
    cr_assert(convs_keep(NP_OP_CONV_DGRAD));
    cr_assert(convs_keep(NP_OP_CONV_WGRAD));
}

/* --- linear ---------------------------------------------------------------------------------- */

static void make_linear(struct kernel_case *the_case, enum np_op op, enum np_dtype dtype)
{
    const int weight[4] = {21, 35}, bias[4] = {21};
    bool forward = op == NP_OP_LINEAR, wgrad = op == NP_OP_LINEAR_WGRAD;

    kernel_case_init(the_case, op, 4);
    kernel_case_node(the_case)->attrs.relu = forward;
    if (op != NP_OP_LINEAR_DGRAD)
        kernel_case_activation(the_case, dtype, 1, 1, 35, false);
    if (!forward)
        kernel_case_activation(the_case, dtype, 1, 1, 21, false);
    kernel_case_values(the_case, weight, 0.2f, 0, NP_ROLE_PARAM, wgrad);
    if (!wgrad && forward)
        kernel_case_values(the_case, bias, 1, 0, NP_ROLE_PARAM, false);
    if (wgrad)
        kernel_case_values(the_case, bias, 1, 0, NP_ROLE_PARAM, true);
    else
        kernel_case_activation(the_case, dtype, 1, 1, forward ? 21 : 35, true);
}

Test(nan, stays_after_a_linear_layer_with_relu_and_in_its_gradients)
{
    static const enum np_op ops[] = {NP_OP_LINEAR, NP_OP_LINEAR_DGRAD, NP_OP_LINEAR_WGRAD};

    for (int i = 0; i < 3; i++)
        for (int half = 0; half < 2; half++)
            for (int operand = 0; operand < 2 + (i == 0); operand++) {
                struct kernel_case the_case;

                make_linear(&the_case, ops[i], half ? NP_BF16 : NP_F32);
                put_nan(&the_case, operand, 7);
                cr_assert(stays(&the_case, np_op_names[ops[i]]));
                kernel_case_fini(&the_case);
            }
}

/* --- element by element, and pools ----------------------------------------------------------- */

/* One input (two for add) and one output of 6x6 pixels, or what the pool makes of them. */
static void make_simple(
    struct kernel_case *the_case, enum np_op op, enum np_dtype dtype, int channels)
{
    bool pools = op == NP_OP_MAXPOOL || op == NP_OP_AVGPOOL;
    int side = op == NP_OP_GLOBAL_AVGPOOL ? 1 : pools ? 3 : 6;

    kernel_case_init(the_case, op, 4);
    kernel_case_node(the_case)->attrs.window = (struct np_window)NP_SQUARE(3, 2, 1, 1, 1);
    kernel_case_node(the_case)->attrs.relu = op == NP_OP_ADD;
    for (int i = 0; i < (op == NP_OP_ADD ? 2 : 1); i++)
        kernel_case_activation(the_case, dtype, 6, 6, channels, false);
    kernel_case_activation(the_case, dtype, side, side, channels, true);
}

Test(nan, stays_in_relu_add_and_pools)
{
    static const enum np_op ops[] = {
        NP_OP_RELU, NP_OP_ADD, NP_OP_MAXPOOL, NP_OP_AVGPOOL, NP_OP_GLOBAL_AVGPOOL};

    for (int i = 0; i < 5; i++)
        for (int half = 0; half < 2; half++)
            for (uint64_t at = 0; at < 13; at++) { /* in a vector, and in the rest */
                struct kernel_case the_case;

                make_simple(&the_case, ops[i], half ? NP_BF16 : NP_F32, 13);
                put_nan(&the_case, ops[i] == NP_OP_ADD ? at % 2 : 0, 14 * 13 + at);
                cr_assert(stays(&the_case, np_op_names[ops[i]]));
                kernel_case_fini(&the_case);
            }
}

/* --- batchnorm ------------------------------------------------------------------------------- */

Test(nan, stays_after_batchnorm_with_relu)
{
    static const enum np_op ops[] = {NP_OP_BN_APPLY, NP_OP_BN_EVAL};
    const int channels[4] = {13};

    for (int i = 0; i < 2; i++)
        for (int half = 0; half < 2; half++)
            for (uint64_t at = 0; at < 13; at++) {
                struct kernel_case the_case;

                kernel_case_init(&the_case, ops[i], 4);
                kernel_case_node(&the_case)->attrs.relu = true;
                kernel_case_node(&the_case)->attrs.eps = 1e-5;
                kernel_case_activation(&the_case, half ? NP_BF16 : NP_F32, 6, 6, 13, false);
                for (int k = 0; k < 4; k++)
                    kernel_case_values(&the_case, channels, 0.1f, 1, NP_ROLE_PARAM, false);
                kernel_case_activation(&the_case, half ? NP_BF16 : NP_F32, 6, 6, 13, true);
                put_nan(&the_case, 0, 14 * 13 + at);
                cr_assert(stays(&the_case, np_op_names[ops[i]]));
                kernel_case_fini(&the_case);
            }
}
