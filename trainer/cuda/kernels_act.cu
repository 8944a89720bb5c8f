/* Activation functions and their slopes, bound by memory: a kernel for each function, both passes
 * one template. Twin: kernels_ref_act.c. */
#include "trainer/cuda/kernels_half.cuh"

#include <math.h>

#include "trainer/graph/act.h"

struct point { /* of a function: its value and its slope */
    float y, slope;
};

static __device__ inline float clamp6(float x)
{
    return x < 0 ? 0 : x > 6 ? 6 : x; /* a NaN stays */
}

static __device__ inline float sigmoid_of(float x)
{
    return 1 / (1 + expf(-x));
}

/* x s(f(x)), of which silu and the approximated gelu are two cases; inner: f and its slope. */
static __device__ inline point gated(float x, point inner)
{
    float s = sigmoid_of(inner.y), rest = sigmoid_of(-inner.y);

    return {x * s, s + x * s * rest * inner.slope};
}

template <int ACT> static __device__ inline point point_at(float x, float a)
{
    switch (ACT) {
    case NP_ACT_RELU6: return {clamp6(x), x <= 0 || x >= 6 ? 0.0f : 1.0f};
    case NP_ACT_LEAKY_RELU: return {x > 0 ? x : a * x, x > 0 ? 1 : a};
    case NP_ACT_SIGMOID: return {sigmoid_of(x), sigmoid_of(x) * sigmoid_of(-x)};
    case NP_ACT_HARDSIGMOID: return {clamp6(x + 3) / 6, x > -3 && x < 3 ? 1.0f / 6 : 0.0f};
    case NP_ACT_TANH: return {tanhf(x), 4 * sigmoid_of(2 * x) * sigmoid_of(-2 * x)};
    case NP_ACT_SILU: return gated(x, {x, 1});
    case NP_ACT_HARDSWISH:
        return {x * (clamp6(x + 3) / 6), x <= -3 ? 0.0f : x >= 3 ? 1.0f : x / 3 + 0.5f};
    case NP_ACT_GELU: {
        float below = erfcf(x * -0.7071067812f) / 2;

        return {x * below, below + x * expf(x * x / -2) * 0.3989422804f};
    }
    default: { /* gelu by tanh; beyond |x| = 10, s is 0 or 1 */
        float z = x * x > 100 ? 100 : x * x, scale = 1.5957691216f;

        return gated(x, {x * scale * (1 + 0.044715f * z), scale * (1 + 0.134145f * z)});
    }
    }
}

/* N elements per thread at a time; the remainder one by one. dy NULL: y = f(x), else y = dy f'(x).
 * y may be x or dy: each thread reads before it writes. */
template <typename T, int ACT, int N>
static __global__ void act(const T *dy, const T *x, float a, T *y, uint64_t n)
{
    typedef np_pack<T, N> pack;
    uint64_t nr_packs = n / N;

    for (uint64_t i = np_thread(); i < nr_packs; i += np_stride()) {
        pack in = ((const pack *)x)[i], back = dy ? ((const pack *)dy)[i] : in;

        for (int k = 0; k < N; k++) {
            const point at = point_at<ACT>(np_get(in.v[k]), a);

            np_put(&in.v[k], dy ? np_get(back.v[k]) * at.slope : at.y);
        }
        ((pack *)y)[i] = in;
    }
    for (uint64_t i = nr_packs * N + np_thread(); i < n; i += np_stride()) {
        const point at = point_at<ACT>(np_get(x[i]), a);

        np_put(&y[i], dy ? np_get(dy[i]) * at.slope : at.y);
    }
}

template <int ACT>
static void run(void *stream, enum np_cuda_dtype dtype, const void *dy, const void *x, float a,
    void *y, uint64_t n)
{
    bool wide = np_aligned(dy) && np_aligned(x) && np_aligned(y);

    NP_FOR_DTYPE(dtype, T, {
        const int wide_n = np_width<T>::n;

        if (wide)
            NP_LAUNCH((act<T, ACT, wide_n>), np_blocks(n / wide_n), NP_THREADS, 0, stream,
                (const T *)dy, (const T *)x, a, (T *)y, n);
        else
            NP_LAUNCH((act<T, ACT, 1>), np_blocks(n), NP_THREADS, 0, stream, (const T *)dy,
                (const T *)x, a, (T *)y, n);
    });
}

extern "C" void np_cuda_act_dgrad(void *stream, enum np_cuda_dtype dtype, int act, float slope,
    const void *dy, const void *x, void *dx, uint64_t n)
{
    typedef void (*run_fn)(
        void *, enum np_cuda_dtype, const void *, const void *, float, void *, uint64_t);
    static const run_fn runs[NP_NR_ACTS] = {
        run<0>, run<1>, run<2>, run<3>, run<4>, run<5>, run<6>, run<7>, run<8>};

    runs[act](stream, dtype, dy, x, slope, dx, n);
}

extern "C" void np_cuda_act(void *stream, enum np_cuda_dtype dtype, int act, float slope,
    const void *x, void *y, uint64_t n)
{
    np_cuda_act_dgrad(stream, dtype, act, slope, NULL, x, y, n);
}
