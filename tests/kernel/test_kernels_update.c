/* The CUDA device's update, casts and sums against the CPU's, on a grid that the CPU emulates. */
#ifdef NP_EMULATED_CUDA
#include <math.h>

#include "tests/test.h"
#include "trainer/cuda/program_cuda.h"
#include "trainer/cpu/kernels.h"
#include "trainer/optim.h"

enum { N = 5 * NP_CUDA_CHUNK };

static void optimizers_agree(bool decoupled, bool nesterov, double clip)
{
    float params[2][N], m[2][N], v[2][N], grads[N];
    uint8_t decay[N / NP_CUDA_CHUNK] = {1, 0, 1, 1, 0};
    uint16_t half[N];
    double scratch[512];
    struct np_cuda_numbers numbers[NP_CUDA_SLOTS] = {0};
    struct np_cuda_scaler scaler = {.scale = 1};
    const struct np_hyper hyper = {.lr = 0.1f,
        .momentum = 0.9f,
        .weight_decay = 0.01f,
        .eps = 1e-8f,
        .clip_norm = (float)clip,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .nesterov = nesterov,
        .decoupled = decoupled,
        .update = 4};
    struct np_cuda_step step = {.slot = 17,
        .lr = 0.1f,
        .momentum = 0.9f,
        .weight_decay = 0.01f,
        .eps = 1e-8f,
        .clip_norm = (float)clip,
        .nesterov = nesterov,
        .decoupled = decoupled,
        .keep = (float)(1 - (double)0.1f * 0.01f),
        .one_minus_beta1 = (float)(1 - 0.9),
        .beta2 = 0.999f,
        .one_minus_beta2 = (float)(1 - 0.999),
        .adamw_step = (float)(0.1f / (1 - pow(0.9, 5))),
        .root_bias = (float)sqrt(1 - pow(0.999, 5))};

    for (int i = 0; i < N; i++) {
        grads[i] = (float)sin(i * 0.7) * 0.3f;
        params[0][i] = params[1][i] = (float)cos(i * 0.3);
        m[0][i] = m[1][i] = (float)sin(i * 0.11) * 0.1f;
        v[0][i] = v[1][i] = fabsf((float)cos(i * 0.13)) * 0.01f;
    }
    double norm = sqrt(np_square_sum(grads, N));
    for (int c = 0; c < N / NP_CUDA_CHUNK; c++) {
        int at = c * NP_CUDA_CHUNK;

        if (decoupled)
            np_adamw_update(&params[0][at], &m[0][at], &v[0][at], &grads[at], NP_CUDA_CHUNK, &hyper,
                np_clip_scale(norm, clip), decay[c]);
        else
            np_sgd_update(&params[0][at], &m[0][at], &grads[at], NP_CUDA_CHUNK, &hyper,
                np_clip_scale(norm, clip), decay[c]);
    }
    np_cuda_norm(NULL, &step, &scaler, grads, N, false, numbers, scratch);
    np_cuda_update(
        NULL, &step, &scaler, params[1], m[1], v[1], grads, decay, NP_CUDA_BF16, half, N);
    cr_assert_float_eq(numbers[1].grad_norm, norm, 1e-6 * norm);
    for (int i = 0; i < N; i++) {
        float back;

        np_f32_from_bf16(&back, &half[i], 1);
        cr_assert_float_eq(params[0][i], params[1][i], 1e-6);
        cr_assert_float_eq(m[0][i], m[1][i], 1e-6);
        cr_assert_float_eq(v[0][i], v[1][i], 1e-6);
        cr_assert_float_eq(back, params[1][i], 4e-3 * fabs(params[1][i]) + 1e-6);
    }
}

Test(kernels_cuda, updates_equal_those_of_the_cpu)
{
    optimizers_agree(false, false, 0);
    optimizers_agree(false, true, 0.5);
    optimizers_agree(true, false, 0);
    optimizers_agree(true, false, 1);
}

