/* Batchnorm, forward and backward (arXiv:1502.03167), a few rows at a time.
 *
 * Sums over rows are in f32 over short stretches and in double beyond. Variances are relative to
 * the stretch's first pixel and combined by Chan, Golub and LeVeque's rule ("Updating formulae and
 * a pairwise algorithm for computing sample variances", 1979), so that a large mean costs no
 * digits.
 *
 * Sums run down the periods block by block, in registers: for (block of the period) for (that
 * block of each period); the elements after the last whole block follow one by one. Loops that
 * write run tile by tile instead: writing cache lines in order is faster. */
#include "trainer/cpu/kernels_cpu.h"

#include <math.h>

#include "trainer/cpu/simd.h"

#define STRETCH 256 /* periods summed in f32 */

static void to_tile(const struct np_cpu *cpu, float *tile, const float *channels)
{
    for (int i = 0; i < cpu->tile; i += cpu->c)
        memcpy(tile + i, channels, (size_t)cpu->c * sizeof(float));
}

/* sum += x - shift, squares += (x - shift)^2, each of n elements at its place in the period. */
NP_LOOP_HALF(add_moments,
    (const void *x, size_t n, size_t period, const float *shift, float *sum, float *squares),
    (x, n, period, shift, sum, squares))
{
    for (size_t i = 0; i < period; i += NP_CPU_BLOCK) {
        np_v8 shifts[2] = {np_load(shift + i), np_load(shift + i + 8)};
        np_v8 sums[2] = {np_load(sum + i), np_load(sum + i + 8)};
        np_v8 all[2] = {np_load(squares + i), np_load(squares + i + 8)};
        size_t t = i;

        for (; t + NP_CPU_BLOCK <= n; t += period)
            for (size_t j = 0; j < 2; j++) {
                np_v8 d = np_get(x, t + 8 * j, half) - shifts[j];

                sums[j] += d;
                all[j] += d * d;
            }
        for (size_t j = 0; j < 2; j++) {
            np_store(sum + i + 8 * j, sums[j]);
            np_store(squares + i + 8 * j, all[j]);
        }
        for (size_t k = 0; t + k < n && k < NP_CPU_BLOCK; k++) {
            float d = np_get1(x, t + k, half) - shift[i + k];

            sum[i + k] += d;
            squares[i + k] += d * d;
        }
    }
}

struct moments { /* of a lane so far; followed by mean (c) and sum of squared distances (c) */
    double n;
    double of[];
};

/* Combines n values with mean m and squared distances s into the channel's. */
static void join(double before, double *mean, double *squares, double n, double m, double s)
{
    double delta = m - *mean, all = before + n;

    *mean += delta * n / all;
    *squares += s + delta * delta * before * n / all;
}

static void stats_stretch(
    const struct np_cpu *cpu, const void *x, size_t n, float *scratch, struct moments *moments)
{
    size_t period = (size_t)cpu->period, c = (size_t)cpu->c;
    float *shift = scratch, *sum = shift + period, *squares = sum + period;
    double pixels = (double)(n / c);

    for (size_t i = 0; i < period; i++) {
        shift[i] = np_get1(x, i % c, cpu->half);
        sum[i] = squares[i] = 0;
    }
    add_moments(cpu->half, x, n, period, shift, sum, squares);
    for (size_t k = 0; k < c; k++) {
        double s = 0, q = 0;

        for (size_t i = k; i < period; i += c) {
            s += sum[i];
            q += squares[i];
        }
        join(moments->n, &moments->of[k], &moments->of[c + k], pixels, shift[k] + s / pixels,
            q - s * s / pixels);
    }
    moments->n += pixels;
}

static void stats_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    struct moments *moments = run->partial;
    size_t row = np_cpu_row(cpu), n = row * (size_t)run->nr_rows;
    size_t stretch = (size_t)cpu->period * STRETCH;
    void *x = np_cpu_at(cpu, run->operands->ptr[0], np_cpu_first(run, row));

    if (run->info->step < cpu->attrs.thaw)
        return;
    if (run->first_in_lane) {
        moments->n = 0;
        memset(moments->of, 0, 2 * (size_t)cpu->c * sizeof(double));
    }
    for (size_t i = 0; i < n; i += stretch)
        stats_stretch(
            cpu, np_cpu_at(cpu, x, i), n - i < stretch ? n - i : stretch, run->scratch, moments);
}

