/* The CUDA device's own kernels against the reference, on a grid that the CPU emulates: the same
 * sources, the same lowering from a node to its launches, odd sizes, several orders of blocks and
 * threads. Halves are bf16: f16 differs from it in two conversions, which casts test. */
#ifdef NP_EMULATED_CUDA
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/kernel/kernel_case_cuda.h"
#include "tests/kernel/kernel_draws.h"
#include "tests/test.h"
#include "trainer/cuda/program_cuda.h"

#define F32_TOLERANCE  2e-5
#define BF16_TOLERANCE 8e-3 /* a unit in the last place of 8 bits */

void np_emu_seed(uint64_t seed); /* tests/emu/grid.h, which is C++ */

static const int sizes[][3] = {{5, 7, 16}, {3, 4, 3}, {1, 1, 10}, {6, 5, 24}, {4, 4, 65}, {2, 3, 1},
    {1, 1, 1}, {9, 9, 33}, {3, 2, 264}, {1, 1, 4104}};
#define NR_SIZES 10

/* Two orders of threads and blocks give the same bits, and the reference's values. */
static bool check(struct kernel_case *the_case, enum np_dtype dtype, int first_out)
{
    double error;
    bool right;

    kernel_case_reference(the_case);
    np_emu_seed(1);
    kernel_case_run_cuda(the_case, dtype);
    error = kernel_case_error(the_case, first_out);
    right = error <= (dtype == NP_F32 ? F32_TOLERANCE : BF16_TOLERANCE);
    if (!right)
        fprintf(stderr, "%s: off by %g\n", np_cuda_lowerings[kernel_case_node(the_case)->op].name,
            error);
    kernel_case_fini(the_case);
    return right;
}

static void channel(struct kernel_case *the_case, int c, float scale, float offset, bool out)
{
    kernel_case_values(the_case, (const int[4]){c}, scale, offset, NP_ROLE_PARAM, out);
}

static bool elements_are_right(enum np_op op, int nr_ins, bool relu, double rate)
{
    bool right = true;

    for (int s = 0; s < NR_SIZES; s++)
        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;
            struct kernel_case the_case;

            kernel_case_init(&the_case, op, 7);
            kernel_case_node(&the_case)->attrs.relu = relu;
            kernel_case_node(&the_case)->attrs.rate = rate;
            kernel_case_node(&the_case)->attrs.seed = 0x123456789abcull;
            for (int i = 0; i <= nr_ins; i++)
                kernel_case_activation(
                    &the_case, dtype, sizes[s][0], sizes[s][1], sizes[s][2], i == nr_ins);
            right = check(&the_case, dtype, 0) && right;
        }
    return right;
}

Test(kernels_cuda, elementwise_kernels_are_the_reference)
{
    cr_assert(elements_are_right(NP_OP_RELU, 1, false, 0));
    cr_assert(elements_are_right(NP_OP_RELU_DGRAD, 2, false, 0));
    cr_assert(elements_are_right(NP_OP_ADD, 2, false, 0));
    cr_assert(elements_are_right(NP_OP_ADD, 2, true, 0));
}

/* Whole packs of 16 bytes, and a remainder. */
static bool act_is_right(enum np_act act, bool back, enum np_dtype dtype)
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, back ? NP_OP_ACT_DGRAD : NP_OP_ACT, 7);
    kernel_case_node(&the_case)->attrs.act = act;
    kernel_case_node(&the_case)->attrs.slope = 0.3;
    for (int i = 0; i <= back + 1; i++)
        kernel_case_activation(&the_case, dtype, 5, 3, 13, i == back + 1);
    for (int i = 0; i < 7 * 5 * 3 * 13 && dtype == NP_F32;
         i++) /* where relu6 and others bend, too */
        ((float *)the_case.reference[back])[i] = ((float *)the_case.tested[back])[i] *= 4;
    return check(&the_case, dtype, 0);
}

Test(kernels_cuda, activation_functions_are_the_reference)
{
    for (int act = 0; act < NP_NR_ACTS; act++)
        for (int variant = 0; variant < 4; variant++)
            cr_expect(act_is_right((enum np_act)act, variant & 1, variant & 2 ? NP_BF16 : NP_F32),
                "act %d variant %d", act, variant);
}

Test(kernels_cuda, dropout_draws_what_the_reference_draws)
{
    cr_assert(elements_are_right(NP_OP_DROPOUT, 1, false, 0.3));
    cr_assert(elements_are_right(NP_OP_DROPOUT_DGRAD, 1, false, 0.999));
    cr_assert(elements_are_right(NP_OP_DROPOUT, 1, false, 0));
    cr_assert(elements_are_right(NP_OP_DROPOUT, 1, true, 0.3));
    cr_assert(elements_are_right(NP_OP_DROPOUT_DGRAD, 2, true, 0.3));
    cr_assert(elements_are_right(NP_OP_DROP_ROWS, 1, false, 0.3));
    cr_assert(elements_are_right(NP_OP_DROP_ROWS_DGRAD, 1, false, 0.6));
}

