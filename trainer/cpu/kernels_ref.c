/* The reference kernels: every operation in plain C; the other kernels are tested against them.
 * f32 and bf16 (read and written as bf16, computed in f32). Dropout: JMLR 15 (2014). Any pool
 * thread, each its own lane. */
#include "trainer/cpu/kernels_ref.h"

#include <math.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"

static size_t channels(const struct np_ref *ref, int tensor)
{
    return (size_t)np_ref_shape(ref, tensor).c;
}

/* Batchnorm's sums. */
static bool has_doubles(enum np_op op)
{
    return op == NP_OP_BN_STATS || op == NP_OP_BN_REDUCE;
}

static size_t partial_floats(const struct np_ref *ref)
{
    const struct np_op_node *node = ref->node;
    size_t n = 0;

    switch (node->op) {
    case NP_OP_BN_STATS:
    case NP_OP_BN_REDUCE: return 2 * np_ref_bn_doubles(ref); /* floats of a double */
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
    if (has_doubles(node->op) && row < 2 * np_ref_bn_groups(ref))
        row = 2 * np_ref_bn_groups(ref);
    *ret_needs = (struct np_needs){.scratch_bytes = row * sizeof(float),
        .partial_bytes = partial_floats(ref) * sizeof(float),
        .leaf_bytes = has_doubles(node->op) ? 0 : partial_floats(ref) * sizeof(float),
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
    const int partner = np_mix_partner_in((int)(i / row), s.n, ref->node->attrs.lane_rows);
    size_t other = (size_t)partner * row + i % row;
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

/* Forward on x, backward on dy: the same draws, one counter per element; backward with y, which is 0 where x was
 * dropped, and a relu before: by its sign. */
static void ref_dropout(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct range r = range_of(ref, ref->node->ins[0], run);
    uint64_t seed = ref->node->attrs.seed;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    float scale = (float)(1 / (1 - ref->node->attrs.rate));
    const size_t before =
        (size_t)run->info->first_row * np_ref_row(np_ref_shape(ref, ref->node->ins[0]));

    for (size_t i = r.first; i < r.end; i++) {
        const uint64_t place = i + before;
        const uint32_t counter[4] = {(uint32_t)(place / 4), (uint32_t)(place / 4 >> 32),
            (uint32_t)run->info->step, (uint32_t)(run->info->step >> 32)};
        uint32_t words[4];
        float x = np_ref_in(ref, run, 0, i);

        np_philox(key, counter, words);
        if (ref->node->attrs.relu && ref->node->nr_ins == 1)
            x = x < 0 ? 0 : x;
        const bool keeps = ref->node->nr_ins > 1
                               ? np_ref_in(ref, run, 1, i) > 0
                               : words[place % 4] * 0x1p-32 >= ref->node->attrs.rate;
        np_ref_out(ref, run, 0, i, keeps ? x * scale : 0);
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

#define ROWS(op_, run_, finish_)                                                                   \
    NP_KERNEL_ROWS("reference", NP_OP_##op_, np_ref_prepare, NULL, run_, finish_)
const struct np_kernel np_kernels_ref[] = {
    ROWS(INPUT, ref_input, NULL),
    ROWS(CONV, np_ref_conv, NULL),
    ROWS(CONV_DGRAD, np_ref_conv, NULL),
    ROWS(CONV_WGRAD, np_ref_conv_wgrad, np_ref_wgrad_finish),
    ROWS(BN_STATS, np_ref_bn_stats, np_ref_bn_stats_finish),
    ROWS(BN_APPLY, np_ref_bn_apply, NULL),
    ROWS(BN_EVAL, np_ref_bn_apply, NULL),
    ROWS(BN_REDUCE, np_ref_bn_reduce, np_ref_bn_reduce_finish),
    ROWS(BN_DGRAD, np_ref_bn_dgrad, NULL),
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
