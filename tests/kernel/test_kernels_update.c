/* The CUDA device's update, casts and sums against the CPU's, on a grid that the CPU emulates. */
#ifdef NP_EMULATED_CUDA
#include <math.h>
#include <string.h>

#include "tests/test.h"
#include "trainer/average.h"
#include "trainer/cuda/program_cuda.h"
#include "trainer/cpu/kernels.h"
#include "trainer/muon.h"
#include "trainer/optim.h"
#include "trainer/sam.h"

enum { N = 5 * NP_CUDA_CHUNK };

static const uint32_t starts[] = {0, 2, 3, 5}; /* tensors, in chunks */
/* The last tensor is frozen in updates before number 6. */
static const struct np_rule rules[] = {{1, 1, 0, 0}, {3, 0, 0, 0}, {0.5, 2, 6, 0}};
static const uint8_t rule_of[N / NP_CUDA_CHUNK] = {0, 0, 1, 2, 2};

struct arrays {
    float params[N], m[N], v[N], grads[N];
};

static void fill(struct arrays *a, int kind)
{
    for (int i = 0; i < N; i++) {
        a->grads[i] = (float)sin(i * 0.7) * 0.3f;
        a->params[i] = (float)cos(i * 0.3);
        a->m[i] = (float)sin(i * 0.11) * 0.1f;
        a->v[i] = fabsf((float)cos(i * 0.13)) * 0.01f;
        if (kind == NP_RMSPROP) /* its first state is the squares */
            a->m[i] = a->v[i];
    }
}

/* Tensor by tensor. Returns the gradients' norm. */
static double update_on_cpu(struct arrays *a, const struct np_hyper *hyper)
{
    const bool frozen = hyper->update < rules[2].thaw;
    const double norm =
        sqrt(np_square_sum(a->grads, frozen ? (uint64_t)starts[2] * NP_CUDA_CHUNK : N));

    for (int t = 0; t < 3; t++) {
        const int at = (int)starts[t] * NP_CUDA_CHUNK;
        const struct np_update update = {
            .params = &a->params[at],
            .state = {&a->m[at], &a->v[at]},
            .grads = &a->grads[at],
            .n = (starts[t + 1] - starts[t]) * NP_CUDA_CHUNK,
            .grad_scale = np_clip_scale(norm, hyper->clip_norm),
            .rule = rules[rule_of[starts[t]]],
        };
        np_optim_update(hyper, &update);
    }
    return norm;
}

/* half_grads: of the first nr_halves gradients, or NULL. */
static void update_on_grid(struct arrays *a, const struct np_hyper *hyper, double norm,
    const uint16_t *half_grads, uint64_t nr_halves)
{
    uint16_t half[N];
    double scratch[512], squares[2 * N / NP_CUDA_CHUNK];
    float ratios[N / NP_CUDA_CHUNK];
    struct np_cuda_numbers numbers[NP_CUDA_SLOTS] = {0};
    struct np_cuda_scaler scaler = {.scale = 1};
    struct np_cuda_step step = {.slot = 17, .clip_norm = hyper->clip_norm};
    struct np_scalars scalars[3], values[2];
    const struct np_cuda_rules table = {rule_of, scalars, true};
    const struct np_cuda_optimizer update = {.params = a->params,
        .m = a->m,
        .v = a->v,
        .grads = a->grads,
        .half_grads = half_grads,
        .nr_halves = nr_halves,
        .rules = table,
        .starts = starts,
        .nr_tensors = 3,
        .squares = squares,
        .ratios = ratios,
        .half = half,
        .dtype = NP_CUDA_BF16,
        .n = N,
        .numbers = hyper->clip_norm == 0 && hyper->kind != NP_LAMB ? numbers : NULL,
        .partial = scratch};

    np_bf16_from_f32(half, a->params, N); /* frozen parameters keep their halves */
    np_optim_scalars(hyper, &rules[0], &step.update);
    for (int r = 1; r < 3; r++)
        np_optim_scalars(hyper, &rules[r], &values[r - 1]);
    np_cuda_set_scalars(NULL, scalars, 1, values, 2);
    if (!update.numbers)
        np_cuda_norm(NULL, &step, &scaler, &update, false, numbers);
    np_cuda_update(NULL, &step, &scaler, &update, hyper->kind == NP_LAMB);
    cr_assert_float_eq(numbers[1].grad_norm, norm, 1e-6 * norm);
    cr_assert_float_eq(scaler.norm, norm, 1e-6 * norm);
    for (int i = 0; i < N; i++) {
        float back;

        np_f32_from_bf16(&back, &half[i], 1);
        cr_assert_float_eq(back, a->params[i], 4e-3 * fabs(a->params[i]) + 1e-6);
    }
}

