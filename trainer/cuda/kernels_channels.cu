/* Sums over rows of (rows, c), channels adjacent, and batchnorm's results from them, in one launch and
 * one fixed order. A block sums its stretch of rows for up to 32 packs of channels: a thread reads
 * aligned packs of 16 bytes; neighbouring threads read the next packs, then the next row. The last
 * block of each team of stretches adds up the team, the last of these blocks the teams. */
#include "trainer/cuda/kernels_bn.cuh"

#define WARP      32
#define WARPS     8
#define RUN       8    /* rows in a partial sum of a thread */
#define STRETCHES 1024 /* max, over all rows and channels */
#define MIN_ROWS  64   /* of a stretch */
#define TEAM      32   /* stretches */
#define GROUPS    2048 /* of up to 32 packs, in a launch */

/* Blocks that have come to their team's end, and to their group's; 0 between launches, which follow one
 * another on one stream. */
static __device__ unsigned arrived[STRETCHES + 3 * GROUPS];

/* What a block adds up: a stretch of rows, of a group of lanes * N channels. */
struct stretches {
    uint64_t rows;
    int c, lanes, first_group;
    uint32_t nr, nr_teams, per; /* stretches; teams of them; rows of one */
    float *sums;                /* (groups, nr, 2, N, lanes) of each stretch */
    np_exact *teams;            /* (groups, nr_teams, 2, N, lanes) */
};

/* Floats for one sum of all channels: they fill whole groups of a power of two. */
static size_t padded(int c)
{
    return 2 * (size_t)c;
}

extern "C" size_t np_cuda_channel_scratch(uint64_t rows, int c)
{
    uint64_t most = (rows + MIN_ROWS - 1) / MIN_ROWS, nr = most < STRETCHES ? most : STRETCHES;
    uint64_t teams = nr / TEAM + 1;

    return (size_t)(nr + 1) * padded(c) * 2 * sizeof(float) +
           (size_t)teams * padded(c) * 2 * sizeof(np_exact);
}

/* A source has two numbers of each element to sum up: own<N> is what a thread keeps of its N
 * channels, row<N> what it loads of a row, and at_once how many rows it loads before it adds
 * them; so many `blocks` are to fit into a multiprocessor. */
template <typename T> struct moments { /* x - shift, and its square */
    typedef T type;
    static const int at_once = 4, blocks = 3;
    template <int N> struct own {
        float shift[N];
    };
    template <int N> struct row {
        np_loaded<np_pack<T, N>> x;
    };
    np_cuda_stats to; /* shift: the running mean, near the mean, so that squares stay small */

    bool wide(void) const
    {
        return np_aligned(to.x);
    }
    template <int N> __device__ void begin(int c, own<N> *by) const
    {
        NP_UNROLL(N)
        for (int k = 0; k < N; k++)
            by->shift[k] = to.running_mean[c + k];
    }
    template <int N> __device__ void load(uint64_t r, int c, row<N> *in) const
    {
        in->x = np_load((const np_pack<T, N> *)((const T *)to.x + r * to.c + c));
    }
    template <int N>
    __device__ void add(uint64_t, int, const own<N> &by, const row<N> &in, float *a, float *b) const
    {
        const np_pack<T, N> x = np_open<np_pack<T, N>>(in.x);

        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            float v = np_get(x.v[k]) - by.shift[k];

            a[k] += v;
            b[k] += v * v;
        }
    }
    __device__ void end(int c, double a, double b) const;
};
template <typename T> struct only_sum {
    typedef T type;
    static const int at_once = 4, blocks = 3;
    template <int N> struct own {
    };
    template <int N> struct row {
        np_loaded<np_pack<T, N>> x;
    };
    const T *x;
    float *sum;
    int width;

    bool wide(void) const
    {
        return np_aligned(x);
    }
    template <int N> __device__ void begin(int, own<N> *) const
    {
    }
    template <int N> __device__ void load(uint64_t r, int c, row<N> *in) const
    {
        in->x = np_load((const np_pack<T, N> *)(x + r * width + c));
    }
    template <int N>
    __device__ void add(uint64_t, int, const own<N> &, const row<N> &in, float *a, float *) const
    {
        const np_pack<T, N> in_x = np_open<np_pack<T, N>>(in.x);

        NP_UNROLL(N)
        for (int k = 0; k < N; k++)
            a[k] += np_get(in_x.v[k]);
    }
    __device__ void end(int c, double a, double) const
    {
        sum[c] = (float)a;
    }
};

