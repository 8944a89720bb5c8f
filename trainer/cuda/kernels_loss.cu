/* Softmax and binary cross-entropy, one block per row, and the sums of a batch's numbers. */
#include "trainer/cuda/kernels_half.cuh"

#include <math.h>

#define WARP  32
#define BLOCK 128

struct add_up {
    static __device__ float of(float a, float b)
    {
        return a + b;
    }
};
struct larger {
    static __device__ float of(float a, float b)
    {
        return a > b || a != a ? a : b;
    }
};

/* One value per thread -> their sum or maximum, in all threads; always in the same order. */
template <typename F> static __device__ float over_block(float value, float *shared)
{
    for (int bits = WARP / 2; bits > 0; bits /= 2)
        value = F::of(value, __shfl_xor_sync(0xffffffffu, value, bits));
    __syncthreads(); /* shared may still be read from the previous use */
    if (threadIdx.x % WARP == 0)
        shared[threadIdx.x / WARP] = value;
    __syncthreads();
    value = shared[0];
    for (int w = 1; w < BLOCK / WARP; w++)
        value = F::of(value, shared[w]);
    return value;
}

/* log of the sum of exponentials, shifted by the largest. */
template <typename T>
static __device__ float log_sum_exp(const T *logits, int classes, float *shared)
{
    float most = -INFINITY, sum = 0;

    for (int i = threadIdx.x; i < classes; i += BLOCK)
        most = larger::of(most, np_get(logits[i]));
    most = over_block<larger>(most, shared);
    for (int i = threadIdx.x; i < classes; i += BLOCK)
        sum += expf(np_get(logits[i]) - most);
    return most + logf(over_block<add_up>(sum, shared));
}

/* One warp: lane k adds rows k, k + 32, ...; then the lanes in a fixed tree. */
static __device__ inline void sum_numbers(const np_cuda_step *step, const float *loss,
    const float *correct, const float *top5, int n, struct np_cuda_numbers *numbers, float *losses)
{
    double sum = 0;
    unsigned int rows = 0, right = 0, right5 = 0;

    if (losses)
        for (int i = threadIdx.x; i < n; i += WARP)
            losses[(uint64_t)(step->slot % NP_CUDA_SLOTS) * n + i] = __ldcg(&loss[i]);
    for (int i = threadIdx.x; i < n; i += WARP)
        if (step->labels[i] >= 0) {
            sum += __ldcg(&loss[i]);
            rows++;
            right += __ldcg(&correct[i]) != 0;
            right5 += __ldcg(&top5[i]) != 0;
        }
    for (int bits = WARP / 2; bits > 0; bits /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, bits);
        rows += __shfl_xor_sync(0xffffffffu, rows, bits);
        right += __shfl_xor_sync(0xffffffffu, right, bits);
        right5 += __shfl_xor_sync(0xffffffffu, right5, bits);
    }
    if (threadIdx.x == 0) {
        struct np_cuda_numbers *mine = &numbers[step->slot % NP_CUDA_SLOTS];

        mine->loss_sum = sum;
        mine->rows = rows;
        mine->correct = right;
        mine->top5 = right5;
        mine->grad_norm = 0;
    }
}

static __device__ unsigned arrived[1]; /* of the blocks of cross_entropy(); 0 between launches */

/* Of a row whose label is at least 0. */
template <typename T>
static __device__ inline void row_loss(
    const np_cuda_entropy &to, const T *mine, int label, float whole, float *shared)
{
    const int row = blockIdx.x;
    float target = np_get(mine[label]), mean = 0, better = 0;

    for (int i = threadIdx.x; i < to.classes; i += BLOCK) {
        float logit = np_get(mine[i]);

        mean += (whole - logit) / (float)to.classes;
        /* of equal logits the first ranks higher; a NaN is never correct */
        better += !(logit <= target) || (logit == target && i < label) ? 1.0f : 0.0f;
    }
    mean = over_block<add_up>(mean, shared);
    better = over_block<add_up>(better, shared);
    if (threadIdx.x == 0) {
        to.loss[row] =
            (1 - to.smoothing) * (whole - target) + (to.smoothing > 0 ? to.smoothing * mean : 0.0f);
        to.correct[row] = better == 0;
        to.top5[row] = better < 5;
    }
}

