/* The CPU's own kernels against the reference: batchnorm, pooling and what works element by element;
 * channels that are no multiple of a vector, lanes and chunks that do not divide the batch. */
#include <math.h>

#include "tests/kernel/kernel_case.h"
#include "tests/kernel/kernel_draws.h"
#include "tests/test.h"
#include "trainer/cpu/kernels_cpu.h"

#define F32_TOLERANCE 1e-5
/* Sums in f32, rounded once: to neighbours where they lie close to the middle, which few do. */
#define BF16_TOLERANCE 0.008 /* a unit in the last place of the largest: 2^-7 */
#define BF16_SHARE     0.05

static const int sizes[][3] = {
    {5, 7, 16}, {3, 4, 3}, {1, 1, 10}, {6, 5, 24}, {4, 4, 65}, {2, 3, 1}};
#define NR_SIZES 6

/* A batch of these, in two lanes and chunks of three. */
static struct kernel_shape shape_of(const int size[3], int batch)
{
    return (struct kernel_shape){batch, size[0], size[1], size[2], 2, 3};
}

static bool is_right(struct kernel_case *the_case, enum np_dtype dtype, struct kernel_shape shape)
{
    bool found = kernel_case_run(the_case, shape.lanes, shape.chunk);
    double error = kernel_case_error(the_case, 0);
    bool right = found && error <= (dtype == NP_F32 ? F32_TOLERANCE : BF16_TOLERANCE);

    if (dtype == NP_BF16) {
        const struct np_tensor *out =
            &the_case->graph->tensors[kernel_case_node(the_case)->outs[0]];
        struct kernel_ulps ulps = kernel_case_ulps(the_case);
        double few = 2.5 / (double)np_tensor_elements(out); /* two of a small output */

        right = right && ulps.most <= 1 && ulps.share <= fmax(BF16_SHARE, few);
    }
    if (!right)
        kernel_case_say(the_case, error);
    return right;
}

static bool check(struct kernel_case *the_case, enum np_dtype dtype, struct kernel_shape shape)
{
    bool right = is_right(the_case, dtype, shape);

    kernel_case_fini(the_case);
    return right;
}

static void activation(
    struct kernel_case *the_case, enum np_dtype dtype, struct kernel_shape shape, bool out)
{
    kernel_case_activation(the_case, dtype, shape.h, shape.w, shape.c, out);
}

static void channel(struct kernel_case *the_case, int c, float scale, float offset, bool out)
{
    kernel_case_values(the_case, (const int[4]){c}, scale, offset, NP_ROLE_PARAM, out);
}

/* --- element by element -------------------------------------------------------------------- */

static bool element_is_right(
    enum np_op op, int nr_ins, bool relu, enum np_dtype dtype, struct kernel_shape shape)
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, op, shape.batch);
    kernel_case_node(&the_case)->attrs.relu = relu;
    for (int i = 0; i <= nr_ins; i++)
        activation(&the_case, dtype, shape, i == nr_ins);
    return check(&the_case, dtype, shape);
}

static bool elements_are_right(enum np_op op, int nr_ins, bool relu)
{
    bool right = true;

    for (int s = 0; s < 2 * NR_SIZES; s++)
        right = element_is_right(
                    op, nr_ins, relu, s % 2 ? NP_BF16 : NP_F32, shape_of(sizes[s / 2], 7)) &&
                right;
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
    struct kernel_case the_case;
    uint16_t *numbers, *alone;

    kernel_case_init(&the_case, NP_OP_RELU, 1);
    kernel_case_activation(&the_case, NP_BF16, 256, 256, 1, false);
    kernel_case_activation(&the_case, NP_BF16, 256, 256, 1, true);
    numbers = the_case.reference[0];
    alone = the_case.tested[0];
    for (int i = 0; i < 1 << 16; i++)
        numbers[i] = alone[i] = (uint16_t)i;
    kernel_case_reference(&the_case);
    np_cpu_relu(true, numbers, numbers, 1 << 16);
    for (int i = 0; i < 1 << 16; i++)
        np_cpu_relu(true, alone + i, alone + i, 1);
    cr_assert_arr_eq(numbers, the_case.reference[1], 2 << 16);
    cr_assert_arr_eq(alone, the_case.reference[1], 2 << 16);
    cr_assert_eq(((uint16_t *)the_case.reference[1])[0x8000], 0x8000);
    cr_assert_eq(((uint16_t *)the_case.reference[1])[0xff80], 0);
    kernel_case_fini(&the_case);
}

