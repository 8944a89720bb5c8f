/* The reference's losses: softmax cross-entropy with label smoothing (arXiv:1512.00567, section 7),
 * a focal factor (arXiv:1708.02002) and weights of classes; the binary one; those of numbers. The
 * target of a row is its label, or, in a mixed batch (trainer/graph/mix.h), two labels with shares.
 * Any pool thread, each its own lane. */
#include "trainer/cpu/kernels_ref.h"

#include <math.h>

static size_t classes_of(const struct np_ref *ref)
{
    return (size_t)np_ref_shape(ref, ref->node->ins[0]).c;
}

/* log of the sum of exponentials, shifted by the largest. */
static float log_sum_exp(const struct np_ref *ref, const struct np_run *run, size_t first, size_t n)
{
    float max = -INFINITY, sum = 0;

    for (size_t i = 0; i < n; i++)
        max = fmaxf(max, np_ref_in(ref, run, 0, first + i));
    for (size_t i = 0; i < n; i++)
        sum += expf(np_ref_in(ref, run, 0, first + i) - max);
    /* cppcheck-suppress invalidFunctionArg ; a loss has classes: sum is at least 1 */
    return max + logf(sum);
}

/* Rows that count, over the sum of their labels' weights; 1 without weights. 0: all weigh 0. */
static float weight_scale(const struct np_ref *ref, const struct np_run *run, const int32_t *labels)
{
    const float *weights = ref->graph->class_weights;
    double sum = 0;
    int rows = 0;

    if (!weights)
        return 1;
    if (run->info->class_scale > 0)
        return run->info->class_scale;
    for (int r = 0; r < ref->graph->batch; r++)
        if (labels[r] >= 0) {
            sum += (double)weights[labels[r]];
            rows++;
        }
    return sum > 0 ? (float)(rows / sum) : 0;
}

/* The labels of a row and their shares; nr 2 in a mixed batch, unless the partner is masked. */
struct target {
    int nr, labels[2];
    float shares[2];
    const float
        *values[2]; /* (graph->values) of the row and its partner; NULL: labels are classes */
};

static struct target target_of(const struct np_ref *ref, const struct np_run *run, int row)
{
    const int32_t *labels = run->operands->ptr[1];
    const int width = ref->graph->values,
              partner = np_mix_partner_in(row, ref->graph->batch, ref->node->attrs.lane_rows);
    const float *values = width ? np_batch_values(labels, ref->graph->batch) : NULL;
    struct target target = {1, {labels[row], 0}, {1, 0}, {NULL, NULL}};
    struct np_mixed mixed;

    np_mix_draw(&ref->node->attrs.mix, run->info->step, &mixed);
    if (mixed.keep < 1 && labels[partner] >= 0)
        target = (struct target){
            2, {labels[row], labels[partner]}, {mixed.keep, 1 - mixed.keep}, {NULL, NULL}};
    if (values) {
        target.values[0] = values + (size_t)row * (size_t)width;
        target.values[1] = values + (size_t)partner * (size_t)width;
    }
    return target;
}

/* The mixed value of an output. */
static float value_of(const struct target *target, size_t i)
{
    float value = target->shares[0] * target->values[0][i];

    return target->nr > 1 ? value + target->shares[1] * target->values[1][i] : value;
}

/* The label with the larger share. */
static int main_label(const struct target *target)
{
    return target->labels[target->shares[1] > target->shares[0]];
}

/* The loss of one class, smoothing apart: weight * (1 - p)^gamma * -log p. */
static float class_loss(const struct np_ref *ref, int class, float log_p)
{
    const float *weights = ref->graph->class_weights;
    float gamma = (float)ref->node->attrs.gamma, loss = -log_p;

    if (gamma > 0)
        loss *= powf(-expm1f(log_p), gamma);
    return weights ? weights[class] * loss : loss;
}

/* d class_loss / d logit i = slope * (p_i - (i == class)). */
static float class_slope(const struct np_ref *ref, int class, float log_p)
{
    const float *weights = ref->graph->class_weights;
    float gamma = (float)ref->node->attrs.gamma, wrong = -expm1f(log_p), slope = 1;

    if (gamma > 0 && wrong > 0)
        slope = powf(wrong, gamma) - gamma * powf(wrong, gamma - 1) * expf(log_p) * log_p;
    else if (gamma > 0)
        slope = 0;
    return weights ? weights[class] * slope : slope;
}

