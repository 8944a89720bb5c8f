/* Batchnorm element by element, forward and backward; its sums are in kernels_channels.cu. */
#include "trainer/cuda/kernels_half.cuh"

/* inv_std, or with eps 1 / sqrt(variance + eps). */
static __device__ inline float scale_of(float second, double eps)
{
    return eps < 0 ? second : (float)(1 / sqrt((double)second + eps));
}

/* Blocks of the two kernels below: few, so that a thread's channels are read for many elements. */
#ifdef __CUDACC__
#define MAX_BLOCKS 2048
#else
#define MAX_BLOCKS 2 /* emulated: so that threads loop in small tests too */
#endif

static int few_blocks(uint64_t items)
{
    int blocks = np_blocks(items);

    return blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS;
}

/* The N channels of a thread's elements: always the same if its stride is a multiple of c (turn
 * is 0), otherwise different each time. */
struct bn_channel {
    int at, turn, c;
};

template <int N> static __device__ inline bn_channel first_channel(int c)
{
    return {(int)(np_thread() * N % c), (int)(np_stride() * N % c), c};
}

static __device__ inline void next_channel(bn_channel *channel)
{
    channel->at += channel->turn;
    channel->at -= channel->at >= channel->c ? channel->c : 0;
}

/* N adjacent channels per thread; c is a multiple of N. */
template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS) bn_apply(np_cuda_bn bn)
{
    typedef np_pack<T, N> pack;
    const T *x = (const T *)bn.x, *add = (const T *)bn.add;
    const uint64_t n = bn.rows * bn.c;
    bn_channel channel = first_channel<N>(bn.c);
    float shift[N], scale[N], factor[N], offset[N];
    bool fresh = true;

    for (uint64_t i = np_thread(); i < n / N; i += np_stride()) {
        pack in = ((const pack *)x)[i], other = add ? ((const pack *)add)[i] : in;

        if (fresh) {
            NP_UNROLL(N)
            for (int k = 0; k < N; k++) {
                shift[k] = bn.mean[channel.at + k];
                scale[k] = scale_of(bn.second[channel.at + k], bn.eps);
                factor[k] = bn.gamma[channel.at + k];
                offset[k] = bn.beta[channel.at + k];
            }
        }
        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            float v = (np_get(in.v[k]) - shift[k]) * scale[k] * factor[k] + offset[k];

            v += add ? np_get(other.v[k]) : 0.0f;
            np_put(&in.v[k], bn.relu ? np_relu(v) : v);
        }
        ((pack *)bn.y)[i] = in;
        next_channel(&channel);
        fresh = channel.turn != 0;
    }
}

extern "C" void np_cuda_bn_apply(void *stream, enum np_cuda_dtype dtype, const np_cuda_bn *bn)
{
    bool aligned = np_aligned(bn->x) && np_aligned(bn->add) && np_aligned(bn->y);
    uint64_t n = bn->rows * bn->c;

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;

        if (aligned && bn->c % wide == 0)
            NP_LAUNCH((bn_apply<T, wide>), few_blocks(n / wide), NP_THREADS, 0, stream, *bn);
        else
            NP_LAUNCH((bn_apply<T, 1>), few_blocks(n), NP_THREADS, 0, stream, *bn);
    });
}

/* dx = gamma inv_std (dy - mean(dy) - x_hat mean(dy x_hat)); frozen: gamma inv_std dy. N channels
 * per thread. */
template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS, 2)
    bn_dgrad(np_cuda_bn_back back, const float *dgamma, const float *dbeta, T *dx, T *dadd)
{
    typedef np_pack<T, N> pack;
    const T *dy = (const T *)back.dy, *x = (const T *)back.x, *y = (const T *)back.y;
    uint64_t n = back.rows * back.c;
    bn_channel channel = first_channel<N>(back.c);
    float shift[N], scale[N], gamma[N], beta[N], mean_dy[N], mean_dy_x[N];
    bool fresh = true, frozen = back.thaw > 0 && back.step->step < back.thaw;

    for (uint64_t i = np_thread(); i < n / N; i += np_stride()) {
        pack d = ((const pack *)dy)[i], in = ((const pack *)x)[i];
        pack out = y ? ((const pack *)y)[i] : in, passed;

        if (fresh) {
            NP_UNROLL(N)
            for (int k = 0; k < N; k++) {
                int c = channel.at + k;

                shift[k] = back.mean[c];
                scale[k] = back.inv_std[c];
                gamma[k] = back.gamma[c];
                beta[k] = back.beta[c];
                mean_dy[k] = frozen ? 0 : dbeta[c] / (float)back.rows;
                mean_dy_x[k] = frozen ? 0 : dgamma[c] / (float)back.rows;
            }
        }
        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            float x_hat = (np_get(in.v[k]) - shift[k]) * scale[k];
            float g =
                np_masked(d.v, y ? out.v : (const T *)NULL, back.relu, k, x_hat, gamma[k], beta[k]);

            np_put(&passed.v[k], g);
            np_put(&d.v[k], gamma[k] * scale[k] * (g - mean_dy[k] - x_hat * mean_dy_x[k]));
        }
        ((pack *)dx)[i] = d;
        if (dadd)
            ((pack *)dadd)[i] = passed;
        next_channel(&channel);
        fresh = channel.turn != 0;
    }
}

extern "C" void np_cuda_bn_dgrad(void *stream, enum np_cuda_dtype dtype,
    const np_cuda_bn_back *back, const float *dgamma, const float *dbeta, void *dx, void *dadd)
{
    bool aligned = np_aligned(back->dy) && np_aligned(back->x) && np_aligned(back->y) &&
                   np_aligned(dx) && np_aligned(dadd);
    uint64_t n = back->rows * back->c;

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;

        if (aligned && back->c % wide == 0)
            NP_LAUNCH((bn_dgrad<T, wide>), few_blocks(n / wide), NP_THREADS, 0, stream, *back,
                dgamma, dbeta, (T *)dx, (T *)dadd);
        else
            NP_LAUNCH((bn_dgrad<T, 1>), few_blocks(n), NP_THREADS, 0, stream, *back, dgamma, dbeta,
                (T *)dx, (T *)dadd);
    });
}