Test(kernels_cpu, add_is_the_reference_with_and_without_relu)
{
    cr_assert(elements_are_right(NP_OP_ADD, 2, false));
    cr_assert(elements_are_right(NP_OP_ADD, 2, true));
}

/* mixing 1: mixup; 2: cutmix. */
static bool input_is_right(enum np_dtype dtype, struct kernel_shape shape, int mixing)
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, NP_OP_INPUT, shape.batch);
    kernel_case_node(&the_case)->attrs.mix =
        (struct np_mix){mixing == 1, mixing == 2, 1, 11, shape.h, shape.w};
    kernel_case_node(&the_case)->attrs.mean[0] = 0.5f;
    kernel_case_node(&the_case)->attrs.mean[1] = 0.4f;
    for (int i = 0; i < 4; i++)
        kernel_case_node(&the_case)->attrs.std[i] = 0.25f + 0.01f * (float)i;
    activation(&the_case, NP_U8, shape, false);
    activation(&the_case, dtype, shape, true);
    the_case.graph->tensors[0].role = NP_ROLE_INPUT;
    the_case.typical = 1;
    return check(&the_case, dtype, shape);
}

Test(kernels_cpu, input_is_the_reference)
{
    for (int s = 0; s < 12; s++)
        cr_assert(input_is_right(
            s % 2 ? NP_BF16 : NP_F32, (struct kernel_shape){5, 7, 9, s & 2 ? 1 : 3, 2, 2}, s / 4));
}

static bool flatten_is_right(bool back, enum np_dtype dtype, struct kernel_shape shape)
{
    int flat = shape.h * shape.w * shape.c;
    struct kernel_case the_case;

    kernel_case_init(&the_case, back ? NP_OP_FLATTEN_DGRAD : NP_OP_FLATTEN, shape.batch);
    if (back)
        kernel_case_activation(&the_case, dtype, 1, 1, flat, false);
    activation(&the_case, dtype, shape, back);
    if (!back)
        kernel_case_activation(&the_case, dtype, 1, 1, flat, true);
    return check(&the_case, dtype, shape);
}

Test(kernels_cpu, flatten_and_its_gradient_are_the_reference)
{
    for (int s = 0; s < NR_SIZES; s++)
        for (int variant = 0; variant < 4; variant++)
            cr_assert(flatten_is_right(
                variant % 2, variant < 2 ? NP_F32 : NP_BF16, shape_of(sizes[s], 5)));
}

/* --- batchnorm ----------------------------------------------------------------------------- */

/* The running mean and variance, which are inputs and outputs. */
static bool running_are_right(const struct kernel_case *the_case, int c)
{
    double most = 0;

    for (int i = 1; i < 3; i++)
        for (int k = 0; k < c; k++) {
            double right = ((float *)the_case->reference[i])[k],
                   here = ((float *)the_case->tested[i])[k];

            most = fmax(most, fabs(right - here) / fmax(1, fabs(right)));
        }
    if (most > F32_TOLERANCE)
        kernel_case_say(the_case, most);
    return most <= F32_TOLERANCE;
}

static bool stats_are_right(enum np_dtype dtype, struct kernel_shape shape)
{
    const int nr_values = shape.batch * shape.h * shape.w;
    struct kernel_case the_case;
    bool right;

    kernel_case_init(&the_case, NP_OP_BN_STATS, shape.batch);
    kernel_case_node(&the_case)->attrs.momentum = 0.1;
    kernel_case_node(&the_case)->attrs.eps =
        nr_values < 64 ? 0.1 : 1e-5; /* few may lie close together */
    the_case.typical = 1;            /* a mean may be nearly 0 */
    activation(&the_case, dtype, shape, false);
    channel(&the_case, shape.c, 0.1f, 0, false);
    channel(&the_case, shape.c, 0.1f, 1, false);
    channel(&the_case, shape.c, 1, 0, true);
    channel(&the_case, shape.c, 1, 0, true);
    right = is_right(&the_case, NP_F32, shape) && running_are_right(&the_case, shape.c);
    kernel_case_fini(&the_case);
    return right;
}

