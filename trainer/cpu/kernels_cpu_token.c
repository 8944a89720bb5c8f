/* Normalisation of a row alone, scale, bias, position and tokens: memory-bound loops over channels, with
 * sums in a fixed order. Statistics are computed again in the backward pass, which reads x anyway:
 * the row is in the cache, and nothing has to be kept. Any pool thread, each its own lane. */
#include "trainer/cpu/kernels_cpu.h"

#include <math.h>

#include "loader/base/mem.h"
#include "trainer/cpu/simd.h"

/* A node that sums over rows for parameters: `sums` floats of scratch for the sums of one row,
 * which go to the lane's partial in double. */
struct token {
    struct np_cpu cpu;
    size_t sums;
    size_t c, row;          /* elements of a pixel and of a row of the first input */
    size_t out_row;         /* of the first output */
    size_t nr_sets;         /* norm: of a row */
    size_t set_step;        /* elements from set to set */
    size_t set_runs, width; /* a set is `set_runs` times `width` elements, c apart */
};

static size_t row_of(const struct np_graph *graph, int tensor)
{
    return (size_t)(np_tensor_elements(&graph->tensors[tensor]) / (uint64_t)graph->batch);
}

static int prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    struct token *token = np_alloc(sizeof(*token));
    const int code = np_cpu_init(&token->cpu, graph, node);
    const size_t groups = (size_t)node->attrs.groups;

    if (code < 0) {
        np_free(token);
        return code;
    }
    token->c = (size_t)token->cpu.c;
    token->row = row_of(graph, node->ins[0]);
    if (node->op == NP_OP_NORM_WGRAD || node->op == NP_OP_SCALE_WGRAD ||
        node->op == NP_OP_BIAS_WGRAD || node->op == NP_OP_ROWS_SUM)
        for (int o = 0; o < node->nr_outs; o++)
            token->sums += np_tensor_elements(&graph->tensors[node->outs[o]]);
    else
        token->out_row = row_of(graph, node->outs[0]);
    token->nr_sets = groups ? groups : token->row / token->c;
    token->width = token->set_step = groups ? token->c / groups : token->c;
    token->set_runs = groups ? token->row / token->c : 1;
    *ret_needs = (struct np_needs){.scratch_bytes = token->sums * sizeof(float),
        .partial_bytes = token->sums * sizeof(double),
        .leaf_bytes = token->sums * sizeof(float)};
    *ret_state = token;
    return 0;
}

/* --- sums for parameters -------------------------------------------------------------------- */

static float *start_sums(const struct token *token, const struct np_run *run)
{
    if (run->first_in_lane)
        memset(run->partial, 0, token->sums * sizeof(double));
    memset(run->scratch, 0, token->sums * sizeof(float));
    return run->scratch;
}

/* Moves a row's sums into the lane's. */
static void keep_sums(const struct token *token, const struct np_run *run)
{
    double *partial = run->partial;
    float *sums = run->scratch;

    for (size_t i = 0; i < token->sums; i++) {
        partial[i] += (double)sums[i];
        sums[i] = 0;
    }
}

/* Adds the lanes' sums into the outputs, which follow each other in a partial. */
static void finish_sums(void *state, const struct np_finish *finish)
{
    const struct token *token = state;
    const size_t n = token->sums / (size_t)token->cpu.nr_outs;

    for (size_t i = token->sums * (size_t)finish->part / (size_t)finish->nr_parts;
         i < token->sums * (size_t)(finish->part + 1) / (size_t)finish->nr_parts; i++) {
        float *out = (float *)finish->operands->ptr[(size_t)token->cpu.nr_ins + i / n] + i % n;
        double sum = 0;

        for (int lane = 0; lane < finish->nr_lanes; lane++)
            sum += ((const double *)finish->partials[lane])[i];
        *out = (float)sum + (finish->accumulate ? *out : 0);
    }
}

static void round_sums(void *state, const void *partial, float *out)
{
    const struct token *token = state;

    for (size_t i = 0; i < token->sums; i++)
        out[i] = (float)((const double *)partial)[i];
}

/* --- layernorm, groupnorm ------------------------------------------------------------------- */