static void optimizers_agree(int kind, bool nesterov, double clip, uint64_t number)
{
    static struct arrays cpu, grid, start;
    const struct np_hyper hyper = {.kind = kind,
        .lr = 0.1f,
        .momentum = kind == NP_RMSPROP && clip > 0 ? 0 : 0.9f, /* both of its forms */
        .weight_decay = 0.01f,
        .eps = 1e-8f,
        .clip_norm = (float)clip,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .momentum_decay = 0.5,
        .nesterov = nesterov,
        .update = number};
    double moved = 0;

    fill(&cpu, kind);
    fill(&grid, kind);
    fill(&start, kind);
    update_on_grid(&grid, &hyper, update_on_cpu(&cpu, &hyper), NULL, 0);
    for (int i = 0; i < N; i++) {
        cr_assert_float_eq(cpu.params[i], grid.params[i], 1e-6 + 1e-6 * fabs(cpu.params[i]));
        cr_assert_float_eq(cpu.m[i], grid.m[i], 1e-6 + 1e-6 * fabs(cpu.m[i]));
        cr_assert_float_eq(cpu.v[i], grid.v[i], 1e-6 + 1e-6 * fabs(cpu.v[i]));
        moved = fmax(moved, fabs(cpu.params[i] - start.params[i]));
    }
    cr_assert(moved > 0.01, "optimizer %d moves by %g only", kind, moved);
}

Test(kernels_cuda, updates_equal_those_of_the_cpu)
{
    optimizers_agree(NP_SGD, true, 0.5, 4);
    for (int kind = 0; kind < NP_MUON; kind++) {
        optimizers_agree(kind, false, 0, 4);
        optimizers_agree(kind, false, 1, 4);
        optimizers_agree(kind, false, 1, 8); /* the last tensor has thawed */
    }
}

/* Gradients of the first three chunks as halves give the bits of these gradients as floats, which the
 * kernels then do not read. */
static void halves_agree(int kind, double clip)
{
    static struct arrays whole, halves;
    const struct np_hyper hyper = {.kind = kind,
        .lr = 0.1f,
        .momentum = 0.9f,
        .weight_decay = 0.01f,
        .eps = 1e-8f,
        .clip_norm = (float)clip,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .update = 4};
    enum { NR = 3 * NP_CUDA_CHUNK };
    uint16_t half[NR];

    fill(&whole, kind);
    np_bf16_from_f32(half, whole.grads, NR);
    np_f32_from_bf16(whole.grads, half, NR);
    halves = whole;
    for (int i = 0; i < NR; i++)
        halves.grads[i] = NAN;
    const double norm = sqrt(np_square_sum(whole.grads, (uint64_t)starts[2] * NP_CUDA_CHUNK));
    update_on_grid(&whole, &hyper, norm, NULL, 0);
    update_on_grid(&halves, &hyper, norm, half, NR);
    cr_assert_arr_eq(whole.params, halves.params, sizeof(whole.params));
    cr_assert_arr_eq(whole.m, halves.m, sizeof(whole.m));
    cr_assert_arr_eq(whole.v, halves.v, sizeof(whole.v));
}

Test(kernels_cuda, updates_read_gradients_that_are_halves)
{
    for (int kind = 0; kind < NP_MUON; kind++) {
        if (kind == NP_LAMB)
            continue;
        halves_agree(kind, 0);
        halves_agree(kind, 0.5);
    }
}