static bool mul_is_right(bool gate, bool sums, enum np_dtype dtype)
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, sums ? NP_OP_MUL_SUM : NP_OP_MUL, 7);
    kernel_case_activation(&the_case, dtype, 5, 3, 13, false);
    kernel_case_activation(&the_case, dtype, gate ? 1 : 5, gate ? 1 : 3, 13, false);
    kernel_case_activation(&the_case, dtype, sums ? 1 : 5, sums ? 1 : 3, 13, true);
    return check(&the_case, dtype, 0);
}

static bool resample_is_right(
    enum np_resample mode, bool back, enum np_dtype dtype, const int sides[4])
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, back ? NP_OP_RESAMPLE_DGRAD : NP_OP_RESAMPLE, 3);
    kernel_case_node(&the_case)->attrs.resample = mode;
    kernel_case_activation(&the_case, dtype, sides[back ? 2 : 0], sides[back ? 3 : 1], 5, false);
    kernel_case_activation(&the_case, dtype, sides[back ? 0 : 2], sides[back ? 1 : 3], 5, true);
    return check(&the_case, dtype, 0);
}

Test(kernels_cuda, other_sizes_are_the_reference)
{
    static const int sides[][4] = {
        {9, 7, 3, 4}, {2, 3, 5, 7}, {3, 5, 6, 15}, {1, 4, 4, 4}, {5, 6, 5, 6}, {5, 6, 3, 3}};

    static const int first[] = {0, 2, 2, 4}, end[] = {4, 4, 4, 6};

    for (int mode = NP_RESAMPLE_MEAN; mode <= NP_RESAMPLE_BLUR; mode++)
        for (int s = first[mode]; s < end[mode]; s++)
            for (int variant = 0; variant < 4; variant++)
                cr_expect(resample_is_right((enum np_resample)mode, variant & 1,
                              variant & 2 ? NP_BF16 : NP_F32, sides[s]),
                    "mode %d sides %d variant %d", mode, s, variant);
}

Test(kernels_cuda, products_are_the_reference)
{
    for (int half = 0; half < 2; half++) {
        enum np_dtype dtype = half ? NP_BF16 : NP_F32;

        cr_expect(mul_is_right(false, false, dtype));
        cr_expect(mul_is_right(true, false, dtype));
        cr_expect(mul_is_right(false, true, dtype));
    }
}

/* mixing 1: mixup; 2: cutmix. */
static void input_is_right(int mixing)
{
    for (int half = 0; half < 2; half++) {
        enum np_dtype dtype = half ? NP_BF16 : NP_F32;
        struct kernel_case the_case;

        kernel_case_init(&the_case, NP_OP_INPUT, 5);
        kernel_case_node(&the_case)->attrs.mix =
            (struct np_mix){mixing == 1, mixing == 2, 1, 11, 7, 9};
        for (int i = 0; i < 4; i++) {
            kernel_case_node(&the_case)->attrs.mean[i] = 0.4f + 0.05f * (float)i;
            kernel_case_node(&the_case)->attrs.std[i] = 0.25f + 0.01f * (float)i;
        }
        kernel_case_activation(&the_case, NP_U8, 7, 9, 3, false);
        kernel_case_activation(&the_case, dtype, 7, 9, 3, true);
        the_case.graph->tensors[0].role = NP_ROLE_INPUT;
        cr_assert(check(&the_case, dtype, 0));
    }
    struct np_cuda_step step = {.images = (const uint8_t[]){0, 255, 51, 1, 2, 3}};
    const struct np_cuda_input input = {1, 1, 2, 3, 8, {0, 0.5f, 0}, {1, 0.5f, 1}, false, false};
    _Alignas(16) float x[16];

    memset(x, 0x3f, sizeof(x));
    np_cuda_input(NULL, NP_CUDA_F32, &step, &input, x);
    cr_assert_float_eq(x[1], 1, 1e-6);
    cr_assert_float_eq(x[2], 0.2, 1e-6);
    for (int i = 3; i < 8; i++)
        cr_assert(x[i] == 0 && x[8 + i] == 0);
}

Test(kernels_cuda, input_is_normalised_mixed_and_padded)
{
    for (int mixing = 0; mixing < 3; mixing++)
        input_is_right(mixing);
}

