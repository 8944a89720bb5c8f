/* Convolutions and linear layers of the CPU against the reference: odd sizes, strides, padding,
 * dilation, groups, bias, relu; lanes and chunks that do not divide the batch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernel/kernel_case.h"
#include "tests/kernel/kernel_draws.h"
#include "tests/test.h"
#include "trainer/cpu/winograd.h"

/* Sums of a few thousand products in f32, in another order, or by Winograd's sums of sums. */
#define F32_TOLERANCE 2e-5
/* And then rounded to bf16, once: neighbours at most, and few of them. Winograd's differ by a 20th of a
 * unit before they are rounded. */
#define BF16_ULPS  1
#define BF16_SHARE 0.05

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
    {5, 3, 20, 8, 15, 1, 1, 0, 1, 1, true,
        false}, /* oneDNN's bf16 input gradient is wrong for these */
    {4, 10, 18, 16, 1, 1, 1, 0, 1, 1, false, false},
    {3, 12, 20, 24, 33, 1, 2, 0, 1, 1, false, false},
    {3, 3, 20, 8, 6, 1, 1, 0, 1, 2, false, false},
};

static int out_size(int in, const struct conv_case *c)
{
    return (in + 2 * c->pad - c->dilation * (c->kernel - 1) - 1) / c->stride + 1;
}

static void make_conv(
    struct kernel_case *the_case, const struct conv_case *c, enum np_op op, enum np_dtype dtype)
{
    int oh = out_size(c->h, c), ow = out_size(c->w, c);
    const int weight[4] = {c->out, c->in / c->groups, c->kernel, c->kernel}, bias[4] = {c->out};
    bool forward = op == NP_OP_CONV, wgrad = op == NP_OP_CONV_WGRAD;