static void count_right(
    const struct np_ref *ref, const struct np_run *run, int row, int label, size_t classes)
{
    const size_t first = (size_t)row * classes;
    const float target = np_ref_in(ref, run, 0, first + (size_t)label);
    float *correct = run->operands->ptr[3], *top5 = run->operands->ptr[4];
    size_t better = 0;

    for (size_t i = 0; i < classes; i++) {
        float logit = np_ref_in(ref, run, 0, first + i);

        /* of equal logits the first ranks higher; a NaN is never correct */
        better += !(logit <= target) || (logit == target && i < (size_t)label);
    }
    correct[row] = better == 0;
    top5[row] = better < 5;
}

static float row_loss(const struct np_ref *ref, const struct np_run *run, int row,
    const struct target *target, size_t classes)
{
    const float *weights = ref->graph->class_weights;
    const float smoothing = (float)ref->node->attrs.label_smoothing;
    const size_t first = (size_t)row * classes;
    const float whole = log_sum_exp(ref, run, first, classes);
    float mean = 0, loss = 0;

    for (int k = 0; k < target->nr; k++)
        loss += target->shares[k] *
                class_loss(ref, target->labels[k],
                    np_ref_in(ref, run, 0, first + (size_t)target->labels[k]) - whole);
    for (size_t i = 0; i < classes; i++)
        mean += (weights ? weights[i] : 1) * (whole - np_ref_in(ref, run, 0, first + i)) /
                (float)classes;
    /* without smoothing, a logit of minus infinity must not enter the mean */
    return (1 - smoothing) * loss + (smoothing > 0 ? smoothing * mean : 0);
}

void np_ref_cross_entropy(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    size_t classes = classes_of(ref);
    const int32_t *labels = run->operands->ptr[1];
    float *loss = run->operands->ptr[2], *correct = run->operands->ptr[3];
    float *top5 = run->operands->ptr[4], scale = weight_scale(ref, run, labels);

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        loss[r] = correct[r] = top5[r] = 0;
        if (labels[r] < 0)
            continue;
        const struct target target = target_of(ref, run, r);

        loss[r] = scale * row_loss(ref, run, r, &target, classes);
        count_right(ref, run, r, main_label(&target), classes);
    }
}

/* dlogit i = (all * p_i - wanted_i) * scale; all: the sum of the targets, which is 1 unless
 * classes have weights or the loss is focal. */
static void row_dgrad(const struct np_ref *ref, const struct np_run *run, int row, float scale)
{
    const struct target target = target_of(ref, run, row);
    const size_t classes = classes_of(ref), first = (size_t)row * classes;
    const float *weights = ref->graph->class_weights;
    const float smoothing = (float)ref->node->attrs.label_smoothing;
    const float every = smoothing / (float)classes, whole = log_sum_exp(ref, run, first, classes);
    const bool plain = !weights && ref->node->attrs.gamma <= 0;
    float slopes[2] = {0}, all = plain ? 1 : 0;

    for (int k = 0; k < target.nr; k++) {
        const float logit = np_ref_in(ref, run, 0, first + (size_t)target.labels[k]);

        slopes[k] =
            (1 - smoothing) * target.shares[k] * class_slope(ref, target.labels[k], logit - whole);
        all += plain ? 0 : slopes[k];
    }
    for (size_t i = 0; !plain && i < classes; i++)
        all += every * (weights ? weights[i] : 1);
    for (size_t i = 0; i < classes; i++) {
        const float p = expf(np_ref_in(ref, run, 0, first + i) - whole);
        float wanted = every * (weights ? weights[i] : 1);

        for (int k = 0; k < target.nr; k++)
            wanted += (size_t)target.labels[k] == i ? slopes[k] : 0;
        np_ref_out(ref, run, 0, first + i, (all * p - wanted) * scale);
    }
}

void np_ref_cross_entropy_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    size_t classes = classes_of(ref);
    const int32_t *labels = run->operands->ptr[1];
    float scale = weight_scale(ref, run, labels) * run->info->loss_scale;

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        if (labels[r] >= 0) {
            row_dgrad(ref, run, r, scale);
            continue;
        }
        for (size_t i = 0; i < classes; i++)
            np_ref_out(ref, run, 0, (size_t)r * classes + i, 0);
    }
}

/* --- binary cross-entropy ------------------------------------------------------------------- */

