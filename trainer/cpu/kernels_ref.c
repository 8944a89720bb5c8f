/* The reference kernels: every operation in plain C; the other kernels are tested against them.
 * f32 and bf16 (read and written as bf16, computed in f32). Formulas: batchnorm
 * arXiv:1502.03167, dropout JMLR 15 (2014). Any pool thread, each its own lane. */
#include "trainer/cpu/kernels_ref.h"

#include <math.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"

static size_t channels(const struct np_ref *ref, int tensor)
{
    return (size_t)np_ref_shape(ref, tensor).c;
}

static size_t partial_floats(const struct np_ref *ref)
{
    const struct np_op_node *node = ref->node;
    size_t n = 0;

    switch (node->op) {
    case NP_OP_BN_STATS: /* doubles */
    case NP_OP_BN_REDUCE: return 2 * 2 * channels(ref, node->ins[0]);
    case NP_OP_CONV_WGRAD:
    case NP_OP_LINEAR_WGRAD:
    case NP_OP_NORM_WGRAD:
    case NP_OP_SCALE_WGRAD:
    case NP_OP_BIAS_WGRAD:
    case NP_OP_ROWS_SUM:
        for (int o = 0; o < node->nr_outs; o++)
            n += np_tensor_elements(&ref->graph->tensors[node->outs[o]]);
        return n;
    default: return 0;
    }
}

int np_ref_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    struct np_ref *ref = np_alloc(sizeof(*ref));
    int activation =
        node->op == NP_OP_INPUT || node->op == NP_OP_CONV_DGRAD ? node->outs[0] : node->ins[0];
    size_t row = 0;

    *ref = (struct np_ref){node, graph, graph->tensors[activation].dtype};
    if (node->op == NP_OP_CONV || node->op == NP_OP_CONV_DGRAD || node->op == NP_OP_MAXPOOL_DGRAD ||
        node->op == NP_OP_AVGPOOL_DGRAD || node->op == NP_OP_RESAMPLE ||
        node->op == NP_OP_RESAMPLE_DGRAD)
        row = np_ref_row(np_ref_shape(ref, node->outs[0]));
    if (node->op == NP_OP_ATTENTION || node->op == NP_OP_ATTENTION_DGRAD) {
        struct np_nhwc s = np_ref_shape(ref, node->outs[0]);

        row = np_ref_row(s) + 2 * (size_t)s.h * (size_t)s.w; /* gradients; p, dp of a query */
    }
    *ret_needs = (struct np_needs){.scratch_bytes = row * sizeof(float),
        .partial_bytes = partial_floats(ref) * sizeof(float),
        .max_rows = max_rows};
    *ret_state = ref;
    return 0;
}

void np_ref_sum(const struct np_finish *finish, size_t from, size_t n, float *out)
{
    size_t first = n * (size_t)finish->part / (size_t)finish->nr_parts;
    size_t end = n * (size_t)(finish->part + 1) / (size_t)finish->nr_parts;

    for (size_t i = first; i < end; i++) {
        float sum = finish->accumulate ? out[i] : 0;

        for (int lane = 0; lane < finish->nr_lanes; lane++)
            sum += ((const float *)finish->partials[lane])[from + i];
        out[i] = sum;
    }
}

struct range {
    size_t first, end;
};

static struct range range_of(const struct np_ref *ref, int tensor, const struct np_run *run)
{
    size_t row = np_ref_row(np_ref_shape(ref, tensor));

    return (struct range){
        (size_t)run->first_row * row, (size_t)(run->first_row + run->nr_rows) * row};
}

static void *in(const struct np_run *run, int i)
{
    return run->operands->ptr[i];
}

static void *out(const struct np_ref *ref, const struct np_run *run, int i)
{
    return run->operands->ptr[ref->node->nr_ins + i];
}

static float relu_of(float x)
{
    return x < 0 ? 0 : x; /* a NaN stays */
}

/* Element i of the images, mixed with its row's partner. */
static float mixed_byte(
    const struct np_ref *ref, const struct np_mixed *mixed, const uint8_t *images, size_t i)
{
    struct np_nhwc s = np_ref_shape(ref, ref->node->outs[0]);
    size_t row = np_ref_row(s), pixel = i % row / (size_t)s.c;
    size_t other = (size_t)np_mix_partner((int)(i / row), s.n) * row + i % row;
    int y = (int)(pixel / (size_t)s.w), x = (int)(pixel % (size_t)s.w);

    if (!mixed->box)
        return mixed->keep * (float)images[i] + (1 - mixed->keep) * (float)images[other];
    return y >= mixed->top && y < mixed->bottom && x >= mixed->left && x < mixed->right
               ? (float)images[other]
               : (float)images[i];
}