    kernel_case_init(the_case, op, NP_TIMES(c->batch, 2));
    kernel_case_node(the_case)->attrs.window =
        (struct np_window)NP_SQUARE(c->kernel, c->stride, c->pad, c->dilation, c->groups);
    kernel_case_node(the_case)->attrs.relu = c->relu && forward;
    if (forward || wgrad)
        kernel_case_activation(the_case, dtype, c->h, c->w, c->in, false);
    if (!forward)
        kernel_case_activation(the_case, dtype, oh, ow, c->out, false);
    kernel_case_values(the_case, weight, 0.2f, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (c->bias && (forward || wgrad))
        kernel_case_values(the_case, bias, 1, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (forward)
        kernel_case_activation(the_case, dtype, oh, ow, c->out, true);
    else if (!wgrad)
        kernel_case_activation(the_case, dtype, c->h, c->w, c->in, true);
    if (dtype == NP_BF16)
        kernel_case_round(the_case);
}

/* Is the result the reference, up to rounding? Prints differences. */
static bool is_right(const struct kernel_case *the_case, const char *what)
{
    const struct np_op_node *node = &the_case->graph->nodes[0];
    double error = kernel_case_error(the_case, 0);
    struct kernel_ulps ulps = {0};

    if (the_case->graph->tensors[node->outs[0]].dtype == NP_BF16) {
        ulps = kernel_case_ulps(the_case);
        double n = (double)np_tensor_elements(&the_case->graph->tensors[node->outs[0]]);

        if (ulps.most <= BF16_ULPS && ulps.share <= fmax(BF16_SHARE, 2.5 / n)) /* or two of few */
            return true;
    } else if (error <= F32_TOLERANCE) {
        return true;
    }
    fprintf(stderr, "%s, %s: off by %g of the largest, %g ulps, %g of the elements\n", what,
        the_case->kernel ? the_case->kernel : "?", error, ulps.most, ulps.share);
    return false;
}

static bool conv_is_right(enum np_op op, enum np_dtype dtype, int lanes, int chunk)
{
    bool right = true;

    for (size_t i = 0; i < sizeof(conv_cases) / sizeof(*conv_cases); i++) {
        struct kernel_case the_case;
        char what[32];

        snprintf(what, sizeof(what), "conv case %zu", i);
        make_conv(&the_case, &conv_cases[i], op, dtype);
        if (!kernel_case_run(&the_case, lanes, chunk)) {
            fprintf(stderr, "%s: no kernel but the reference\n", what);
            right = false;
        }
        right = is_right(&the_case, what) && right;
        kernel_case_fini(&the_case);
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

/* A shape of at most a few million products, so that the reference is through in milliseconds. */
static void draw_case(struct np_draws *draws, struct conv_case *ret_case)
{
    static const int kernels[] = {1, 1, 1, 3, 3, 5, 7}, groups[] = {1, 1, 1, 1, 2, 3, 8};
    struct conv_case c;

    do {
        int per_group = (int)np_draw_below(draws, 4); /* 0: depthwise */

        c = (struct conv_case){.batch = 1 + (int)np_draw_below(draws, 4),
            .h = 1 + (int)np_draw_below(draws, 20),
            .w = 1 + (int)np_draw_below(draws, 20),
            .groups = groups[np_draw_below(draws, 7)],
            .kernel = kernels[np_draw_below(draws, 7)],
            .stride = 1 + (int)np_draw_below(draws, 3) / 2,
            .dilation = 1 + (int)np_draw_below(draws, 5) / 4,
            .bias = np_draw_below(draws, 2),
            .relu = np_draw_below(draws, 2)};
        c.pad = (int)np_draw_below(draws, (uint32_t)c.kernel / 2 + 1);
        c.in = c.groups * (c.groups > 1 && !per_group ? 1 : 1 + (int)np_draw_below(draws, 48));
        c.out = c.groups * (c.groups > 1 && !per_group ? 1 : 1 + (int)np_draw_below(draws, 48));
    } while (c.h + 2 * c.pad < c.dilation * (c.kernel - 1) + 1 ||
             c.w + 2 * c.pad < c.dilation * (c.kernel - 1) + 1 ||
             (double)c.h * c.w * c.in / c.groups * c.out * c.kernel * c.kernel > 1e6);
    *ret_case = c;
}

static bool drawn_is_right(const struct conv_case *c, enum np_op op, enum np_dtype dtype)
{
    struct kernel_case the_case;
    char what[200];
    bool right;

    snprintf(what, sizeof(what),
        "%s of %d x %dx%dx%d to %d, window %d, stride %d, pad %d, dilation %d, groups %d",
        np_op_names[op], c->batch, c->h, c->w, c->in, c->out, c->kernel, c->stride, c->pad,
        c->dilation, c->groups);
    make_conv(&the_case, c, op, dtype);
    kernel_case_run(&the_case, c->batch > 1 ? 2 : 1, 2); /* a lane has a row at least */
    right = is_right(&the_case, what);
    kernel_case_fini(&the_case);
    return right;
}

Test(kernels_conv, shapes_drawn_at_random_are_the_reference, .timeout = 3600)
{
    static const enum np_op ops[] = {NP_OP_CONV, NP_OP_CONV_DGRAD, NP_OP_CONV_WGRAD};
    struct kernel_draws draws;

    kernel_draws_init(&draws, 7);
    for (int i = 0; i < draws.nr_shapes; i++) {
        struct conv_case c;

        draw_case(&draws.draws, &c);
        for (int k = 0; k < 6; k++)
            kernel_draws_note(&draws, drawn_is_right(&c, ops[k / 2], k % 2 ? NP_BF16 : NP_F32));
    }
    kernel_draws_done(&draws);
}

Test(kernels_conv, winograd_takes_only_the_shapes_it_supports)
{
    static const enum np_op ops[] = {NP_OP_CONV, NP_OP_CONV_DGRAD, NP_OP_CONV_WGRAD};

    for (int i = 0; np_winograd_usable() && i < 3; i++) {
        struct kernel_case the_case;

        make_conv(&the_case, &conv_cases[0], ops[i], NP_F32);
        cr_assert(kernel_case_run(&the_case, 2, 2));
        cr_assert_not_null(strstr(the_case.kernel, "winograd"));
        kernel_case_fini(&the_case);
    }
}

/* --- does the measure see a wrong kernel? --------------------------------------------------- */

enum plant { RIGHT, BF16_SUMS, CUT_OFF, TERM_DROPPED };

static uint16_t cut_off(float value) /* to bf16, towards 0 */
{
    uint32_t word;

    memcpy(&word, &value, sizeof(word));
    return (uint16_t)(word >> 16);
}

static float rounded(float value)
{
    uint16_t half;

    np_bf16_from_f32(&half, &value, 1);
    np_f32_from_bf16(&value, &half, 1);
    return value;
}

/* One output of a 3x3 convolution with padding 1, channels last; TERM_DROPPED: without the first product. */
static float plain_sum(const struct kernel_case *the_case, const struct conv_case *c,
    enum plant plant, int row, int y, int x, int o)
{
    const uint16_t *in = the_case->tested[0];
    const float *weights = the_case->tested[1];
    float sum = 0;
    int term = 0;

    for (int k = 0; k < 9; k++)
        for (int i = 0; i < c->in; i++) {
            int iy = y + k / 3 - 1, ix = x + k % 3 - 1;
            float value;

            if (iy < 0 || iy >= c->h || ix < 0 || ix >= c->w)
                continue;
            if (plant == TERM_DROPPED && term++ == 0)
                continue;
            np_f32_from_bf16(&value, in + ((row * c->h + iy) * c->w + ix) * c->in + i, 1);
            sum += value * weights[(o * c->in + i) * 9 + k];
            sum = plant == BF16_SUMS ? rounded(sum) : sum;
        }
    return sum;
}

/* A convolution written down here, with a fault; TERM_DROPPED in a single output of all. */
static bool planted_is_right(enum plant plant)
{
    const struct conv_case c = {3, 8, 8, 16, 16, 3, 1, 1, 1, 1, false, false};
    struct kernel_case the_case;
    uint16_t *out;
    bool right;

    make_conv(&the_case, &c, NP_OP_CONV, NP_BF16);
    kernel_case_run(&the_case, 1, 3);
    the_case.kernel = "planted";
    out = the_case.tested[2];
    for (int at = 0; at < the_case.graph->batch * c.h * c.w * c.out; at++) {
        int o = at % c.out, x = at / c.out % c.w, y = at / c.out / c.w % c.h;
        enum plant here = plant == TERM_DROPPED && at != 1234 ? RIGHT : plant;
        float sum = plain_sum(&the_case, &c, here, at / c.out / c.w / c.h, y, x, o);

        if (plant == CUT_OFF)
            out[at] = cut_off(sum);
        else
            np_bf16_from_f32(out + at, &sum, 1);
    }
    right = is_right(&the_case, "a planted kernel");
    kernel_case_fini(&the_case);
    return right;
}

Test(kernels_conv, the_tolerance_of_bf16_catches_each_kind_of_wrong_kernel)
{
    cr_assert(planted_is_right(RIGHT));
    cr_assert_not(planted_is_right(BF16_SUMS));
    cr_assert_not(planted_is_right(CUT_OFF));
    cr_assert_not(planted_is_right(TERM_DROPPED));
}

/* --- linear --------------------------------------------------------------------------------- */

struct linear_case {
    int batch, in, out;
    bool bias, relu;
};

static void make_linear(
    struct kernel_case *the_case, const struct linear_case *c, enum np_op op, enum np_dtype dtype)
{
    const int in = c->in, out = c->out, weight[4] = {out, in}, bias[4] = {out};
    bool wgrad = op == NP_OP_LINEAR_WGRAD;

    kernel_case_init(the_case, op, c->batch);
    the_case->typical = op == NP_OP_LINEAR_DGRAD ? 0.2 : 1; /* a product's */
    if (op != NP_OP_LINEAR_DGRAD)
        kernel_case_activation(the_case, dtype, 1, 1, in, false);
    if (op != NP_OP_LINEAR)
        kernel_case_activation(the_case, dtype, 1, 1, out, false);
    kernel_case_values(the_case, weight, 0.2f, 0, NP_ROLE_PARAM, wgrad);
    if (op != NP_OP_LINEAR_DGRAD && c->bias)
        kernel_case_values(the_case, bias, 1, 0, NP_ROLE_PARAM, wgrad);
    kernel_case_node(the_case)->attrs.relu = op == NP_OP_LINEAR && c->relu;
    if (!wgrad)
        kernel_case_activation(the_case, dtype, 1, 1, op == NP_OP_LINEAR ? out : in, true);
}

/* One run a lane: chunk is at least a lane. */
static bool linear_is_right(
    const struct linear_case *c, enum np_op op, enum np_dtype dtype, int lanes)
{
    struct kernel_case the_case;
    char what[80];
    bool right;

    snprintf(what, sizeof(what), "%s of %d x %d -> %d, bias %d, relu %d", np_op_names[op], c->batch,
        c->in, c->out, c->bias, c->relu);
    make_linear(&the_case, c, op, dtype);
    right = kernel_case_run(&the_case, lanes, c->batch);
    right = is_right(&the_case, what) && right;
    kernel_case_fini(&the_case);
    return right;
}

static bool linears_are_right(enum np_op op, enum np_dtype dtype)
{
    static const struct linear_case cases[] = {{7, 64, 10, true, false}, {7, 17, 129, true, true},
        {7, 300, 65, true, true}, {7, 1, 1, true, true}};
    bool right = true;

    for (int i = 0; i < 4; i++)
        for (int lanes = 1; lanes <= 3; lanes++)
            right = linear_is_right(&cases[i], op, dtype, lanes) && right;
    return right;
}

Test(kernels_linear, forward_is_the_reference)
{
    cr_assert(linears_are_right(NP_OP_LINEAR, NP_F32));
    cr_assert(linears_are_right(NP_OP_LINEAR, NP_BF16));
}

Test(kernels_linear, gradients_are_the_reference)
{
    cr_assert(linears_are_right(NP_OP_LINEAR_DGRAD, NP_F32));
    cr_assert(linears_are_right(NP_OP_LINEAR_DGRAD, NP_BF16));
    cr_assert(linears_are_right(NP_OP_LINEAR_WGRAD, NP_F32));
    cr_assert(linears_are_right(NP_OP_LINEAR_WGRAD, NP_BF16));
}

Test(kernels_linear, shapes_drawn_at_random_are_the_reference, .timeout = 3600)
{
    static const enum np_op ops[] = {NP_OP_LINEAR, NP_OP_LINEAR_DGRAD, NP_OP_LINEAR_WGRAD};
    struct kernel_draws draws;

    kernel_draws_init(&draws, 8);
    for (int i = 0; i < draws.nr_shapes; i++) {
        const struct linear_case c = {kernel_draws_int(&draws, 1, 9),
            kernel_draws_int(&draws, 1, i % 4 ? 80 : 600), kernel_draws_int(&draws, 1, 80),
            kernel_draws_int(&draws, 0, 1), kernel_draws_int(&draws, 0, 1)};
        int lanes = kernel_draws_int(&draws, 1, c.batch < 3 ? c.batch : 3);

        for (int k = 0; k < 6; k++)
            kernel_draws_note(
                &draws, linear_is_right(&c, ops[k / 2], k % 2 ? NP_BF16 : NP_F32, lanes));
    }
    kernel_draws_done(&draws);
}
