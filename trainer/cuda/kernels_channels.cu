/* Sums over rows of (rows, c), channels adjacent, and batchnorm's results from them. Two stages,
 * both in a fixed order: a block sums its stretch of rows for up to 32 packs of channels (a
 * thread reads aligned packs of 16 bytes; neighbouring threads read the next packs, then the
 * next row), then one warp per channel adds the stretches. */
#include "trainer/cuda/kernels_half.cuh"

#define WARP      32
#define WARPS     8
#define RUN       8    /* rows in a partial sum of a thread */
#define STRETCHES 1024 /* max, over all rows */
#define MIN_ROWS  64   /* of a stretch */

/* Chooses stretches so that the grid fills the GPU and no stretch is tiny. */
static int nr_stretches(uint64_t rows)
{
    uint64_t n = (rows + MIN_ROWS - 1) / MIN_ROWS;

    return n < 1 ? 1 : n > STRETCHES ? STRETCHES : (int)n;
}

extern "C" size_t np_cuda_channel_scratch(uint64_t rows, int c)
{
    return (size_t)nr_stretches(rows) * (size_t)c * 2 * sizeof(double);
}

/* The summands: two numbers of each element, here of N adjacent elements from element i, channel
 * c, on. */
template <typename T> struct moments { /* x - shift, and its square */
    typedef T type;
    static const int at_once = 4; /* rows that are loaded together */
    const T *x;
    const float *shift; /* (c): values near the mean, so that squares stay small */

    bool wide(void) const
    {
        return np_aligned(x);
    }
    template <int N> __device__ void add(uint64_t i, int c, float *a, float *b) const
    {
        np_pack<T, N> in = *(const np_pack<T, N> *)(x + i);

        for (int k = 0; k < N; k++) {
            float v = np_get(in.v[k]) - shift[c + k];

            a[k] += v;
            b[k] += v * v;
        }
    }
};
template <typename T> struct only_sum {
    typedef T type;
    static const int at_once = 4;
    const T *x;

    bool wide(void) const
    {
        return np_aligned(x);
    }
    template <int N> __device__ void add(uint64_t i, int, float *a, float *) const
    {
        np_pack<T, N> in = *(const np_pack<T, N> *)(x + i);

        for (int k = 0; k < N; k++)
            a[k] += np_get(in.v[k]);
    }
};
template <typename T> struct bn_sums { /* dy x_hat, dy */
    typedef T type;
    static const int at_once = 2; /* three arrays: more would spill registers */
    const T *dy, *x, *y;
    const float *mean, *inv_std, *gamma, *beta;
    bool relu;

    bool wide(void) const
    {
        return np_aligned(dy) && np_aligned(x) && np_aligned(y);
    }
    template <int N> __device__ void add(uint64_t i, int c, float *a, float *b) const
    {
        typedef np_pack<T, N> pack;
        pack d = *(const pack *)(dy + i), in = *(const pack *)(x + i), out = d;

        if (y)
            out = *(const pack *)(y + i);
        for (int k = 0; k < N; k++) {
            float x_hat = (np_get(in.v[k]) - mean[c + k]) * inv_std[c + k];
            float g = np_masked(
                d.v, y ? out.v : (const T *)NULL, relu, k, x_hat, gamma[c + k], beta[c + k]);

            a[k] += g * x_hat;
            b[k] += g;
        }
    }
};

template <typename T> struct products { /* x dy */
    typedef T type;
    static const int at_once = 2; /* 4 spill registers on sm_80 */
    const T *x, *dy;

    bool wide(void) const
    {
        return np_aligned(x) && np_aligned(dy);
    }
    template <int N> __device__ void add(uint64_t i, int, float *a, float *) const
    {
        np_pack<T, N> in = *(const np_pack<T, N> *)(x + i), d = *(const np_pack<T, N> *)(dy + i);

        for (int k = 0; k < N; k++)
            a[k] += np_get(in.v[k]) * np_get(d.v[k]);
    }
};
template <typename T> struct norm_sums { /* dy x_hat, dy */
    typedef T type;
    static const int at_once = 2;
    const T *x, *dy;
    const float *moments; /* mean and inv_std of each pixel, or of each group of a row */
    int hw, c, groups;    /* groups 0: of each pixel */

    bool wide(void) const
    {
        return np_aligned(x) && np_aligned(dy);
    }
    template <int N> __device__ void add(uint64_t i, int channel, float *a, float *b) const
    {
        np_pack<T, N> in = *(const np_pack<T, N> *)(x + i), d = *(const np_pack<T, N> *)(dy + i);
        uint64_t pixel = i / c;

        for (int k = 0; k < N; k++) {
            uint64_t set = groups ? pixel / hw * groups + (channel + k) / (c / groups) : pixel;
            float g = np_get(d.v[k]);

            a[k] += g * (np_get(in.v[k]) - moments[2 * set]) * moments[2 * set + 1];
            b[k] += g;
        }
    }
};

