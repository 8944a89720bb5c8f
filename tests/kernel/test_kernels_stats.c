/* Sums of channels, by 16 bytes at a time and one by one, and batchnorm's statistics from sums that a
 * convolution left, against the same worked out in double: on the emulated grid, odd numbers of rows
 * and channels. */
#ifdef NP_EMULATED_CUDA
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/test.h"
#include "trainer/cuda/kernels_cuda.h"

#define EPS      1e-5
#define MOMENTUM 0.1

void np_emu_seed(uint64_t seed); /* tests/emu/grid.h, which is C++ */

/* Rows of one channel each around its mean, bf16, and what the statistics of these have to be. */
struct column {
    double mean, var;
};

static uint16_t to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float of_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;

    memcpy(&f, &bits, 4);
    return f;
}

/* x (rows, c); sums (2, c), the second wrong by `slip` of itself, as f32 sums may be. */
static void make(
    uint16_t *x, float *sums, struct column *columns, int rows, int c, float mean, double slip)
{
    for (int ch = 0; ch < c; ch++) {
        double sum = 0, squares = 0;

        for (int row = 0; row < rows; row++) {
            float v = mean * (float)(ch % 3) + (float)((row * 7 + ch) % 13 - 6) * 0.25f;

            x[row * c + ch] = to_bf16(v);
            v = of_bf16(x[row * c + ch]);
            sum += v;
            squares += (double)v * v;
        }
        columns[ch].mean = sum / rows;
        columns[ch].var = 0;
        for (int row = 0; row < rows; row++) {
            double v = of_bf16(x[row * c + ch]) - columns[ch].mean;

            columns[ch].var += v * v / rows;
        }
        sums[ch] = (float)sum;
        sums[c + ch] = (float)(squares * (1 + slip));
    }
}

static void check(int rows, int c, float mean, double slip, double tolerance)
{
    size_t n = (size_t)c;
    uint16_t *x = np_alloc((size_t)rows * n * sizeof(*x));
    struct column *columns = np_alloc(n * sizeof(*columns));
    float *all = np_alloc(6 * n * sizeof(*all)), *sums = all, *running_mean = all + 2 * n,
          *running_var = all + 3 * n, *means = all + 4 * n, *inv_std = all + 5 * n;

    make(x, sums, columns, rows, c, mean, slip);
    for (int ch = 0; ch < c; ch++)
        running_mean[ch] = running_var[ch] = 2;
    np_cuda_bn_stats_of_sums(NULL, NP_CUDA_BF16,
        &(struct np_cuda_stats){x, (uint64_t)rows, c, EPS, MOMENTUM, running_mean, running_var,
            means, inv_std, NULL, 0},
        sums, sums + c);
    for (int i = 0; i < 2 * c; i++)
        cr_assert(sums[i] == 0);
    for (int ch = 0; ch < c; ch++) {
        double m = columns[ch].mean, v = columns[ch].var,
               unbiased = rows > 1 ? v * rows / (rows - 1) : v;

        cr_assert_float_eq(means[ch], m, 1e-5 + 1e-6 * fabs(m), "mean %d: %g", ch, means[ch]);
        cr_assert_float_eq(inv_std[ch] * sqrt(v + EPS), 1, tolerance, "inv_std %d of %d: %g for %g",
            ch, c, inv_std[ch], 1 / sqrt(v + EPS));
        cr_assert_float_eq(running_mean[ch], 2 + MOMENTUM * (m - 2), 1e-5 + 1e-6 * fabs(m));
        cr_assert_float_eq(
            running_var[ch], 2 + MOMENTUM * (unbiased - 2), 1e-5 + tolerance * unbiased);
    }
    np_free(x);
    np_free(columns);
    np_free(all);
}

Test(kernels_stats, they_come_from_a_convolutions_sums)
{
    static const int sizes[][2] = {{1, 1}, {7, 3}, {300, 8}, {999, 65}, {2, 33}};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        check(sizes[i][0], sizes[i][1], 0.5f, 0, 2e-6);
}

/* A mean 100 times the deviation: of f32's sums of squares nothing is left, the rows are read again. */
Test(kernels_stats, a_variance_lost_by_cancellation_is_computed_from_the_rows)
{
    for (uint64_t seed = 1; seed < 3; seed++) {
        np_emu_seed(seed);
        check(777, 9, 150, 1e-5, 2e-5);
        check(64, 5, -4000, 1e-6, 2e-6);
    }
    np_emu_seed(1);
}