static void stats_finish(void *state, const struct np_finish *finish)
{
    struct np_cpu *cpu = state;
    void *const *ptr = finish->operands->ptr;
    float *running_mean = ptr[1], *running_var = ptr[2], *mean = ptr[3], *inv_std = ptr[4];
    float momentum = (float)cpu->attrs.momentum;
    const bool frozen = finish->info->step < cpu->attrs.thaw;

    for (int k = cpu->c * finish->part / finish->nr_parts;
         k < cpu->c * (finish->part + 1) / finish->nr_parts; k++) {
        double n = 0, m = 0, squares = 0, unbiased;

        if (frozen) {
            mean[k] = running_mean[k];
            inv_std[k] = (float)(1 / sqrt((double)running_var[k] + cpu->attrs.eps));
            continue;
        }
        for (int lane = 0; lane < finish->nr_lanes; lane++) {
            const struct moments *moments = finish->partials[lane];

            join(n, &m, &squares, moments->n, moments->of[k], moments->of[cpu->c + k]);
            n += moments->n;
        }
        squares = squares > 0 ? squares : 0;
        unbiased = n > 1 ? squares / (n - 1) : squares; /* unbiased, as in torch */
        mean[k] = (float)m;
        inv_std[k] = (float)(1 / sqrt(squares / n + cpu->attrs.eps));
        running_mean[k] += momentum * ((float)m - running_mean[k]);
        running_var[k] += momentum * ((float)unbiased - running_var[k]);
    }
}

/* y = (x - mean) * scale + beta [+ add], then a relu. */
NP_LOOP_HALF(apply,
    (void *y, const void *x, const void *plus, bool relu, size_t n, size_t tile, const float *mean,
        const float *scale, const float *beta),
    (y, x, plus, relu, n, tile, mean, scale, beta))
{
    for (size_t t = 0; t < n; t += tile) {
        size_t end = n - t < tile ? n - t : tile, i = 0;

        for (; i + 8 <= end; i += 8) {
            np_v8 v = (np_get(x, t + i, half) - np_load(mean + i)) * np_load(scale + i) +
                      np_load(beta + i);

            if (plus)
                v += np_get(plus, t + i, half);
            if (relu)
                v = np_relu(v);
            np_put(y, t + i, half, v);
        }
        for (; i < end; i++) {
            float v = (np_get1(x, t + i, half) - mean[i]) * scale[i] + beta[i];

            if (plus)
                v += np_get1(plus, t + i, half);
            np_put1(y, t + i, half, relu && v < 0 ? 0 : v);
        }
    }
}

/* gamma / std, of the batch or of the running variance. */
static void scale_tile(
    const struct np_cpu *cpu, float *tile, const float *gamma, const float *second)
{
    for (int k = 0; k < cpu->c; k++)
        tile[k] = gamma[k] * (cpu->op == NP_OP_BN_EVAL
                                     ? (float)(1 / sqrt((double)second[k] + cpu->attrs.eps))
                                     : second[k]);
    for (int i = cpu->c; i < cpu->tile; i += cpu->c)
        memcpy(tile + i, tile, (size_t)cpu->c * sizeof(float));
}

static void apply_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    void *const *ptr = run->operands->ptr;
    size_t row = np_cpu_row(cpu), first = np_cpu_first(run, row);
    float *mean = run->scratch, *scale = mean + cpu->tile, *beta = scale + cpu->tile;
    void *plus = cpu->nr_ins > 5 ? np_cpu_at(cpu, ptr[5], first) : NULL;

    to_tile(cpu, mean, ptr[1]);
    scale_tile(cpu, scale, ptr[3], ptr[2]);
    to_tile(cpu, beta, ptr[4]);
    apply(cpu->half, np_cpu_at(cpu, ptr[cpu->nr_ins], first), np_cpu_at(cpu, ptr[0], first), plus,
        cpu->attrs.relu, row * (size_t)run->nr_rows, (size_t)cpu->tile, mean, scale, beta);
}

struct channels { /* as tiles */
    const float *mean, *scale, *beta;
};

/* dy after the relu's gradient: 0 where y (given, or recomputed exactly as in apply) is not
 * positive. */
#define MASKED(at, j)                                                                              \
    __extension__({                                                                                \
        np_v8 dy_ = np_get(dy, at, half);                                                          \
        if (relu)                                                                                  \
            dy_ =                                                                                  \
                np_mask((y ? np_get(y, at, half)                                                   \
                           : (np_get(x, at, half) - means[j]) * scales[j] + betas[j]) > np_zero(), \
                    dy_);                                                                          \
        dy_;                                                                                       \
    })