/* A block for each row. The last one adds up the batch's numbers. */
template <typename T>
static __global__ void __launch_bounds__(BLOCK)
    cross_entropy(const np_cuda_step *step, const np_cuda_scaler *scaler, np_cuda_entropy to)
{
    NP_SHARED(float, shared, [BLOCK / WARP]);
    const int row = blockIdx.x, label = step->labels[row];
    const T *mine = (const T *)to.logits + (uint64_t)row * to.classes;
    T *out = (T *)to.dlogits + (uint64_t)row * to.classes;
    float whole = 0, scale = to.dlogits ? step->loss_scale * scaler->scale : 0;

    if (label >= 0) /* the whole block */
        whole = log_sum_exp(mine, to.classes, shared);
    for (int i = threadIdx.x; to.dlogits && i < to.classes; i += BLOCK) {
        float p = expf(np_get(mine[i]) - whole);
        float target = to.smoothing / (float)to.classes + (label == i ? 1 - to.smoothing : 0.0f);

        np_put(&out[i], label < 0 ? 0.0f : (p - target) * scale);
    }
    if (!to.loss)
        return;
    if (label >= 0)
        row_loss(to, mine, label, whole, shared);
    else if (threadIdx.x == 0)
        to.loss[row] = to.correct[row] = to.top5[row] = 0;
    if (np_last_of(&arrived[0], gridDim.x) && threadIdx.x < WARP)
        sum_numbers(step, to.loss, to.correct, to.top5, to.n, to.numbers, to.losses);
}

extern "C" void np_cuda_cross_entropy(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_step *step, const np_cuda_scaler *scaler, const np_cuda_entropy *entropy)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(cross_entropy<T>, entropy->n, BLOCK, 0, stream, step, scaler, *entropy));
}

/* --- weights of classes, focal, mixed ---------------------------------------------------------- */

/* Rows that count, over the sum of their labels' weights; 1 without weights. 0: all weigh 0. */
static __device__ float weight_scale(
    const np_cuda_step *step, const struct np_cuda_loss *loss, float *shared)
{
    float sum = 0, rows = 0;

    if (!loss->weights)
        return 1;
    for (int r = threadIdx.x; r < loss->n; r += BLOCK)
        if (step->labels[r] >= 0) {
            sum += loss->weights[step->labels[r]];
            rows++;
        }
    sum = over_block<add_up>(sum, shared);
    rows = over_block<add_up>(rows, shared);
    return sum > 0 ? rows / sum : 0.0f;
}

/* The labels of a row and their shares; the second's is 0 unless the batch is mixed. */
struct target {
    int labels[2];
    float shares[2];
    const float *values[2]; /* (classes), with loss->values */
};

static __device__ struct target target_of(
    const np_cuda_step *step, const struct np_cuda_loss *loss, int row)
{
    const int label = step->labels[row];
    const int partner = row > 0 ? row - 1 : loss->n - 1;
    struct target target = {{label, label}, {1, 0}, {NULL, NULL}};

    if (loss->values) {
        target.values[0] = step->values + (uint64_t)row * loss->classes;
        target.values[1] = step->values + (uint64_t)partner * loss->classes;
    }
    if (loss->mixes && step->mixed.keep < 1) {
        const int other = step->labels[partner];

        if (other >= 0) {
            target.labels[1] = other;
            target.shares[0] = step->mixed.keep;
            target.shares[1] = 1 - step->mixed.keep;
        }
    }
    return target;
}

static __device__ float class_loss(const struct np_cuda_loss *loss, int label, float log_p)
{
    float value = -log_p;

    if (loss->gamma > 0)
        value *= powf(-expm1f(log_p), loss->gamma);
    return loss->weights ? loss->weights[label] * value : value;
}