/* Pictures (2, 3, 4, 3) whose pixels are numbered, cut from reflected ones as np.pad makes them. */
Test(kernels_cuda, views_are_mirrored_and_shifted)
{
    static const int rows[3][3] = {{0, 1, 2}, {1, 0, 1}, {1, 2, 1}}; /* unshifted, -1, +1 */
    static const int columns[3][4] = {{0, 1, 2, 3}, {1, 0, 1, 2}, {1, 2, 3, 2}};
    const struct np_cuda_input input = {
        .n = 2, .h = 3, .w = 4, .c = 3, .padded = 8, .std = {1, 1, 1}, .views = true};
    uint8_t images[2 * 3 * 4 * 3];
    _Alignas(16) float x[2 * 3 * 4 * 8];

    for (int i = 0; i < 72; i++)
        images[i] = (uint8_t)(3 * i + 1);
    for (int view = 0; view < 6; view++) {
        struct np_cuda_step step = {.images = images, .view = view};

        memset(x, 0x3f, sizeof(x));
        np_cuda_input(NULL, NP_CUDA_F32, &step, &input, x);
        for (int i = 0; i < 2 * 3 * 4 * 8; i++) {
            const int c = i % 8, at = i / 8, px = at % 4, py = at / 4 % 3;
            const int from =
                (at / 12 * 3 + rows[view / 2][py]) * 4 + columns[view / 2][view % 2 ? 3 - px : px];

            cr_assert(
                x[i] == (c < 3 ? (float)images[from * 3 + c] / 255 : 0), "view %d, %d", view, i);
        }
    }
}

/* Bits of one element, of any type. */
static uint32_t bits_of(const void *x, enum np_cuda_dtype dtype, size_t i)
{
    uint32_t word = 0;
    size_t bytes = dtype == NP_CUDA_F32 ? 4 : 2;

    memcpy(&word, (const char *)x + i * bytes, bytes);
    return word;
}

/* A padded pixel leaves in one store: the same bits as without padding, and zeros. */
static void pixels_are_padded(enum np_cuda_dtype dtype, int padded, struct np_cuda_input input)
{
    enum { PIXELS = 3 * 5 * 4 };
    static _Alignas(16) float wide[PIXELS * 8], narrow[PIXELS * 3];
    static const float zero[1] = {0};
    uint8_t images[PIXELS * 3];
    struct np_cuda_step step = {.images = images,
        .mixed = {.keep = 0.7f, .box = false, .left = 1, .top = 1, .right = 3, .bottom = 4},
        .view = 3};

    for (int i = 0; i < PIXELS * 3; i++)
        images[i] = (uint8_t)(i * 37);
    for (int box = 0; box < 2; box++) {
        step.mixed.box = box;
        memset(wide, 0x5a, sizeof(wide));
        input.padded = padded;
        np_cuda_input(NULL, dtype, &step, &input, wide);
        input.padded = 3;
        np_cuda_input(NULL, dtype, &step, &input, narrow);
        for (int i = 0; i < PIXELS * padded; i++) {
            const int c = i % padded;

            cr_assert_eq(bits_of(wide, dtype, (size_t)i),
                c < 3 ? bits_of(narrow, dtype, (size_t)(i / padded * 3 + c))
                      : bits_of(zero, NP_CUDA_F32, 0));
        }
    }
}

Test(kernels_cuda, mixed_pixels_and_views_are_padded)
{
    struct np_cuda_input input = {
        3, 5, 4, 3, 0, {0.4f, 0.5f, 0.6f}, {0.2f, 0.3f, 0.4f}, true, false};

    for (int views = 0; views < 2; views++) {
        input.mixes = !views;
        input.views = views;
        pixels_are_padded(NP_CUDA_F32, 4, input);
        pixels_are_padded(NP_CUDA_F32, 8, input);
        pixels_are_padded(NP_CUDA_BF16, 8, input);
        pixels_are_padded(NP_CUDA_F16, 8, input);
    }
}

Test(kernels_cuda, views_are_added_with_their_weights)
{
    const float logits[6][3] = {
        {1, 2, 3}, {3, 2, 1}, {8, 0, -8}, {0, 8, 8}, {-16, 0, 0}, {0, 16, 8}};
    const float wanted[3] = {0, 4, 2};
    float sum[3] = {7, 7, 7}, mean[3];

    for (int batch = 0; batch < 2; batch++) /* the second one begins a sum of its own */
        for (int view = 0; view < 6; view++) {
            const struct np_cuda_step step = {.view = view};

            np_cuda_views(NULL, NP_CUDA_F32, &step, NP_TTA_FLIP_SHIFT, logits[view], mean, sum, 3);
        }
    for (int i = 0; i < 3; i++)
        cr_assert(mean[i] == wanted[i] && sum[i] == wanted[i], "%d: %g", i, (double)mean[i]);
}

/* Each of 256 values in each of 3 channels, by the formula's own bits; nothing behind the last pixel. */
static bool pixels_are_exact(enum np_cuda_dtype dtype, int padded)
{
    const struct np_cuda_input input = {1, 16, 16, padded < 3 ? 1 : 3, padded,
        {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}, false, false};
    struct np_cuda_step step = {0};
    static _Alignas(16) float x[256 * 8 + 8], wanted[256 * 8], rounded[256 * 8];
    static uint8_t images[256 * 3];
    bool right = true;

    for (int i = 0; i < 256 * input.c; i++)
        images[i] = (uint8_t)(i / input.c + 85 * (i % input.c));
    for (int i = 0; i < 256 * padded; i++) {
        int c = i % padded;

        wanted[i] = c < input.c ? ((float)images[i / padded * input.c + c] / 255 - input.mean[c]) /
                                      input.std[c]
                                : 0;
    }
    step.images = images;
    np_cuda_cast(NULL, NP_CUDA_F32, wanted, dtype, rounded, (uint64_t)256 * (uint64_t)padded);
    memset(x, 0x5a, sizeof(x));
    np_cuda_input(NULL, dtype, &step, &input, x);
    for (size_t i = 0; i < 256 * (size_t)padded; i++)
        right &= bits_of(x, dtype, i) == bits_of(rounded, dtype, i);
    return right && (uint16_t)bits_of(x, dtype, 256 * (size_t)padded) == 0x5a5a;
}

