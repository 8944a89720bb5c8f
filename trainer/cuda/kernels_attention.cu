/* Attention without the matrix of weights in memory (Dao et al., arXiv:2205.14135): a warp has some
 * queries, goes over the keys a tile at a time, and rescales its sums when a larger weight comes.
 * The backward pass computes the weights again, once by queries (dq), once by keys (dk, dv): sums
 * in one fixed order, without atomics. All products in f32. */
#include "trainer/cuda/kernels_half.cuh"

#include <math.h>

#define WARP    32
#define TILE    32 /* tokens in shared memory: one for each lane of a warp */
#define WARPS   4
#define OWN     4              /* tokens of a warp */
#define BLOCK   (WARPS * OWN)  /* tokens of a block */
#define THREADS (WARPS * WARP) /* four such blocks a multiprocessor: 128 registers a thread */

/* A block's place: a head of a row, and its first own token. D: the head's channels, padded to a
 * multiple of 32. */
template <typename T> struct head {
    const T *x, *dy; /* of the row: the head's query at token 0; its dy */
    T *dx, *y;
    uint64_t stats; /* of token 0 */
    int first;
};

template <typename T>
static __device__ inline head<T> head_of(
    const np_cuda_attention &a, const T *x, const T *dy, T *y, T *dx)
{
    const uint64_t c = (uint64_t)a.heads * a.width;
    const uint64_t row = blockIdx.y / a.heads, channel = blockIdx.y % a.heads * a.width;
    const uint64_t at = row * a.tokens * c + channel, wide = row * a.tokens * 3 * c + channel;

    return {x + wide, dy ? dy + at : dy, dx ? dx + wide : dx, y ? y + at : y,
        (uint64_t)blockIdx.y * a.tokens, (int)blockIdx.x * BLOCK};
}

/* Loads `rows` tokens from token `first` on; what lies outside becomes 0. All threads of a block. */
template <typename T, int D>
static __device__ inline void load(const np_cuda_attention &a, const T *from, uint64_t pitch,
    int first, int rows, float (*to)[D + 1])
{
    for (int i = threadIdx.x; i < rows * D; i += THREADS) {
        int token = first + i / D, k = i % D;

        to[i / D][k] = token < a.tokens && k < a.width ? np_get(from[token * pitch + k]) : 0.0f;
    }
}

/* dots[r] = own token r times the lane's token of the tile. */
template <int D>
static __device__ inline void multiply(
    const float (*own)[D + 1], const float (*tile)[D + 1], float dots[OWN])
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

    for (int r = 0; r < OWN; r++)
        dots[r] = 0;
    for (int k = 0; k < D; k++) {
        float other = tile[lane][k];

        for (int r = 0; r < OWN; r++)
            dots[r] += own[warp * OWN + r][k] * other;
    }
}

/* sums[r] += the tile's tokens, each times its lane's weight; a lane has channels lane, lane + 32.. */
template <int D>
static __device__ inline void add_weighted(
    const float weights[OWN], const float (*tile)[D + 1], float (*sums)[D / WARP])
{
    const int lane = threadIdx.x % WARP;

    for (int t = 0; t < TILE; t++)
        for (int r = 0; r < OWN; r++) {
            float weight = __shfl_sync(0xffffffffu, weights[r], t);

            for (int j = 0; j < D / WARP; j++)
                sums[r][j] += weight * tile[t][j * WARP + lane];
        }
}

template <typename T, int D>
static __device__ inline void store(const np_cuda_attention &a, T *to, uint64_t pitch, int first,
    const float (*sums)[D / WARP], const float factors[OWN])
{
    const int lane = threadIdx.x % WARP;

    for (int r = 0; r < OWN; r++)
        for (int j = 0; j < D / WARP; j++) {
            int token = first + threadIdx.x / WARP * OWN + r, k = j * WARP + lane;

            if (token < a.tokens && k < a.width)
                np_put(&to[token * pitch + k], sums[r][j] * factors[r]);
        }
}

static __device__ inline float sum_warp(float x)
{
    for (int bits = WARP / 2; bits > 0; bits /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, bits);
    return x;
}

static __device__ inline float max_warp(float x)
{
    for (int bits = WARP / 2; bits > 0; bits /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, bits));
    return x;
}

/* The running softmax of own queries. */
struct softmax {
    float max[OWN], sum[OWN];
};