/* d class_loss / d logit i = slope * (p_i - (i == label)). */
static __device__ float class_slope(const struct np_cuda_loss *loss, int label, float log_p)
{
    float wrong = -expm1f(log_p), slope = 1;

    if (loss->gamma > 0 && wrong > 0)
        slope = powf(wrong, loss->gamma) -
                loss->gamma * powf(wrong, loss->gamma - 1) * expf(log_p) * log_p;
    else if (loss->gamma > 0)
        slope = 0;
    return loss->weights ? loss->weights[label] * slope : slope;
}

template <typename T>
static __global__ void __launch_bounds__(BLOCK) weighted_loss(const np_cuda_step *step,
    const T *logits, struct np_cuda_loss loss, float *losses, float *correct, float *top5)
{
    NP_SHARED(float, shared, [BLOCK / WARP]);
    const int row = blockIdx.x;
    const struct target t = target_of(step, &loss, row);
    const int label = t.shares[1] > t.shares[0] ? t.labels[1] : t.labels[0]; /* for the counts */
    const T *mine = &logits[(uint64_t)row * loss.classes];
    float whole, scale, right, mean = 0, better = 0, sum = 0;

    if (t.labels[0] < 0) { /* the whole block */
        if (threadIdx.x == 0)
            losses[row] = correct[row] = top5[row] = 0;
        return;
    }
    whole = log_sum_exp(mine, loss.classes, shared);
    scale = weight_scale(step, &loss, shared);
    right = np_get(mine[label]);
    for (int i = threadIdx.x; i < loss.classes; i += BLOCK) {
        float logit = np_get(mine[i]);

        mean += (loss.weights ? loss.weights[i] : 1) * (whole - logit) / (float)loss.classes;
        better += !(logit <= right) || (logit == right && i < label) ? 1.0f : 0.0f;
    }
    mean = over_block<add_up>(mean, shared);
    better = over_block<add_up>(better, shared);
    if (threadIdx.x == 0) {
        NP_UNROLL(2)
        for (int k = 0; k < 2; k++)
            if (t.shares[k] > 0)
                sum +=
                    t.shares[k] * class_loss(&loss, t.labels[k], np_get(mine[t.labels[k]]) - whole);
        losses[row] = scale * ((1 - loss.smoothing) * sum +
                                  (loss.smoothing > 0 ? loss.smoothing * mean : 0.0f));
        correct[row] = better == 0;
        top5[row] = better < 5;
    }
}

extern "C" void np_cuda_loss(void *stream, enum np_cuda_dtype dtype, const np_cuda_step *step,
    const void *logits, const struct np_cuda_loss *loss, float *losses, float *correct, float *top5)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(weighted_loss<T>, loss->n, BLOCK, 0, stream, step, (const T *)logits, *loss,
            losses, correct, top5));
}

template <typename T>
static __global__ void __launch_bounds__(BLOCK) weighted_dgrad(const np_cuda_step *step,
    const np_cuda_scaler *scaler, const T *logits, struct np_cuda_loss loss, T *dlogits)
{
    NP_SHARED(float, shared, [BLOCK / WARP]);
    const int row = blockIdx.x;
    const struct target t = target_of(step, &loss, row);
    const T *mine = &logits[(uint64_t)row * loss.classes];
    T *out = &dlogits[(uint64_t)row * loss.classes];
    const float every = loss.smoothing / (float)loss.classes;
    float whole, scale, slopes[2] = {0, 0}, all = 0;

    whole = log_sum_exp(mine, loss.classes, shared);
    scale = weight_scale(step, &loss, shared) * step->loss_scale * scaler->scale;
    NP_UNROLL(2)
    for (int k = 0; k < 2; k++)
        if (t.labels[0] >= 0 && t.shares[k] > 0)
            slopes[k] = (1 - loss.smoothing) * t.shares[k] *
                        class_slope(&loss, t.labels[k], np_get(mine[t.labels[k]]) - whole);
    for (int i = threadIdx.x; i < loss.classes; i += BLOCK)
        all += every * (loss.weights ? loss.weights[i] : 1);
    all = over_block<add_up>(all, shared) + slopes[0] + slopes[1];
    for (int i = threadIdx.x; i < loss.classes; i += BLOCK) {
        float p = expf(np_get(mine[i]) - whole);
        float wanted = every * (loss.weights ? loss.weights[i] : 1) +
                       (t.labels[0] == i ? slopes[0] : 0.0f) +
                       (t.labels[1] == i ? slopes[1] : 0.0f);

        np_put(&out[i], t.labels[0] < 0 ? 0.0f : (all * p - wanted) * scale);
    }
}