#define ADD_LANES(v)                                                                               \
    ((((v)[0] + (v)[4]) + ((v)[2] + (v)[6])) + (((v)[1] + (v)[5]) + ((v)[3] + (v)[7])))

NP_LOOP_HALF(sum_of, (const void *x, size_t n, double *sum), (x, n, sum))
{
    np_v8 sums = np_zero();
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        sums += np_get(x, i, half);
    float all = ADD_LANES(sums);
    for (; i < n; i++)
        all += np_get1(x, i, half);
    *sum += (double)all;
}

NP_LOOP_HALF(squares_of, (const void *x, size_t n, float mean, double *sum), (x, n, mean, sum))
{
    np_v8 sums = np_zero();
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        np_v8 d = np_get(x, i, half) - np_set(mean);

        sums += d * d;
    }
    float all = ADD_LANES(sums);
    for (; i < n; i++) {
        float d = np_get1(x, i, half) - mean;

        all += d * d;
    }
    *sum += (double)all;
}

struct moments {
    float mean, inv_std;
};

/* first: the set's first element. */
static struct moments moments_of(const struct token *token, void *x, size_t first)
{
    const bool half = token->cpu.half;
    double n = (double)(token->set_runs * token->width), sum = 0, squares = 0;
    struct moments m;

    for (size_t r = 0; r < token->set_runs; r++)
        sum_of(half, np_cpu_at(&token->cpu, x, first + r * token->c), token->width, &sum);
    m.mean = (float)(sum / n);
    for (size_t r = 0; r < token->set_runs; r++)
        squares_of(
            half, np_cpu_at(&token->cpu, x, first + r * token->c), token->width, m.mean, &squares);
    m.inv_std = (float)(1 / sqrt(squares / n + token->cpu.attrs.eps));
    return m;
}

NP_LOOP_HALF(normalise,
    (void *y, const void *x, size_t n, float mean, float inv_std, const float *gamma,
        const float *beta),
    (y, x, n, mean, inv_std, gamma, beta))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_put(y, i, half,
            (np_get(x, i, half) - np_set(mean)) * np_set(inv_std) * np_load(gamma + i) +
                np_load(beta + i));
    for (; i < n; i++)
        np_put1(y, i, half, (np_get1(x, i, half) - mean) * inv_std * gamma[i] + beta[i]);
}

/* Calls visit for each set of the run's rows; `at` is its first element, `channel` that's. */
static void each_set(const struct token *token, const struct np_run *run, size_t row,
    void (*visit)(const struct token *token, const struct np_run *run, size_t at, size_t channel))
{
    for (size_t s = 0; s < token->nr_sets; s++)
        visit(token, run, row * token->row + s * token->set_step,
            token->cpu.attrs.groups ? s * token->set_step : 0);
}

static void norm_set(const struct token *token, const struct np_run *run, size_t at, size_t channel)
{
    void *x = run->operands->ptr[0], *y = run->operands->ptr[3];
    const float *gamma = run->operands->ptr[1], *beta = run->operands->ptr[2];
    const struct moments m = moments_of(token, x, at);

    for (size_t r = 0; r < token->set_runs; r++, at += token->c)
        normalise(token->cpu.half, np_cpu_at(&token->cpu, y, at), np_cpu_at(&token->cpu, x, at),
            token->width, m.mean, m.inv_std, gamma + channel, beta + channel);
}

static void norm_run(void *state, const struct np_run *run)
{
    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++)
        each_set(state, run, (size_t)r, norm_set);
}

/* Adds the sums of gamma dy, and of gamma dy x_hat. */
NP_LOOP_HALF(norm_sums,
    (const void *dy, const void *x, size_t n, float mean, float inv_std, const float *gamma,
        double sums[2]),
    (dy, x, n, mean, inv_std, gamma, sums))
{
    np_v8 sum = np_zero(), product = np_zero();
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        np_v8 g = np_get(dy, i, half) * np_load(gamma + i);

        sum += g;
        product += g * ((np_get(x, i, half) - np_set(mean)) * np_set(inv_std));
    }
    float all = ADD_LANES(sum), all_product = ADD_LANES(product);
    for (; i < n; i++) {
        float g = np_get1(dy, i, half) * gamma[i];

        all += g;
        all_product += g * ((np_get1(x, i, half) - mean) * inv_std);
    }
    sums[0] += (double)all;
    sums[1] += (double)all_product;
}

