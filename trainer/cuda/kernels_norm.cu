/* Batchnorm element by element, forward and backward; its sums are in kernels_channels.cu. A thread
 * works on the same N channels in all its rows, and loads several packs before it calculates: what
 * memory has on its way decides the speed. A block folds its channels' constants once. */
#include "trainer/cuda/kernels_bn.cuh"

/* The packs of a thread lie p apart, so that those of threads next to each other, and the channels
 * of one pack, are in different banks. */
template <int N> struct np_pitch {
    static const int p = NP_THREADS + 32 / N;
};

/* Calls put(k, slot, c) for each channel c of the block, spread over its threads: the k-th channel of
 * the pack that threads with this slot work on. Returns the thread's slot. c is a multiple of N, the
 * number of threads of all blocks one of c / N. */
template <int N, typename F> static __device__ inline int for_channels(int c, F put)
{
    const unsigned packs = c / N, first = blockIdx.x * NP_THREADS % packs * N;
    const unsigned slots = packs < NP_THREADS ? packs : NP_THREADS;

    for (unsigned i = threadIdx.x; i < slots * N; i += NP_THREADS) {
        unsigned channel = first + i;

        put((int)(i % N), (int)(i / N), (int)(channel < (unsigned)c ? channel : channel - c));
    }
    __syncthreads();
    return (int)(threadIdx.x % slots);
}

/* Packs of a thread, at least: so many that what it reads of channels is little beside them. */
static int packs_each(int packs_a_row)
{
    return packs_a_row > 256 ? 16 : packs_a_row > 64 ? packs_a_row / 16 : 4;
}

/* inv_std, or with eps 1 / sqrt(variance + eps). */
static __device__ inline float scale_of(float second, double eps)
{
    return eps < 0 ? second : (float)(1 / sqrt((double)second + eps));
}

/* N adjacent channels per thread, U rows at once. */
template <typename T, int N, int U, bool ADDS>
static __global__ void __launch_bounds__(NP_THREADS, 3) bn_apply(np_cuda_bn bn)
{
    typedef np_pack<T, N> pack;
    NP_SHARED(float, folded, [2][N][np_pitch<N>::p]);
    const pack *x = (const pack *)bn.x, *add = (const pack *)bn.add;
    const uint64_t n = bn.rows * bn.c / N, stride = np_stride();
    np_bn_line lines[N];
    const int slot = for_channels<N>(bn.c, [&](int k, int slot, int c) {
        np_bn_line line =
            np_bn_fold(bn.mean[c], scale_of(bn.second[c], bn.eps), bn.gamma[c], bn.beta[c]);

        folded[0][k][slot] = line.scale;
        folded[1][k][slot] = line.offset;
    });

    NP_UNROLL(N)
    for (int k = 0; k < N; k++)
        lines[k] = {folded[0][k][slot], folded[1][k][slot]};
    for (uint64_t i = np_thread(); i < n; i += U * stride) {
        np_loaded<pack> raw[U], other[ADDS ? U : 1];

        NP_UNROLL(U)
        for (int u = 0; u < U; u++) {
            const uint64_t at = i + u * stride < n ? i + u * stride : n - 1; /* read for nothing */

            raw[u] = np_load_last(&x[at]);
            if (ADDS)
                other[ADDS ? u : 0] = np_load_last(&add[at]);
        }
        NP_UNROLL(U)
        for (int u = 0; u < U; u++) {
            pack in = np_open<pack>(raw[u]), more = in;
            unsigned bits = 0;

            if (i + u * stride >= n)
                break;
            if (ADDS)
                more = np_open<pack>(other[ADDS ? u : 0]);
            NP_UNROLL(N)
            for (int k = 0; k < N; k++) {
                float v = np_bn_at(lines[k], np_get(in.v[k]));

                if (ADDS)
                    v += np_get(more.v[k]);
                np_put(&in.v[k], bn.relu ? np_relu(v) : v);
                if (ADDS && N == 8)
                    bits |= (np_get(in.v[k]) > 0 ? 1u : 0u) << k;
            }
            ((pack *)bn.y)[i + u * stride] = in;
            if (ADDS && N == 8 && bn.mask)
                bn.mask[i + u * stride] = (uint8_t)bits;
        }
    }
}

template <typename T, int N> static void apply(void *stream, const np_cuda_bn *bn)
{
    const uint64_t n = bn->rows * bn->c / N, packs = bn->c / N;
    const int blocks = np_row_blocks(n, packs, packs_each((int)packs));

    if (bn->add)
        NP_LAUNCH((bn_apply<T, N, 2, true>), blocks, NP_THREADS, 0, stream, *bn);
    else
        NP_LAUNCH((bn_apply<T, N, 4, false>), blocks, NP_THREADS, 0, stream, *bn);
}

extern "C" void np_cuda_bn_apply(void *stream, enum np_cuda_dtype dtype, const np_cuda_bn *bn)
{
    bool aligned = np_aligned(bn->x) && np_aligned(bn->add) && np_aligned(bn->y);

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;

        if (bn->mask) /* its bytes have 8 channels each */
            NP_LAUNCH((bn_apply<T, 8, 2, true>),
                np_row_blocks(bn->rows * bn->c / 8, bn->c / 8, packs_each(bn->c / 8)), NP_THREADS,
                0, stream, *bn);
        else if (aligned && bn->c % wide == 0)
            apply<T, wide>(stream, bn);
        else
            apply<T, 1>(stream, bn);
    });
}