#define MASKED1(at, i)                                                                             \
    (!relu || (y ? np_get1(y, at, half)                                                            \
                 : (np_get1(x, at, half) - by.mean[i]) * by.scale[i] + by.beta[i]) > 0             \
            ? np_get1(dy, at, half)                                                                \
            : 0)

/* sum += dy, product += dy (x - mean) */
NP_LOOP_HALF(add_products,
    (const void *dy, const void *x, const void *y, bool relu, size_t n, size_t period,
        struct channels by, float *sum, float *product),
    (dy, x, y, relu, n, period, by, sum, product))
{
    for (size_t i = 0; i < period; i += NP_CPU_BLOCK) {
        np_v8 means[2] = {np_load(by.mean + i), np_load(by.mean + i + 8)};
        np_v8 scales[2] = {np_load(by.scale + i), np_load(by.scale + i + 8)};
        np_v8 betas[2] = {np_load(by.beta + i), np_load(by.beta + i + 8)};
        np_v8 sums[2] = {np_load(sum + i), np_load(sum + i + 8)};
        np_v8 products[2] = {np_load(product + i), np_load(product + i + 8)};
        size_t t = i;

        for (; t + NP_CPU_BLOCK <= n; t += period)
            for (size_t j = 0; j < 2; j++) {
                np_v8 d = MASKED(t + 8 * j, j);

                sums[j] += d;
                products[j] += d * (np_get(x, t + 8 * j, half) - means[j]);
            }
        for (size_t j = 0; j < 2; j++) {
            np_store(sum + i + 8 * j, sums[j]);
            np_store(product + i + 8 * j, products[j]);
        }
        for (size_t k = 0; t + k < n && k < NP_CPU_BLOCK; k++) {
            float d = MASKED1(t + k, i + k);

            sum[i + k] += d;
            product[i + k] += d * (np_get1(x, t + k, half) - by.mean[i + k]);
        }
    }
}

static struct channels channel_tiles(
    const struct np_cpu *cpu, void *const *ptr, int mean, float *scratch)
{
    float *tiles[3] = {scratch, scratch + cpu->tile, scratch + 2 * cpu->tile};

    to_tile(cpu, tiles[0], ptr[mean]);
    scale_tile(cpu, tiles[1], ptr[mean + 2], ptr[mean + 1]);
    to_tile(cpu, tiles[2], ptr[mean + 3]);
    return (struct channels){tiles[0], tiles[1], tiles[2]};
}

/* The lane's sums: of dy (x - mean) (c), of dy (c). */
static void reduce_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    void *const *ptr = run->operands->ptr;
    size_t row = np_cpu_row(cpu), first = np_cpu_first(run, row), n = row * (size_t)run->nr_rows;
    size_t period = (size_t)cpu->period, stretch = period * STRETCH, c = (size_t)cpu->c;
    struct channels by = channel_tiles(cpu, ptr, 2, run->scratch);
    float *sum = (float *)run->scratch + 3 * (size_t)cpu->tile, *product = sum + period;
    double *lane = run->partial;

    if (run->first_in_lane)
        memset(lane, 0, 2 * c * sizeof(double));
    for (size_t i = 0; i < n; i += stretch) {
        memset(sum, 0, 2 * period * sizeof(float));
        add_products(cpu->half, np_cpu_at(cpu, ptr[0], first + i),
            np_cpu_at(cpu, ptr[1], first + i),
            cpu->nr_ins > 6 ? np_cpu_at(cpu, ptr[6], first + i) : NULL, cpu->attrs.relu,
            n - i < stretch ? n - i : stretch, period, by, sum, product);
        for (size_t k = 0; k < period; k++) {
            lane[k % c] += product[k];
            lane[c + k % c] += sum[k];
        }
    }
}

static void reduce_finish(void *state, const struct np_finish *finish)
{
    struct np_cpu *cpu = state;
    const float *inv_std = finish->operands->ptr[3];
    float *dgamma = finish->operands->ptr[cpu->nr_ins],
          *dbeta = finish->operands->ptr[cpu->nr_ins + 1];

    for (int k = cpu->c * finish->part / finish->nr_parts;
         k < cpu->c * (finish->part + 1) / finish->nr_parts; k++) {
        double sums[2] = {0, 0};

        for (int lane = 0; lane < finish->nr_lanes; lane++) {
            sums[0] += ((const double *)finish->partials[lane])[k];
            sums[1] += ((const double *)finish->partials[lane])[cpu->c + k];
        }
        dgamma[k] = (float)(sums[0] * inv_std[k]) + (finish->accumulate ? dgamma[k] : 0);
        dbeta[k] = (float)sums[1] + (finish->accumulate ? dbeta[k] : 0);
    }
}