/* dx = inv_std (gamma dy - a - x_hat b) */
NP_LOOP_HALF(norm_back,
    (void *dx, const void *dy, const void *x, size_t n, float mean, float inv_std,
        const float *gamma, float a, float b),
    (dx, dy, x, n, mean, inv_std, gamma, a, b))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        np_v8 x_hat = (np_get(x, i, half) - np_set(mean)) * np_set(inv_std);

        np_put(dx, i, half,
            np_set(inv_std) *
                (np_get(dy, i, half) * np_load(gamma + i) - np_set(a) - x_hat * np_set(b)));
    }
    for (; i < n; i++) {
        float x_hat = (np_get1(x, i, half) - mean) * inv_std;

        np_put1(dx, i, half, inv_std * (np_get1(dy, i, half) * gamma[i] - a - x_hat * b));
    }
}

static void norm_dgrad_set(
    const struct token *token, const struct np_run *run, size_t at, size_t channel)
{
    void *dy = run->operands->ptr[0], *x = run->operands->ptr[1], *dx = run->operands->ptr[3];
    const float *gamma = (const float *)run->operands->ptr[2] + channel;
    const struct moments m = moments_of(token, x, at);
    const struct np_cpu *cpu = &token->cpu;
    double n = (double)(token->set_runs * token->width), sums[2] = {0, 0};

    for (size_t r = 0; r < token->set_runs; r++)
        norm_sums(cpu->half, np_cpu_at(cpu, dy, at + r * token->c),
            np_cpu_at(cpu, x, at + r * token->c), token->width, m.mean, m.inv_std, gamma, sums);
    for (size_t r = 0; r < token->set_runs; r++, at += token->c)
        norm_back(cpu->half, np_cpu_at(cpu, dx, at), np_cpu_at(cpu, dy, at), np_cpu_at(cpu, x, at),
            token->width, m.mean, m.inv_std, gamma, (float)(sums[0] / n), (float)(sums[1] / n));
}

static void norm_dgrad_run(void *state, const struct np_run *run)
{
    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++)
        each_set(state, run, (size_t)r, norm_dgrad_set);
}

NP_LOOP_HALF(norm_wgrad,
    (float *dgamma, float *dbeta, const void *dy, const void *x, size_t n, float mean,
        float inv_std),
    (dgamma, dbeta, dy, x, n, mean, inv_std))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        np_v8 d = np_get(dy, i, half);

        np_store(dgamma + i,
            np_load(dgamma + i) + d * (np_get(x, i, half) - np_set(mean)) * np_set(inv_std));
        np_store(dbeta + i, np_load(dbeta + i) + d);
    }
    for (; i < n; i++) {
        float d = np_get1(dy, i, half);

        dgamma[i] += d * (np_get1(x, i, half) - mean) * inv_std;
        dbeta[i] += d;
    }
}

static void norm_wgrad_set(
    const struct token *token, const struct np_run *run, size_t at, size_t channel)
{
    void *x = run->operands->ptr[0], *dy = run->operands->ptr[1];
    float *dgamma = (float *)run->scratch + channel;
    const struct moments m = moments_of(token, x, at);

    for (size_t r = 0; r < token->set_runs; r++, at += token->c)
        norm_wgrad(token->cpu.half, dgamma, dgamma + token->c, np_cpu_at(&token->cpu, dy, at),
            np_cpu_at(&token->cpu, x, at), token->width, m.mean, m.inv_std);
}

static void norm_wgrad_run(void *state, const struct np_run *run)
{
    start_sums(state, run);
    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        each_set(state, run, (size_t)r, norm_wgrad_set);
        keep_sums(state, run);
    }
}

/* --- scale ---------------------------------------------------------------------------------- */