Test(kernels_cuda, every_pixel_value_has_the_bits_of_the_formula)
{
    static const int padded[] = {1, 3, 4, 8};

    for (int i = 0; i < 4; i++)
        for (int dtype = NP_CUDA_F32; dtype <= NP_CUDA_F16; dtype++)
            cr_assert(pixels_are_exact((enum np_cuda_dtype)dtype, padded[i]));
}

/* masks: where a byte has 8 channels; their bits are the reference's. */
static bool batchnorm_is_right(enum np_op op, bool relu, bool add, bool masks)
{
    bool right = true;

    for (int s = 0; s < NR_SIZES; s++)
        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;
            int h = sizes[s][0], w = sizes[s][1], c = sizes[s][2];
            struct kernel_case the_case;

            kernel_case_init(&the_case, op, 6);
            kernel_case_node(&the_case)->attrs.eps = 1e-5;
            kernel_case_node(&the_case)->attrs.relu = relu;
            kernel_case_activation(&the_case, dtype, h, w, c, false);
            channel(&the_case, c, 0.1f, 0.2f, false);
            channel(&the_case, c, 0.1f, 1, false);
            channel(&the_case, c, 0.1f, 1, false);
            channel(&the_case, c, 0.1f, 0.1f, false);
            if (add)
                kernel_case_activation(&the_case, dtype, h, w, c, false);
            kernel_case_activation(&the_case, dtype, h, w, c, true);
            if (masks && c % 8 == 0) {
                kernel_case_activation(&the_case, NP_U8, h, w, c / 8, true);
                kernel_case_reference(&the_case);
                kernel_case_run_cuda(&the_case, dtype);
                right = memcmp(the_case.reference[7], the_case.tested[7],
                            (size_t)(6 * h * w * c / 8)) == 0 &&
                        right;
            }
            right = check(&the_case, dtype, 0) && right;
        }
    return right;
}

Test(kernels_cuda, batchnorm_is_applied_as_the_reference_does)
{
    cr_assert(batchnorm_is_right(NP_OP_BN_APPLY, false, false, false));
    cr_assert(batchnorm_is_right(NP_OP_BN_APPLY, true, true, false));
    cr_assert(batchnorm_is_right(NP_OP_BN_APPLY, true, true, true));
    cr_assert(batchnorm_is_right(NP_OP_BN_EVAL, true, false, false));
    cr_assert(batchnorm_is_right(NP_OP_BN_EVAL, false, true, false));
}

/* Bits say y > 0 of what is stored: not of a NaN, of zeros, or of what rounds to 0. */
Test(kernels_cuda, masks_are_those_of_the_stored_numbers)
{
    static const float values[8] = {1e-30f, -1e-30f, NAN, 0, -0.0f, 1, INFINITY, -INFINITY};
    static const float zero[8] = {0}, one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const uint8_t bits[3] = {0x61, 0x61, 0x60}; /* f16: 1e-30 is 0 */

    for (int dtype = NP_CUDA_F32; dtype <= NP_CUDA_F16; dtype++) {
        _Alignas(16) uint8_t x[32], add[32], y[32], mask = 0x5a;

        np_cuda_cast(NULL, NP_CUDA_F32, values, (enum np_cuda_dtype)dtype, x, 8);
        np_cuda_cast(NULL, NP_CUDA_F32, zero, (enum np_cuda_dtype)dtype, add, 8);
        np_cuda_bn_apply(NULL, (enum np_cuda_dtype)dtype,
            &(struct np_cuda_bn){x, add, y, zero, one, one, zero, -1, 1, 8, true, &mask});
        cr_assert_eq(mask, bits[dtype], "type %d: %x", dtype, mask);
    }
}

/* x: 11 rows of c numbers around the one that batchnorm makes 0. */
static void around_zero(float *x, int c, const float *params[4])
{
    for (int k = 0; k < c; k++) {
        const float scale = params[1][k] * params[2][k];
        float v = params[0][k] - params[3][k] / scale;

        for (int i = 0; i < 5; i++)
            v = nextafterf(v, -INFINITY);
        for (int row = 0; row < 11; row++, v = nextafterf(v, INFINITY))
            x[row * c + k] = v;
    }
}

/* The backward kernels recompute from x whether the relu passed it: for every x they decide as the
 * forward kernel did, also next to 0, whatever the compiler contracts. */
