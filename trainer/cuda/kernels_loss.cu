/* Softmax cross-entropy, one block per row, and the sums of a batch's numbers. */
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

template <typename T>
static __global__ void __launch_bounds__(BLOCK) cross_entropy(const np_cuda_step *step,
    const T *logits, int classes, float smoothing, float *loss, float *correct, float *top5)
{
    NP_SHARED(float, shared, [BLOCK / WARP]);
    int row = blockIdx.x, label = step->labels[row];
    const T *mine = &logits[(uint64_t)row * classes];
    float whole, target, mean = 0, better = 0;

    if (label < 0) { /* the whole block */
        if (threadIdx.x == 0)
            loss[row] = correct[row] = top5[row] = 0;
        return;
    }
    whole = log_sum_exp(mine, classes, shared);
    target = np_get(mine[label]);
    for (int i = threadIdx.x; i < classes; i += BLOCK) {
        float logit = np_get(mine[i]);

        mean += (whole - logit) / (float)classes;
        /* of equal logits the first ranks higher; a NaN is never correct */
        better += !(logit <= target) || (logit == target && i < label) ? 1.0f : 0.0f;
    }
    mean = over_block<add_up>(mean, shared);
    better = over_block<add_up>(better, shared);
    if (threadIdx.x == 0) {
        loss[row] = (1 - smoothing) * (whole - target) + (smoothing > 0 ? smoothing * mean : 0.0f);
        correct[row] = better == 0;
        top5[row] = better < 5;
    }
}

extern "C" void np_cuda_cross_entropy(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_step *step, const void *logits, int n, int classes, double label_smoothing,
    float *loss, float *correct, float *top5)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(cross_entropy<T>, n, BLOCK, 0, stream, step, (const T *)logits, classes,
            (float)label_smoothing, loss, correct, top5));
}

template <typename T>
static __global__ void __launch_bounds__(BLOCK) cross_entropy_dgrad(const np_cuda_step *step,
    const np_cuda_scaler *scaler, const T *logits, int classes, float smoothing, T *dlogits)
{
    NP_SHARED(float, shared, [BLOCK / WARP]);
    int row = blockIdx.x, label = step->labels[row];
    const T *mine = &logits[(uint64_t)row * classes];
    T *out = &dlogits[(uint64_t)row * classes];
    float whole, scale = step->loss_scale * scaler->scale;

    whole = log_sum_exp(mine, classes, shared);
    for (int i = threadIdx.x; i < classes; i += BLOCK) {
        float p = expf(np_get(mine[i]) - whole);
        float target = smoothing / (float)classes + (label == i ? 1 - smoothing : 0.0f);

        np_put(&out[i], label < 0 ? 0.0f : (p - target) * scale);
    }
}

extern "C" void np_cuda_cross_entropy_dgrad(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_step *step, const np_cuda_scaler *scaler, const void *logits, int n, int classes,
    double label_smoothing, void *dlogits)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(cross_entropy_dgrad<T>, n, BLOCK, 0, stream, step, scaler, (const T *)logits,
            classes, (float)label_smoothing, (T *)dlogits));
}

/* One warp: lane k adds rows k, k + 32, ...; then the lanes in a fixed tree. */
static __global__ void numbers_of(const np_cuda_step *step, const float *loss, const float *correct,
    const float *top5, int n, struct np_cuda_numbers *numbers, float *losses)
{
    double sum = 0;
    unsigned int rows = 0, right = 0, right5 = 0;

    if (losses)
        for (int i = threadIdx.x; i < n; i += WARP)
            losses[(uint64_t)(step->slot % NP_CUDA_SLOTS) * n + i] = loss[i];
    for (int i = threadIdx.x; i < n; i += WARP)
        if (step->labels[i] >= 0) {
            sum += loss[i];
            rows++;
            right += correct[i] != 0;
            right5 += top5[i] != 0;
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

extern "C" void np_cuda_numbers(void *stream, const np_cuda_step *step, const float *loss,
    const float *correct, const float *top5, int n, struct np_cuda_numbers *numbers, float *losses)
{
    NP_LAUNCH(numbers_of, 1, WARP, 0, stream, step, loss, correct, top5, n, numbers, losses);
}