/* y (pixels, c) = x gamma (c) */
NP_LOOP_HALF(scale, (void *y, const void *x, size_t pixels, const float *gamma, size_t c),
    (y, x, pixels, gamma, c))
{
    for (size_t p = 0; p < pixels; p++) {
        size_t at = p * c, i = 0;

        for (; i + 8 <= c; i += 8)
            np_put(y, at + i, half, np_get(x, at + i, half) * np_load(gamma + i));
        for (; i < c; i++)
            np_put1(y, at + i, half, np_get1(x, at + i, half) * gamma[i]);
    }
}

static void scale_run(void *state, const struct np_run *run)
{
    const struct token *token = state;
    size_t first = np_cpu_first(run, token->row);

    scale(token->cpu.half, np_cpu_at(&token->cpu, run->operands->ptr[2], first),
        np_cpu_at(&token->cpu, run->operands->ptr[0], first),
        (size_t)run->nr_rows * (token->row / token->c), run->operands->ptr[1], token->c);
}

/* sums (c) += x y of each pixel */
NP_LOOP_HALF(add_products, (float *sums, const void *x, const void *y, size_t pixels, size_t c),
    (sums, x, y, pixels, c))
{
    for (size_t p = 0; p < pixels; p++) {
        size_t at = p * c, i = 0;

        for (; i + 8 <= c; i += 8)
            np_store(
                sums + i, np_load(sums + i) + np_get(x, at + i, half) * np_get(y, at + i, half));
        for (; i < c; i++)
            sums[i] += np_get1(x, at + i, half) * np_get1(y, at + i, half);
    }
}

static void scale_wgrad_run(void *state, const struct np_run *run)
{
    const struct token *token = state;
    float *sums = start_sums(token, run);

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        size_t at = (size_t)r * token->row;

        add_products(token->cpu.half, sums, np_cpu_at(&token->cpu, run->operands->ptr[0], at),
            np_cpu_at(&token->cpu, run->operands->ptr[1], at), token->row / token->c, token->c);
        keep_sums(token, run);
    }
}

/* --- bias ----------------------------------------------------------------------------------- */

/* out = x + bias (c), each pixel */
NP_LOOP_HALF(add_bias, (void *out, const void *x, size_t pixels, const float *bias, size_t c),
    (out, x, pixels, bias, c))
{
    for (size_t p = 0; p < pixels; p++) {
        size_t at = p * c, i = 0;

        for (; i + 8 <= c; i += 8)
            np_put(out, at + i, half, np_get(x, at + i, half) + np_load(bias + i));
        for (; i < c; i++)
            np_put1(out, at + i, half, np_get1(x, at + i, half) + bias[i]);
    }
}

static void bias_run(void *state, const struct np_run *run)
{
    const struct token *token = state;
    const size_t first = np_cpu_first(run, token->row);

    add_bias(token->cpu.half, np_cpu_at(&token->cpu, run->operands->ptr[2], first),
        np_cpu_at(&token->cpu, run->operands->ptr[0], first),
        (size_t)run->nr_rows * (token->row / token->c), run->operands->ptr[1], token->c);
}

/* sums (c) += x of each pixel */
NP_LOOP_HALF(
    add_pixels, (float *sums, const void *x, size_t pixels, size_t c), (sums, x, pixels, c))
{
    for (size_t p = 0; p < pixels; p++) {
        size_t at = p * c, i = 0;

        for (; i + 8 <= c; i += 8)
            np_store(sums + i, np_load(sums + i) + np_get(x, at + i, half));
        for (; i < c; i++)
            sums[i] += np_get1(x, at + i, half);
    }
}

static void bias_wgrad_run(void *state, const struct np_run *run)
{
    const struct token *token = state;
    float *sums = start_sums(token, run);

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        add_pixels(token->cpu.half, sums,
            np_cpu_at(&token->cpu, run->operands->ptr[0], (size_t)r * token->row),
            token->row / token->c, token->c);
        keep_sums(token, run);
    }
}

/* --- tokens --------------------------------------------------------------------------------- */

