/* Reference kernels of normalisation, scale, tokens and attention, forward and backward. Formulas:
 * layer normalisation arXiv:1607.06450, groups arXiv:1803.08494, attention arXiv:1706.03762
 * (equation 1). */
#include <math.h>

#include "trainer/cpu/kernels_ref.h"

static size_t first_row(const struct np_run *run)
{
    return (size_t)run->first_row;
}

static size_t end_row(const struct np_run *run)
{
    return (size_t)(run->first_row + run->nr_rows);
}

/* --- layernorm, groupnorm ------------------------------------------------------------------- */

/* Elements that share a mean and a variance: `runs` times `width` adjacent ones, `stride` apart. */
struct set {
    size_t first, runs, width, stride;
    size_t channel; /* of the first element */
};

static size_t nr_sets(const struct np_ref *ref, struct np_nhwc x) /* of a row */
{
    int groups = ref->node->attrs.groups;

    return groups ? (size_t)groups : (size_t)x.h * (size_t)x.w;
}

static struct set set_of(const struct np_ref *ref, struct np_nhwc x, size_t row, size_t i)
{
    size_t c = (size_t)x.c, groups = (size_t)ref->node->attrs.groups;

    if (!groups)
        return (struct set){row * np_ref_row(x) + i * c, 1, c, c, 0};
    return (struct set){row * np_ref_row(x) + i * (c / groups), (size_t)x.h * (size_t)x.w,
        c / groups, c, i * (c / groups)};
}

struct moments {
    float mean, inv_std;
};

static struct moments moments_of(
    const struct np_ref *ref, const struct np_run *run, int x, const struct set *set)
{
    double sum = 0, squares = 0, n = (double)(set->runs * set->width), mean;

    for (size_t r = 0; r < set->runs; r++)
        for (size_t k = 0; k < set->width; k++)
            sum += (double)np_ref_in(ref, run, x, set->first + r * set->stride + k);
    mean = sum / n;
    for (size_t r = 0; r < set->runs; r++)
        for (size_t k = 0; k < set->width; k++) {
            double d = (double)np_ref_in(ref, run, x, set->first + r * set->stride + k) - mean;

            squares += d * d;
        }
    return (struct moments){(float)mean, (float)(1 / sqrt(squares / n + ref->node->attrs.eps))};
}

void np_ref_norm(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    const float *gamma = run->operands->ptr[1], *beta = run->operands->ptr[2];

    for (size_t i = first_row(run) * nr_sets(ref, x); i < end_row(run) * nr_sets(ref, x); i++) {
        const struct set set = set_of(ref, x, i / nr_sets(ref, x), i % nr_sets(ref, x));
        const struct moments m = moments_of(ref, run, 0, &set);

        for (size_t r = 0; r < set.runs; r++)
            for (size_t k = 0; k < set.width; k++) {
                size_t at = set.first + r * set.stride + k, c = set.channel + k;

                np_ref_out(ref, run, 0, at,
                    (np_ref_in(ref, run, 0, at) - m.mean) * m.inv_std * gamma[c] + beta[c]);
            }
    }
}

/* dx = inv_std (g - mean(g) - x_hat mean(g x_hat)), g = gamma dy; means over the set. */
void np_ref_norm_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    const float *gamma = run->operands->ptr[2];

    for (size_t i = first_row(run) * nr_sets(ref, x); i < end_row(run) * nr_sets(ref, x); i++) {
        const struct set set = set_of(ref, x, i / nr_sets(ref, x), i % nr_sets(ref, x));
        const struct moments m = moments_of(ref, run, 1, &set);
        double n = (double)(set.runs * set.width), sum = 0, product = 0;

        for (int write = 0; write < 2; write++)
            for (size_t r = 0; r < set.runs; r++)
                for (size_t k = 0; k < set.width; k++) {
                    size_t at = set.first + r * set.stride + k;
                    float x_hat = (np_ref_in(ref, run, 1, at) - m.mean) * m.inv_std;
                    float g = np_ref_in(ref, run, 0, at) * gamma[set.channel + k];

                    if (write)
                        np_ref_out(ref, run, 0, at,
                            m.inv_std * (g - (float)(sum / n) - x_hat * (float)(product / n)));
                    else
                        sum += (double)g, product += (double)g * (double)x_hat;
                }
    }
}