Test(kernels_stats, a_nan_sum_stays_nan)
{
    float x[4] = {1, 2, NAN, 4}, sums[2] = {NAN, NAN}, running[2] = {0, 1}, mean = 0, inv_std = 0;

    np_cuda_bn_stats_of_sums(NULL, NP_CUDA_F32,
        &(struct np_cuda_stats){
            x, 4, 1, EPS, MOMENTUM, &running[0], &running[1], &mean, &inv_std, NULL, 0},
        sums, sums + 1);
    cr_assert(isnan(mean) && isnan(inv_std) && isnan(running[0]) && isnan(running[1]));
}

/* x: rows * c elements behind `skip` others, so that 16 bytes do not begin with it. Returns their sums,
 * by the device's kernel, in blocks and threads of that seed's order. */
static void sum_channels(
    enum np_cuda_dtype dtype, const void *x, int skip, int rows, int c, uint64_t seed, float *sums)
{
    size_t bytes = dtype == NP_CUDA_F32 ? 4 : 2;
    void *scratch = np_alloc(np_cuda_channel_scratch((uint64_t)rows, c));

    np_emu_seed(seed);
    np_cuda_bias_grad(
        NULL, dtype, (const char *)x + bytes * (size_t)skip, sums, (uint64_t)rows, c, scratch);
    np_emu_seed(1);
    np_free(scratch);
}

static void check_sums(enum np_cuda_dtype dtype, int rows, int c, int skip)
{
    size_t n = (size_t)rows * (size_t)c + (size_t)skip;
    float *wide = np_alloc((n + 1) * sizeof(*wide)), *sums = np_alloc((size_t)c * sizeof(*sums)),
          *again = np_alloc((size_t)c * sizeof(*again));
    uint16_t *half = np_alloc((n + 1) * sizeof(*half));

    for (size_t i = 0; i < n; i++) {
        half[i] = to_bf16((float)((i * 2654435761u >> 8) % 1009) / 1009 - 0.3f);
        wide[i] = of_bf16(half[i]);
    }
    sum_channels(dtype, dtype == NP_CUDA_F32 ? (void *)wide : half, skip, rows, c, 1, sums);
    sum_channels(dtype, dtype == NP_CUDA_F32 ? (void *)wide : half, skip, rows, c, 7, again);
    cr_assert(memcmp(sums, again, (size_t)c * sizeof(*sums)) == 0, "%d x %d: other bits", rows, c);
    for (int ch = 0; ch < c; ch++) {
        double sum = 0, size = 0;

        for (int row = 0; row < rows; row++) {
            sum += wide[(size_t)skip + (size_t)row * (size_t)c + (size_t)ch];
            size += fabs((double)wide[(size_t)skip + (size_t)row * (size_t)c + (size_t)ch]);
        }
        cr_assert_float_eq(sums[ch], sum, 1e-6 * size, "%d x %d, channel %d: %g, not %g", rows, c,
            ch, sums[ch], sum);
    }
    np_free(wide);
    np_free(half);
    np_free(sums);
    np_free(again);
}

/* Packs of a row: none, fewer than a warp, not a power of two, more than a warp; rows: fewer than a
 * block takes, a whole run of each thread, one more. */
Test(kernels_stats, sums_are_right_for_any_number_of_channels)
{
    static const int channels[] = {1, 3, 8, 24, 64, 100, 264, 520}, rows[] = {1, 63, 257, 2048};

    for (size_t i = 0; i < sizeof(channels) / sizeof(*channels); i++)
        for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++)
            for (int skip = 0; skip < 2; skip++) {
                check_sums(NP_CUDA_BF16, rows[k], channels[i], skip);
                check_sums(NP_CUDA_F32, rows[k], channels[i], skip);
            }
}

/* More stretches than a team has, and more channels than a launch takes. */
Test(kernels_stats, sums_are_right_for_many_rows_and_for_many_channels)
{
    check_sums(NP_CUDA_BF16, 2500, 264, 0);
    check_sums(NP_CUDA_F32, 2500, 33, 1);
    check_sums(NP_CUDA_F32, 3, 65601, 0);
}
#endif
