/* The reference's batchnorm (arXiv:1502.03167), of all rows or of groups of them: sums of a lane are
 * (groups, 2, c), of which it fills those of its rows. Any pool thread, each its own lane. */
#include "trainer/cpu/kernels_ref.h"

#include <math.h>

struct shape {
    size_t rows, row, c; /* row: elements of one */
};

static struct shape shape_of(const struct np_ref *ref)
{
    const struct np_op_node *node = ref->node;
    const bool backward = node->op == NP_OP_BN_REDUCE || node->op == NP_OP_BN_DGRAD;
    const struct np_nhwc s = np_ref_shape(ref, node->ins[backward]);

    return (struct shape){(size_t)s.n, np_ref_row(s), (size_t)s.c};
}

size_t np_ref_bn_groups(const struct np_ref *ref)
{
    const struct np_attrs *attrs = &ref->node->attrs;

    return attrs->lane_rows > 0 ? shape_of(ref).rows / (size_t)attrs->over_rows : 1;
}

size_t np_ref_bn_doubles(const struct np_ref *ref)
{
    return np_ref_bn_groups(ref) * 2 * shape_of(ref).c;
}

/* The place of element i of an activation in (groups, c). */
static size_t place_of(const struct np_ref *ref, size_t i)
{
    const struct shape s = shape_of(ref);
    const size_t row = i / s.row;
    const size_t group = ref->node->attrs.lane_rows ? row / (size_t)ref->node->attrs.over_rows : 0;

    return group * s.c + i % s.c;
}

/* The sums of a group's channel: [0] and [c]. */
static double *sums_of(const struct np_ref *ref, void *partial, size_t place)
{
    const size_t c = shape_of(ref).c;

    return (double *)partial + place / c * 2 * c + place % c;
}

static void add(double *left, const double *right, size_t n)
{
    for (size_t i = 0; i < n; i++)
        left[i] += right[i];
}

/* Leaves the sums of all lanes, and of all processes, in the first lane's partial. */
static double *join_lanes(const struct np_ref *ref, const struct np_finish *finish)
{
    const size_t n = np_ref_bn_doubles(ref);

    for (int lane = 1; lane < finish->nr_lanes; lane++)
        add(finish->partials[0], finish->partials[lane], n);
    if (finish->join)
        finish->join->all(finish->join->context, finish->partials[0], n, add);
    return finish->partials[0];
}

static size_t first_element(const struct np_ref *ref, const struct np_run *run)
{
    return (size_t)run->first_row * shape_of(ref).row;
}

static size_t end_element(const struct np_ref *ref, const struct np_run *run)
{
    return (size_t)(run->first_row + run->nr_rows) * shape_of(ref).row;
}

/* Values of a group that are averaged, in all processes. */
static double count(const struct np_ref *ref)
{
    const struct np_attrs *attrs = &ref->node->attrs;
    const struct shape s = shape_of(ref);
    const size_t rows = attrs->lane_rows ? (size_t)attrs->over_all_rows : s.rows;

    return (double)(rows * (s.row / s.c));
}

void np_ref_bn_stats(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const size_t c = shape_of(ref).c;

    if (run->info->step < ref->node->attrs.thaw)
        return;
    if (run->first_in_lane)
        memset(run->partial, 0, np_ref_bn_doubles(ref) * sizeof(double));
    for (size_t i = first_element(ref, run); i < end_element(ref, run); i++) {
        const double x = np_ref_in(ref, run, 0, i);
        double *sums = sums_of(ref, run->partial, place_of(ref, i));

        sums[0] += x;
        sums[c] += x * x;
    }
}

/* The running statistics become the sum over this process's groups, each of which moves them once. */
static float sum_over(const float *values, size_t n)
{
    float sum = 0;

    for (size_t g = 0; g < n; g++)
        sum += values[g];
    return sum;
}

void np_ref_bn_stats_finish(void *state, const struct np_finish *finish)
{
    struct np_ref *ref = state;
    const struct np_attrs *attrs = &ref->node->attrs;
    const size_t c = shape_of(ref).c, groups = np_ref_bn_groups(ref);
    const float momentum = (float)attrs->momentum;
    const bool frozen = finish->info->step < attrs->thaw;
    void *const *ptr = finish->operands->ptr;
    float *running_mean = ptr[1], *running_var = ptr[2], *mean = ptr[3], *inv_std = ptr[4];
    float *means = finish->scratch, *vars = means + groups;

    if (finish->part > 0)
        return;
    double *all = frozen ? NULL : join_lanes(ref, finish);
    for (size_t k = 0; k < c; k++) {
        for (size_t g = 0; g < groups; g++) {
            const double n = count(ref), *sums = frozen ? NULL : sums_of(ref, all, g * c + k);
            const double m = frozen ? (double)running_mean[k] : sums[0] / n;
            double var = frozen ? (double)running_var[k] : sums[c] / n - m * m;

            var = var > 0 ? var : 0;
            mean[g * c + k] = (float)m;
            inv_std[g * c + k] = (float)(1 / sqrt(var + attrs->eps));
            var = n > 1 ? var * n / (n - 1) : var; /* unbiased, as in torch */
            means[g] = running_mean[k] + momentum * ((float)m - running_mean[k]);
            vars[g] = running_var[k] + momentum * ((float)var - running_var[k]);
        }
        running_mean[k] = frozen ? running_mean[k] : sum_over(means, groups);
        running_var[k] = frozen ? running_var[k] : sum_over(vars, groups);
    }
}