/* The lane's partial starts as zero. */
static float *partial_of(const struct np_ref *ref, const struct np_run *run)
{
    size_t n = 0;

    for (int o = 0; o < ref->node->nr_outs; o++)
        n += np_tensor_elements(&ref->graph->tensors[ref->node->outs[o]]);
    if (run->first_in_lane)
        memset(run->partial, 0, n * sizeof(float));
    return run->partial;
}

/* dgamma = sum of dy x_hat, dbeta = sum of dy. */
void np_ref_norm_wgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    float *dgamma = partial_of(ref, run), *dbeta = dgamma + x.c;

    for (size_t i = first_row(run) * nr_sets(ref, x); i < end_row(run) * nr_sets(ref, x); i++) {
        const struct set set = set_of(ref, x, i / nr_sets(ref, x), i % nr_sets(ref, x));
        const struct moments m = moments_of(ref, run, 0, &set);

        for (size_t r = 0; r < set.runs; r++)
            for (size_t k = 0; k < set.width; k++) {
                size_t at = set.first + r * set.stride + k;
                float dy = np_ref_in(ref, run, 1, at);

                dgamma[set.channel + k] += dy * (np_ref_in(ref, run, 0, at) - m.mean) * m.inv_std;
                dbeta[set.channel + k] += dy;
            }
    }
}

/* --- scale ---------------------------------------------------------------------------------- */

/* y = x gamma, dx = dy gamma. */
void np_ref_scale(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    const float *gamma = run->operands->ptr[1];

    for (size_t i = first_row(run) * np_ref_row(x); i < end_row(run) * np_ref_row(x); i++)
        np_ref_out(ref, run, 0, i, np_ref_in(ref, run, 0, i) * gamma[i % (size_t)x.c]);
}

void np_ref_scale_wgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    float *dgamma = partial_of(ref, run);

    for (size_t i = first_row(run) * np_ref_row(x); i < end_row(run) * np_ref_row(x); i++)
        dgamma[i % (size_t)x.c] += np_ref_in(ref, run, 0, i) * np_ref_in(ref, run, 1, i);
}

void np_ref_bias_wgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    float *dbias = partial_of(ref, run);

    for (size_t i = first_row(run) * np_ref_row(x); i < end_row(run) * np_ref_row(x); i++)
        dbias[i % (size_t)x.c] += np_ref_in(ref, run, 0, i);
}

/* --- tokens --------------------------------------------------------------------------------- */

/* Also a bias: the parameter is repeated for each row, or each pixel. */
void np_ref_position(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    size_t row = np_ref_row(np_ref_shape(ref, ref->node->ins[0]));
    size_t period = np_tensor_elements(&ref->graph->tensors[ref->node->ins[1]]);
    const float *position = run->operands->ptr[1];

    for (size_t i = first_row(run) * row; i < end_row(run) * row; i++)
        np_ref_out(ref, run, 0, i, np_ref_in(ref, run, 0, i) + position[i % period]);
}

void np_ref_class_token(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    size_t row = np_ref_row(x), c = (size_t)x.c;
    const float *token = run->operands->ptr[1];

    for (size_t r = first_row(run); r < end_row(run); r++)
        for (size_t i = 0; i < c + row; i++)
            np_ref_out(ref, run, 0, r * (c + row) + i,
                i < c ? token[i] : np_ref_in(ref, run, 0, r * row + i - c));
}

void np_ref_rows_sum(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    size_t row = np_ref_row(np_ref_shape(ref, ref->node->ins[0]));
    size_t n = np_tensor_elements(&ref->graph->tensors[ref->node->outs[0]]);
    float *sum = partial_of(ref, run);

    for (size_t r = first_row(run); r < end_row(run); r++)
        for (size_t i = 0; i < n; i++)
            sum[i] += np_ref_in(ref, run, 0, r * row + i);
}

/* Forward: some of x's tokens. Backward: dy in these places, 0 in the others. */
void np_ref_tokens(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    size_t from = np_ref_row(x), to = np_ref_row(np_ref_shape(ref, ref->node->outs[0]));
    size_t first = (size_t)ref->node->attrs.first_token * (size_t)x.c;
    bool back = ref->node->op == NP_OP_TOKENS_DGRAD;

    for (size_t r = first_row(run); r < end_row(run); r++)
        for (size_t i = 0; i < to; i++)
            if (!back)
                np_ref_out(ref, run, 0, r * to + i, np_ref_in(ref, run, 0, r * from + first + i));
            else
                np_ref_out(ref, run, 0, r * to + i,
                    i < first || i - first >= from ? 0
                                                   : np_ref_in(ref, run, 0, r * from + i - first));
}