static void check_signs(int c, int skip)
{
    enum { ROWS = 11, MAX = 40 };
    static _Alignas(16) float x[ROWS * MAX + 4], y[ROWS * MAX + 4], dy[ROWS * MAX + 4],
        dx[ROWS * MAX + 4];
    float mean[MAX], inv_std[MAX], gamma[MAX], beta[MAX], dgamma[MAX], dbeta[MAX], zero[MAX] = {0};
    void *scratch = np_alloc(np_cuda_channel_scratch(ROWS, c));
    int positive = 0;

    for (int k = 0; k < c; k++) {
        mean[k] = 0.3f * (float)(k % 7) - 1;
        inv_std[k] = 1 / (0.1f + 0.37f * (float)(k % 5));
        gamma[k] = (k % 3 == 2 ? -1 : 1) * (0.7f + 0.11f * (float)k);
        beta[k] = 0.013f * (float)(k - 3);
    }
    around_zero(x + skip, c, (const float *[]){mean, inv_std, gamma, beta});
    for (int i = 0; i < ROWS * c; i++)
        dy[skip + i] = 1;
    np_cuda_bn_apply(NULL, NP_CUDA_F32,
        &(struct np_cuda_bn){
            x + skip, NULL, y + skip, mean, inv_std, gamma, beta, -1, ROWS, c, true, NULL});
    const struct np_cuda_bn_back back = {.dy = dy + skip,
        .x = x + skip,
        .mean = mean,
        .inv_std = inv_std,
        .gamma = gamma,
        .beta = beta,
        .rows = ROWS,
        .c = c,
        .relu = true};

    np_cuda_bn_reduce(NULL, NP_CUDA_F32, &back, dgamma, dbeta, scratch);
    np_cuda_bn_dgrad(NULL, NP_CUDA_F32, &back, zero, zero, dx + skip);
    for (int k = 0; k < c; k++) {
        int passed = 0;

        for (int row = 0; row < ROWS; row++) {
            passed += y[skip + row * c + k] > 0;
            cr_assert_eq(y[skip + row * c + k] > 0, dx[skip + row * c + k] != 0);
        }
        cr_assert_eq((float)passed, dbeta[k], "channel %d of %d: %d, %g", k, c, passed, dbeta[k]);
        positive += passed;
    }
    cr_assert(positive > c && positive < 10 * c); /* both occurred */
    np_free(scratch);
}

Test(kernels_cuda, backward_passes_what_the_relu_passed)
{
    check_signs(40, 0);
    check_signs(24, 0);
    check_signs(40, 1); /* one at a time */
    check_signs(13, 0);
}

Test(kernels_cuda, statistics_are_the_reference)
{
    for (int s = 0; s < NR_SIZES; s++)
        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;
            struct kernel_case the_case;

            kernel_case_init(&the_case, NP_OP_BN_STATS, 40);
            kernel_case_node(&the_case)->attrs.eps = 1e-5;
            kernel_case_node(&the_case)->attrs.momentum = 0.1;
            kernel_case_activation(&the_case, dtype, sizes[s][0], sizes[s][1], sizes[s][2], false);
            channel(&the_case, sizes[s][2], 0.1f, 0.2f, false);
            channel(&the_case, sizes[s][2], 0.1f, 1, false);
            channel(&the_case, sizes[s][2], 1, 0, true);
            channel(&the_case, sizes[s][2], 1, 0, true);
            kernel_case_reference(&the_case);
            kernel_case_run_cuda(&the_case, dtype);
            /* means are small beside what was added up */
            for (int o = 1; o < 5; o++)
                for (int c = 0; c < sizes[s][2]; c++)
                    cr_assert_float_eq(((float *)the_case.reference[o])[c],
                        ((float *)the_case.tested[o])[c], 2e-5, "operand %d", o);
            kernel_case_fini(&the_case);
        }
}

enum by { BY_SIGN, BY_Y, BY_MASK }; /* what masks dy */

/* joins: two gradients are added. */
static bool batchnorm_back_is_right(enum np_op op, bool relu, enum by by, bool joins)
{
    bool right = true;

    for (int s = 0; s < NR_SIZES; s++)
        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;
            int h = sizes[s][0], w = sizes[s][1], c = sizes[s][2];
            struct kernel_case the_case;

            if (by == BY_MASK && c % 8 != 0)
                continue;
            kernel_case_init(&the_case, op, 6);
            kernel_case_node(&the_case)->attrs.relu = relu;
            kernel_case_node(&the_case)->attrs.joins = joins;
            kernel_case_activation(&the_case, dtype, h, w, c, false);
            kernel_case_activation(&the_case, dtype, h, w, c, false);
            channel(&the_case, c, 0.1f, 0.2f, false);
            channel(&the_case, c, 0.1f, 1, false);
            channel(&the_case, c, 0.1f, 1, false);
            channel(&the_case, c, 0.1f, 0.1f, false);
            if (op == NP_OP_BN_DGRAD) {
                channel(&the_case, c, 1, 0, false);
                channel(&the_case, c, 1, 0, false);
                kernel_case_activation(&the_case, dtype, h, w, c, true);
            } else {
                if (by == BY_Y)
                    kernel_case_activation(&the_case, dtype, h, w, c, false);
                else if (by == BY_MASK)
                    kernel_case_activation(&the_case, NP_U8, h, w, c / 8, false);
                if (joins)
                    kernel_case_activation(&the_case, dtype, h, w, c, false);
                channel(&the_case, c, 1, 0, true);
                channel(&the_case, c, 1, 0, true);
                if (by != BY_SIGN || joins)
                    kernel_case_activation(&the_case, dtype, h, w, c, true);
            }
            right = check(&the_case, dtype, 0) && right;
        }
    return right;
}