Test(kernels_cuda, a_nan_gradient_skips_the_update_and_halves_the_scale)
{
    float params[NP_CUDA_CHUNK] = {1}, m[NP_CUDA_CHUNK] = {0}, grads[NP_CUDA_CHUNK] = {INFINITY};
    uint8_t decay[1] = {0};
    double scratch[8];
    struct np_cuda_numbers numbers[NP_CUDA_SLOTS] = {0};
    struct np_cuda_scaler scaler = {.scale = 1024, .good = 7};
    const struct np_cuda_step step = {.lr = 1};

    np_cuda_norm(NULL, &step, &scaler, grads, NP_CUDA_CHUNK, true, numbers, scratch);
    np_cuda_update(
        NULL, &step, &scaler, params, m, NULL, grads, decay, NP_CUDA_F16, NULL, NP_CUDA_CHUNK);
    cr_assert(params[0] == 1 && scaler.scale == 512 && scaler.good == 0);
    grads[0] = 512; /* of a loss scaled by 512: 1 */
    scaler.good = 1999;
    np_cuda_norm(NULL, &step, &scaler, grads, NP_CUDA_CHUNK, true, numbers, scratch);
    np_cuda_update(
        NULL, &step, &scaler, params, m, NULL, grads, decay, NP_CUDA_F16, NULL, NP_CUDA_CHUNK);
    cr_assert_float_eq(params[0], 0, 1e-6);
    cr_assert(scaler.scale == 1024 && scaler.good == 0);
}

Test(kernels_cuda, clipping_an_infinite_gradient_gives_nan_as_on_the_cpu)
{
    float params[NP_CUDA_CHUNK] = {1}, m[NP_CUDA_CHUNK] = {0}, grads[NP_CUDA_CHUNK] = {INFINITY};
    uint8_t decay[1] = {0};
    double scratch[8];
    struct np_cuda_numbers numbers[NP_CUDA_SLOTS] = {0};
    struct np_cuda_scaler scaler = {.scale = 1};
    const struct np_cuda_step step = {.lr = 1, .clip_norm = 5};

    np_cuda_norm(NULL, &step, &scaler, grads, NP_CUDA_CHUNK, false, numbers, scratch);
    np_cuda_update(
        NULL, &step, &scaler, params, m, NULL, grads, decay, NP_CUDA_BF16, NULL, NP_CUDA_CHUNK);
    cr_assert(isinf(numbers[0].grad_norm));
    cr_assert(isnan(params[0]));
}

Test(kernels_cuda, casts_round_to_nearest_even_and_back)
{
    const float x[5] = {1, -2.5f, 1.00390625f, 65504, 3e-5f};
    uint16_t half[5];
    float back[5];

    np_cuda_cast(NULL, NP_CUDA_F32, x, NP_CUDA_BF16, half, 5);
    cr_assert_eq(half[0], 0x3f80);
    cr_assert_eq(half[2], 0x3f80); /* a tie: to even */
    np_cuda_cast(NULL, NP_CUDA_F32, x, NP_CUDA_F16, half, 5);
    cr_assert_eq(half[0], 0x3c00);
    cr_assert_eq(half[3], 0x7bff);
    np_cuda_cast(NULL, NP_CUDA_F16, half, NP_CUDA_F32, back, 5);
    cr_assert_float_eq(back[1], -2.5, 0);
    cr_assert_float_eq(back[4], 3e-5, 1e-7);
}

Test(kernels_cuda, timed_buffers_hold_small_numbers_of_both_signs)
{
    float x[N], sum = 0, squares = 0;

    np_cuda_fill(NULL, NP_CUDA_F32, x, N, 0.05f);
    for (int i = 0; i < N; i++) {
        cr_assert(x[i] >= -0.05f && x[i] <= 0.05f, "element %d is %g", i, (double)x[i]);
        sum += x[i];
        squares += x[i] * x[i];
    }
    /* Drawn evenly: mean 0, variance 0.05 squared / 3. */
    cr_assert_lt(fabsf(sum / N), 0.005f);
    cr_assert_float_eq(squares / N, 0.05f * 0.05f / 3, 0.0001f);
}

Test(kernels_cuda, metrics_are_summed_without_masked_rows)
{
    float loss[70], correct[70], top5[70], losses[NP_CUDA_SLOTS * 70] = {0};
    int32_t labels[70];
    struct np_cuda_numbers numbers[NP_CUDA_SLOTS];
    const struct np_cuda_step step = {.labels = labels, .slot = 3};

    for (int i = 0; i < 70; i++) {
        loss[i] = 0.5f;
        correct[i] = i % 2;
        top5[i] = 1;
        labels[i] = i < 60 ? i % 3 : -1;
    }
    np_cuda_numbers(NULL, &step, loss, correct, top5, 70, numbers, losses);
    for (int i = 0; i < NP_CUDA_SLOTS * 70; i++)
        cr_assert_eq(losses[i], i / 70 == 3 ? loss[i % 70] : 0);
    cr_assert_float_eq(numbers[3].loss_sum, 30, 1e-9);
    cr_assert_eq(numbers[3].rows, 60);
    cr_assert_eq(numbers[3].correct, 30);
    cr_assert_eq(numbers[3].top5, 60);
}
#endif