typedef np_pack<double, 2> pair;

/* A thread's sums over its rows of a stretch, f32 in two levels, so that no sum has many
 * summands. */
template <typename S, int N>
static __device__ inline void sum_own(
    const S &source, uint64_t row, uint64_t end, int turns, int c, int channel, float *a, float *b)
{
    for (; row < end; row += (uint64_t)turns * RUN) {
        float run_a[N] = {0}, run_b[N] = {0};

        if (row + (uint64_t)turns * (RUN - 1) < end) {
            NP_UNROLL(S::at_once)
            for (int k = 0; k < RUN; k++)
                source.template add<N>(
                    (row + (uint64_t)k * turns) * c + channel, channel, run_a, run_b);
        } else {
            NP_UNROLL(1)
            for (uint64_t r = row; r < end; r += turns)
                source.template add<N>(r * c + channel, channel, run_a, run_b);
        }
        for (int k = 0; k < N; k++) {
            a[k] += run_a[k];
            b[k] += run_b[k];
        }
    }
}

/* Grid: (stretches, packs / lanes); block: lanes (a power of two, over a row's packs) x turns
 * (over rows). The threads' sums are added up in double. */
template <typename S, int N>
static __global__ void __launch_bounds__(WARP *WARPS)
    sum_stretch(S source, uint64_t rows, int c, int per_stretch, int lanes, double *partial)
{
    NP_SHARED(float, sums, [WARP * WARPS][N][2]);
    int lane = threadIdx.x & (lanes - 1), turn = threadIdx.x / lanes, turns = WARP * WARPS / lanes;
    int channel = (blockIdx.y * lanes + lane) * N;
    uint64_t first = (uint64_t)blockIdx.x * per_stretch, end = first + per_stretch;
    float a[N] = {0}, b[N] = {0};

    if (channel < c)
        sum_own<S, N>(source, first + turn, end < rows ? end : rows, turns, c, channel, a, b);
    for (int k = 0; k < N; k++) {
        sums[threadIdx.x][k][0] = a[k];
        sums[threadIdx.x][k][1] = b[k];
    }
    __syncthreads();
    channel = blockIdx.y * lanes * N + threadIdx.x; /* now one thread per channel */
    if (threadIdx.x >= (unsigned)(lanes * N) || channel >= c)
        return;
    pair sum = {{0, 0}};
    for (int t = 0; t < turns; t++) {
        sum.v[0] += sums[t * lanes + threadIdx.x / N][threadIdx.x % N][0];
        sum.v[1] += sums[t * lanes + threadIdx.x / N][threadIdx.x % N][1];
    }
    ((pair *)partial)[(uint64_t)blockIdx.x * c + channel] = sum;
}

/* A warp per channel; all its lanes get the sums. */
static __device__ inline void add_stretches(
    const double *partial, int nr, int c, int channel, double *a, double *b)
{
    double sum_a = 0, sum_b = 0;

    NP_UNROLL(4)
    for (int s = threadIdx.x % WARP; s < nr; s += WARP) {
        pair part = ((const pair *)partial)[(uint64_t)s * c + channel];

        sum_a += part.v[0];
        sum_b += part.v[1];
    }
    for (int bits = WARP / 2; bits > 0; bits /= 2) {
        sum_a += __shfl_xor_sync(0xffffffffu, sum_a, bits);
        sum_b += __shfl_xor_sync(0xffffffffu, sum_b, bits);
    }
    *a = sum_a;
    *b = sum_b;
}

static __global__ void finish_sums(
    const double *partial, int nr, int c, float *first, float *second)
{
    int channel = blockIdx.x * WARPS + threadIdx.x / WARP;
    double a, b;

    if (channel >= c)
        return;
    add_stretches(partial, nr, c, channel, &a, &b);
    if (threadIdx.x % WARP == 0) {
        first[channel] = (float)a;
        if (second)
            second[channel] = (float)b;
    }
}