Test(kernels_cuda, batchnorm_gradient_is_the_reference)
{
    for (int joins = 0; joins < 2; joins++) {
        cr_assert(batchnorm_back_is_right(NP_OP_BN_REDUCE, false, BY_SIGN, joins));
        cr_assert(batchnorm_back_is_right(NP_OP_BN_REDUCE, true, BY_SIGN, joins));
        cr_assert(batchnorm_back_is_right(NP_OP_BN_REDUCE, true, BY_Y, joins));
        cr_assert(batchnorm_back_is_right(NP_OP_BN_REDUCE, true, BY_MASK, joins));
    }
    cr_assert(batchnorm_back_is_right(NP_OP_BN_DGRAD, false, BY_SIGN, false));
    cr_assert(batchnorm_back_is_right(NP_OP_BN_DGRAD, true, BY_SIGN, false));
}

/* The memory plan puts g in the place of either gradient. */
Test(kernels_cuda, gradients_are_joined_in_place)
{
    enum { ROWS = 37, C = 24, N = ROWS * C };
    static _Alignas(16) float first[N], second[N], x[N], apart[N];
    static uint8_t mask[N / 8];
    float ones[C], sums[4][C];
    void *scratch = np_alloc(np_cuda_channel_scratch(ROWS, C));

    for (int i = 0; i < N; i++) {
        first[i] = (float)(i % 17) - 8;
        second[i] = (float)(i % 13) * 0.25f;
        x[i] = (float)(i % 5) - 2;
        mask[i / 8] = (uint8_t)(i * 2654435761u >> 13);
    }
    for (int k = 0; k < C; k++)
        ones[k] = 1;
    for (int place = 0; place < 3; place++) {
        float *const g[] = {apart, first, second};
        const struct np_cuda_bn_back back = {.dy = first,
            .dy2 = second,
            .x = x,
            .mean = ones,
            .inv_std = ones,
            .gamma = ones,
            .beta = ones,
            .rows = ROWS,
            .c = C,
            .relu = true,
            .mask = mask,
            .g = g[place]};
        float kept[N];

        memcpy(kept, place == 2 ? second : first, sizeof(kept));
        np_cuda_bn_reduce(
            NULL, NP_CUDA_F32, &back, sums[place ? 2 : 0], sums[place ? 3 : 1], scratch);
        cr_assert(place == 0 || memcmp(g[place], apart, sizeof(apart)) == 0, "place %d", place);
        cr_assert(place == 0 || memcmp(sums[0], sums[2], 2 * sizeof(sums[0])) == 0);
        if (place > 0)
            memcpy(g[place], kept, sizeof(kept));
    }
    np_free(scratch);
}

/* Windows: kernel, stride, pad; on 9x9 and 7x5 pictures. */
static const struct np_window windows[] = {NP_SQUARE(2, 2, 0, 1, 1), NP_SQUARE(3, 2, 1, 1, 1),
    NP_SQUARE(3, 2, 0, 1, 1), NP_SQUARE(2, 2, 1, 1, 1), NP_SQUARE(3, 1, 1, 1, 1),
    NP_SQUARE(1, 1, 0, 1, 1), {3, 2, 3, 1, 1, 0, 1, 1, 1}};

static bool pool_is_right(
    enum np_op op, enum np_dtype dtype, const struct np_window *w, int h, int wd, int c, bool relu)
{
    int oh = kernel_pool_out(h, w->kernel_h, w->stride_h, w->pad_h, c % 2);
    int ow = kernel_pool_out(wd, w->kernel_w, w->stride_w, w->pad_w, c % 2);
    bool back = op == NP_OP_MAXPOOL_DGRAD || op == NP_OP_AVGPOOL_DGRAD;
    struct kernel_case the_case;