/* BN_APPLY has mean and inv_std, BN_EVAL the running mean and variance. */
void np_ref_bn_apply(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    const size_t c = shape_of(ref).c;
    const float *mean = run->operands->ptr[1], *second = run->operands->ptr[2];
    const float *gamma = run->operands->ptr[3], *beta = run->operands->ptr[4];

    for (size_t i = first_element(ref, run); i < end_element(ref, run); i++) {
        const size_t k = i % c, place = node->op == NP_OP_BN_EVAL ? k : place_of(ref, i);
        float inv_std = node->op == NP_OP_BN_EVAL
                            ? (float)(1 / sqrt((double)second[k] + node->attrs.eps))
                            : second[place];
        float y = (np_ref_in(ref, run, 0, i) - mean[place]) * inv_std * gamma[k] + beta[k];

        y += node->nr_ins > 5 ? np_ref_in(ref, run, 5, i) : 0;
        np_ref_out(ref, run, 0, i, node->attrs.relu && y < 0 ? 0 : y); /* a NaN stays */
        if (node->nr_outs > 1) {
            uint8_t *mask = (uint8_t *)run->operands->ptr[node->nr_ins + 1] + i / 8;
            bool positive = np_ref_get(run->operands->ptr[node->nr_ins], ref->dtype, i) > 0;

            *mask = (uint8_t)((i % 8 == 0 ? 0 : *mask) | (positive ? 1 << i % 8 : 0));
        }
    }
}

/* Was element i of y, operand number y, which may be its mask, positive? */
static bool was_positive(const struct np_ref *ref, const struct np_run *run, size_t i, int y)
{
    if (ref->graph->tensors[ref->node->ins[y]].dtype == NP_U8)
        return ((const uint8_t *)run->operands->ptr[y])[i / 8] >> i % 8 & 1;
    return np_ref_in(ref, run, y, i) > 0;
}

/* dy after the fused relu's gradient: 0 where the output is not positive. y: the output's number
 * among the operands, if it is given. */
static float masked_dy(
    const struct np_ref *ref, const struct np_run *run, size_t i, float recomputed, int y)
{
    const int nr_ins = ref->node->nr_ins - ref->node->attrs.joins;
    float dy = np_ref_in(ref, run, 0, i);

    if (ref->node->attrs.joins) /* rounded as the sum of gradients would be */
        dy = np_ref_round(ref, dy + np_ref_in(ref, run, nr_ins, i));
    if (!ref->node->attrs.relu)
        return dy;
    return (nr_ins > y ? was_positive(ref, run, i, y) : recomputed > 0) ? dy : 0;
}

static float x_hat_of(const struct np_ref *ref, const struct np_run *run, size_t i)
{
    const float *mean = run->operands->ptr[2], *inv_std = run->operands->ptr[3];
    const size_t place = place_of(ref, i);

    return (np_ref_in(ref, run, 1, i) - mean[place]) * inv_std[place];
}

void np_ref_bn_reduce(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const size_t c = shape_of(ref).c;
    const float *gamma = run->operands->ptr[4], *beta = run->operands->ptr[5];

    if (run->first_in_lane)
        memset(run->partial, 0, np_ref_bn_doubles(ref) * sizeof(double));
    for (size_t i = first_element(ref, run); i < end_element(ref, run); i++) {
        const float x_hat = x_hat_of(ref, run, i);
        const float dy = masked_dy(ref, run, i, x_hat * gamma[i % c] + beta[i % c], 6);
        double *sums = sums_of(ref, run->partial, place_of(ref, i));

        sums[0] += (double)dy * x_hat;
        sums[c] += dy;
        if (ref->node->nr_outs > 2 && !ref->node->attrs.lane_rows)
            np_ref_out(ref, run, 2, i, dy);
    }
}

void np_ref_bn_reduce_finish(void *state, const struct np_finish *finish)
{
    struct np_ref *ref = state;
    const size_t c = shape_of(ref).c, groups = np_ref_bn_groups(ref);
    const bool follows = finish->join && !finish->join->leads;
    void *const *outs = finish->operands->ptr + ref->node->nr_ins;

    if (finish->part > 0)
        return;
    double *all = join_lanes(ref, finish);
    for (size_t k = 0; k < c; k++)
        for (size_t o = 0; o < 2; o++) {
            float *own = outs[o], *wide = ref->node->attrs.lane_rows ? outs[2 + o] : NULL, sum = 0;

            for (size_t g = 0; g < groups; g++) {
                const float value = (float)sums_of(ref, all, g * c + k)[o * c];

                sum += value;
                if (wide)
                    wide[g * c + k] = value;
            }
            own[k] = (follows ? 0 : sum) + (finish->accumulate ? own[k] : 0);
        }
}

/* dx = gamma inv_std (dy - mean(dy) - x_hat mean(dy x_hat)); means over rows and pixels. Running
 * statistics do not depend on x: dx = gamma inv_std dy. */
void np_ref_bn_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    const size_t c = shape_of(ref).c;
    const float n = (float)count(ref), *inv_std = run->operands->ptr[3];
    const float *gamma = run->operands->ptr[4], *beta = run->operands->ptr[5];
    const float *dgamma = run->operands->ptr[6], *dbeta = run->operands->ptr[7];
    const bool frozen = run->info->step < node->attrs.thaw;

    for (size_t i = first_element(ref, run); i < end_element(ref, run); i++) {
        const size_t k = i % c, place = place_of(ref, i);
        const float x_hat = x_hat_of(ref, run, i);
        const float dy = masked_dy(ref, run, i, x_hat * gamma[k] + beta[k], 8);

        np_ref_out(ref, run, 0, i,
            gamma[k] * inv_std[place] *
                (frozen ? dy : dy - dbeta[place] / n - x_hat * dgamma[place] / n));
        if (node->nr_outs > 1)
            np_ref_out(ref, run, 1, i, dy);
    }
}
