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

#include <errno.h>
#include <math.h>

#include "trainer/cpu/simd.h"

#define STRETCH 256 /* periods summed in f32 */

/* --- groups ---------------------------------------------------------------------------------
 * In lanes (attr lane_rows) batchnorm averages over groups of rows: one of all rows, whole lanes, or a
 * part of a lane. A lane's partial has a set of sums for each of its groups. */

static bool in_lanes(const struct np_cpu *cpu)
{
    return cpu->attrs.lane_rows > 0;
}

static int nr_groups(const struct np_cpu *cpu)
{
    return in_lanes(cpu) ? cpu->batch / cpu->attrs.over_rows : 1;
}

/* Groups of a lane; 1 if a group has a lane or more. */
static int sets_of(const struct np_cpu *cpu)
{
    const struct np_attrs *attrs = &cpu->attrs;

    return in_lanes(cpu) && attrs->over_rows < attrs->lane_rows
               ? attrs->lane_rows / attrs->over_rows
               : 1;
}

/* Rows of one group: a run's rows are visited in such stretches. */
struct stretch {
    int row, nr_rows, group;
};

static bool next_stretch(
    const struct np_cpu *cpu, const struct np_run *run, struct stretch *stretch)
{
    const int end = run->first_row + run->nr_rows, rows = cpu->attrs.over_rows;

    stretch->row = stretch->nr_rows ? stretch->row + stretch->nr_rows : run->first_row;
    stretch->group = in_lanes(cpu) ? stretch->row / rows : 0;
    stretch->nr_rows = end - stretch->row;
    if (in_lanes(cpu) && (stretch->group + 1) * rows < end)
        stretch->nr_rows = (stretch->group + 1) * rows - stretch->row;
    return stretch->nr_rows > 0;
}

/* Statistics of a group, or sums. */
static float *of_group(const struct np_cpu *cpu, void *channels, int group)
{
    return (float *)channels + (size_t)group * (size_t)cpu->c;
}

/* The group's set, of n doubles, after the lanes of larger groups were joined into their first one. */
static double *group_set(
    const struct np_cpu *cpu, const struct np_finish *finish, int group, size_t n)
{
    const int sets = sets_of(cpu),
              lanes = sets > 1 ? 1 : cpu->attrs.over_rows / cpu->attrs.lane_rows;

    return (double *)finish->partials[group / sets * lanes] + (size_t)(group % sets) * n;
}

/* Joins the sets of n doubles: the lanes of each group in a binary tree, then all processes. */
static void join_groups(const struct np_cpu *cpu, const struct np_finish *finish, size_t n,
    void (*pair)(double *left, const double *right, size_t n))
{
    const int lanes = cpu->attrs.over_rows / cpu->attrs.lane_rows; /* of a group; 0: a part */

    for (int first = 0; lanes > 1 && first < finish->nr_lanes; first += lanes)
        for (int step = 1; step < lanes; step *= 2)
            for (int lane = 0; lane + step < lanes; lane += 2 * step)
                pair(finish->partials[first + lane], finish->partials[first + lane + step], n);
    if (finish->join)
        finish->join->all(finish->join->context, finish->partials[0], n, pair);
}

/* The sum over the groups of this process: those of a lane in their order, then a binary tree. */
static float sum_groups(const struct np_cpu *cpu, float *values)
{
    const int sets = sets_of(cpu), n = nr_groups(cpu);

    for (int i = 0; i < n; i++)
        if (i % sets)
            values[i - i % sets] += values[i];
    for (int step = sets; step < n; step *= 2)
        for (int i = 0; i + step < n; i += 2 * step)
            values[i] += values[i + step];
    return values[0];
}

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

/* Doubles of a set of moments. */
static size_t moments_size(const struct np_cpu *cpu)
{
    return 1 + 2 * (size_t)cpu->c;
}