template <typename S, int N>
static void sum_packs(
    void *stream, const S &source, uint64_t rows, int c, int nr, int per, double *partial)
{
    int packs = c / N, lanes = 1;

    while (lanes < packs && lanes < WARP)
        lanes *= 2;
    NP_LAUNCH((sum_stretch<S, N>), dim3(nr, (packs + lanes - 1) / lanes), WARP * WARPS, 0, stream,
        source, rows, c, per, lanes, partial);
}

/* Returns the number of stretches whose sums are in scratch, (stretches, c, 2). */
template <typename S>
static int sum_rows(void *stream, const S &source, uint64_t rows, int c, void *scratch)
{
    const int wide = np_width<typename S::type>::n;
    int nr = nr_stretches(rows), per = (int)((rows + nr - 1) / nr);

    nr = (int)((rows + per - 1) / per);
    if (c % wide == 0 && source.wide())
        sum_packs<S, wide>(stream, source, rows, c, nr, per, (double *)scratch);
    else
        sum_packs<S, 1>(stream, source, rows, c, nr, per, (double *)scratch);
    return nr;
}

static int warps_for(int c)
{
    return (c + WARPS - 1) / WARPS;
}

extern "C" void np_cuda_bias_grad(void *stream, enum np_cuda_dtype dtype, const void *dy,
    float *dbias, uint64_t rows, int c, void *scratch)
{
    int nr = 0;

    NP_FOR_DTYPE(dtype, T, {
        only_sum<T> source = {(const T *)dy};

        nr = sum_rows(stream, source, rows, c, scratch);
    });
    NP_LAUNCH(finish_sums, warps_for(c), WARP * WARPS, 0, stream, (const double *)scratch, nr, c,
        dbias, (float *)NULL);
}

/* --- batchnorm, forward ---------------------------------------------------------------------- */

/* One thread per channel: stores mean and (biased) variance of the batch. */
static __device__ inline void put_stats(
    const np_cuda_stats &to, int channel, double mean, double var)
{
    double n = (double)to.rows;
    float m = (float)mean;

    if (to.thaw > 0 && to.step->step < to.thaw) {
        to.mean[channel] = to.running_mean[channel];
        to.inv_std[channel] = (float)(1 / sqrt((double)to.running_var[channel] + to.eps));
        return;
    }
    var = var > 0 ? var : var == var ? 0 : var; /* rounding; a NaN stays */
    to.mean[channel] = m;
    to.inv_std[channel] = (float)(1 / sqrt(var + to.eps));
    to.running_mean[channel] += (float)to.momentum * (m - to.running_mean[channel]);
    var = to.rows > 1 ? var * n / (n - 1) : var;
    to.running_var[channel] += (float)to.momentum * ((float)var - to.running_var[channel]);
}

/* Sums are of x - running_mean, which approaches the mean, so that squares lose no precision.
 * The variance is that of the shifted values: E[v^2] - E[v]^2. */
static __global__ void finish_stats(const double *partial, int nr, np_cuda_stats to)
{
    int channel = blockIdx.x * WARPS + threadIdx.x / WARP;
    double sum, squares;

    if (channel >= to.c)
        return;
    add_stretches(partial, nr, to.c, channel, &sum, &squares);
    if (threadIdx.x % WARP != 0)
        return;
    double n = (double)to.rows, shifted = sum / n;

    put_stats(
        to, channel, shifted + (double)to.running_mean[channel], squares / n - shifted * shifted);
}

extern "C" void np_cuda_bn_stats(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_stats *stats, void *scratch)
{
    int nr = 0;

    NP_FOR_DTYPE(dtype, T, {
        moments<T> source = {(const T *)stats->x, stats->running_mean};

        nr = sum_rows(stream, source, stats->rows, stats->c, scratch);
    });
    NP_LAUNCH(finish_stats, warps_for(stats->c), WARP * WARPS, 0, stream, (const double *)scratch,
        nr, *stats);
}

/* Sums of x - shift and of its square over one column, by a block; thread 0 has them. */
template <typename T>
static __device__ inline void sum_column(
    const T *x, uint64_t rows, int c, int channel, float shift, double *a, double *b)
{
    NP_SHARED(double, parts, [WARPS][2]);
    double sum_a = 0, sum_b = 0;

    for (uint64_t row = threadIdx.x; row < rows; row += WARP * WARPS) {
        float v = np_get(x[row * c + channel]) - shift;

        sum_a += v;
        sum_b += (double)v * v;
    }
    for (int bits = WARP / 2; bits > 0; bits /= 2) {
        sum_a += __shfl_xor_sync(0xffffffffu, sum_a, bits);
        sum_b += __shfl_xor_sync(0xffffffffu, sum_b, bits);
    }
    if (threadIdx.x % WARP == 0) {
        parts[threadIdx.x / WARP][0] = sum_a;
        parts[threadIdx.x / WARP][1] = sum_b;
    }
    __syncthreads();
    *a = *b = 0;
    for (int w = 0; w < WARPS; w++) {
        *a += parts[w][0];
        *b += parts[w][1];
    }
}