/* The tensors of `starts` as matrices 16 wide, all but the second one, which is AdamW's. */
static void muon_on_cpu(struct arrays *a, const struct np_hyper *hyper)
{
    static float scratch[4 * N];

    for (int t = 0; t < 3; t++) {
        const uint64_t at = starts[t] * NP_CUDA_CHUNK, n = starts[t + 1] * NP_CUDA_CHUNK - at;
        const struct np_update update = {.params = &a->params[at],
            .state = {&a->m[at], &a->v[at]},
            .grads = &a->grads[at],
            .n = n,
            .grad_scale = 0.25f,
            .rule = rules[t],
            .rows = t == 1 ? 0 : n / 16,
            .scratch = scratch};

        np_optim_update(hyper, &update);
    }
}

static void muon_on_grid(struct arrays *a, const struct np_hyper *hyper, bool skip)
{
    float x[N];
    double partial[NP_CUDA_CHUNK];
    struct np_scalars scalars[3];
    struct np_cuda_step step = {.slot = 1};
    struct np_cuda_scaler scaler = {.scale = 4, .grad_scale = 0.25f, .skip = skip};
    const struct np_cuda_optimizer update = {.params = a->params,
        .m = a->m,
        .v = a->v,
        .grads = a->grads,
        .rules = {rule_of, scalars, true},
        .dtype = NP_CUDA_F32,
        .n = N};

    for (int t = 0; t < 3; t++) {
        const struct np_hyper own = np_hyper_of(hyper, t != 1);

        np_optim_scalars(&own, &rules[t], &scalars[t]);
    }
    step.update = scalars[0];
    np_cuda_update(NULL, &step, &scaler, &update, false);
    for (int t = 0; t < 3; t += 2) {
        const uint64_t at = starts[t] * NP_CUDA_CHUNK, n = starts[t + 1] * NP_CUDA_CHUNK - at;
        const struct np_cuda_muon_step matrix = {at, n, x, partial, np_muon_rate(n / 16, 16)};

        np_cuda_muon_begin(NULL, &step, &scaler, &update, &matrix);
        np_cuda_muon_end(NULL, &step, &scaler, &update, &matrix);
    }
}

/* Without iterations a step is the mean over its norm; the products are cuBLASLt's. */
static void muons_agree(bool nesterov, uint64_t number, bool skip)
{
    static struct arrays cpu, grid;
    const struct np_hyper hyper = {.kind = NP_MUON,
        .lr = 0.1f,
        .rest_lr = 0.02f,
        .momentum = 0.9f,
        .weight_decay = 0.1f,
        .eps = 1e-8f,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .nesterov = nesterov,
        .update = number};

    fill(&cpu, NP_MUON);
    fill(&grid, NP_MUON);
    if (!skip)
        muon_on_cpu(&cpu, &hyper);
    muon_on_grid(&grid, &hyper, skip);
    for (int i = 0; i < N; i++) {
        const double most = skip ? 0 : 1e-6;

        cr_assert(fabs(cpu.params[i] - grid.params[i]) <= most, "%d", i);
        cr_assert(
            fabs(cpu.m[i] - grid.m[i]) <= most && fabs(cpu.v[i] - grid.v[i]) <= most, "%d", i);
    }
}

Test(kernels_cuda, muon_around_its_products_equals_the_cpu)
{
    muons_agree(false, 8, false);
    muons_agree(true, 8, false);
    muons_agree(true, 4, false); /* the last tensor is frozen */
    muons_agree(true, 8, true);
}

static const uint8_t one_rule[1] = {0};
static const struct np_cuda_rules plain = {one_rule, NULL, false};

static void update_one(const struct np_cuda_step *step, struct np_cuda_scaler *scaler,
    float *params, float *m, const float *grads, enum np_cuda_dtype dtype)
{
    const struct np_cuda_optimizer update = {.params = params,
        .m = m,
        .grads = grads,
        .rules = plain,
        .dtype = dtype,
        .n = NP_CUDA_CHUNK};

    np_cuda_update(NULL, step, scaler, &update, false);
}

static void norm_one(const struct np_cuda_step *step, struct np_cuda_scaler *scaler,
    const float *grads, bool dynamic, struct np_cuda_numbers *numbers)
{
    double partial[8];
    const struct np_cuda_optimizer update = {
        .grads = grads, .rules = plain, .n = NP_CUDA_CHUNK, .partial = partial};

    np_cuda_norm(NULL, step, scaler, &update, dynamic, numbers);
}