    kernel_case_init(&the_case, op, 3);
    kernel_case_node(&the_case)->attrs.window = *w;
    if (!back) {
        kernel_case_activation(&the_case, dtype, h, wd, c, false);
        kernel_case_activation(&the_case, dtype, oh, ow, c, true);
        if (op == NP_OP_MAXPOOL)
            kernel_case_activation(&the_case, NP_U8, oh, ow, c, true);
        return check(&the_case, dtype, 0);
    }
    kernel_case_activation(&the_case, dtype, oh, ow, c, false);
    if (op == NP_OP_MAXPOOL_DGRAD) {
        kernel_case_activation(&the_case, NP_U8, oh, ow, c, false);
        for (int i = 0; i < 3 * oh * ow * c;
             i++) { /* positions inside the window, and the picture */
            int at = i % (w->kernel_h * w->kernel_w);

            ((uint8_t *)the_case.reference[1])[i] = ((uint8_t *)the_case.tested[1])[i] =
                (uint8_t)at;
        }
        if (relu)
            kernel_case_activation(&the_case, dtype, oh, ow, c, false);
        kernel_case_node(&the_case)->attrs.relu = relu;
    }
    kernel_case_activation(&the_case, dtype, h, wd, c, true);
    return check(&the_case, dtype, 0);
}

Test(kernels_cuda, pools_are_the_reference_forward_and_back)
{
    static const enum np_op ops[] = {
        NP_OP_MAXPOOL, NP_OP_MAXPOOL_DGRAD, NP_OP_AVGPOOL, NP_OP_AVGPOOL_DGRAD};

    static const int pictures[][3] = {{9, 9, 5}, {7, 5, 17}, {6, 7, 24}}; /* 24: whole packs */

    for (int o = 0; o < 4; o++)
        for (int i = 0; i < 7; i++)
            for (int half = 0; half < 2; half++)
                for (int k = 0; k < 3; k++)
                    for (int relu = 0; relu <= (ops[o] == NP_OP_MAXPOOL_DGRAD); relu++)
                        cr_assert(pool_is_right(ops[o], half ? NP_BF16 : NP_F32, &windows[i],
                                      pictures[k][0], pictures[k][1], pictures[k][2], relu),
                            "op %d window %d", o, i);
}

/* Pictures as a whole. */
static bool picture_is_right(enum np_op op, enum np_dtype dtype, int h, int w, int c)
{
    bool flat = op == NP_OP_FLATTEN || op == NP_OP_FLATTEN_DGRAD;
    bool back = op == NP_OP_FLATTEN_DGRAD || op == NP_OP_GLOBAL_AVGPOOL_DGRAD;
    struct kernel_case the_case;

    kernel_case_init(&the_case, op, 4);
    kernel_case_activation(
        &the_case, dtype, back ? 1 : h, back ? 1 : w, back && flat ? h * w * c : c, false);
    kernel_case_activation(
        &the_case, dtype, back ? h : 1, back ? w : 1, !back && flat ? h * w * c : c, true);
    return check(&the_case, dtype, 0);
}

Test(kernels_cuda, pictures_are_averaged_and_flattened_as_the_reference_does)
{
    static const enum np_op ops[] = {
        NP_OP_GLOBAL_AVGPOOL, NP_OP_GLOBAL_AVGPOOL_DGRAD, NP_OP_FLATTEN, NP_OP_FLATTEN_DGRAD};

    for (int o = 0; o < 4; o++)
        for (int s = 0; s < NR_SIZES; s++)
            for (int half = 0; half < 2; half++)
                cr_assert(picture_is_right(
                    ops[o], half ? NP_BF16 : NP_F32, sizes[s][0], sizes[s][1], sizes[s][2]));
}

Test(kernels_cuda, concat_joins_and_splits_parts)
{
    for (int back = 0; back < 2; back++) {
        struct kernel_case the_case;

        kernel_case_init(&the_case, back ? NP_OP_CONCAT_DGRAD : NP_OP_CONCAT, 5);
        if (back)
            kernel_case_activation(&the_case, NP_BF16, 3, 5, 21, false);
        for (int i = 0; i < 3; i++)
            kernel_case_activation(&the_case, NP_BF16, 3, 5, i == 0 ? 1 : i == 1 ? 7 : 13, back);
        if (!back)
            kernel_case_activation(&the_case, NP_BF16, 3, 5, 21, true);
        cr_assert(check(&the_case, NP_BF16, 0));
    }
}

/* kind 1: class weights; 2: focal, or of bce a threshold; 4: mixed, too. values 1: 0 or 1 for each
 * class; 2: numbers, with a loss by kind. */