/* --- attention ------------------------------------------------------------------------------ */

struct head {
    const struct np_ref *ref;
    const struct np_run *run;
    int x;                            /* operand of query, key and value */
    size_t first, tokens, c, channel; /* of the row: first element; channel: of the head's query */
    size_t width;                     /* of the head */
    float *p;                         /* (tokens) */
};

/* Element k of token t's query (part 0), key (1) or value (2). */
static size_t part_at(const struct head *head, int part, size_t t, size_t k)
{
    return head->first + t * 3 * head->c + (size_t)part * head->c + head->channel + k;
}

static float part(const struct head *head, int part, size_t t, size_t k)
{
    return np_ref_in(head->ref, head->run, head->x, part_at(head, part, t, k));
}

/* p = softmax(query i, all keys) */
static void weigh(const struct head *head, size_t i)
{
    float max = -INFINITY, sum = 0, scale = 1 / sqrtf((float)head->width);

    for (size_t j = 0; j < head->tokens; j++) {
        float dot = 0;

        for (size_t k = 0; k < head->width; k++)
            dot += part(head, 0, i, k) * part(head, 1, j, k);
        head->p[j] = dot * scale;
        max = fmaxf(max, head->p[j]);
    }
    for (size_t j = 0; j < head->tokens; j++)
        sum += head->p[j] = expf(head->p[j] - max);
    for (size_t j = 0; j < head->tokens; j++)
        head->p[j] /= sum;
}

static void each_head(struct np_ref *ref, const struct np_run *run, int x,
    void (*visit)(const struct head *head, size_t row, float *scratch))
{
    struct np_nhwc shape = np_ref_shape(ref, ref->node->ins[x]);
    size_t heads = (size_t)ref->node->attrs.heads, tokens = (size_t)shape.h * (size_t)shape.w;
    struct head head = {.ref = ref,
        .run = run,
        .x = x,
        .tokens = tokens,
        .c = (size_t)shape.c / 3,
        .width = (size_t)shape.c / 3 / heads,
        .p = run->scratch};

    for (size_t row = first_row(run); row < end_row(run); row++)
        for (size_t h = 0; h < heads; h++) {
            head.first = row * np_ref_row(shape);
            head.channel = h * head.width;
            visit(&head, row, head.p + tokens);
        }
}

static void attend(const struct head *head, size_t row, float *scratch)
{
    for (size_t i = 0; i < head->tokens; i++) {
        weigh(head, i);
        for (size_t k = 0; k < head->width; k++) {
            float sum = 0;

            for (size_t j = 0; j < head->tokens; j++)
                sum += head->p[j] * part(head, 2, j, k);
            np_ref_out(head->ref, head->run, 0,
                (row * head->tokens + i) * head->c + head->channel + k, sum);
        }
    }
}

/* dv = p' dy; dp = dy v'; ds = p (dp - sum of p dp); dq = ds k / sqrt(d), dk = ds' q / sqrt(d). */
static void attend_back(const struct head *head, size_t row, float *scratch)
{
    size_t n = head->tokens, d = head->width;
    float *dp = scratch, *sums = dp + n; /* (3, tokens, width): dq, dk, dv */
    float scale = 1 / sqrtf((float)d);

    memset(sums, 0, 3 * n * d * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        size_t out = (row * n + i) * head->c + head->channel;
        float mean = 0;

        weigh(head, i);
        for (size_t j = 0; j < n; j++) {
            dp[j] = 0;
            for (size_t k = 0; k < d; k++) {
                float dy = np_ref_in(head->ref, head->run, 0, out + k);

                dp[j] += dy * part(head, 2, j, k);
                sums[(2 * n + j) * d + k] += head->p[j] * dy;
            }
            mean += head->p[j] * dp[j];
        }
        for (size_t j = 0; j < n; j++)
            for (size_t k = 0; k < d; k++) {
                float ds = head->p[j] * (dp[j] - mean) * scale;

                sums[i * d + k] += ds * part(head, 1, j, k);
                sums[(n + j) * d + k] += ds * part(head, 0, i, k);
            }
    }
    for (size_t i = 0; i < 3 * n * d; i++)
        np_ref_out(
            head->ref, head->run, 0, part_at(head, (int)(i / (n * d)), i / d % n, i % d), sums[i]);
}

void np_ref_attention(void *state, const struct np_run *run)
{
    each_head(state, run, 0, attend);
}

void np_ref_attention_dgrad(void *state, const struct np_run *run)
{
    each_head(state, run, 1, attend_back);
}
