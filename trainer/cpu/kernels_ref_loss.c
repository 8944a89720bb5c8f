/* The reference's loss: softmax cross-entropy with label smoothing (arXiv:1512.00567, section 7),
 * a focal factor (arXiv:1708.02002) and weights of classes. The target of a row is its label, or,
 * in a mixed batch (trainer/mix.h), two labels with shares. Any pool thread, each its own lane. */
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
static float weight_scale(const struct np_ref *ref, const int32_t *labels)
{
    const float *weights = ref->graph->class_weights;
    double sum = 0;
    int rows = 0;

    if (!weights)
        return 1;
    for (int r = 0; r < ref->graph->batch; r++)
        if (labels[r] >= 0) {
            sum += (double)weights[labels[r]];
            rows++;
        }
    return sum > 0 ? (float)(rows / sum) : 0;
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

void np_ref_cross_entropy(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    size_t classes = classes_of(ref);
    const int32_t *labels = run->operands->ptr[1];
    const float *weights = ref->graph->class_weights;
    float smoothing = (float)ref->node->attrs.label_smoothing, scale = weight_scale(ref, labels);
    float *loss = run->operands->ptr[2], *correct = run->operands->ptr[3];
    float *top5 = run->operands->ptr[4];

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        size_t first = (size_t)r * classes, better = 0;
        float whole, mean = 0, target;

        loss[r] = correct[r] = top5[r] = 0;
        if (labels[r] < 0)
            continue;
        whole = log_sum_exp(ref, run, first, classes);
        target = np_ref_in(ref, run, 0, first + (size_t)labels[r]);
        for (size_t i = 0; i < classes; i++) {
            float logit = np_ref_in(ref, run, 0, first + i);

            mean += (weights ? weights[i] : 1) * (whole - logit) / (float)classes;
            /* of equal logits the first ranks higher; a NaN is never correct */
            better += !(logit <= target) || (logit == target && i < (size_t)labels[r]);
        }
        /* without smoothing, a logit of minus infinity must not enter the mean */
        loss[r] = (1 - smoothing) * class_loss(ref, labels[r], target - whole) +
                  (smoothing > 0 ? smoothing * mean : 0);
        loss[r] *= scale;
        correct[r] = better == 0;
        top5[r] = better < 5;
    }
}

/* dlogit i = (all * p_i - target_i) * loss_scale; all: the sum of the targets, which is 1 unless
 * classes have weights or the loss is focal. */
void np_ref_cross_entropy_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    size_t classes = classes_of(ref);
    const int32_t *labels = run->operands->ptr[1];
    const float *weights = ref->graph->class_weights;
    float smoothing = (float)ref->node->attrs.label_smoothing, every = smoothing / (float)classes;
    float scale = weight_scale(ref, labels) * run->info->loss_scale, spread = 0;
    bool plain = !weights && ref->node->attrs.gamma <= 0;

    for (size_t i = 0; weights && i < classes; i++)
        spread += every * weights[i];
    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        size_t first = (size_t)r * classes, label = (size_t)(labels[r] < 0 ? 0 : labels[r]);
        float whole = log_sum_exp(ref, run, first, classes);
        float slope = class_slope(ref, (int)label, np_ref_in(ref, run, 0, first + label) - whole);
        float all = plain ? 1 : (1 - smoothing) * slope + (weights ? spread : smoothing);

        for (size_t i = 0; i < classes; i++) {
            float p = expf(np_ref_in(ref, run, 0, first + i) - whole);
            float target =
                (weights ? weights[i] : 1) * every + (label == i ? (1 - smoothing) * slope : 0);

            np_ref_out(ref, run, 0, first + i, labels[r] < 0 ? 0 : (all * p - target) * scale);
        }
    }
}