/* dy (x - mean), and dy. The relu's mask: none, the sign of what x was normalised to, or bits; ANY of
 * these, and y, one element at a time. JOINS: a second dy may be there, and g is written. */
enum { BY_NONE, BY_SIGN, BY_BITS, BY_ANY };
template <typename T, int BY, bool JOINS> struct bn_sums {
    typedef T type;
    static const int at_once = JOINS ? 2 : 4, blocks = 2;
    template <int N> struct own {
        float mean[N];
        np_bn_line lines[BY == BY_SIGN || BY == BY_ANY ? N : 1];
    };
    template <int N> struct row {
        np_loaded<np_pack<T, N>> dy, x, dy2;
        uint8_t bits;
    };
    np_cuda_bn_back back;
    float *dgamma, *dbeta;

    bool wide(void) const
    {
        return true; /* np_cuda_bn_reduce() asks */
    }
    template <int N> __device__ void begin(int c, own<N> *by) const
    {
        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            by->mean[k] = back.mean[c + k];
            if (BY == BY_SIGN || BY == BY_ANY)
                by->lines[BY == BY_SIGN || BY == BY_ANY ? k : 0] = np_bn_fold(
                    back.mean[c + k], back.inv_std[c + k], back.gamma[c + k], back.beta[c + k]);
        }
    }
    template <int N> __device__ void load(uint64_t r, int c, row<N> *in) const
    {
        typedef np_pack<T, N> pack;
        uint64_t i = r * back.c + c;

        in->dy = np_load((const pack *)((const T *)back.dy + i));
        in->x = np_load((const pack *)((const T *)back.x + i));
        if (JOINS && back.dy2)
            in->dy2 = np_load_last((const pack *)((const T *)back.dy2 + i));
        if (BY == BY_BITS)
            in->bits = np_load_once(&back.mask[i / 8]);
    }
    /* Did the relu pass element i, number k of the thread's? */
    template <int N>
    __device__ bool passed(uint64_t i, int k, const own<N> &by, const row<N> &in, float x) const
    {
        if (BY == BY_BITS)
            return in.bits >> k & 1;
        if (BY == BY_SIGN)
            return np_bn_at(by.lines[BY == BY_SIGN ? k : 0], x) > 0;
        if (BY == BY_NONE || !back.relu)
            return true;
        if (back.mask)
            return back.mask[i / 8] >> i % 8 & 1;
        return (back.y ? np_get(((const T *)back.y)[i]) : np_bn_at(by.lines[0], x)) > 0;
    }
    template <int N>
    __device__ void add(
        uint64_t r, int c, const own<N> &by, const row<N> &in, float *a, float *b) const
    {
        uint64_t i = r * back.c + c;
        np_pack<T, N> g = np_open<np_pack<T, N>>(in.dy), more = g;
        const np_pack<T, N> in_x = np_open<np_pack<T, N>>(in.x);

        if (JOINS && back.dy2)
            more = np_open<np_pack<T, N>>(in.dy2);

        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            float x = np_get(in_x.v[k]);

            if (JOINS && back.dy2) /* rounded as a tensor of gradients is */
                np_put(&g.v[k], np_get(g.v[k]) + np_get(more.v[k]));
            if (!passed<N>(i + k, k, by, in, x))
                np_put(&g.v[k], 0.0f);
            a[k] += np_get(g.v[k]) * (x - by.mean[k]);
            b[k] += np_get(g.v[k]);
        }
        if (JOINS && back.g)
            *(np_pack<T, N> *)((T *)back.g + i) = g;
    }
    __device__ void end(int c, double a, double b) const
    {
        dgamma[c] = (float)(a * (double)back.inv_std[c]);
        dbeta[c] = (float)b;
    }
};