/* The target of a class: the shares of the row's labels, smoothed, cut at the threshold. */
static float wanted_of(
    const struct np_ref *ref, const struct target *target, size_t class, size_t n)
{
    const float smoothing = (float)ref->node->attrs.label_smoothing;
    const float threshold = (float)ref->node->attrs.threshold;
    float wanted = target->values[0] ? value_of(target, class) : smoothing / (float)n;

    for (int k = 0; k < target->nr && !target->values[0]; k++)
        wanted += (size_t)target->labels[k] == class ? (1 - smoothing) * target->shares[k] : 0;
    if (threshold > 0)
        return wanted > threshold ? 1 : 0;
    return wanted;
}

/* Is every class on its value's side? The values are those of the row with the larger share. */
static bool all_right(
    const struct np_ref *ref, const struct np_run *run, int row, const struct target *target)
{
    const size_t n = classes_of(ref);
    const float *values = target->values[target->shares[1] > target->shares[0]];

    for (size_t i = 0; i < n; i++) {
        const float x = np_ref_in(ref, run, 0, (size_t)row * n + i);

        if (values[i] > 0.5f ? !(x > 0) : !(x <= 0)) /* a NaN is never right */
            return false;
    }
    return true;
}

/* The factor on the loss of a class. */
static float bce_weight(const struct np_ref *ref, size_t class, size_t n)
{
    const float *weights = ref->graph->class_weights;

    return (weights ? weights[class] : 1) / (ref->node->attrs.sums_classes ? 1 : (float)n);
}

void np_ref_bce(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const size_t n = classes_of(ref);
    const int32_t *labels = run->operands->ptr[1];
    float *loss = run->operands->ptr[2], *correct = run->operands->ptr[3];
    float *top5 = run->operands->ptr[4];

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        loss[r] = correct[r] = top5[r] = 0;
        if (labels[r] < 0)
            continue;
        const struct target target = target_of(ref, run, r);
        double sum = 0;

        for (size_t i = 0; i < n; i++) {
            const float x = np_ref_in(ref, run, 0, (size_t)r * n + i);
            const float each = fmaxf(x, 0) - x * wanted_of(ref, &target, i, n);

            sum += (double)(bce_weight(ref, i, n) * (each + log1pf(expf(-fabsf(x)))));
        }
        loss[r] = (float)sum;
        if (target.values[0])
            correct[r] = all_right(ref, run, r, &target);
        else
            count_right(ref, run, r, main_label(&target), n);
    }
}

/* dlogit i = weight i * (sigmoid(logit i) - target i). */
void np_ref_bce_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const size_t n = classes_of(ref);
    const int32_t *labels = run->operands->ptr[1];

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        const bool counts = labels[r] >= 0;
        const struct target target = counts ? target_of(ref, run, r) : (struct target){0};

        for (size_t i = 0; i < n; i++) {
            const size_t at = (size_t)r * n + i;
            const float s = 1 / (1 + expf(-np_ref_in(ref, run, 0, at)));
            const float wanted = counts ? wanted_of(ref, &target, i, n) : 0;

            np_ref_out(ref, run, 0, at,
                counts ? bce_weight(ref, i, n) * (s - wanted) * run->info->loss_scale : 0);
        }
    }
}

/* --- regression ------------------------------------------------------------------------------ */

void np_ref_regression(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const size_t n = classes_of(ref);
    const struct np_attrs *attrs = &ref->node->attrs;
    const int32_t *labels = run->operands->ptr[1];
    float *loss = run->operands->ptr[2], *correct = run->operands->ptr[3];
    float *top5 = run->operands->ptr[4];

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        double sum = 0;

        loss[r] = correct[r] = top5[r] = 0;
        if (labels[r] < 0)
            continue;
        const struct target target = target_of(ref, run, r);

        for (size_t i = 0; i < n; i++)
            sum += (double)np_regression_loss(attrs->regression, (float)attrs->delta,
                np_ref_in(ref, run, 0, (size_t)r * n + i) - value_of(&target, i));
        loss[r] = (float)(sum / (double)n);
    }
}

void np_ref_regression_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const size_t n = classes_of(ref);
    const struct np_attrs *attrs = &ref->node->attrs;
    const int32_t *labels = run->operands->ptr[1];
    const float scale = run->info->loss_scale / (float)n;

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        const bool counts = labels[r] >= 0;
        const struct target target = counts ? target_of(ref, run, r) : (struct target){0};

        for (size_t i = 0; i < n; i++) {
            const size_t at = (size_t)r * n + i;

            np_ref_out(ref, run, 0, at,
                counts ? scale * np_regression_slope(attrs->regression, (float)attrs->delta,
                                     np_ref_in(ref, run, 0, at) - value_of(&target, i))
                       : 0);
        }
    }
}
