/* Softmax and cross-entropy with label smoothing (arXiv:1512.00567, section 7), a row at a time
 * in f32, eight classes at a time. Sums have eight lanes, added in a fixed order, so that the
 * result depends on the row only. A loss with class weights, gamma or two labels a row is
 * the reference's. */
#include "trainer/cpu/kernels_cpu.h"

#include <errno.h>
#include <math.h>

#include "trainer/cpu/simd.h"

/* Loads up to eight of n logits from `at` on; minus infinity beyond the last one. */
#define LOGITS(x, at, n)                                                                           \
    __extension__({                                                                                \
        np_v8 v8_ = np_set(-INFINITY);                                                             \
        if ((n) - (at) >= 8)                                                                       \
            v8_ = np_load((x) + (at));                                                             \
        else                                                                                       \
            memcpy(&v8_, (x) + (at), ((n) - (at)) * sizeof(float));                                \
        v8_;                                                                                       \
    })

/* Finds the largest logit (not a NaN) and the sum of all e^(logit - largest). */
NP_LOOP(sum_of_exps, (const float *x, size_t n, float *ret_max, float *ret_sum),
    (x, n, ret_max, ret_sum))
{
    np_v8 largest = np_set(-INFINITY), sums = np_zero();
    float max = -INFINITY;

    for (size_t i = 0; i < n; i += 8) {
        np_v8 v = LOGITS(x, i, n);
        np_v8i more = v > largest;

        largest = (np_v8)(((np_v8i)v & more) | ((np_v8i)largest & ~more));
    }
    for (int j = 0; j < 8; j++)
        max = largest[j] > max ? largest[j] : max;
    for (size_t i = 0; i < n; i += 8)
        sums += np_exp(LOGITS(x, i, n) - np_set(max));
    *ret_max = max;
    *ret_sum =
        ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

NP_LOOP(exps, (float *p, const float *x, size_t n, float whole), (p, x, n, whole))
{
    for (size_t i = 0; i < n; i += 8) {
        np_v8 v = np_exp(LOGITS(x, i, n) - np_set(whole));

        if (n - i >= 8)
            np_store(p + i, v);
        else
            memcpy(p + i, &v, (n - i) * sizeof(float));
    }
}

/* Counts the classes that rank before the label's: of equal logits the first ranks higher; a NaN
 * is never correct. */
NP_LOOP(count_better, (const float *x, size_t n, size_t label, size_t *ret_better),
    (x, n, label, ret_better))
{
    float target = x[label];
    size_t better = 0;

    for (size_t i = 0; i < label; i++)
        better += !(x[i] < target);
    for (size_t i = label; i < n; i++)
        better += !(x[i] <= target);
    *ret_better = better;
}

/* Mean over the classes of -log p. */
static float mean_loss(const float *x, size_t n, float whole)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)(whole - x[i]);
    return (float)(sum / (double)n);
}

/* log of the sum of exponentials, shifted by the largest. */
static float log_sum_exp(const float *x, size_t n)
{
    float max, sum;

    sum_of_exps(x, n, &max, &sum);
    /* cppcheck-suppress invalidFunctionArg ; a loss has classes: sum is at least 1 */
    return max + logf(sum);
}

static const float *row_of(
    const struct np_cpu *cpu, const struct np_run *run, size_t r, float *room)
{
    size_t n = (size_t)cpu->c;

    if (!cpu->half)
        return (const float *)run->operands->ptr[0] + r * n;
    np_f32_from_bf16(room, (const uint16_t *)run->operands->ptr[0] + r * n, n);
    return room;
}

static void loss_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    void *const *ptr = run->operands->ptr;
    const int32_t *labels = ptr[1];
    float *loss = ptr[2], *correct = ptr[3], *top5 = ptr[4];
    float smoothing = (float)cpu->attrs.label_smoothing;

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        const float *x = row_of(cpu, run, (size_t)r, run->scratch);
        size_t n = (size_t)cpu->c, better;
        float whole;

        loss[r] = correct[r] = top5[r] = 0;
        if (labels[r] < 0)
            continue;
        whole = log_sum_exp(x, n);
        loss[r] = (1 - smoothing) * (whole - x[labels[r]]);
        if (smoothing > 0)
            loss[r] += smoothing * mean_loss(x, n, whole);
        count_better(x, n, (size_t)labels[r], &better);
        correct[r] = better == 0;
        top5[r] = better < 5;
    }
}

/* dlogits = (p - target) * loss_scale; target: smoothing / classes, and the rest at the label. */
static void loss_dgrad_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    const int32_t *labels = run->operands->ptr[1];
    size_t n = (size_t)cpu->c;
    float smoothing = (float)cpu->attrs.label_smoothing, every = smoothing / (float)n;
    float scale = run->info->loss_scale, *room = run->scratch;

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++) {
        void *out = np_cpu_at(cpu, run->operands->ptr[2], r * n);
        float *p = cpu->half ? room + n : out, right;

        if (labels[r] < 0) {
            memset(out, 0, n * (cpu->half ? sizeof(uint16_t) : sizeof(float)));
            continue;
        }
        const float *x = row_of(cpu, run, r, room);

        exps(p, x, n, log_sum_exp(x, n));
        right = p[labels[r]];
        for (size_t i = 0; i < n; i++)
            p[i] = (p[i] - every) * scale;
        p[labels[r]] = (right - (every + (1 - smoothing))) * scale;
        if (cpu->half)
            np_bf16_from_f32(out, p, n);
    }
}

static int loss_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    const bool plain =
        !graph->class_weights && node->attrs.gamma <= 0 && !np_mix_on(&node->attrs.mix);
    int code = plain ? np_cpu_prepare(graph, node, max_rows, ret_state, ret_needs, err) : -ENOTSUP;

    if (code == 0) { /* a row of logits and one of gradients, where they are bf16 */
        struct np_cpu *cpu = *ret_state;

        ret_needs->scratch_bytes = cpu->half ? 2 * (size_t)cpu->c * sizeof(float) : 0;
    }
    return code;
}

const struct np_kernel np_kernels_loss[] = {
    NP_KERNEL_ROWS("cpu cross_entropy", NP_OP_CROSS_ENTROPY, loss_prepare, NULL, loss_run, NULL),
    NP_KERNEL_ROWS("cpu cross_entropy_dgrad", NP_OP_CROSS_ENTROPY_DGRAD, loss_prepare, NULL,
        loss_dgrad_run, NULL),
    {NULL},
};