template <typename T> struct products { /* x dy */
    typedef T type;
    static const int at_once = 4, blocks = 3;
    template <int N> struct own {
    };
    template <int N> struct row {
        np_loaded<np_pack<T, N>> x, dy;
    };
    const T *x, *dy;
    float *dgamma;
    int width;

    bool wide(void) const
    {
        return np_aligned(x) && np_aligned(dy);
    }
    template <int N> __device__ void begin(int, own<N> *) const
    {
    }
    template <int N> __device__ void load(uint64_t r, int c, row<N> *in) const
    {
        in->x = np_load((const np_pack<T, N> *)(x + r * width + c));
        in->dy = np_load((const np_pack<T, N> *)(dy + r * width + c));
    }
    template <int N>
    __device__ void add(uint64_t, int, const own<N> &, const row<N> &in, float *a, float *) const
    {
        const np_pack<T, N> in_x = np_open<np_pack<T, N>>(in.x);
        const np_pack<T, N> in_dy = np_open<np_pack<T, N>>(in.dy);

        NP_UNROLL(N)
        for (int k = 0; k < N; k++)
            a[k] += np_get(in_x.v[k]) * np_get(in_dy.v[k]);
    }
    __device__ void end(int c, double a, double) const
    {
        dgamma[c] = (float)a;
    }
};
template <typename T> struct norm_sums { /* dy x_hat, dy */
    typedef T type;
    static const int at_once = 2, blocks = 2;
    template <int N> struct own {
    };
    template <int N> struct row {
        np_loaded<np_pack<T, N>> x, dy;
    };
    const T *x, *dy;
    const float *moments; /* mean and inv_std of each pixel, or of each group of a row */
    int hw, c, groups;    /* groups 0: of each pixel */
    float *dgamma, *dbeta;

    bool wide(void) const
    {
        return np_aligned(x) && np_aligned(dy);
    }
    template <int N> __device__ void begin(int, own<N> *) const
    {
    }
    template <int N> __device__ void load(uint64_t r, int channel, row<N> *in) const
    {
        in->x = np_load((const np_pack<T, N> *)(x + r * c + channel));
        in->dy = np_load((const np_pack<T, N> *)(dy + r * c + channel));
    }
    template <int N>
    __device__ void add(
        uint64_t pixel, int channel, const own<N> &, const row<N> &in, float *a, float *b) const
    {
        const np_pack<T, N> in_x = np_open<np_pack<T, N>>(in.x);
        const np_pack<T, N> in_dy = np_open<np_pack<T, N>>(in.dy);

        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            uint64_t set = groups ? pixel / hw * groups + (channel + k) / (c / groups) : pixel;
            float g = np_get(in_dy.v[k]);

            a[k] += g * (np_get(in_x.v[k]) - moments[2 * set]) * moments[2 * set + 1];
            b[k] += g;
        }
    }
    __device__ void end(int channel, double a, double b) const
    {
        dgamma[channel] = (float)a;
        dbeta[channel] = (float)b;
    }
};

/* A thread's sums over its rows of a stretch, f32 in two levels, so that no sum has many
 * summands. */
template <typename S, int N>
static __device__ inline void sum_own(
    const S &source, uint64_t r, uint64_t end, int turns, int channel, float *a, float *b)
{
    const int once = S::at_once;
    typename S::template own<N> by;

    source.template begin<N>(channel, &by);
    for (; r < end; r += (uint64_t)turns * RUN) {
        const bool whole = r + (uint64_t)turns * (RUN - 1) < end;
        float run_a[N] = {0}, run_b[N] = {0};

        NP_UNROLL(1)
        for (uint64_t at = r; whole && at < r + (uint64_t)turns * RUN;
             at += (uint64_t)turns * once) {
            typename S::template row<N> in[once];

            NP_UNROLL(once)
            for (int k = 0; k < once; k++)
                source.template load<N>(at + (uint64_t)k * turns, channel, &in[k]);
            NP_UNROLL(once)
            for (int k = 0; k < once; k++)
                source.template add<N>(at + (uint64_t)k * turns, channel, by, in[k], run_a, run_b);
        }
        NP_UNROLL(1)
        for (uint64_t at = r; !whole && at < end; at += turns) {
            typename S::template row<N> in;

            source.template load<N>(at, channel, &in);
            source.template add<N>(at, channel, by, in, run_a, run_b);
        }
        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            a[k] += run_a[k];
            b[k] += run_b[k];
        }
    }
}

/* The sums of a block's threads, in s.sums. Lanes of a warp with the same channels add theirs up
 * first; then one thread adds up a number of all warps: neighbours are in neighbouring banks. */
template <int N>
static __device__ inline void sum_block(const stretches &s, float *a, float *b, float *to)
{
    NP_SHARED(float, sums, [WARPS * 2 * N * WARP]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, numbers = 2 * N * s.lanes;

    NP_UNROLL(1)
    for (int bits = WARP / 2; bits >= s.lanes; bits /= 2) {
        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            a[k] += __shfl_xor_sync(0xffffffffu, a[k], bits);
            b[k] += __shfl_xor_sync(0xffffffffu, b[k], bits);
        }
    }
    NP_UNROLL(N)
    for (int k = 0; k < N; k++)
        if (lane < s.lanes) {
            sums[warp * numbers + k * s.lanes + lane] = a[k];
            sums[warp * numbers + (N + k) * s.lanes + lane] = b[k];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < numbers; i += WARPS * WARP) {
        float sum = 0;

        NP_UNROLL(WARPS)
        for (int w = 0; w < WARPS; w++)
            sum += sums[w * numbers + i];
        to[i] = sum;
    }
}