extern "C" void np_cuda_loss_dgrad(void *stream, enum np_cuda_dtype dtype, const np_cuda_step *step,
    const np_cuda_scaler *scaler, const void *logits, const struct np_cuda_loss *loss,
    void *dlogits)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(weighted_dgrad<T>, loss->n, BLOCK, 0, stream, step, scaler, (const T *)logits,
            *loss, (T *)dlogits));
}

/* --- binary cross-entropy ---------------------------------------------------------------------- */

/* The mixed value of an output. */
static __device__ float value_of(const struct target *t, int i)
{
    const float value = t->shares[0] * t->values[0][i];

    return t->shares[1] > 0 ? value + t->shares[1] * t->values[1][i] : value;
}

/* The target of a class: its value, or the shares of the row's labels, smoothed; cut at the
 * threshold. */
static __device__ float wanted_of(const struct np_cuda_loss *loss, const struct target *t, int i)
{
    const float wanted =
        loss->values ? value_of(t, i)
                     : loss->smoothing / (float)loss->classes +
                           (t->labels[0] == i ? (1 - loss->smoothing) * t->shares[0] : 0.0f) +
                           (t->labels[1] == i ? (1 - loss->smoothing) * t->shares[1] : 0.0f);

    return loss->threshold > 0 ? (wanted > loss->threshold ? 1.0f : 0.0f) : wanted;
}

template <typename T>
static __global__ void __launch_bounds__(BLOCK) bce(const np_cuda_step *step, const T *logits,
    struct np_cuda_loss loss, float *losses, float *correct, float *top5)
{
    NP_SHARED(float, shared, [BLOCK / WARP]);
    const int row = blockIdx.x;
    const struct target t = target_of(step, &loss, row);
    const int label = t.shares[1] > t.shares[0] ? t.labels[1] : t.labels[0]; /* for the counts */
    const float *own = t.shares[1] > t.shares[0] ? t.values[1] : t.values[0];
    const T *mine = &logits[(uint64_t)row * loss.classes];
    float right, better = 0, sum = 0;

    if (t.labels[0] < 0) { /* the whole block */
        if (threadIdx.x == 0)
            losses[row] = correct[row] = top5[row] = 0;
        return;
    }
    right = loss.values ? 0.0f : np_get(mine[label]);
    for (int i = threadIdx.x; i < loss.classes; i += BLOCK) {
        float logit = np_get(mine[i]);
        float each = fmaxf(logit, 0) - logit * wanted_of(&loss, &t, i);

        sum += (loss.weights ? loss.weights[i] : 1) * loss.share *
               (each + log1pf(expf(-fabsf(logit))));
        if (loss.values) /* classes on the wrong side; a NaN is */
            better += (own[i] > 0.5f ? !(logit > 0) : !(logit <= 0)) ? 1.0f : 0.0f;
        else
            better += !(logit <= right) || (logit == right && i < label) ? 1.0f : 0.0f;
    }
    sum = over_block<add_up>(sum, shared);
    better = over_block<add_up>(better, shared);
    if (threadIdx.x == 0) {
        losses[row] = sum;
        correct[row] = better == 0;
        top5[row] = !loss.values && better < 5;
    }
}

extern "C" void np_cuda_bce(void *stream, enum np_cuda_dtype dtype, const np_cuda_step *step,
    const void *logits, const struct np_cuda_loss *loss, float *losses, float *correct, float *top5)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(bce<T>, loss->n, BLOCK, 0, stream, step, (const T *)logits, *loss, losses,
            correct, top5));
}

