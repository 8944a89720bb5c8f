/* Elements of activations: read as f32, written rounded once; 16 bytes at a time where pointers and
 * counts allow. Shared by the plugin's .cu files. */
#ifndef NP_KERNELS_HALF_CUH
#define NP_KERNELS_HALF_CUH

#include "trainer/cuda/kernels_cuda.h"
#include "trainer/cuda/launch.h"

static __device__ inline float np_get(float x)
{
    return x;
}
static __device__ inline float np_get(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __device__ inline float np_get(__half x)
{
    return __half2float(x);
}
static __device__ inline void np_put(float *to, float x)
{
    *to = x;
}
static __device__ inline void np_put(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}
static __device__ inline void np_put(__half *to, float x)
{
    *to = __float2half_rn(x);
}

/* N adjacent elements, moved as one. */
template <typename T, int N> struct alignas(sizeof(T) * N) np_pack {
    T v[N];
};

/* Calls f<T>() for the type of dtype. */
#define NP_FOR_DTYPE(dtype, T, ...)                                                                \
    do {                                                                                           \
        if ((dtype) == NP_CUDA_F32) {                                                              \
            typedef float T;                                                                       \
            __VA_ARGS__;                                                                           \
        } else if ((dtype) == NP_CUDA_BF16) {                                                      \
            typedef __nv_bfloat16 T;                                                               \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            typedef __half T;                                                                      \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Elements of 16 bytes. */
template <typename T> struct np_width {
    static const int n = 16 / (int)sizeof(T);
};

static inline bool np_aligned(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

#define NP_THREADS    256
#define NP_MAX_BLOCKS 4096 /* of a pointwise kernel; threads loop over the rest */

static inline int np_blocks(uint64_t items)
{
    uint64_t blocks = (items + NP_THREADS - 1) / NP_THREADS;

    return blocks < 1 ? 1 : blocks > NP_MAX_BLOCKS ? NP_MAX_BLOCKS : (int)blocks;
}

static __device__ inline uint64_t np_thread(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ inline uint64_t np_stride(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

static __device__ inline float np_relu(float x)
{
    return x < 0 ? 0 : x; /* a NaN stays */
}

/* dy where the relu after it was positive. */
template <typename T>
static __device__ inline float np_masked(
    const T *dy, const T *y, bool relu, uint64_t i, float x_hat, float gamma, float beta)
{
    float d = np_get(dy[i]);

    if (!relu)
        return d;
    return (y ? np_get(y[i]) : x_hat * gamma + beta) > 0 ? d : 0.0f;
}

#endif