/* dx = gamma inv_std (dy - mean(dy) - x_hat mean(dy x_hat)) = by_dy dy + by_x x + rest. */
struct bn_slope {
    float by_dy, by_x, rest;
};

/* share: 1 / rows; 0 if the running statistics were used: dx = gamma inv_std dy. */
static __device__ inline bn_slope slope_of(
    const np_cuda_bn_back &back, int c, const float *dgamma, const float *dbeta, float share)
{
    float scale = back.gamma[c] * back.inv_std[c];
    float by_x = share > 0 ? -scale * back.inv_std[c] * (dgamma[c] * share) : 0;

    return {scale, by_x, share > 0 ? -(by_x * back.mean[c]) - scale * (dbeta[c] * share) : 0};
}

/* SIGN: dy is masked by the relu of what x was normalised to. */
template <typename T, int N, int U, bool SIGN>
static __global__ void __launch_bounds__(NP_THREADS, SIGN ? 2 : 3)
    bn_dgrad(np_cuda_bn_back back, const float *dgamma, const float *dbeta, float share, T *dx)
{
    typedef np_pack<T, N> pack;
    NP_SHARED(float, folded, [SIGN ? 5 : 3][N][np_pitch<N>::p]);
    const pack *dy = (const pack *)back.dy, *x = (const pack *)back.x;
    const uint64_t n = back.rows * back.c / N, stride = np_stride();
    const bool frozen = back.thaw > 0 && back.step->step < back.thaw;
    np_bn_line lines[SIGN ? N : 1];
    bn_slope slopes[N];
    const int slot = for_channels<N>(back.c, [&](int k, int slot, int c) {
        bn_slope slope = slope_of(back, c, dgamma, dbeta, frozen ? 0 : share);

        folded[0][k][slot] = slope.by_dy;
        folded[1][k][slot] = slope.by_x;
        folded[2][k][slot] = slope.rest;
        if (SIGN) {
            np_bn_line line =
                np_bn_fold(back.mean[c], back.inv_std[c], back.gamma[c], back.beta[c]);

            folded[SIGN ? 3 : 0][k][slot] = line.scale;
            folded[SIGN ? 4 : 0][k][slot] = line.offset;
        }
    });

    NP_UNROLL(N)
    for (int k = 0; k < N; k++) {
        slopes[k] = {folded[0][k][slot], folded[1][k][slot], folded[2][k][slot]};
        if (SIGN)
            lines[SIGN ? k : 0] = {folded[SIGN ? 3 : 0][k][slot], folded[SIGN ? 4 : 0][k][slot]};
    }
    for (uint64_t i = np_thread(); i < n; i += U * stride) {
        np_loaded<pack> raw_d[U], raw[U];

        NP_UNROLL(U)
        for (int u = 0; u < U; u++) {
            const uint64_t at = i + u * stride < n ? i + u * stride : n - 1; /* read for nothing */

            raw_d[u] = np_load_last(&dy[at]);
            raw[u] = np_load_last(&x[at]);
        }
        NP_UNROLL(U)
        for (int u = 0; u < U; u++) {
            pack d = np_open<pack>(raw_d[u]), in = np_open<pack>(raw[u]);

            if (i + u * stride >= n)
                break;
            NP_UNROLL(N)
            for (int k = 0; k < N; k++) {
                float v = np_get(in.v[k]), g = np_get(d.v[k]);

                if (SIGN)
                    g = np_bn_at(lines[SIGN ? k : 0], v) > 0 ? g : 0.0f;
                np_put(&d.v[k], fmaf(slopes[k].by_dy, g, fmaf(slopes[k].by_x, v, slopes[k].rest)));
            }
            ((pack *)dx)[i + u * stride] = d;
        }
    }
}

template <typename T, int N>
static void dgrad(
    void *stream, const np_cuda_bn_back *back, const float *dgamma, const float *dbeta, void *dx)
{
    const int packs = back->c / N;
    const int blocks = np_row_blocks(back->rows * back->c / N, packs, packs_each(packs));
    const float share = 1 / (float)back->rows;

    if (back->relu)
        NP_LAUNCH((bn_dgrad<T, N, 4, true>), blocks, NP_THREADS, 0, stream, *back, dgamma, dbeta,
            share, (T *)dx);
    else
        NP_LAUNCH((bn_dgrad<T, N, 2, false>), blocks, NP_THREADS, 0, stream, *back, dgamma, dbeta,
            share, (T *)dx);
}

extern "C" void np_cuda_bn_dgrad(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_bn_back *back, const float *dgamma, const float *dbeta, void *dx)
{
    bool aligned = np_aligned(back->dy) && np_aligned(back->x) && np_aligned(dx);

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;

        if (aligned && back->c % wide == 0)
            dgrad<T, wide>(stream, back, dgamma, dbeta, dx);
        else
            dgrad<T, 1>(stream, back, dgamma, dbeta, dx);
    });
}
