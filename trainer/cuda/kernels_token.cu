/* Normalisation of a row alone, scale, positions and tokens. A warp normalises a pixel's channels, a
 * block a group of a picture's; both read their elements again for each sum, from the caches. */
#include "trainer/cuda/kernels_half.cuh"

#define WARP  32
#define WARPS (NP_THREADS / WARP)

/* --- layernorm, groupnorm -------------------------------------------------------------------- */

/* The sum over a warp, or over a block of NP_THREADS; all its threads get it. */
template <int THREADS> static __device__ inline float sum_all(float x)
{
    NP_SHARED(float, parts, [WARPS]);

    for (int bits = WARP / 2; bits > 0; bits /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, bits);
    if (THREADS == WARP)
        return x;
    __syncthreads(); /* the parts of the sum before have been read */
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < WARPS; w++)
        x += parts[w];
    return x;
}

/* The elements of a set, one after the other, for THREADS threads. */
struct set {
    uint64_t first;
    int channel, n; /* of the first element; elements */
};

template <int THREADS> static __device__ inline set set_of(const np_cuda_row_norm &norm, uint64_t i)
{
    if (THREADS == WARP)
        return {i * norm.c, 0, norm.c};
    int width = norm.c / norm.groups, at = (int)(i % norm.groups) * width;

    return {i / norm.groups * norm.hw * norm.c + at, at, width * norm.hw};
}

/* Element e's place, and its channel. */
template <int THREADS>
static __device__ inline uint64_t element_of(
    const np_cuda_row_norm &norm, const set &s, int e, int *ret_channel)
{
    int width = norm.c / (norm.groups ? norm.groups : 1);

    *ret_channel = THREADS == WARP ? e : s.channel + e % width;
    return THREADS == WARP ? s.first + e : s.first + (uint64_t)(e / width) * norm.c + e % width;
}

struct moments {
    float mean, inv_std;
};

template <typename T, int THREADS>
static __device__ inline moments moments_of(
    const np_cuda_row_norm &norm, const T *x, const set &s, int thread)
{
    float sum = 0, squares = 0;
    int c;

    for (int e = thread; e < s.n; e += THREADS)
        sum += np_get(x[element_of<THREADS>(norm, s, e, &c)]);
    float mean = sum_all<THREADS>(sum) / (float)s.n;
    for (int e = thread; e < s.n; e += THREADS) {
        float d = np_get(x[element_of<THREADS>(norm, s, e, &c)]) - mean;

        squares += d * d;
    }
    double var = (double)(sum_all<THREADS>(squares) / (float)s.n);
    return {mean, (float)(1 / sqrt(var + norm.eps))};
}

/* The set of these threads; a warp without one ends. */
template <int THREADS> static __device__ inline uint64_t own_set(void)
{
    return THREADS == WARP ? (uint64_t)blockIdx.x * WARPS + threadIdx.x / WARP : blockIdx.x;
}

template <typename T, int THREADS>
static __global__ void normalise(np_cuda_row_norm norm, const T *x, T *y, uint64_t sets)
{
    uint64_t i = own_set<THREADS>();

    if (i >= sets)
        return;
    const set s = set_of<THREADS>(norm, i);
    const int thread = threadIdx.x % THREADS;
    const moments m = moments_of<T, THREADS>(norm, x, s, thread);

    for (int e = thread; e < s.n; e += THREADS) {
        int c;
        uint64_t at = element_of<THREADS>(norm, s, e, &c);

        np_put(&y[at], (np_get(x[at]) - m.mean) * m.inv_std * norm.gamma[c] + norm.beta[c]);
    }
}

/* to: (sets) of mean and inv_std. */
template <typename T, int THREADS>
static __global__ void keep_moments(np_cuda_row_norm norm, const T *x, moments *to, uint64_t sets)
{
    uint64_t i = own_set<THREADS>();

    if (i >= sets)
        return;
    const moments m =
        moments_of<T, THREADS>(norm, x, set_of<THREADS>(norm, i), threadIdx.x % THREADS);

    if (threadIdx.x % THREADS == 0)
        to[i] = m;
}

/* dx may be dy: all of a set is summed before any of it is written. */
template <typename T, int THREADS>
static __global__ void normalise_back(
    np_cuda_row_norm norm, const T *dy, const T *x, T *dx, uint64_t sets)
{
    uint64_t i = own_set<THREADS>();
    float sum = 0, product = 0;
    int c;

    if (i >= sets)
        return;
    const set s = set_of<THREADS>(norm, i);
    const int thread = threadIdx.x % THREADS;
    const moments m = moments_of<T, THREADS>(norm, x, s, thread);

    for (int e = thread; e < s.n; e += THREADS) {
        uint64_t at = element_of<THREADS>(norm, s, e, &c);
        float g = np_get(dy[at]) * norm.gamma[c];

        sum += g;
        product += g * ((np_get(x[at]) - m.mean) * m.inv_std);
    }
    sum = sum_all<THREADS>(sum) / (float)s.n;
    product = sum_all<THREADS>(product) / (float)s.n;
    for (int e = thread; e < s.n; e += THREADS) {
        uint64_t at = element_of<THREADS>(norm, s, e, &c);
        float x_hat = (np_get(x[at]) - m.mean) * m.inv_std;

        np_put(&dx[at], m.inv_std * (np_get(dy[at]) * norm.gamma[c] - sum - x_hat * product));
    }
}