/* Element i of the images as a view shows it. */
static float viewed_byte(const struct np_ref *ref, int view, const uint8_t *images, size_t i)
{
    const struct np_nhwc s = np_ref_shape(ref, ref->node->outs[0]);
    const size_t c = (size_t)s.c, row = np_ref_row(s), pixel = i % row / c;
    int y, x;

    np_view_pixel(view, (int)(pixel / (size_t)s.w), (int)(pixel % (size_t)s.w), s.h, s.w, &y, &x);
    return (float)images[i / row * row + ((size_t)y * (size_t)s.w + (size_t)x) * c + i % c];
}

static void ref_input(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct range r = range_of(ref, ref->node->outs[0], run);
    size_t c = channels(ref, ref->node->outs[0]);
    const uint8_t *images = in(run, 0);
    struct np_mixed mixed;

    np_mix_draw(&ref->node->attrs.mix, run->info->step, &mixed);
    for (size_t i = r.first; i < r.end; i++) {
        float value = mixed.keep < 1        ? mixed_byte(ref, &mixed, images, i)
                      : run->info->view > 0 ? viewed_byte(ref, run->info->view, images, i)
                                            : (float)images[i];

        np_ref_out(ref, run, 0, i,
            (value / 255 - ref->node->attrs.mean[i % c]) / ref->node->attrs.std[i % c]);
    }
}

/* The CPU's only kernel: logits are few. */
static void ref_views(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct range r = range_of(ref, ref->node->ins[0], run);
    const int view = run->info->view;
    const float weight = np_view_weight(ref->node->attrs.tta, view);
    float *sum = out(ref, run, 1);

    for (size_t i = r.first; i < r.end; i++) {
        const float value = weight * np_ref_in(ref, run, 0, i);

        sum[i] = view == 0 ? value : sum[i] + value;
        np_ref_out(ref, run, 0, i, sum[i]);
    }
}

static void ref_relu(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct range r = range_of(ref, ref->node->ins[0], run);

    for (size_t i = r.first; i < r.end; i++)
        np_ref_out(ref, run, 0, i, relu_of(np_ref_in(ref, run, 0, i)));
}

static void ref_relu_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct range r = range_of(ref, ref->node->ins[0], run);

    for (size_t i = r.first; i < r.end; i++) {
        float dy = np_ref_in(ref, run, 0, i);

        np_ref_out(ref, run, 0, i, np_ref_in(ref, run, 1, i) > 0 ? dy : 0);
    }
}

static void ref_add(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct range r = range_of(ref, ref->node->ins[0], run);

    for (size_t i = r.first; i < r.end; i++) {
        float sum = np_ref_in(ref, run, 0, i) + np_ref_in(ref, run, 1, i);

        np_ref_out(ref, run, 0, i, ref->node->attrs.relu ? relu_of(sum) : sum);
    }
}

/* Forward on x, backward on dy: the same draws, one counter per element. */
static void ref_dropout(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct range r = range_of(ref, ref->node->ins[0], run);
    uint64_t seed = ref->node->attrs.seed;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    float scale = (float)(1 / (1 - ref->node->attrs.rate));

    for (size_t i = r.first; i < r.end; i++) {
        const uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)((uint64_t)i / 4 >> 32),
            (uint32_t)run->info->step, (uint32_t)(run->info->step >> 32)};
        uint32_t words[4];
        float x = np_ref_in(ref, run, 0, i);

        np_philox(key, counter, words);
        np_ref_out(ref, run, 0, i, words[i % 4] * 0x1p-32 >= ref->node->attrs.rate ? x * scale : 0);
    }
}