Test(kernels_cpu, batchnorm_statistics_are_the_reference)
{
    for (int s = 0; s < NR_SIZES; s++) {
        const int *size = sizes[s];

        cr_assert(
            stats_are_right(NP_F32, (struct kernel_shape){7, size[0], size[1], size[2], 1, 7}));
        cr_assert(stats_are_right(NP_F32, shape_of(size, 7)));
        cr_assert(
            stats_are_right(NP_BF16, (struct kernel_shape){7, size[0], size[1], size[2], 3, 1}));
    }
    cr_assert(stats_are_right(NP_F32, (struct kernel_shape){7, 40, 30, 16, 2, 3}));
}

Test(kernels_cpu, a_large_mean_costs_the_variance_no_digits)
{
    struct kernel_case the_case;
    const float *inv_std, *right;
    float *x;

    kernel_case_init(&the_case, NP_OP_BN_STATS, 8);
    kernel_case_activation(&the_case, NP_F32, 16, 16, 4, false);
    for (int i = 0; i < 4; i++)
        channel(&the_case, 4, 1, 0, i > 1);
    x = the_case.tested[0];
    for (int i = 0; i < 8 * 16 * 16 * 4; i++)
        ((float *)the_case.reference[0])[i] = x[i] = 1000 + x[i];
    cr_assert(kernel_case_run(&the_case, 2, 2));
    inv_std = the_case.tested[4];
    right = the_case.reference[4];
    for (int c = 0; c < 4; c++)
        cr_assert_float_eq(inv_std[c], right[c], 1e-5);
    kernel_case_fini(&the_case);
}

/* Where the relu's input, worked out again, is 0 up to rounding, dy is 0: either side of it is right. */
static void spare_the_edge(
    struct kernel_case *the_case, enum np_dtype dtype, struct kernel_shape shape)
{
    const float *mean = the_case->tested[2], *inv_std = the_case->tested[3],
                *gamma = the_case->tested[4], *beta = the_case->tested[5];

    for (int i = 0; i < shape.batch * shape.h * shape.w * shape.c; i++) {
        int k = i % shape.c;
        float x;

        if (dtype == NP_F32)
            x = ((float *)the_case->tested[1])[i];
        else
            np_f32_from_bf16(&x, (uint16_t *)the_case->tested[1] + i, 1);
        if (fabsf((x - mean[k]) * inv_std[k] * gamma[k] + beta[k]) > 1e-4f)
            continue;
        for (int side = 0; side < 2; side++) {
            void *dy = side ? the_case->tested[0] : the_case->reference[0];

            memset((char *)dy + (size_t)i * np_dtype_bytes(dtype), 0, np_dtype_bytes(dtype));
        }
    }
}

/* The operands of apply, reduce and dgrad in their order. */
static void make_bn(struct kernel_case *the_case, enum np_op op, enum np_dtype dtype,
    struct kernel_shape shape, bool relu, bool add)
{
    bool forward = op == NP_OP_BN_APPLY || op == NP_OP_BN_EVAL;
    int c = shape.c;

    kernel_case_init(the_case, op, shape.batch);
    kernel_case_node(the_case)->attrs.eps = 1e-5;
    kernel_case_node(the_case)->attrs.relu = relu;
    if (!forward)
        activation(the_case, dtype, shape, false); /* dy */
    activation(the_case, dtype, shape, false);
    channel(the_case, c, 0.1f, 0, false);
    channel(the_case, c, 0.05f, 1, false);
    channel(the_case, c, 0.5f, 1, false);
    channel(the_case, c, 0.5f, 0, false);
    if (op == NP_OP_BN_DGRAD) {
        channel(the_case, c, 10, 0, false);
        channel(the_case, c, 10, 0, false);
    }
    if (add)
        activation(the_case, dtype, shape, false);
}

static bool bn_is_right(
    enum np_op op, enum np_dtype dtype, struct kernel_shape shape, bool relu, bool add)
{
    bool forward = op == NP_OP_BN_APPLY || op == NP_OP_BN_EVAL;
    struct kernel_case the_case;