/* Scores become weights relative to the largest so far; shrink: the factor of earlier sums. */
static __device__ inline void weigh(
    softmax *s, float scores[OWN], float scale, bool inside, float shrink[OWN])
{
    for (int r = 0; r < OWN; r++) {
        float score = inside ? scores[r] * scale : -INFINITY;
        float max = fmaxf(s->max[r], max_warp(score));

        shrink[r] = expf(s->max[r] - max);
        scores[r] = expf(score - max);
        s->sum[r] = s->sum[r] * shrink[r] + sum_warp(scores[r]);
        s->max[r] = max;
    }
}

static __device__ inline void start(softmax *s)
{
    for (int r = 0; r < OWN; r++) {
        s->max[r] = -INFINITY;
        s->sum[r] = 0;
    }
}

/* --- forward --------------------------------------------------------------------------------- */

/* Grid: (blocks of queries, rows * heads). */
template <typename T, int D>
static __global__ void __launch_bounds__(THREADS, 4) attend(np_cuda_attention a, const T *x, T *y)
{
    NP_SHARED(float, own, [BLOCK][D + 1]);
    NP_SHARED(float, tile, [TILE][D + 1]);
    const head<T> h = head_of<T>(a, x, (const T *)NULL, y, (T *)NULL);
    const uint64_t c = (uint64_t)a.heads * a.width;
    float sums[OWN][D / WARP] = {{0}}, weights[OWN], shrink[OWN], factors[OWN];
    softmax s;

    start(&s);
    load<T, D>(a, h.x, 3 * c, h.first, BLOCK, own);
    for (int t = 0; t < a.tokens; t += TILE) {
        __syncthreads();
        load<T, D>(a, h.x + c, 3 * c, t, TILE, tile);
        __syncthreads();
        multiply<D>(own, tile, weights);
        weigh(&s, weights, a.scale, t + (int)(threadIdx.x % WARP) < a.tokens, shrink);
        __syncthreads();
        load<T, D>(a, h.x + 2 * c, 3 * c, t, TILE, tile);
        __syncthreads();
        for (int r = 0; r < OWN; r++)
            for (int j = 0; j < D / WARP; j++)
                sums[r][j] *= shrink[r];
        add_weighted<D>(weights, tile, sums);
    }
    for (int r = 0; r < OWN; r++)
        factors[r] = 1 / s.sum[r];
    store<T, D>(a, h.y, c, h.first, sums, factors);
}

/* --- backward -------------------------------------------------------------------------------- */

/* dq, and for each query: the logarithm of its sum of exponentials, and the mean of dp under p. dq
 * = sum of p (dp - mean) k, where the mean is known at the end: the sums of p dp k and of p k. */
template <typename T, int D>
static __global__ void __launch_bounds__(THREADS, 4)
    attend_back_queries(np_cuda_attention a, const T *dy, const T *x, T *dx, float *stats)
{
    NP_SHARED(float, own, [BLOCK][D + 1]);
    NP_SHARED(float, own_dy, [BLOCK][D + 1]);
    NP_SHARED(float, tile, [TILE][D + 1]);
    const head<T> h = head_of<T>(a, x, dy, (T *)NULL, dx);
    const uint64_t c = (uint64_t)a.heads * a.width;
    const int lane = threadIdx.x % WARP;
    float sums[OWN][D / WARP] = {{0}}, plain[OWN][D / WARP] = {{0}}, p[OWN], dp[OWN], shrink[OWN];
    float mean[OWN] = {0}, factors[OWN];
    softmax s;

    start(&s);
    load<T, D>(a, h.x, 3 * c, h.first, BLOCK, own);
    load<T, D>(a, h.dy, c, h.first, BLOCK, own_dy);
    for (int t = 0; t < a.tokens; t += TILE) {
        __syncthreads();
        load<T, D>(a, h.x + 2 * c, 3 * c, t, TILE, tile);
        __syncthreads();
        multiply<D>(own_dy, tile, dp);
        __syncthreads();
        load<T, D>(a, h.x + c, 3 * c, t, TILE, tile);
        __syncthreads();
        multiply<D>(own, tile, p);
        weigh(&s, p, a.scale, t + lane < a.tokens, shrink);
        for (int r = 0; r < OWN; r++) {
            dp[r] *= p[r];
            mean[r] = mean[r] * shrink[r] + sum_warp(dp[r]);
            for (int j = 0; j < D / WARP; j++) {
                sums[r][j] *= shrink[r];
                plain[r][j] *= shrink[r];
            }
        }
        add_weighted<D>(dp, tile, sums);
        add_weighted<D>(p, tile, plain);
    }
    for (int r = 0; r < OWN; r++) {
        int token = h.first + threadIdx.x / WARP * OWN + r;

        mean[r] /= s.sum[r];
        factors[r] = a.scale / s.sum[r];
        for (int j = 0; j < D / WARP; j++)
            sums[r][j] -= mean[r] * plain[r][j];
        if (lane == 0 && token < a.tokens) {
            stats[2 * (h.stats + token)] = s.max[r] + logf(s.sum[r]);
            stats[2 * (h.stats + token) + 1] = mean[r];
        }
    }
    store<T, D>(a, h.dx, 3 * c, h.first, sums, factors);
}