/* The sums are f32, of x unshifted: if the mean is large relative to the deviation, E[x^2] -
 * E[x]^2 is mostly rounding. Up to CANCELS the variance is as precise as the halves of x;
 * beyond, the block sums the channel again around its mean. Slow, correct, and rare after a
 * convolution. */
#define CANCELS 64 /* mean^2 / variance */

template <typename T>
static __global__ void __launch_bounds__(WARP *WARPS)
    finish_sums_given(const float *sums, const float *squares, np_cuda_stats to)
{
    int channel = blockIdx.x;
    double n = (double)to.rows, mean = sums[channel] / n;
    double var = squares[channel] / n - mean * mean;

    if (var + to.eps < mean * mean / CANCELS) { /* the same in the whole block */
        double a, b;

        sum_column((const T *)to.x, to.rows, to.c, channel, (float)mean, &a, &b);
        mean = (double)(float)mean + a / n;
        var = b / n - a / n * (a / n);
    }
    if (threadIdx.x == 0)
        put_stats(to, channel, mean, var);
}

extern "C" void np_cuda_bn_stats_of_sums(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_stats *stats, const float *sums, const float *squares)
{
    NP_FOR_DTYPE(dtype, T, {
        NP_LAUNCH((finish_sums_given<T>), stats->c, WARP * WARPS, 0, stream, sums, squares, *stats);
    });
}

/* --- batchnorm, backward --------------------------------------------------------------------- */

extern "C" void np_cuda_bn_reduce(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_bn_back *back, float *dgamma, float *dbeta, void *scratch)
{
    int nr = 0;

    NP_FOR_DTYPE(dtype, T, {
        bn_sums<T> source = {(const T *)back->dy, (const T *)back->x, (const T *)back->y,
            back->mean, back->inv_std, back->gamma, back->beta, back->relu};

        nr = sum_rows(stream, source, back->rows, back->c, scratch);
    });
    NP_LAUNCH(finish_sums, warps_for(back->c), WARP * WARPS, 0, stream, (const double *)scratch, nr,
        back->c, dgamma, dbeta);
}

/* --- normalisation of a row alone, scale ------------------------------------------------------ */

/* The sums first, then the moments. */
static size_t sums_bytes(const np_cuda_row_norm *norm)
{
    return np_cuda_channel_scratch((uint64_t)norm->n * norm->hw, norm->c);
}

extern "C" size_t np_cuda_norm_wgrad_scratch(const np_cuda_row_norm *norm)
{
    return sums_bytes(norm) +
           (size_t)norm->n * (norm->groups ? norm->groups : norm->hw) * 2 * sizeof(float);
}

extern "C" void np_cuda_norm_wgrad(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_row_norm *norm, const void *x, const void *dy, float *dgamma, float *dbeta,
    void *scratch)
{
    float *moments = (float *)((char *)scratch + sums_bytes(norm));
    int nr = 0;

    np_cuda_norm_moments(stream, dtype, norm, x, moments);
    NP_FOR_DTYPE(dtype, T, {
        norm_sums<T> source = {
            (const T *)x, (const T *)dy, moments, norm->hw, norm->c, norm->groups};

        nr = sum_rows(stream, source, (uint64_t)norm->n * norm->hw, norm->c, scratch);
    });
    NP_LAUNCH(finish_sums, warps_for(norm->c), WARP * WARPS, 0, stream, (const double *)scratch, nr,
        norm->c, dgamma, dbeta);
}

extern "C" void np_cuda_scale_wgrad(void *stream, enum np_cuda_dtype dtype, const void *x,
    const void *dy, float *dgamma, uint64_t rows, int c, void *scratch)
{
    int nr = 0;

    NP_FOR_DTYPE(dtype, T, {
        products<T> source = {(const T *)x, (const T *)dy};

        nr = sum_rows(stream, source, rows, c, scratch);
    });
    NP_LAUNCH(finish_sums, warps_for(c), WARP * WARPS, 0, stream, (const double *)scratch, nr, c,
        dgamma, (float *)NULL);
}