/* (h, w, c) <-> (c, h, w); dgrad goes the other way. */
static void ref_flatten(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    bool back = ref->node->op == NP_OP_FLATTEN_DGRAD;
    struct np_nhwc s = np_ref_shape(ref, back ? ref->node->outs[0] : ref->node->ins[0]);

    for (int n = run->first_row; n < run->first_row + run->nr_rows; n++)
        for (int y = 0; y < s.h; y++)
            for (int x = 0; x < s.w; x++)
                for (int c = 0; c < s.c; c++) {
                    size_t nhwc = np_ref_at(s, n, y, x, c);
                    size_t flat = (size_t)n * np_ref_row(s) +
                                  ((size_t)c * (size_t)s.h + (size_t)y) * (size_t)s.w + (size_t)x;

                    np_ref_out(ref, run, 0, back ? nhwc : flat,
                        np_ref_in(ref, run, 0, back ? flat : nhwc));
                }
}

/* Parts lie side by side on channels; dgrad splits them. */
static void ref_concat(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    bool back = node->op == NP_OP_CONCAT_DGRAD;
    struct np_nhwc whole = np_ref_shape(ref, back ? node->ins[0] : node->outs[0]);
    size_t pixels = (size_t)whole.h * (size_t)whole.w, at = 0;

    for (int part = 0; part < (back ? node->nr_outs : node->nr_ins); part++) {
        size_t c = channels(ref, back ? node->outs[part] : node->ins[part]);
        void *piece = back ? out(ref, run, part) : in(run, part);

        for (size_t p = (size_t)run->first_row * pixels;
             piece && p < (size_t)(run->first_row + run->nr_rows) * pixels; p++)
            for (size_t i = 0; i < c; i++) {
                size_t w = p * (size_t)whole.c + at + i;

                if (back)
                    np_ref_put(piece, ref->dtype, p * c + i, np_ref_in(ref, run, 0, w));
                else
                    np_ref_out(ref, run, 0, w, np_ref_get(piece, ref->dtype, p * c + i));
            }
        at += c;
    }
}

static void ref_bn_stats(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct range r = range_of(ref, ref->node->ins[0], run);
    size_t c = channels(ref, ref->node->ins[0]);
    double *sum = run->partial, *squares = sum + c;

    if (run->info->step < ref->node->attrs.thaw)
        return;
    if (run->first_in_lane)
        memset(sum, 0, 2 * c * sizeof(double));
    for (size_t i = r.first; i < r.end; i++) {
        double x = np_ref_in(ref, run, 0, i);

        sum[i % c] += x;
        squares[i % c] += x * x;
    }
}

static void ref_bn_stats_finish(void *state, const struct np_finish *finish)
{
    struct np_ref *ref = state;
    const struct np_attrs *attrs = &ref->node->attrs;
    struct np_nhwc s = np_ref_shape(ref, ref->node->ins[0]);
    double n = (double)finish->batch * s.h * s.w;
    void *const *ptr = finish->operands->ptr;
    float *running_mean = ptr[1], *running_var = ptr[2], *mean = ptr[3], *inv_std = ptr[4];

    for (int c = s.c * finish->part / finish->nr_parts;
         c < s.c * (finish->part + 1) / finish->nr_parts; c++) {
        double sum = 0, squares = 0, m, var;

        if (finish->info->step < attrs->thaw) {
            mean[c] = running_mean[c];
            inv_std[c] = (float)(1 / sqrt((double)running_var[c] + attrs->eps));
            continue;
        }
        for (int lane = 0; lane < finish->nr_lanes; lane++) {
            const double *partial = finish->partials[lane];

            sum += partial[c];
            squares += partial[s.c + c];
        }
        m = sum / n;
        var = squares / n - m * m;
        var = var > 0 ? var : 0;
        mean[c] = (float)m;
        inv_std[c] = (float)(1 / sqrt(var + attrs->eps));
        running_mean[c] += (float)attrs->momentum * ((float)m - running_mean[c]);
        var = n > 1 ? var * n / (n - 1) : var; /* unbiased, as in torch */
        running_var[c] += (float)attrs->momentum * ((float)var - running_var[c]);
    }
}