/* out = x + values, which are f32 */
NP_LOOP_HALF(
    add_values, (void *out, const void *x, const float *values, size_t n), (out, x, values, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_put(out, i, half, np_get(x, i, half) + np_load(values + i));
    for (; i < n; i++)
        np_put1(out, i, half, np_get1(x, i, half) + values[i]);
}

static void position_run(void *state, const struct np_run *run)
{
    const struct token *token = state;

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++)
        add_values(token->cpu.half,
            np_cpu_at(&token->cpu, run->operands->ptr[2], (size_t)r * token->row),
            np_cpu_at(&token->cpu, run->operands->ptr[0], (size_t)r * token->row),
            run->operands->ptr[1], token->row);
}

static void rows_sum_run(void *state, const struct np_run *run)
{
    const struct token *token = state;
    float *sums = start_sums(token, run);

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++)
        add_pixels(token->cpu.half, sums,
            np_cpu_at(&token->cpu, run->operands->ptr[0], (size_t)r * token->row), 1, token->sums);
    keep_sums(token, run);
}

static void class_token_run(void *state, const struct np_run *run)
{
    const struct token *token = state;
    const struct np_cpu *cpu = &token->cpu;
    size_t bytes = cpu->half ? sizeof(uint16_t) : sizeof(float);

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        char *out = np_cpu_at(cpu, run->operands->ptr[2], (size_t)r * token->out_row);

        if (cpu->half)
            np_bf16_from_f32((uint16_t *)out, run->operands->ptr[1], token->c);
        else
            memcpy(out, run->operands->ptr[1], token->c * bytes);
        memcpy(out + token->c * bytes,
            np_cpu_at(cpu, run->operands->ptr[0], (size_t)r * token->row), token->row * bytes);
    }
}

static void tokens_run(void *state, const struct np_run *run)
{
    const struct token *token = state;
    const struct np_cpu *cpu = &token->cpu;
    const size_t bytes = cpu->half ? sizeof(uint16_t) : sizeof(float);
    const size_t first = (size_t)cpu->attrs.first_token * token->c;

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        char *in = np_cpu_at(cpu, run->operands->ptr[0], (size_t)r * token->row);
        char *out = np_cpu_at(cpu, run->operands->ptr[1], (size_t)r * token->out_row);

        if (cpu->op == NP_OP_TOKENS) {
            memcpy(out, in + first * bytes, token->out_row * bytes);
            continue;
        }
        memset(out, 0, token->out_row * bytes);
        memcpy(out + first * bytes, in, token->row * bytes);
    }
}

const struct np_kernel np_kernels_token[] = {
    NP_KERNEL_ROWS("cpu norm", NP_OP_NORM, prepare, NULL, norm_run, NULL),
    NP_SUM_ROWS(
        "cpu norm_wgrad", NP_OP_NORM_WGRAD, prepare, norm_wgrad_run, round_sums, finish_sums),
    NP_KERNEL_ROWS("cpu norm_dgrad", NP_OP_NORM_DGRAD, prepare, NULL, norm_dgrad_run, NULL),
    NP_KERNEL_ROWS("cpu scale", NP_OP_SCALE, prepare, NULL, scale_run, NULL),
    NP_SUM_ROWS(
        "cpu scale_wgrad", NP_OP_SCALE_WGRAD, prepare, scale_wgrad_run, round_sums, finish_sums),
    NP_KERNEL_ROWS("cpu bias", NP_OP_BIAS, prepare, NULL, bias_run, NULL),
    NP_SUM_ROWS(
        "cpu bias_wgrad", NP_OP_BIAS_WGRAD, prepare, bias_wgrad_run, round_sums, finish_sums),
    NP_KERNEL_ROWS("cpu position", NP_OP_POSITION, prepare, NULL, position_run, NULL),
    NP_KERNEL_ROWS("cpu class_token", NP_OP_CLASS_TOKEN, prepare, NULL, class_token_run, NULL),
    NP_SUM_ROWS("cpu rows_sum", NP_OP_ROWS_SUM, prepare, rows_sum_run, round_sums, finish_sums),
    NP_KERNEL_ROWS("cpu tokens", NP_OP_TOKENS, prepare, NULL, tokens_run, NULL),
    NP_KERNEL_ROWS("cpu tokens_dgrad", NP_OP_TOKENS_DGRAD, prepare, NULL, tokens_run, NULL),
    {NULL},
};