static void stats_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    const size_t row = np_cpu_row(cpu), most = (size_t)cpu->period * STRETCH;
    const size_t size = moments_size(cpu), sets = (size_t)sets_of(cpu);
    struct stretch rows = {0};

    if (run->info->step < cpu->attrs.thaw)
        return;
    if (run->first_in_lane)
        memset(run->partial, 0, sets * size * sizeof(double));
    while (next_stretch(cpu, run, &rows)) {
        void *x = np_cpu_at(cpu, run->operands->ptr[0], (size_t)rows.row * row);
        double *set = (double *)run->partial + (size_t)rows.group % sets * size;
        const size_t n = row * (size_t)rows.nr_rows;

        for (size_t i = 0; i < n; i += most)
            stats_stretch(cpu, np_cpu_at(cpu, x, i), n - i < most ? n - i : most, run->scratch,
                (struct moments *)(void *)set);
    }
}

/* join() of all channels. */
static void join_moments(double *left, const double *right, size_t n)
{
    struct moments *to = (struct moments *)(void *)left;
    const struct moments *from = (const struct moments *)(const void *)right;
    const size_t c = n / 2;

    for (size_t k = 0; k < c; k++)
        join(to->n, &to->of[k], &to->of[c + k], from->n, from->of[k], from->of[c + k]);
    to->n += from->n;
}

/* What finish() makes of the moments of channel k. */
struct statistics {
    float mean, inv_std, unbiased;
};

static struct statistics statistics_of(
    const struct np_cpu *cpu, double n, double mean, double squares)
{
    squares = squares > 0 ? squares : 0;
    const double unbiased = n > 1 ? squares / (n - 1) : squares; /* as in torch */
    return (struct statistics){
        (float)mean, (float)(1 / sqrt(squares / n + cpu->attrs.eps)), (float)unbiased};
}

/* One channel of each group. The running statistics become the sum over this process's groups, each
 * of which moves them once; with one group that is the usual. */
static void finish_groups(const struct np_cpu *cpu, const struct np_finish *finish, int k)
{
    void *const *ptr = finish->operands->ptr;
    float *running_mean = ptr[1], *running_var = ptr[2];
    const float momentum = (float)cpu->attrs.momentum;
    float *means = finish->scratch, *vars = means + nr_groups(cpu);

    for (int g = 0; g < nr_groups(cpu); g++) {
        const double *set = group_set(cpu, finish, g, moments_size(cpu));
        const struct statistics of = statistics_of(cpu, set[0], set[1 + k], set[1 + cpu->c + k]);

        of_group(cpu, ptr[3], g)[k] = of.mean;
        of_group(cpu, ptr[4], g)[k] = of.inv_std;
        means[g] = running_mean[k] + momentum * (of.mean - running_mean[k]);
        vars[g] = running_var[k] + momentum * (of.unbiased - running_var[k]);
    }
    running_mean[k] = sum_groups(cpu, means);
    running_var[k] = sum_groups(cpu, vars);
}

static void use_running(const struct np_cpu *cpu, const struct np_finish *finish, int k)
{
    void *const *ptr = finish->operands->ptr;
    const float *running_mean = ptr[1], *running_var = ptr[2];

    for (int g = 0; g < nr_groups(cpu); g++) {
        of_group(cpu, ptr[3], g)[k] = running_mean[k];
        of_group(cpu, ptr[4], g)[k] = (float)(1 / sqrt((double)running_var[k] + cpu->attrs.eps));
    }
}

static void finish_in_lanes(const struct np_cpu *cpu, const struct np_finish *finish, bool frozen)
{
    if (!frozen)
        join_groups(cpu, finish, moments_size(cpu), join_moments);
    for (int k = 0; k < cpu->c; k++)
        (frozen ? use_running : finish_groups)(cpu, finish, k);
}