/* BN_APPLY has mean and inv_std, BN_EVAL the running mean and variance. */
static void ref_bn_apply(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    struct range r = range_of(ref, node->ins[0], run);
    size_t c = channels(ref, node->ins[0]);
    const float *mean = in(run, 1), *second = in(run, 2), *gamma = in(run, 3), *beta = in(run, 4);

    for (size_t i = r.first; i < r.end; i++) {
        float inv_std = node->op == NP_OP_BN_EVAL
                            ? (float)(1 / sqrt((double)second[i % c] + node->attrs.eps))
                            : second[i % c];
        float x = np_ref_in(ref, run, 0, i);
        float y = (x - mean[i % c]) * inv_std * gamma[i % c] + beta[i % c];

        y += node->nr_ins > 5 ? np_ref_in(ref, run, 5, i) : 0;
        np_ref_out(ref, run, 0, i, node->attrs.relu ? relu_of(y) : y);
    }
}

/* dy after the fused relu's gradient: 0 where the output is not positive. y: the output's number
 * among the operands, if it is given. */
static float masked_dy(
    const struct np_ref *ref, const struct np_run *run, size_t i, float recomputed, int y)
{
    float dy = np_ref_in(ref, run, 0, i);

    if (!ref->node->attrs.relu)
        return dy;
    return (ref->node->nr_ins > y ? np_ref_in(ref, run, y, i) : recomputed) > 0 ? dy : 0;
}

static void ref_bn_reduce(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct range r = range_of(ref, ref->node->ins[1], run);
    size_t c = channels(ref, ref->node->ins[1]);
    const float *mean = in(run, 2), *inv_std = in(run, 3), *gamma = in(run, 4), *beta = in(run, 5);
    double *dgamma = run->partial, *dbeta = dgamma + c;

    if (run->first_in_lane)
        memset(dgamma, 0, 2 * c * sizeof(double));
    for (size_t i = r.first; i < r.end; i++) {
        size_t k = i % c;
        float x_hat = (np_ref_in(ref, run, 1, i) - mean[k]) * inv_std[k];
        float dy = masked_dy(ref, run, i, x_hat * gamma[k] + beta[k], 6);

        dgamma[k] += (double)dy * x_hat;
        dbeta[k] += dy;
    }
}

static void ref_bn_reduce_finish(void *state, const struct np_finish *finish)
{
    struct np_ref *ref = state;
    int c = (int)channels(ref, ref->node->ins[1]);
    float *dgamma = finish->operands->ptr[ref->node->nr_ins];
    float *dbeta = finish->operands->ptr[ref->node->nr_ins + 1];

    for (int k = c * finish->part / finish->nr_parts; k < c * (finish->part + 1) / finish->nr_parts;
         k++) {
        double sums[2] = {0, 0};

        for (int lane = 0; lane < finish->nr_lanes; lane++) {
            sums[0] += ((const double *)finish->partials[lane])[k];
            sums[1] += ((const double *)finish->partials[lane])[c + k];
        }
        dgamma[k] = (float)sums[0] + (finish->accumulate ? dgamma[k] : 0);
        dbeta[k] = (float)sums[1] + (finish->accumulate ? dbeta[k] : 0);
    }
}

/* dx = gamma inv_std (dy - mean(dy) - x_hat mean(dy x_hat)); means over batch and pixels. Running
 * statistics do not depend on x: dx = gamma inv_std dy. */
static void ref_bn_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    struct range r = range_of(ref, node->ins[1], run);
    struct np_nhwc s = np_ref_shape(ref, node->ins[1]);
    float n = (float)((double)s.n * s.h * s.w);
    const float *mean = in(run, 2), *inv_std = in(run, 3), *gamma = in(run, 4), *beta = in(run, 5);
    const float *dgamma = in(run, 6), *dbeta = in(run, 7);
    const bool frozen = run->info->step < node->attrs.thaw;

    for (size_t i = r.first; i < r.end; i++) {
        size_t k = i % (size_t)s.c;
        float x_hat = (np_ref_in(ref, run, 1, i) - mean[k]) * inv_std[k];
        float dy = masked_dy(ref, run, i, x_hat * gamma[k] + beta[k], 8);

        np_ref_out(ref, run, 0, i,
            gamma[k] * inv_std[k] * (frozen ? dy : dy - dbeta[k] / n - x_hat * dgamma[k] / n));
        if (node->nr_outs > 1)
            np_ref_out(ref, run, 1, i, dy);
    }
}

