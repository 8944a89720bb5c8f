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

/* N adjacent elements, moved as one, or 16 bytes at a time: np_aligned() promises no more. */
template <typename T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) np_pack {
    T v[N];
};

/* The words that a pack is loaded as; int: as itself. */
template <int BYTES> struct np_words {
    typedef int type;
};
template <> struct np_words<8> {
    typedef uint2 type;
};
template <> struct np_words<16> {
    typedef uint4 type;
};

/* A pack as it was loaded. A kernel that loads several opens them afterwards: taking halves out of a
 * register waits for its load, and a compiler does so at once. */
template <typename P, int BYTES = sizeof(P) % 16 == 0 ? 16
                                  : sizeof(P) == 8    ? 8
                                                      : 0>
struct np_loaded {
    typename np_words<BYTES>::type words[sizeof(P) / BYTES];
};
template <typename P> struct np_loaded<P, 0> {
    P pack;
};

template <typename P> static __device__ inline np_loaded<P> np_load(const P *from)
{
    np_loaded<P> raw;

    if constexpr (sizeof(P) % 8 == 0) {
        NP_UNROLL(2)
        for (int i = 0; i < (int)(sizeof(P) / sizeof(raw.words[0])); i++)
            raw.words[i] = ((const typename np_words<sizeof(raw.words[0])>::type *)from)[i];
    } else {
        raw.pack = *from;
    }
    return raw;
}

/* The same for what no kernel reads again soon, so that the cache keeps others. */
template <typename P> static __device__ inline np_loaded<P> np_load_last(const P *from)
{
    np_loaded<P> raw;

    if constexpr (sizeof(P) % 8 == 0) {
        NP_UNROLL(2)
        for (int i = 0; i < (int)(sizeof(P) / sizeof(raw.words[0])); i++)
            raw.words[i] = __ldcs((const typename np_words<sizeof(raw.words[0])>::type *)from + i);
    } else {
        raw.pack = *from;
    }
    return raw;
}

template <typename P> static __device__ inline P np_open(const np_loaded<P> &raw)
{
    P pack;

    memcpy(&pack, &raw, sizeof(P));
    return pack;
}

template <typename P> static __device__ inline P np_load_once(const P *from)
{
    return np_open<P>(np_load_last(from));
}

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

#define NP_THREADS 256
#ifdef __CUDACC__
#define NP_MAX_BLOCKS 4096 /* of a pointwise kernel; threads loop over the rest */
#else
#define NP_MAX_BLOCKS 2 /* emulated: so that threads loop in small tests too */
#endif

static inline int np_blocks(uint64_t items)
{
    uint64_t blocks = (items + NP_THREADS - 1) / NP_THREADS;

    return blocks < 1 ? 1 : blocks > NP_MAX_BLOCKS ? NP_MAX_BLOCKS : (int)blocks;
}

/* Threads whose elements are packs of `packs` a row: each thread has `each` of them or more, all at
 * the same place of a row, so that it keeps that place's channels in registers. */
static inline int np_row_blocks(uint64_t items, uint64_t packs, int each)
{
    uint64_t blocks = np_blocks((items + each - 1) / each), unit = packs;

    for (int i = NP_THREADS; i > 1 && unit % 2 == 0; i /= 2)
        unit /= 2;
    return (int)((blocks + unit - 1) / unit * unit);
}

static __device__ inline uint64_t np_thread(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ inline uint64_t np_stride(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* i / by; in 32 bits if possible: a division in 64 takes longer than the rest of most kernels. */
static __device__ inline uint64_t np_quotient(uint64_t i, int by)
{
    return i >> 32 ? i / (uint64_t)by : (uint32_t)i / (uint32_t)by;
}

static __device__ inline float np_relu(float x)
{
    return x < 0 ? 0 : x; /* a NaN stays */
}

/* True in all threads of the block that is the last of nr to come here; it sees what the others wrote
 * to global memory before. *arrived is 0 before and after. */
static __device__ inline bool np_last_of(unsigned *arrived, unsigned nr)
{
    NP_SHARED(unsigned, last, [1]);

    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); /* of what the barrier has shown it, too */
        last[0] = atomicAdd(arrived, 1u) == nr - 1;
        if (last[0])
            *arrived = 0;
        __threadfence();
    }
    __syncthreads();
    return last[0] != 0;
}

/* A sum of floats and what its roundings lost (Knuth's two-sum): as good as double for some hundred
 * summands, and as fast on GPUs that have few units for double. */
struct np_exact {
    float sum, lost;
};

static __device__ inline void np_add(np_exact *to, float x)
{
    float sum = to->sum + x, part = sum - to->sum;

    to->lost += (to->sum - (sum - part)) + (x - part);
    to->sum = sum;
}

#endif