/* By the last block of a team. */
template <int N>
static __device__ inline void sum_team(
    const stretches &s, const float *from, uint32_t nr, np_exact *to)
{
    const int numbers = 2 * N * s.lanes;

    for (int i = threadIdx.x; i < numbers; i += WARPS * WARP) {
        np_exact sum = {0, 0};

        NP_UNROLL(8)
        for (uint32_t t = 0; t < nr; t++)
            np_add(&sum, __ldcg(&from[(size_t)t * numbers + i]));
        to[i] = sum;
    }
}

static __device__ inline double sum_teams(const np_exact *from, uint32_t nr, int numbers)
{
    np_exact sum = {0, 0};

    NP_UNROLL(8)
    for (uint32_t t = 0; t < nr; t++) {
        np_add(&sum, __ldcg(&from[(size_t)t * numbers].sum));
        sum.lost += __ldcg(&from[(size_t)t * numbers].lost);
    }
    return (double)sum.sum + (double)sum.lost;
}

/* Grid: (stretches, groups); block: lanes (a power of two, over a row's packs) x turns (over
 * rows). */
template <typename S, int N>
static __global__ void __launch_bounds__(WARP *WARPS, S::blocks) sum_channels(S source, stretches s)
{
    const int lane = threadIdx.x & (s.lanes - 1), turn = threadIdx.x / s.lanes;
    const int turns = WARP * WARPS / s.lanes, numbers = 2 * N * s.lanes;
    const uint32_t group = blockIdx.y, stretch = blockIdx.x, team = stretch / TEAM;
    const uint32_t members = s.nr - team * TEAM < TEAM ? s.nr - team * TEAM : TEAM;
    const int first = (s.first_group + (int)group) * s.lanes * N, channel = first + lane * N;
    const uint64_t row = (uint64_t)stretch * s.per, end = row + s.per;
    float *sums = s.sums + (size_t)group * s.nr * numbers;
    np_exact *teams = s.teams + (size_t)group * s.nr_teams * numbers;
    unsigned *here = &arrived[group * (s.nr_teams + 1)];
    float a[N] = {0}, b[N] = {0};

    if (channel < s.c)
        sum_own<S, N>(source, row + turn, end < s.rows ? end : s.rows, turns, channel, a, b);
    sum_block<N>(s, a, b, &sums[(size_t)stretch * numbers]);
    if (!np_last_of(&here[1 + team], members))
        return;
    sum_team<N>(s, &sums[(size_t)team * TEAM * numbers], members, &teams[(size_t)team * numbers]);
    if (!np_last_of(here, s.nr_teams))
        return;
    for (int i = threadIdx.x; i < numbers / 2; i += WARP * WARPS) {
        const int c = first + i % s.lanes * N + i / s.lanes;

        if (c < s.c)
            source.end(c, sum_teams(&teams[i], s.nr_teams, numbers),
                sum_teams(&teams[numbers / 2 + i], s.nr_teams, numbers));
    }
}

/* Chooses stretches so that the grid fills the GPU and that no thread has a part of a run, but in the
 * last stretch. */
template <typename S, int N>
static void sum_packs(void *stream, const S &source, uint64_t rows, int c, void *scratch)
{
    const int packs = c / N;
    stretches s = {rows, c, 1, 0, 0, 0, 0, NULL, NULL};

    while (s.lanes < packs && s.lanes < WARP)
        s.lanes *= 2;
    const int groups = (packs + s.lanes - 1) / s.lanes;
    const uint64_t unit = (uint64_t)RUN * WARP * WARPS / s.lanes;
    const uint64_t most = STRETCHES / groups < 1 ? 1 : STRETCHES / groups;

    s.per = (uint32_t)(((rows + most - 1) / most + unit - 1) / unit * unit);
    s.nr = (uint32_t)((rows + s.per - 1) / s.per);
    s.nr_teams = (s.nr + TEAM - 1) / TEAM;
    s.teams = (np_exact *)scratch;
    for (; s.first_group < groups; s.first_group += GROUPS) {
        const int now = groups - s.first_group < GROUPS ? groups - s.first_group : GROUPS;

        s.sums = (float *)(s.teams + (size_t)now * s.nr_teams * 2 * N * s.lanes);
        NP_LAUNCH((sum_channels<S, N>), dim3(s.nr, now), WARP * WARPS, 0, stream, source, s);
    }
}