#define ROWS(op_, run_, finish_)                                                                   \
    NP_KERNEL_ROWS("reference", NP_OP_##op_, np_ref_prepare, NULL, run_, finish_)
const struct np_kernel np_kernels_ref[] = {
    ROWS(INPUT, ref_input, NULL),
    ROWS(CONV, np_ref_conv, NULL),
    ROWS(CONV_DGRAD, np_ref_conv, NULL),
    ROWS(CONV_WGRAD, np_ref_conv_wgrad, np_ref_wgrad_finish),
    ROWS(BN_STATS, ref_bn_stats, ref_bn_stats_finish),
    ROWS(BN_APPLY, ref_bn_apply, NULL),
    ROWS(BN_EVAL, ref_bn_apply, NULL),
    ROWS(BN_REDUCE, ref_bn_reduce, ref_bn_reduce_finish),
    ROWS(BN_DGRAD, ref_bn_dgrad, NULL),
    ROWS(RELU, ref_relu, NULL),
    ROWS(RELU_DGRAD, ref_relu_dgrad, NULL),
    ROWS(ACT, np_ref_act, NULL),
    ROWS(ACT_DGRAD, np_ref_act, NULL),
    ROWS(MAXPOOL, np_ref_pool, NULL),
    ROWS(MAXPOOL_DGRAD, np_ref_pool_dgrad, NULL),
    ROWS(AVGPOOL, np_ref_pool, NULL),
    ROWS(AVGPOOL_DGRAD, np_ref_pool_dgrad, NULL),
    ROWS(GLOBAL_AVGPOOL, np_ref_global_avgpool, NULL),
    ROWS(GLOBAL_AVGPOOL_DGRAD, np_ref_global_avgpool_dgrad, NULL),
    ROWS(LINEAR, np_ref_linear, NULL),
    ROWS(LINEAR_DGRAD, np_ref_linear, NULL),
    ROWS(LINEAR_WGRAD, np_ref_linear_wgrad, np_ref_wgrad_finish),
    ROWS(DROPOUT, ref_dropout, NULL),
    ROWS(DROPOUT_DGRAD, ref_dropout, NULL),
    ROWS(FLATTEN, ref_flatten, NULL),
    ROWS(FLATTEN_DGRAD, ref_flatten, NULL),
    ROWS(ADD, ref_add, NULL),
    ROWS(RESAMPLE, np_ref_resample, NULL),
    ROWS(RESAMPLE_DGRAD, np_ref_resample, NULL),
    ROWS(MUL, np_ref_mul, NULL),
    ROWS(MUL_SUM, np_ref_mul_sum, NULL),
    ROWS(DROP_ROWS, np_ref_drop_rows, NULL),
    ROWS(DROP_ROWS_DGRAD, np_ref_drop_rows, NULL),
    ROWS(CONCAT, ref_concat, NULL),
    ROWS(CONCAT_DGRAD, ref_concat, NULL),
    ROWS(CROSS_ENTROPY, np_ref_cross_entropy, NULL),
    ROWS(CROSS_ENTROPY_DGRAD, np_ref_cross_entropy_dgrad, NULL),
    ROWS(BCE, np_ref_bce, NULL),
    ROWS(BCE_DGRAD, np_ref_bce_dgrad, NULL),
    ROWS(REGRESSION, np_ref_regression, NULL),
    ROWS(REGRESSION_DGRAD, np_ref_regression_dgrad, NULL),
    ROWS(NORM, np_ref_norm, NULL),
    ROWS(NORM_WGRAD, np_ref_norm_wgrad, np_ref_wgrad_finish),
    ROWS(NORM_DGRAD, np_ref_norm_dgrad, NULL),
    ROWS(SCALE, np_ref_scale, NULL),
    ROWS(SCALE_WGRAD, np_ref_scale_wgrad, np_ref_wgrad_finish),
    ROWS(BIAS, np_ref_position, NULL),
    ROWS(BIAS_WGRAD, np_ref_bias_wgrad, np_ref_wgrad_finish),
    ROWS(POSITION, np_ref_position, NULL),
    ROWS(VIEWS, ref_views, NULL),
    ROWS(CLASS_TOKEN, np_ref_class_token, NULL),
    ROWS(ROWS_SUM, np_ref_rows_sum, np_ref_wgrad_finish),
    ROWS(TOKENS, np_ref_tokens, NULL),
    ROWS(TOKENS_DGRAD, np_ref_tokens, NULL),
    ROWS(ATTENTION, np_ref_attention, NULL),
    ROWS(ATTENTION_DGRAD, np_ref_attention_dgrad, NULL),
    {NULL},
};