Test(kernels_cuda, a_nan_gradient_skips_the_update_and_halves_the_scale)
{
    float params[NP_CUDA_CHUNK] = {1}, m[NP_CUDA_CHUNK] = {0}, grads[NP_CUDA_CHUNK] = {INFINITY};
    struct np_cuda_numbers numbers[NP_CUDA_SLOTS] = {0};
    struct np_cuda_scaler scaler = {.scale = 1024, .good = 7};
    const struct np_cuda_step step = {.update = {.kind = NP_SGD, .lr = 1}};

    norm_one(&step, &scaler, grads, true, numbers);
    update_one(&step, &scaler, params, m, grads, NP_CUDA_F16);
    cr_assert(params[0] == 1 && scaler.scale == 512 && scaler.good == 0);
    grads[0] = 512; /* of a loss scaled by 512: 1 */
    scaler.good = 1999;
    norm_one(&step, &scaler, grads, true, numbers);
    update_one(&step, &scaler, params, m, grads, NP_CUDA_F16);
    cr_assert_float_eq(params[0], 0, 1e-6);
    cr_assert(scaler.scale == 1024 && scaler.good == 0);
}

Test(kernels_cuda, clipping_an_infinite_gradient_gives_nan_as_on_the_cpu)
{
    float params[NP_CUDA_CHUNK] = {1}, m[NP_CUDA_CHUNK] = {0}, grads[NP_CUDA_CHUNK] = {INFINITY};
    struct np_cuda_numbers numbers[NP_CUDA_SLOTS] = {0};
    struct np_cuda_scaler scaler = {.scale = 1};
    const struct np_cuda_step step = {.clip_norm = 5, .update = {.kind = NP_SGD, .lr = 1}};

    norm_one(&step, &scaler, grads, false, numbers);
    update_one(&step, &scaler, params, m, grads, NP_CUDA_BF16);
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

Test(kernels_cuda, averages_equal_those_of_the_cpu)
{
    float x[N], average[2][N];
    uint16_t half[N];

    for (int i = 0; i < N; i++) {
        x[i] = (float)sin(i * 0.7);
        average[0][i] = average[1][i] = (float)cos(i * 0.3);
    }
    np_average_blend(average[0], x, N, 0.1f);
    np_cuda_average(NULL, average[1], x, 0.1f, false, NP_CUDA_BF16, NULL, N);
    for (int i = 0; i < N; i++)
        cr_assert(fabsf(average[0][i] - average[1][i]) < 1e-6f && x[i] == (float)sin(i * 0.7));
    np_cuda_swap(NULL, x, average[1], NP_CUDA_BF16, half, N);
    for (int i = 0; i < N; i++) {
        float back;

        np_f32_from_bf16(&back, &half[i], 1);
        cr_assert(fabsf(average[0][i] - x[i]) < 1e-6f && average[1][i] == (float)sin(i * 0.7));
        cr_assert(fabsf(back - x[i]) < 4e-3f);
    }
    np_cuda_average(NULL, average[1], x, 0.5f, true, NP_CUDA_BF16, half, N);
    for (int i = 0; i < N; i++)
        cr_assert(x[i] == average[1][i]);
}

static uint64_t hash_on_grid(const float *x, uint64_t n, uint64_t first)
{
    uint64_t parts[NP_CUDA_HASH_PARTS] = {0}, sum = 0;

    np_cuda_hash(NULL, x, n, first, parts);
    for (int i = 0; i < NP_CUDA_HASH_PARTS; i++)
        sum += parts[i];
    return sum;
}

/* The sum of splitmix64's numbers from its states `first` on, each moved on by an element's bits. */
static uint64_t hash_on_cpu(const float *x, uint64_t n, uint64_t first)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        uint64_t z = (first + i) * 0x9e3779b97f4a7c15u + bits;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        sum += z ^ z >> 31;
    }
    return sum;
}