    make_bn(&the_case, op, dtype, shape, relu, add);
    the_case.typical = 1;
    if (!forward && relu && !add)
        spare_the_edge(&the_case, dtype, shape);
    if (op == NP_OP_BN_REDUCE) {
        the_case.typical = sqrt((double)shape.batch * shape.h * shape.w); /* sums of both signs */
        channel(&the_case, shape.c, 1, 0, true);
        channel(&the_case, shape.c, 1, 0, true);
        return check(&the_case, NP_F32, shape);
    }
    activation(&the_case, dtype, shape, true);
    if (op == NP_OP_BN_DGRAD && add)
        activation(&the_case, dtype, shape, true);
    return check(&the_case, dtype, shape);
}

static bool all_bn_are_right(enum np_op op)
{
    bool right = true;

    for (int s = 0; s < NR_SIZES; s++)
        for (int variant = 0; variant < 4; variant++)
            for (int half = 0; half < 2; half++)
                right = bn_is_right(op, half ? NP_BF16 : NP_F32, shape_of(sizes[s], 7), variant & 1,
                            variant & 2) &&
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

/* An element of the picture in the window at (oy, ox); which one, the random byte says. */
static uint8_t in_picture(
    const struct np_window *w, struct kernel_shape shape, int oy, int ox, int byte)
{
    for (int i = byte;; i++) {
        int k = i % (w->kernel_h * w->kernel_w);
        int y = oy * w->stride_h - w->pad_h + k / w->kernel_w;
        int x = ox * w->stride_w - w->pad_w + k % w->kernel_w;

        if (y >= 0 && y < shape.h && x >= 0 && x < shape.w)
            return (uint8_t)k;
    }
}

static void draw_argmax(struct kernel_case *the_case, struct kernel_shape shape, int oh, int ow)
{
    const struct np_window *w = &kernel_case_node(the_case)->attrs.window;
    uint8_t *argmax[2] = {the_case->reference[1], the_case->tested[1]};

    the_case->graph->tensors[1].role = NP_ROLE_SAVED;
    for (int i = 0; i < shape.batch * oh * ow * shape.c; i++)
        argmax[0][i] = argmax[1][i] =
            in_picture(w, shape, i / shape.c / ow % oh, i / shape.c % ow, argmax[0][i]);
}

static bool maxpool_is_right(
    struct np_window w, enum np_dtype dtype, struct kernel_shape shape, bool back, bool saves)
{
    int oh = kernel_pool_out(shape.h, w.kernel_h, w.stride_h, w.pad_h, shape.c % 2);
    int ow = kernel_pool_out(shape.w, w.kernel_w, w.stride_w, w.pad_w, shape.c % 2);
    struct kernel_case the_case;

    kernel_case_init(&the_case, back ? NP_OP_MAXPOOL_DGRAD : NP_OP_MAXPOOL, shape.batch);
    kernel_case_node(&the_case)->attrs.window = w;
    if (back) {
        the_case.typical = 1; /* gradients of several windows add up */
        kernel_case_activation(&the_case, dtype, oh, ow, shape.c, false);
        kernel_case_activation(&the_case, NP_U8, oh, ow, shape.c, false);
        draw_argmax(&the_case, shape, oh, ow);
        activation(&the_case, dtype, shape, true);
    } else {
        activation(&the_case, dtype, shape, false);
        kernel_case_activation(&the_case, dtype, oh, ow, shape.c, true);
        if (saves) {
            kernel_case_activation(&the_case, NP_U8, oh, ow, shape.c, true);
            the_case.graph->tensors[2].role = NP_ROLE_SAVED;
        }
    }
    return check(&the_case, dtype, shape);
}

Test(kernels_cpu, maxpool_and_its_gradient_are_the_reference)
{
    for (size_t i = 0; i < sizeof(pool_cases) / sizeof(*pool_cases); i++)
        for (int half = 0; half < 2; half++) {
            const struct pool_case *p = &pool_cases[i];
            const struct np_window w = NP_SQUARE(p->kernel, p->stride, p->pad, 1, 1);
            const struct kernel_shape shape = {5, p->h, p->w, p->c, 2, 2};
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;

            cr_assert(maxpool_is_right(w, dtype, shape, false, true));
            cr_assert(maxpool_is_right(w, dtype, shape, false, false));
            cr_assert(maxpool_is_right(w, dtype, shape, true, true));
        }
}

static bool global_avgpool_is_right(bool back, enum np_dtype dtype, struct kernel_shape shape)
{
    struct kernel_case the_case;

    kernel_case_init(
        &the_case, back ? NP_OP_GLOBAL_AVGPOOL_DGRAD : NP_OP_GLOBAL_AVGPOOL, shape.batch);
    the_case.typical = back ? 0 : 1 / sqrt((double)shape.h * shape.w);
    if (back)
        kernel_case_activation(&the_case, dtype, 1, 1, shape.c, false);
    activation(&the_case, dtype, shape, back);
    if (!back)
        kernel_case_activation(&the_case, dtype, 1, 1, shape.c, true);
    return check(&the_case, dtype, shape);
}

Test(kernels_cpu, global_average_and_its_gradient_are_the_reference)
{
    for (int s = 0; s < NR_SIZES; s++)
        for (int variant = 0; variant < 4; variant++)
            cr_assert(global_avgpool_is_right(
                variant & 1, variant & 2 ? NP_BF16 : NP_F32, shape_of(sizes[s], 5)));
}

/* --- shapes drawn at random ---------------------------------------------------------------- */

static void drawn_elements(
    struct kernel_draws *draws, enum np_dtype dtype, struct kernel_shape shape)
{
    struct kernel_shape picture = shape;

    picture.c = kernel_draws_int(draws, 1, 4);
    kernel_draws_note(draws, input_is_right(dtype, picture, 0));
    kernel_draws_note(draws, element_is_right(NP_OP_RELU, 1, false, dtype, shape));
    kernel_draws_note(draws, element_is_right(NP_OP_RELU_DGRAD, 2, false, dtype, shape));
    kernel_draws_note(draws, element_is_right(NP_OP_ADD, 2, false, dtype, shape));
    kernel_draws_note(draws, element_is_right(NP_OP_ADD, 2, true, dtype, shape));
    kernel_draws_note(draws, flatten_is_right(false, dtype, shape));
    kernel_draws_note(draws, flatten_is_right(true, dtype, shape));
}

static void drawn_batchnorm(
    struct kernel_draws *draws, enum np_dtype dtype, struct kernel_shape shape)
{
    static const enum np_op ops[] = {
        NP_OP_BN_APPLY, NP_OP_BN_EVAL, NP_OP_BN_REDUCE, NP_OP_BN_DGRAD};

    kernel_draws_note(draws, stats_are_right(dtype, shape));
    for (int i = 0; i < 4; i++) {
        int variant = kernel_draws_int(draws, 0, 3);

        kernel_draws_note(draws, bn_is_right(ops[i], dtype, shape, variant & 1, variant & 2));
    }
}

static void drawn_pools(struct kernel_draws *draws, enum np_dtype dtype, struct kernel_shape shape)
{
    const struct np_window w = kernel_draws_pool(draws, shape);

    kernel_draws_note(draws, maxpool_is_right(w, dtype, shape, false, true));
    kernel_draws_note(draws, maxpool_is_right(w, dtype, shape, false, false));
    kernel_draws_note(draws, maxpool_is_right(w, dtype, shape, true, true));
    kernel_draws_note(draws, global_avgpool_is_right(false, dtype, shape));
    kernel_draws_note(draws, global_avgpool_is_right(true, dtype, shape));
}

Test(kernels_cpu, shapes_drawn_at_random_are_the_reference, .timeout = 3600)
{
    struct kernel_draws draws;

    kernel_draws_init(&draws, 9);
    for (int i = 0; i < draws.nr_shapes; i++) {
        struct kernel_shape shape = kernel_draws_shape(&draws);

        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;

            drawn_elements(&draws, dtype, shape);
            drawn_batchnorm(&draws, dtype, shape);
            drawn_pools(&draws, dtype, shape);
        }
    }
    kernel_draws_done(&draws);
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