/* dx = scale * (dy - less) - (x - mean) * slope; dadd = dy */
NP_LOOP_HALF(dgrad,
    (void *dx, void *dadd, const void *dy, const void *x, const void *y, bool relu, size_t n,
        size_t tile, struct channels by, const float *less, const float *slope),
    (dx, dadd, dy, x, y, relu, n, tile, by, less, slope))
{
    for (size_t t = 0; t < n; t += tile) {
        size_t end = n - t < tile ? n - t : tile, i = 0;

        for (; i + 8 <= end; i += 8) {
            np_v8 means[] = {np_load(by.mean + i)}, scales[] = {np_load(by.scale + i)};
            np_v8 betas[] = {np_load(by.beta + i)}, d = MASKED(t + i, 0);
            np_v8 distance = np_get(x, t + i, half) - means[0];

            np_put(dx, t + i, half,
                scales[0] * (d - np_load(less + i)) - distance * np_load(slope + i));
            if (dadd)
                np_put(dadd, t + i, half, d);
        }
        for (; i < end; i++) {
            float d = MASKED1(t + i, i), distance = np_get1(x, t + i, half) - by.mean[i];

            np_put1(dx, t + i, half, by.scale[i] * (d - less[i]) - distance * slope[i]);
            if (dadd)
                np_put1(dadd, t + i, half, d);
        }
    }
}

static void dgrad_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    void *const *ptr = run->operands->ptr;
    size_t row = np_cpu_row(cpu), first = np_cpu_first(run, row), tile = (size_t)cpu->tile;
    struct channels by = channel_tiles(cpu, ptr, 2, run->scratch);
    float *less = (float *)run->scratch + 3 * tile, *slope = less + tile;
    const float *inv_std = ptr[3], *dgamma = ptr[6], *dbeta = ptr[7];
    double n = (double)cpu->batch * cpu->h * cpu->w;
    const bool frozen = run->info->step < cpu->attrs.thaw; /* less and slope stay 0 */

    memset(less, 0, 2 * tile * sizeof(float));
    for (size_t i = 0, c = (size_t)cpu->c; !frozen && i < tile; i++) {
        less[i] = (float)(dbeta[i % c] / n);
        slope[i] = (float)(by.scale[i] * (double)inv_std[i % c] * dgamma[i % c] / n);
    }
    dgrad(cpu->half, np_cpu_at(cpu, ptr[cpu->nr_ins], first),
        cpu->nr_outs > 1 ? np_cpu_at(cpu, ptr[cpu->nr_ins + 1], first) : NULL,
        np_cpu_at(cpu, ptr[0], first), np_cpu_at(cpu, ptr[1], first),
        cpu->nr_ins > 8 ? np_cpu_at(cpu, ptr[8], first) : NULL, cpu->attrs.relu,
        row * (size_t)run->nr_rows, tile, by, less, slope);
}

static int bn_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    int code = np_cpu_prepare(graph, node, max_rows, ret_state, ret_needs, err);

    if (code == 0 && (node->op == NP_OP_BN_STATS || node->op == NP_OP_BN_REDUCE)) {
        struct np_cpu *cpu = *ret_state;

        ret_needs->partial_bytes = (1 + 2 * (size_t)cpu->c) * sizeof(double);
    }
    return code;
}

const struct np_kernel np_kernels_bn[] = {
    NP_KERNEL_ROWS("cpu bn_stats", NP_OP_BN_STATS, bn_prepare, NULL, stats_run, stats_finish),
    NP_KERNEL_ROWS("cpu bn_apply", NP_OP_BN_APPLY, bn_prepare, NULL, apply_run, NULL),
    NP_KERNEL_ROWS("cpu bn_eval", NP_OP_BN_EVAL, bn_prepare, NULL, apply_run, NULL),
    NP_KERNEL_ROWS("cpu bn_reduce", NP_OP_BN_REDUCE, bn_prepare, NULL, reduce_run, reduce_finish),
    NP_KERNEL_ROWS("cpu bn_dgrad", NP_OP_BN_DGRAD, bn_prepare, NULL, dgrad_run, NULL),
    {NULL},
};