Test(kernels_cuda, a_hash_is_its_formula_and_shows_each_bit_and_place)
{
    static float x[16 * N];
    const uint64_t sizes[] = {0, 1, 3, 1024, N + 2, 16 * N};

    for (int i = 0; i < 16 * N; i++)
        x[i] = (float)sin(i * 0.7);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        cr_assert_eq(hash_on_grid(x, sizes[s], 0), hash_on_cpu(x, sizes[s], 0));
        cr_assert_eq(hash_on_grid(x + 1, sizes[s] / 2, 77), hash_on_cpu(x + 1, sizes[s] / 2, 77));
    }
    const uint64_t whole = hash_on_grid(x, N, 0);
    for (int bit = 0; bit < 32; bit++) {
        uint32_t bits;

        memcpy(&bits, &x[bit * 9], sizeof(bits));
        bits ^= 1u << bit;
        memcpy(&x[bit * 9], &bits, sizeof(bits));
        cr_assert_neq(hash_on_grid(x, N, 0), whole);
        bits ^= 1u << bit;
        memcpy(&x[bit * 9], &bits, sizeof(bits));
    }
    cr_assert_eq(hash_on_grid(x, N, 0), whole);
    cr_assert_neq(hash_on_grid(x, N, 1), whole);
    const float first = x[0];
    x[0] = x[1];
    x[1] = first;
    cr_assert_neq(hash_on_grid(x, N, 0), whole);
}

/* The last tensor is frozen; gradients are multiplied by f16's loss scale. */
static void climbs_agree(bool adaptive)
{
    static struct arrays a;
    static const struct np_rule *const at[] = {
        &rules[0], &rules[0], &rules[1], &rules[2], &rules[2]};
    const struct np_hyper hyper = {.kind = NP_SGD, .lr = 0.1f, .update = 3};
    struct np_cuda_numbers numbers[NP_CUDA_SLOTS] = {0};
    struct np_cuda_scaler scaler = {.scale = 64, .good = 7};
    struct np_cuda_step step = {.slot = 17};
    struct np_scalars scalars[3];
    double scratch[N];
    float want[N], kept[N], start[N], back;
    uint16_t half[N];
    const struct np_cuda_climb climb = {.params = a.params,
        .kept = kept,
        .grads = a.grads,
        .rules = {rule_of, scalars, true},
        .half = half,
        .dtype = NP_CUDA_BF16,
        .n = N,
        .rho = 0.5f,
        .adaptive = adaptive};
    double squares = 0;

    fill(&a, NP_SGD);
    memcpy(start, a.params, sizeof(start));
    memcpy(want, a.params, sizeof(want));
    np_bf16_from_f32(half, a.params, N);
    for (int i = 0; i < N; i++)
        if (hyper.update < at[i / NP_CUDA_CHUNK]->thaw)
            a.grads[i] = 0;
    squares = np_sam_squares(want, a.grads, N, adaptive);
    np_sam_climb(want, a.grads, N, np_sam_scale(sqrt(squares), 0.5), adaptive);
    for (int i = 0; i < N; i++) /* the kernel has to leave out those of frozen parameters */
        a.grads[i] = hyper.update < at[i / NP_CUDA_CHUNK]->thaw ? 1e3f : a.grads[i] * 64;
    np_optim_scalars(&hyper, &rules[0], &step.update);
    np_optim_scalars(&hyper, &rules[1], &scalars[1]);
    np_optim_scalars(&hyper, &rules[2], &scalars[2]);
    np_cuda_climb(NULL, &step, &scaler, &climb, numbers, scratch);
    cr_assert_float_eq(scaler.norm, sqrt(squares), 1e-6 * sqrt(squares));
    cr_assert(scaler.scale == 64 && scaler.good == 7 && !scaler.skip);
    for (int i = 0; i < N; i++) {
        np_f32_from_bf16(&back, &half[i], 1);
        cr_assert(kept[i] == start[i] && fabsf(a.params[i] - want[i]) < 1e-6f, "%d", i);
        cr_assert(fabsf(back - want[i]) < 5e-3f);
        cr_assert(hyper.update >= at[i / NP_CUDA_CHUNK]->thaw || a.params[i] == start[i]);
    }
    a.grads[3] = INFINITY;
    np_cuda_climb(NULL, &step, &scaler, &climb, numbers, scratch);
    cr_assert(isnan(a.params[0]) && a.params[N - 1] == start[N - 1]);
}

Test(kernels_cuda, sam_climbs_as_on_the_cpu)
{
    climbs_agree(false);
    climbs_agree(true);
}
#endif