/* dk = sum of p (dp - mean) q, dv = sum of p dy, over the queries. */
template <typename T, int D>
static __global__ void __launch_bounds__(THREADS, 4)
    attend_back_keys(np_cuda_attention a, const T *dy, const T *x, T *dx, const float *stats)
{
    NP_SHARED(float, own, [BLOCK][D + 1]);
    NP_SHARED(float, own_value, [BLOCK][D + 1]);
    NP_SHARED(float, tile, [TILE][D + 1]);
    const head<T> h = head_of<T>(a, x, dy, (T *)NULL, dx);
    const uint64_t c = (uint64_t)a.heads * a.width;
    float dk[OWN][D / WARP] = {{0}}, dv[OWN][D / WARP] = {{0}}, p[OWN], ds[OWN], factors[OWN];

    load<T, D>(a, h.x + c, 3 * c, h.first, BLOCK, own);
    load<T, D>(a, h.x + 2 * c, 3 * c, h.first, BLOCK, own_value);
    for (int t = 0; t < a.tokens; t += TILE) {
        const int query = t + (int)(threadIdx.x % WARP);
        const bool inside = query < a.tokens;
        const float log_sum = inside ? stats[2 * (h.stats + query)] : 0;
        const float mean = inside ? stats[2 * (h.stats + query) + 1] : 0;

        __syncthreads();
        load<T, D>(a, h.x, 3 * c, t, TILE, tile);
        __syncthreads();
        multiply<D>(own, tile, p);
        for (int r = 0; r < OWN; r++)
            p[r] = inside ? expf(p[r] * a.scale - log_sum) : 0.0f;
        __syncthreads();
        load<T, D>(a, h.dy, c, t, TILE, tile);
        __syncthreads();
        multiply<D>(own_value, tile, ds);
        for (int r = 0; r < OWN; r++)
            ds[r] = p[r] * (ds[r] - mean);
        add_weighted<D>(p, tile, dv);
        __syncthreads();
        load<T, D>(a, h.x, 3 * c, t, TILE, tile);
        __syncthreads();
        add_weighted<D>(ds, tile, dk);
    }
    for (int r = 0; r < OWN; r++)
        factors[r] = a.scale;
    store<T, D>(a, h.dx + c, 3 * c, h.first, dk, factors);
    for (int r = 0; r < OWN; r++)
        factors[r] = 1;
    store<T, D>(a, h.dx + 2 * c, 3 * c, h.first, dv, factors);
}

/* --- launches -------------------------------------------------------------------------------- */

/* Calls f with D, a constant. */
#define FOR_WIDTH(width, D, ...)                                                                   \
    do {                                                                                           \
        if ((width) <= 32) {                                                                       \
            const int D = 32;                                                                      \
            __VA_ARGS__;                                                                           \
        } else if ((width) <= 64) {                                                                \
            const int D = 64;                                                                      \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            const int D = 128;                                                                     \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

static dim3 grid_of(const np_cuda_attention *a)
{
    return dim3((a->tokens + BLOCK - 1) / BLOCK, a->n * a->heads);
}

extern "C" void np_cuda_attend(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_attention *a, const void *x, void *y)
{
    NP_FOR_DTYPE(dtype, T,
        FOR_WIDTH(a->width, D,
            NP_LAUNCH((attend<T, D>), grid_of(a), THREADS, 0, stream, *a, (const T *)x, (T *)y)));
}

extern "C" size_t np_cuda_attention_scratch(const np_cuda_attention *a)
{
    return (size_t)a->n * a->heads * a->tokens * 2 * sizeof(float);
}

extern "C" void np_cuda_attend_back(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_attention *a, const void *dy, const void *x, void *dx, void *scratch)
{
    NP_FOR_DTYPE(dtype, T, FOR_WIDTH(a->width, D, {
        NP_LAUNCH((attend_back_queries<T, D>), grid_of(a), THREADS, 0, stream, *a, (const T *)dy,
            (const T *)x, (T *)dx, (float *)scratch);
        NP_LAUNCH((attend_back_keys<T, D>), grid_of(a), THREADS, 0, stream, *a, (const T *)dy,
            (const T *)x, (T *)dx, (const float *)scratch);
    }));
}