/* dlogit i = weight i * (sigmoid(logit i) - target i). */
template <typename T>
static __global__ void __launch_bounds__(BLOCK) bce_dgrad(const np_cuda_step *step,
    const np_cuda_scaler *scaler, const T *logits, struct np_cuda_loss loss, T *dlogits)
{
    const int row = blockIdx.x;
    const struct target t = target_of(step, &loss, row);
    const T *mine = &logits[(uint64_t)row * loss.classes];
    T *out = &dlogits[(uint64_t)row * loss.classes];
    const float scale = loss.share * step->loss_scale * scaler->scale;

    for (int i = threadIdx.x; i < loss.classes; i += BLOCK) {
        float slope = 1 / (1 + expf(-np_get(mine[i]))) - wanted_of(&loss, &t, i);

        np_put(
            &out[i], t.labels[0] < 0 ? 0.0f : (loss.weights ? loss.weights[i] : 1) * slope * scale);
    }
}

extern "C" void np_cuda_bce_dgrad(void *stream, enum np_cuda_dtype dtype, const np_cuda_step *step,
    const np_cuda_scaler *scaler, const void *logits, const struct np_cuda_loss *loss,
    void *dlogits)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(bce_dgrad<T>, loss->n, BLOCK, 0, stream, step, scaler, (const T *)logits, *loss,
            (T *)dlogits));
}

/* --- regression -------------------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(BLOCK) regression(const np_cuda_step *step,
    const T *outputs, struct np_cuda_loss loss, float *losses, float *correct, float *top5)
{
    NP_SHARED(float, shared, [BLOCK / WARP]);
    const int row = blockIdx.x;
    const struct target t = target_of(step, &loss, row);
    const T *mine = &outputs[(uint64_t)row * loss.classes];
    float sum = 0;

    for (int i = threadIdx.x; i < loss.classes && t.labels[0] >= 0; i += BLOCK)
        sum += np_regression_loss(loss.regression, loss.delta, np_get(mine[i]) - value_of(&t, i));
    sum = over_block<add_up>(sum, shared);
    if (threadIdx.x == 0) {
        losses[row] = sum / (float)loss.classes;
        correct[row] = top5[row] = 0;
    }
}

extern "C" void np_cuda_regression(void *stream, enum np_cuda_dtype dtype, const np_cuda_step *step,
    const void *outputs, const struct np_cuda_loss *loss, float *losses, float *correct,
    float *top5)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(regression<T>, loss->n, BLOCK, 0, stream, step, (const T *)outputs, *loss, losses,
            correct, top5));
}

template <typename T>
static __global__ void __launch_bounds__(BLOCK) regression_dgrad(const np_cuda_step *step,
    const np_cuda_scaler *scaler, const T *outputs, struct np_cuda_loss loss, T *doutputs)
{
    const int row = blockIdx.x;
    const struct target t = target_of(step, &loss, row);
    const T *mine = &outputs[(uint64_t)row * loss.classes];
    T *out = &doutputs[(uint64_t)row * loss.classes];
    const float scale = step->loss_scale * scaler->scale / (float)loss.classes;

    for (int i = threadIdx.x; i < loss.classes; i += BLOCK)
        np_put(&out[i], t.labels[0] < 0 ? 0.0f
                                        : scale * np_regression_slope(loss.regression, loss.delta,
                                                      np_get(mine[i]) - value_of(&t, i)));
}

extern "C" void np_cuda_regression_dgrad(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_step *step, const np_cuda_scaler *scaler, const void *outputs,
    const struct np_cuda_loss *loss, void *doutputs)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(regression_dgrad<T>, loss->n, BLOCK, 0, stream, step, scaler, (const T *)outputs,
            *loss, (T *)doutputs));
}

static __global__ void numbers_of(const np_cuda_step *step, const float *loss, const float *correct,
    const float *top5, int n, struct np_cuda_numbers *numbers, float *losses)
{
    sum_numbers(step, loss, correct, top5, n, numbers, losses);
}

extern "C" void np_cuda_numbers(void *stream, const np_cuda_step *step, const float *loss,
    const float *correct, const float *top5, int n, struct np_cuda_numbers *numbers, float *losses)
{
    NP_LAUNCH(numbers_of, 1, WARP, 0, stream, step, loss, correct, top5, n, numbers, losses);
}