static void losses_are_right(enum np_op forward, enum np_op backward, int kind, int values)
{
    static const int classes[] = {1, 2, 10, 33, 257, 1000};

    for (int k = 0; k < 6; k++)
        for (int back = 0; back < 2; back++)
            for (int half = 0; half < 2; half++) {
                enum np_dtype dtype = half ? NP_BF16 : NP_F32;
                struct kernel_case the_case;
                const int rows[4] = {9};

                kernel_case_init(&the_case, back ? backward : forward, 9);
                kernel_case_node(&the_case)->attrs.label_smoothing = k % 2 ? 0.1 : 0;
                kernel_case_node(&the_case)->attrs.gamma = kind & 2 ? 0.5 + k : 0;
                kernel_case_node(&the_case)->attrs.threshold = kind & 2 ? 0.05 * (k + 1) : 0;
                kernel_case_node(&the_case)->attrs.sums_classes = k == 1;
                kernel_case_node(&the_case)->attrs.regression = (enum np_regression)(kind % 3);
                kernel_case_node(&the_case)->attrs.delta = 0.75;
                if (kind & 4)
                    kernel_case_node(&the_case)->attrs.mix = (struct np_mix){1, 0, 1, 11, 8, 8};
                the_case.graph->classes = classes[k];
                the_case.graph->class_weights =
                    kind & 1 ? np_alloc_array((size_t)classes[k], sizeof(float)) : NULL;
                for (int i = 0; kind & 1 && i < classes[k]; i++)
                    the_case.graph->class_weights[i] = 0.5f + (float)(i % 7);
                kernel_case_activation(&the_case, dtype, 1, 1, classes[k], false);
                the_case.graph->values = values ? classes[k] : 0;
                kernel_case_activation(&the_case, NP_I32, 0, 0, 1 + the_case.graph->values, false);
                for (int i = 9; values && i < 9 * (1 + classes[k]); i++)
                    ((float *)the_case.reference[1])[i] = ((float *)the_case.tested[1])[i] =
                        values == 1 ? (float)(i * 7 % 3 == 0) : (float)(i * 7 % 11) / 4 - 1;
                for (int i = 0; i < 9; i++)
                    ((int32_t *)the_case.reference[1])[i] = ((int32_t *)the_case.tested[1])[i] =
                        i == 4 ? -1 : i % classes[k];
                for (int o = 0; o < 3 && !back; o++)
                    kernel_case_values(&the_case, rows, 1, 0, NP_ROLE_ACTIVATION, true);
                if (back)
                    kernel_case_activation(&the_case, dtype, 1, 1, classes[k], true);
                cr_assert(check(&the_case, dtype, 0), "%d classes", classes[k]);
            }
}

Test(kernels_cuda, the_loss_is_the_reference)
{
    for (int kind = 0; kind < 8; kind++) {
        losses_are_right(NP_OP_CROSS_ENTROPY, NP_OP_CROSS_ENTROPY_DGRAD, kind, 0);
        losses_are_right(NP_OP_BCE, NP_OP_BCE_DGRAD, kind, 0);
        losses_are_right(NP_OP_BCE, NP_OP_BCE_DGRAD, kind, 1);
        losses_are_right(NP_OP_REGRESSION, NP_OP_REGRESSION_DGRAD, kind, 2);
    }
}

/* In one launch: the same bits as in two, and the batch's numbers, of the last block in any order. */
Test(kernels_cuda, a_loss_comes_with_its_gradient_and_numbers)
{
    enum { ROWS = 70, CLASSES = 33, N = ROWS * CLASSES };
    static float logits[N], apart[N], both[N], rows[6][ROWS], losses[2][NP_CUDA_SLOTS][ROWS];
    static int32_t labels[ROWS];
    struct np_cuda_numbers numbers[2][NP_CUDA_SLOTS] = {0};
    const struct np_cuda_step step = {.labels = labels, .slot = 21, .loss_scale = 0.25f};
    const struct np_cuda_scaler scaler = {.scale = 8};
    double sum = 0;

    for (int i = 0; i < N; i++)
        logits[i] = (float)((uint32_t)i * 2654435761u >> 20) / 1024 - 2;
    for (int i = 0; i < ROWS; i++)
        labels[i] = i % 9 == 4 ? -1 : i % CLASSES;
    for (uint64_t seed = 1; seed < 4; seed++) {
        struct np_cuda_entropy e = {
            .logits = logits, .n = ROWS, .classes = CLASSES, .smoothing = 0.1f, .dlogits = apart};

        np_emu_seed(seed);
        np_cuda_cross_entropy(NULL, NP_CUDA_F32, &step, &scaler, &e);
        for (int both_too = 0; both_too < 2; both_too++) {
            e.loss = rows[3 * both_too];
            e.correct = rows[3 * both_too + 1];
            e.top5 = rows[3 * both_too + 2];
            e.numbers = numbers[both_too];
            e.losses = losses[both_too][0];
            e.dlogits = both_too ? both : NULL;
            np_cuda_cross_entropy(NULL, NP_CUDA_F32, &step, &scaler, &e);
        }
        cr_assert_eq(memcmp(apart, both, sizeof(both)), 0);
        cr_assert_eq(memcmp(rows[0], rows[3], 3 * sizeof(rows[0])), 0);
        cr_assert_eq(memcmp(numbers[0], numbers[1], sizeof(numbers[0])), 0);
        cr_assert_eq(memcmp(losses[1][21 % NP_CUDA_SLOTS], rows[0], sizeof(rows[0])), 0);
    }
    np_emu_seed(1);
    for (int i = 0; i < ROWS; i++)
        sum += (double)rows[0][i];
    cr_assert_float_eq(numbers[0][21 % NP_CUDA_SLOTS].loss_sum, sum, 1e-9 * sum);
    cr_assert_eq(numbers[0][21 % NP_CUDA_SLOTS].rows, ROWS - 8);
}
#endif