static void stats_finish(void *state, const struct np_finish *finish)
{
    struct np_cpu *cpu = state;
    void *const *ptr = finish->operands->ptr;
    float *running_mean = ptr[1], *running_var = ptr[2], *mean = ptr[3], *inv_std = ptr[4];
    float momentum = (float)cpu->attrs.momentum;
    const bool frozen = finish->info->step < cpu->attrs.thaw;

    if (in_lanes(cpu)) {
        finish_in_lanes(cpu, finish, frozen);
        return;
    }
    for (int k = cpu->c * finish->part / finish->nr_parts;
         k < cpu->c * (finish->part + 1) / finish->nr_parts; k++) {
        double n = 0, m = 0, squares = 0;

        if (frozen) {
            use_running(cpu, finish, k);
            continue;
        }
        for (int lane = 0; lane < finish->nr_lanes; lane++) {
            const struct moments *moments = finish->partials[lane];

            join(n, &m, &squares, moments->n, moments->of[k], moments->of[cpu->c + k]);
            n += moments->n;
        }
        const struct statistics of = statistics_of(cpu, n, m, squares);
        mean[k] = of.mean;
        inv_std[k] = of.inv_std;
        running_mean[k] += momentum * (of.mean - running_mean[k]);
        running_var[k] += momentum * (of.unbiased - running_var[k]);
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

static void apply_rows(const struct np_cpu *cpu, const struct np_run *run, struct stretch rows)
{
    void *const *ptr = run->operands->ptr;
    const size_t row = np_cpu_row(cpu), first = row * (size_t)rows.row;
    const int group = cpu->op == NP_OP_BN_EVAL ? 0 : rows.group; /* one running mean for all */
    float *mean = run->scratch, *scale = mean + cpu->tile, *beta = scale + cpu->tile;
    void *plus = cpu->nr_ins > 5 ? np_cpu_at(cpu, ptr[5], first) : NULL;

    to_tile(cpu, mean, of_group(cpu, ptr[1], group));
    scale_tile(cpu, scale, ptr[3], of_group(cpu, ptr[2], group));
    to_tile(cpu, beta, ptr[4]);
    apply(cpu->half, np_cpu_at(cpu, ptr[cpu->nr_ins], first), np_cpu_at(cpu, ptr[0], first), plus,
        cpu->attrs.relu, row * (size_t)rows.nr_rows, (size_t)cpu->tile, mean, scale, beta);
}

static void apply_run(void *state, const struct np_run *run)
{
    struct stretch rows = {0};

    while (next_stretch(state, run, &rows))
        apply_rows(state, run, rows);
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

/* Of mean, inv_std, gamma, beta in ptr[2..5]. */
static struct channels channel_tiles(
    const struct np_cpu *cpu, void *const *ptr, int group, float *scratch)
{
    float *tiles[3] = {scratch, scratch + cpu->tile, scratch + 2 * cpu->tile};

    to_tile(cpu, tiles[0], of_group(cpu, ptr[2], group));
    scale_tile(cpu, tiles[1], ptr[4], of_group(cpu, ptr[3], group));
    to_tile(cpu, tiles[2], ptr[5]);
    return (struct channels){tiles[0], tiles[1], tiles[2]};
}

/* Adds to the set's sums: of dy (x - mean) (c), of dy (c). */
static void reduce_rows(
    const struct np_cpu *cpu, const struct np_run *run, struct stretch rows, double *set)
{
    void *const *ptr = run->operands->ptr;
    size_t row = np_cpu_row(cpu), first = row * (size_t)rows.row, n = row * (size_t)rows.nr_rows;
    size_t period = (size_t)cpu->period, stretch = period * STRETCH, c = (size_t)cpu->c;
    struct channels by = channel_tiles(cpu, ptr, rows.group, run->scratch);
    float *sum = (float *)run->scratch + 3 * (size_t)cpu->tile, *product = sum + period;

    for (size_t i = 0; i < n; i += stretch) {
        memset(sum, 0, 2 * period * sizeof(float));
        add_products(cpu->half, np_cpu_at(cpu, ptr[0], first + i),
            np_cpu_at(cpu, ptr[1], first + i),
            cpu->nr_ins > 6 ? np_cpu_at(cpu, ptr[6], first + i) : NULL, cpu->attrs.relu,
            n - i < stretch ? n - i : stretch, period, by, sum, product);
        for (size_t k = 0; k < period; k++) {
            set[k % c] += product[k];
            set[c + k % c] += sum[k];
        }
    }
}

static void reduce_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    const size_t size = 2 * (size_t)cpu->c, sets = (size_t)sets_of(cpu);
    struct stretch rows = {0};

    if (run->first_in_lane)
        memset(run->partial, 0, sets * size * sizeof(double));
    while (next_stretch(cpu, run, &rows))
        reduce_rows(cpu, run, rows, (double *)run->partial + (size_t)rows.group % sets * size);
}

static void add_sets(double *left, const double *right, size_t n)
{
    for (size_t i = 0; i < n; i++)
        left[i] += right[i];
}

/* One channel: dgamma and dbeta of each group, for the gradient of x, and of this process. Joined sums
 * are the gradients of all processes, which only one of them may have: they are summed once more. */
static void reduce_groups(const struct np_cpu *cpu, const struct np_finish *finish, int k)
{
    void *const *ptr = finish->operands->ptr, *const *outs = ptr + cpu->nr_ins;
    float *dgammas = finish->scratch, *dbetas = dgammas + nr_groups(cpu);
    const bool follows = finish->join && !finish->join->leads;

    for (int g = 0; g < nr_groups(cpu); g++) {
        const double *set = group_set(cpu, finish, g, 2 * (size_t)cpu->c);

        dgammas[g] = (float)(set[k] * of_group(cpu, ptr[3], g)[k]);
        dbetas[g] = (float)set[cpu->c + k];
        of_group(cpu, outs[2], g)[k] = dgammas[g];
        of_group(cpu, outs[3], g)[k] = dbetas[g];
    }
    /* + 0: -0 becomes 0, as where it is added to another process's 0 */
    ((float *)outs[0])[k] = follows ? 0 : sum_groups(cpu, dgammas) + 0.0f;
    ((float *)outs[1])[k] = follows ? 0 : sum_groups(cpu, dbetas) + 0.0f;
}

static void reduce_finish(void *state, const struct np_finish *finish)
{
    struct np_cpu *cpu = state;
    const float *inv_std = finish->operands->ptr[3];
    float *dgamma = finish->operands->ptr[cpu->nr_ins],
          *dbeta = finish->operands->ptr[cpu->nr_ins + 1];

    if (in_lanes(cpu)) {
        join_groups(cpu, finish, 2 * (size_t)cpu->c, add_sets);
        for (int k = 0; k < cpu->c; k++)
            reduce_groups(cpu, finish, k);
        return;
    }
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

static void dgrad_rows(const struct np_cpu *cpu, const struct np_run *run, struct stretch rows)
{
    void *const *ptr = run->operands->ptr;
    size_t row = np_cpu_row(cpu), first = row * (size_t)rows.row, tile = (size_t)cpu->tile;
    struct channels by = channel_tiles(cpu, ptr, rows.group, run->scratch);
    float *less = (float *)run->scratch + 3 * tile, *slope = less + tile;
    const float *inv_std = of_group(cpu, ptr[3], rows.group);
    const float *dgamma = of_group(cpu, ptr[6], rows.group);
    const float *dbeta = of_group(cpu, ptr[7], rows.group);
    double n = (double)(in_lanes(cpu) ? cpu->attrs.over_all_rows : cpu->batch) * cpu->h * cpu->w;
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
        row * (size_t)rows.nr_rows, tile, by, less, slope);
}

static void dgrad_run(void *state, const struct np_run *run)
{
    struct stretch rows = {0};

    while (next_stretch(state, run, &rows))
        dgrad_rows(state, run, rows);
}

static int bn_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    int code;

    /* Masks and sums of gradients are not here: np_fusions.bn_gradient. */
    if (node->attrs.joins || (node->op == NP_OP_BN_APPLY && node->nr_outs > 1) ||
        (node->op == NP_OP_BN_REDUCE && node->nr_outs > 2 && node->attrs.lane_rows == 0))
        return -ENOTSUP;
    code = np_cpu_prepare(graph, node, max_rows, ret_state, ret_needs, err);
    if (code == 0 && (node->op == NP_OP_BN_STATS || node->op == NP_OP_BN_REDUCE)) {
        struct np_cpu *cpu = *ret_state;
        const size_t in_finish = 2 * (size_t)nr_groups(cpu) * sizeof(float);

        ret_needs->partial_bytes = (size_t)sets_of(cpu) * moments_size(cpu) * sizeof(double);
        if (ret_needs->scratch_bytes < in_finish)
            ret_needs->scratch_bytes = in_finish;
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
