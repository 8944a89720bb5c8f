/* The norm of the gradients, and the update: one pass each over flat arrays. Formulas as in
 * optim.c. */
#include "trainer/cuda/kernels_half.cuh"

#include <math.h>

#define WARP        32
#define NORM_BLOCKS 512
#define GOOD_STEPS  2000 /* until the loss scale doubles */

static int norm_blocks(uint64_t n)
{
    uint64_t blocks = (n + NP_THREADS * 4 - 1) / (NP_THREADS * 4);

    return blocks < 1 ? 1 : blocks > NORM_BLOCKS ? NORM_BLOCKS : (int)blocks;
}

extern "C" size_t np_cuda_norm_scratch(uint64_t n)
{
    return (size_t)norm_blocks(n) * sizeof(double);
}

/* Sums one value per thread over the block, into thread 0. */
static __device__ double sum_block(double value)
{
    NP_SHARED(double, sums, [NP_THREADS / WARP]);

    for (int bits = WARP / 2; bits > 0; bits /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, bits);
    if (threadIdx.x % WARP == 0)
        sums[threadIdx.x / WARP] = value;
    __syncthreads();
    value = sums[0];
    for (int w = 1; w < NP_THREADS / WARP; w++)
        value += sums[w];
    return value;
}

static __global__ void __launch_bounds__(NP_THREADS)
    square_sums(const float *grads, uint64_t n, double *partial)
{
    double sum = 0;

    for (uint64_t i = np_thread(); i < n; i += np_stride())
        sum += (double)grads[i] * grads[i];
    sum = sum_block(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* One block: calculates the update's scale. Clipping: np_clip_scale() of optim.c. */
static __global__ void __launch_bounds__(NP_THREADS)
    judge(const np_cuda_step *step, np_cuda_scaler *scaler, const double *partial, int nr,
        bool dynamic, struct np_cuda_numbers *numbers)
{
    double sum = 0;

    for (int i = threadIdx.x; i < nr; i += NP_THREADS)
        sum += partial[i];
    sum = sum_block(sum);
    if (threadIdx.x != 0)
        return;
    double norm = sqrt(sum) / scaler->scale;
    bool finite = norm - norm == 0;
    double clip = step->clip_norm > 0 ? step->clip_norm / (norm + 1e-6) : 1;
    float scale = 1 / scaler->scale;

    scaler->norm = (float)norm;
    scaler->grad_scale = clip < 1 ? scale * (float)clip : scale;
    scaler->skip = dynamic && !finite;
    numbers[step->slot % NP_CUDA_SLOTS].grad_norm = norm;
    if (!dynamic)
        return;
    scaler->good = finite ? scaler->good + 1 : 0;
    if (!finite)
        scaler->scale = scaler->scale * 0.5f;
    else if (scaler->good == GOOD_STEPS) {
        scaler->scale = scaler->scale * 2;
        scaler->good = 0;
    }
}

extern "C" void np_cuda_norm(void *stream, const np_cuda_step *step, np_cuda_scaler *scaler,
    const float *grads, uint64_t n, bool dynamic, struct np_cuda_numbers *numbers, void *scratch)
{
    int nr = norm_blocks(n);

    NP_LAUNCH(square_sums, nr, NP_THREADS, 0, stream, grads, n, (double *)scratch);
    NP_LAUNCH(judge, 1, NP_THREADS, 0, stream, step, scaler, (const double *)scratch, nr, dynamic,
        numbers);
}

static __device__ inline float sgd(
    const np_cuda_step *s, float param, float *m, float grad, float decay)
{
    float buffer;

    grad += decay * param;
    buffer = s->momentum * *m + grad;
    *m = buffer;
    return param - s->lr * (s->nesterov ? grad + s->momentum * buffer : buffer);
}

static __device__ inline float adamw(
    const np_cuda_step *s, float param, float *m, float *v, float grad, float keep)
{
    float mean = *m + s->one_minus_beta1 * (grad - *m);
    float square = s->beta2 * *v + s->one_minus_beta2 * (grad * grad);

    *m = mean;
    *v = square;
    return param * keep - s->adamw_step * (mean / (sqrtf(square) / s->root_bias + s->eps));
}

template <typename T>
static __global__ void update(const np_cuda_step *step, const np_cuda_scaler *scaler, float *params,
    float *m, float *v, const float *grads, const uint8_t *decay, T *half, uint64_t n)
{
    float scale = scaler->grad_scale;

    if (scaler->skip)
        return;
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        bool decays = decay[i / NP_CUDA_CHUNK];
        float grad = grads[i] * scale, param;

        if (step->decoupled)
            param = adamw(step, params[i], &m[i], &v[i], grad, decays ? step->keep : 1.0f);
        else
            param = sgd(step, params[i], &m[i], grad, decays ? step->weight_decay : 0.0f);
        params[i] = param;
        if (half)
            np_put(&half[i], param);
    }
}

extern "C" void np_cuda_update(void *stream, const np_cuda_step *step, const np_cuda_scaler *scaler,
    float *params, float *m, float *v, const float *grads, const uint8_t *decay,
    enum np_cuda_dtype dtype, void *half, uint64_t n)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(update<T>, np_blocks(n), NP_THREADS, 0, stream, step, scaler, params, m, v, grads,
            decay, (T *)half, n));
}
