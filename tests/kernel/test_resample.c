/* Adaptive average pool and upsampling on the CPU against the reference, and the reference against
 * numbers of torch 2.15: torch.nn.functional's adaptive_avg_pool2d() and interpolate(). */
#include <math.h>
#include <stdlib.h>

#include "tests/kernel/kernel_case.h"
#include "tests/test.h"

struct shape {
    enum np_resample mode;
    int h, w, c, out_h, out_w;
};

static const struct shape shapes[] = {{NP_RESAMPLE_MEAN, 9, 7, 5, 3, 7},
    {NP_RESAMPLE_MEAN, 13, 6, 16, 7, 4}, {NP_RESAMPLE_MEAN, 2, 3, 9, 5, 7},
    {NP_RESAMPLE_NEAREST, 3, 5, 8, 6, 15}, {NP_RESAMPLE_NEAREST, 1, 1, 3, 4, 2},
    {NP_RESAMPLE_BILINEAR, 3, 5, 11, 6, 15}, {NP_RESAMPLE_BILINEAR, 1, 4, 16, 3, 16},
    {NP_RESAMPLE_BLUR, 6, 5, 17, 6, 5}, {NP_RESAMPLE_BLUR, 7, 8, 5, 4, 4},
    {NP_RESAMPLE_BLUR, 1, 2, 8, 1, 1}};
#define NR_SHAPES ((int)(sizeof(shapes) / sizeof(*shapes)))

static void make(
    struct kernel_case *the_case, const struct shape *s, bool back, enum np_dtype dtype, int batch)
{
    kernel_case_init(the_case, back ? NP_OP_RESAMPLE_DGRAD : NP_OP_RESAMPLE, batch);
    kernel_case_node(the_case)->attrs.resample = s->mode;
    kernel_case_activation(
        the_case, dtype, back ? s->out_h : s->h, back ? s->out_w : s->w, s->c, false);
    kernel_case_activation(
        the_case, dtype, back ? s->h : s->out_h, back ? s->w : s->out_w, s->c, true);
}

Test(resample, sizes_of_every_kind_are_the_references_bits)
{
    for (int i = 0; i < NR_SHAPES; i++)
        for (int variant = 0; variant < 4; variant++) {
            struct kernel_case the_case;

            make(&the_case, &shapes[i], variant & 1, variant & 2 ? NP_BF16 : NP_F32, 5);
            cr_expect(kernel_case_run(&the_case, 2, 2));
            cr_expect(kernel_case_error(&the_case, 0) == 0, "shape %d, variant %d", i, variant);
            kernel_case_fini(&the_case);
        }
}

/* Input i is i * i / 7 forward, and (i * 5 % 11) - 4 back. */
static void compare(
    enum np_resample mode, bool back, int h, int w, int out_h, int out_w, const float *want)
{
    const struct shape shape = {mode, h, w, 1, out_h, out_w};
    struct kernel_case the_case;
    const int nr_ins = back ? out_h * out_w : h * w, nr_outs = back ? h * w : out_h * out_w;

    make(&the_case, &shape, back, NP_F32, 1);
    for (int i = 0; i < nr_ins; i++)
        ((float *)the_case.reference[0])[i] = back ? (float)(i * 5 % 11 - 4) : (float)(i * i) / 7;
    kernel_case_reference(&the_case);
    for (int i = 0; i < nr_outs; i++)
        cr_expect(
            fabsf(((float *)the_case.reference[1])[i] - want[i]) < 2e-5f * (1 + fabsf(want[i])),
            "mode %d, back %d: element %d is %g, not %g", mode, back, i,
            (double)((float *)the_case.reference[1])[i], (double)want[i]);
    kernel_case_fini(&the_case);
}

static const float mean[] = {
    1.5f, 2.357143f, 3.5f, 11.88095f, 14.45238f, 17.30952f, 30.64286f, 34.92857f, 39.5f};
static const float mean_back[] = {-1, -0.75f, 1.75f, 1.5f, -1, 0.08333333f, 2.416667f, 1.333333f, 0,
    0.8333333f, 0.6666667f, -0.1666667f, 1, 1.333333f, 0.9166667f, 0.5833333f, 1, 0.5f, 0.25f,
    0.75f};
static const float wider[] = {0, 0.07142857f, 0.3571429f, 0.5714286f, 0.6428571f, 0.9285714f,
    1.642857f, 2.071429f, 1.285714f, 1.785714f, 2.928571f, 3.571429f};
static const float wider_back[] = {-1.25f, 4.25f, 3, 3.75f, 0.25f, -3};
static const float nearest[] = {0, 0, 0.1428571f, 0.1428571f, 0.5714286f, 0.5714286f, 0, 0,
    0.1428571f, 0.1428571f, 0.5714286f, 0.5714286f, 1.285714f, 1.285714f, 2.285714f, 2.285714f,
    3.571429f, 3.571429f, 1.285714f, 1.285714f, 2.285714f, 2.285714f, 3.571429f, 3.571429f};
static const float nearest_back[] = {-1, 6, 2, 8, 4, 0};
static const float bilinear[] = {0, 0, 0.04761905f, 0.0952381f, 0.1428571f, 0.2857143f, 0.4285714f,
    0.5714286f, 0.5714286f, 0.3214286f, 0.3214286f, 0.4404762f, 0.5595238f, 0.6785714f, 0.8928571f,
    1.107143f, 1.321429f, 1.321429f, 0.9642857f, 0.9642857f, 1.22619f, 1.488095f, 1.75f, 2.107143f,
    2.464286f, 2.821429f, 2.821429f, 1.285714f, 1.285714f, 1.619048f, 1.952381f, 2.285714f,
    2.714286f, 3.142857f, 3.571429f, 3.571429f};
static const float bilinear_back[] = {
    -1.583333f, 12.66667f, 10.41667f, 1.583333f, -0.6666667f, 13.58333f};

Test(resample, values_and_gradients_are_torchs)
{
    compare(NP_RESAMPLE_MEAN, false, 5, 4, 3, 3, mean);
    compare(NP_RESAMPLE_MEAN, true, 5, 4, 3, 3, mean_back);
    compare(NP_RESAMPLE_MEAN, false, 2, 3, 3, 4, wider);
    compare(NP_RESAMPLE_MEAN, true, 2, 3, 3, 4, wider_back);
    compare(NP_RESAMPLE_NEAREST, false, 2, 3, 4, 6, nearest);
    compare(NP_RESAMPLE_NEAREST, true, 2, 3, 4, 6, nearest_back);
    compare(NP_RESAMPLE_BILINEAR, false, 2, 3, 4, 9, bilinear);
    compare(NP_RESAMPLE_BILINEAR, true, 2, 3, 4, 9, bilinear_back);
}