template <typename S>
static void sum_rows(void *stream, const S &source, uint64_t rows, int c, void *scratch)
{
    const int wide = np_width<typename S::type>::n;

    if (c % wide == 0 && source.wide())
        sum_packs<S, wide>(stream, source, rows, c, scratch);
    else
        sum_packs<S, 1>(stream, source, rows, c, scratch);
}

extern "C" void np_cuda_bias_grad(void *stream, enum np_cuda_dtype dtype, const void *dy,
    float *dbias, uint64_t rows, int c, void *scratch)
{
    NP_FOR_DTYPE(dtype, T, {
        only_sum<T> source = {(const T *)dy, dbias, c};

        sum_rows(stream, source, rows, c, scratch);
    });
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
template <typename T> __device__ void moments<T>::end(int c, double sum, double squares) const
{
    double n = (double)to.rows, shifted = sum / n;

    put_stats(to, c, shifted + (double)to.running_mean[c], squares / n - shifted * shifted);
}

extern "C" void np_cuda_bn_stats(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_stats *stats, void *scratch)
{
    NP_FOR_DTYPE(dtype, T, {
        moments<T> source = {*stats};

        sum_rows(stream, source, stats->rows, stats->c, scratch);
    });
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
    finish_sums_given(float *sums, float *squares, np_cuda_stats to)
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
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    sums[channel] = squares[channel] = 0; /* all have read them */
    put_stats(to, channel, mean, var);
}

extern "C" void np_cuda_bn_stats_of_sums(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_stats *stats, float *sums, float *squares)
{
    NP_FOR_DTYPE(dtype, T, {
        NP_LAUNCH((finish_sums_given<T>), stats->c, WARP * WARPS, 0, stream, sums, squares, *stats);
    });
}

/* --- batchnorm, backward --------------------------------------------------------------------- */

template <typename T, int BY, bool JOINS, int N>
static void reduce(
    void *stream, const np_cuda_bn_back *back, float *dgamma, float *dbeta, void *scratch)
{
    bn_sums<T, BY, JOINS> source = {*back, dgamma, dbeta};

    sum_packs<bn_sums<T, BY, JOINS>, N>(stream, source, back->rows, back->c, scratch);
}

extern "C" void np_cuda_bn_reduce(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_bn_back *back, float *dgamma, float *dbeta, void *scratch)
{
    const bool aligned =
        np_aligned(back->dy) && np_aligned(back->x) && np_aligned(back->dy2) && np_aligned(back->g);

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;
        const bool whole = aligned && back->c % wide == 0 && !back->y;

        if (back->mask && back->relu && aligned)
            reduce<T, BY_BITS, true, 8>(stream, back, dgamma, dbeta, scratch);
        else if (!whole || back->mask)
            reduce<T, BY_ANY, true, 1>(stream, back, dgamma, dbeta, scratch);
        else if (back->relu && back->g)
            reduce<T, BY_SIGN, true, wide>(stream, back, dgamma, dbeta, scratch);
        else if (back->relu)
            reduce<T, BY_SIGN, false, wide>(stream, back, dgamma, dbeta, scratch);
        else if (back->g)
            reduce<T, BY_NONE, true, wide>(stream, back, dgamma, dbeta, scratch);
        else
            reduce<T, BY_NONE, false, wide>(stream, back, dgamma, dbeta, scratch);
    });
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

    np_cuda_norm_moments(stream, dtype, norm, x, moments);
    NP_FOR_DTYPE(dtype, T, {
        norm_sums<T> source = {
            (const T *)x, (const T *)dy, moments, norm->hw, norm->c, norm->groups, dgamma, dbeta};

        sum_rows(stream, source, (uint64_t)norm->n * norm->hw, norm->c, scratch);
    });
}

extern "C" void np_cuda_scale_wgrad(void *stream, enum np_cuda_dtype dtype, const void *x,
    const void *dy, float *dgamma, uint64_t rows, int c, void *scratch)
{
    NP_FOR_DTYPE(dtype, T, {
        products<T> source = {(const T *)x, (const T *)dy, dgamma, c};

        sum_rows(stream, source, rows, c, scratch);
    });
}