static uint64_t nr_sets(const np_cuda_row_norm *norm)
{
    return (uint64_t)norm->n * (norm->groups ? norm->groups : norm->hw);
}

static int warps_for(uint64_t sets)
{
    return (int)((sets + WARPS - 1) / WARPS);
}

/* One block for each set, or one warp. */
#define LAUNCH_SETS(kernel, T, norm, ...)                                                          \
    do {                                                                                           \
        if ((norm)->groups)                                                                        \
            NP_LAUNCH((kernel<T, NP_THREADS>), (int)nr_sets(norm), NP_THREADS, 0, stream, *(norm), \
                __VA_ARGS__, nr_sets(norm));                                                       \
        else                                                                                       \
            NP_LAUNCH((kernel<T, WARP>), warps_for(nr_sets(norm)), NP_THREADS, 0, stream, *(norm), \
                __VA_ARGS__, nr_sets(norm));                                                       \
    } while (0)

extern "C" void np_cuda_normalise(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_row_norm *norm, const void *x, void *y)
{
    NP_FOR_DTYPE(dtype, T, LAUNCH_SETS(normalise, T, norm, (const T *)x, (T *)y));
}

extern "C" void np_cuda_norm_moments(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_row_norm *norm, const void *x, float *to)
{
    NP_FOR_DTYPE(dtype, T, LAUNCH_SETS(keep_moments, T, norm, (const T *)x, (moments *)to));
}

extern "C" void np_cuda_norm_dgrad(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_row_norm *norm, const void *dy, const void *x, void *dx)
{
    NP_FOR_DTYPE(
        dtype, T, LAUNCH_SETS(normalise_back, T, norm, (const T *)dy, (const T *)x, (T *)dx));
}

/* --- scale, position ------------------------------------------------------------------------- */

/* y = x * values or x + values, which repeat after `period` elements. */
template <typename T, bool TIMES>
static __global__ void with_values(
    const T *x, const float *values, T *y, uint64_t period, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        float value = values[i % period], in = np_get(x[i]);

        np_put(&y[i], TIMES ? in * value : in + value);
    }
}

extern "C" void np_cuda_scale(void *stream, enum np_cuda_dtype dtype, const void *x,
    const float *gamma, void *y, uint64_t rows, int c)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH((with_values<T, true>), np_blocks(rows * c), NP_THREADS, 0, stream, (const T *)x,
            gamma, (T *)y, (uint64_t)c, rows * c));
}

extern "C" void np_cuda_position(void *stream, enum np_cuda_dtype dtype, const void *x,
    const float *position, void *y, uint64_t n, uint64_t row)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH((with_values<T, false>), np_blocks(n * row), NP_THREADS, 0, stream, (const T *)x,
            position, (T *)y, row, n * row));
}

/* --- tokens ---------------------------------------------------------------------------------- */

/* y (n, to): elements `first`.. of x (n, from); before and behind x's: those of before, or 0. */
template <typename T>
static __global__ void shift(
    const T *x, const float *before, T *y, uint64_t from, uint64_t to, int64_t first, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        uint64_t row = i / to;
        int64_t at = (int64_t)(i % to) + first;

        if (at >= 0 && at < (int64_t)from)
            y[i] = x[row * from + at];
        else
            np_put(&y[i], before ? before[i % to] : 0.0f);
    }
}

extern "C" void np_cuda_shift(void *stream, enum np_cuda_dtype dtype, const void *x,
    const float *before, void *y, int n, uint64_t from, uint64_t to, int64_t first)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(shift<T>, np_blocks(n * to), NP_THREADS, 0, stream, (const T *)x, before, (T *)y,
            from, to, first, n * to));
}

/* One thread per element: rows in their order. */
template <typename T>
static __global__ void rows_sum(const T *dy, float *sum, int rows, uint64_t row, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        double all = 0;

        for (int r = 0; r < rows; r++)
            all += (double)np_get(dy[r * row + i]);
        sum[i] = (float)all;
    }
}

extern "C" void np_cuda_rows_sum(void *stream, enum np_cuda_dtype dtype, const void *dy, float *sum,
    int rows, uint64_t row, uint64_t n)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(
            rows_sum<T>, np_blocks(n), NP_THREADS, 0, stream, (const T *)dy, sum, rows, row, n));
}
