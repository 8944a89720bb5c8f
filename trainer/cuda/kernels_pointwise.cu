/* Elementwise kernels, bound by memory: each thread moves 16 bytes at a time, and loads several times
 * before it calculates. */
#include "trainer/cuda/kernels_draws.cuh"
#include "trainer/cuda/kernels_half.cuh"

static __global__ void set_step(np_cuda_step *step, np_cuda_step value)
{
    *step = value;
}

extern "C" void np_cuda_set_step(void *stream, np_cuda_step *step, const np_cuda_step *value)
{
    NP_LAUNCH(set_step, 1, 1, 0, stream, step, *value);
}

/* --- input ----------------------------------------------------------------------------------- */

#define MAX_CHANNELS 4 /* of a picture */
#define PIXELS       4 /* that a thread loads before it stores them */

/* One thread per pixel: its channels are 3 bytes in, N elements out, W in a store. Each block
 * calculates a channel's 256 possible results once. */
template <typename T, int N, int W>
static __global__ void __launch_bounds__(NP_THREADS)
    input_pixel(const np_cuda_step *step, struct np_cuda_input input, T *x)
{
    typedef np_pack<T, W> pack;
    NP_SHARED(T, values, [MAX_CHANNELS][256]);
    const uint8_t *images = step->images;
    uint64_t n = (uint64_t)input.n * input.h * input.w;

    NP_UNROLL(MAX_CHANNELS)
    for (int c = 0; c < MAX_CHANNELS; c++)
        for (int i = threadIdx.x; c < input.c && i < 256; i += blockDim.x)
            np_put(&values[c][i], ((float)i / 255 - input.mean[c]) / input.std[c]);
    __syncthreads();
    for (uint64_t p = np_thread(); p < n; p += PIXELS * np_stride()) {
        uint8_t in[PIXELS][MAX_CHANNELS];

        NP_UNROLL(PIXELS)
        for (int u = 0; u < PIXELS; u++) {
            const uint64_t at = p + u * np_stride() < n ? p + u * np_stride() : n - 1;

            NP_UNROLL(MAX_CHANNELS)
            for (int c = 0; c < MAX_CHANNELS; c++)
                in[u][c] = c < input.c ? images[at * input.c + c] : 0;
        }
        NP_UNROLL(PIXELS)
        for (int u = 0; u < PIXELS; u++) {
            if (p + u * np_stride() >= n)
                break;
            NP_UNROLL(N / W)
            for (int part = 0; part < N / W; part++) {
                pack out;

                NP_UNROLL(W)
                for (int k = 0; k < W; k++) {
                    const int c = part * W + k, known = c % MAX_CHANNELS;

                    if (c < MAX_CHANNELS && c < input.c)
                        out.v[k] = values[known][in[u][known]];
                    else
                        np_put(&out.v[k], 0);
                }
                ((pack *)x)[(p + u * np_stride()) * (N / W) + part] = out;
            }
        }
    }
}

/* Pixel p = value(c) of each channel c, normalised; N: all its channels in one store, or 1: each
 * apart. Channels are unrolled, so that the constants of each stay in registers. */
template <typename T, int N, typename F>
static __device__ inline void put_pixel(
    T *x, uint64_t p, const struct np_cuda_input &input, F value)
{
    if constexpr (N > 1) {
        np_pack<T, N> out;

        NP_UNROLL(N)
        for (int c = 0; c < N; c++) {
            const int known = c % MAX_CHANNELS;

            np_put(&out.v[c], c < MAX_CHANNELS && c < input.c
                                  ? (value(c) / 255 - input.mean[known]) / input.std[known]
                                  : 0.0f);
        }
        ((np_pack<T, N> *)x)[p] = out;
    } else {
        NP_UNROLL(MAX_CHANNELS)
        for (int c = 0; c < MAX_CHANNELS; c++)
            if (c < input.c)
                np_put(&x[p * input.padded + c], (value(c) / 255 - input.mean[c]) / input.std[c]);
        for (int c = input.c; c < input.padded; c++)
            np_put(&x[p * input.padded + c], 0.0f);
    }
}

/* Rows mixed with their partners; one thread per pixel. */
template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS)
    input_mixed(const np_cuda_step *step, struct np_cuda_input input, T *x)
{
    const struct np_mixed m = step->mixed;
    const uint8_t *images = step->images;
    const uint64_t row = (uint64_t)input.h * input.w, n = row * input.n;

    for (uint64_t p = np_thread(); p < n; p += np_stride()) {
        const int r = (int)np_quotient(p, input.h * input.w);
        const uint64_t at = p - r * row;
        const int py = (int)np_quotient(at, input.w), px = (int)at - py * input.w;
        const bool inside = px >= m.left && px < m.right && py >= m.top && py < m.bottom;
        const uint8_t *own = &images[p * input.c];
        const uint8_t *second =
            &images[((uint64_t)(r > 0 ? r - 1 : input.n - 1) * row + at) * input.c];
        const float keep = m.keep >= 1 ? 1 : m.box ? (inside ? 0.0f : 1.0f) : m.keep;

        put_pixel<T, N>(x, p, input, [&](int c) { return keep * own[c] + (1 - keep) * second[c]; });
    }
}

/* A view of the pictures; one thread per pixel. */
template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS)
    input_view(const np_cuda_step *step, struct np_cuda_input input, T *x)
{
    const uint64_t row = (uint64_t)input.h * input.w, n = row * input.n;
    const uint8_t *images = step->images;
    const int view = step->view;

    for (uint64_t p = np_thread(); p < n; p += np_stride()) {
        const uint64_t at = p - np_quotient(p, input.h * input.w) * row;
        int from_y, from_x;

        np_view_pixel(
            view, (int)(at / input.w), (int)(at % input.w), input.h, input.w, &from_y, &from_x);
        const uint8_t *pixel = &images[(p - at + (uint64_t)from_y * input.w + from_x) * input.c];

        put_pixel<T, N>(x, p, input, [&](int c) { return (float)pixel[c]; });
    }
}

extern "C" void np_cuda_input(void *stream, enum np_cuda_dtype dtype, const np_cuda_step *step,
    const struct np_cuda_input *input, void *x)
{
    int blocks = np_blocks((uint64_t)input->n * input->h * input->w);

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;
        T *to = (T *)x;

        if (input->mixes && input->padded == wide)
            NP_LAUNCH((input_mixed<T, wide>), blocks, NP_THREADS, 0, stream, step, *input, to);
        else if (input->mixes)
            NP_LAUNCH((input_mixed<T, 1>), blocks, NP_THREADS, 0, stream, step, *input, to);
        else if (input->views && input->padded == wide)
            NP_LAUNCH((input_view<T, wide>), blocks, NP_THREADS, 0, stream, step, *input, to);
        else if (input->views)
            NP_LAUNCH((input_view<T, 1>), blocks, NP_THREADS, 0, stream, step, *input, to);
        else if (input->padded == 1)
            NP_LAUNCH((input_pixel<T, 1, 1>), blocks, NP_THREADS, 0, stream, step, *input, to);
        else if (input->padded == 3)
            NP_LAUNCH((input_pixel<T, 3, 1>), blocks, NP_THREADS, 0, stream, step, *input, to);
        else if (input->padded == 4)
            NP_LAUNCH((input_pixel<T, 4, 4>), blocks, NP_THREADS, 0, stream, step, *input, to);
        else
            NP_LAUNCH((input_pixel<T, 8, wide>), blocks, NP_THREADS, 0, stream, step, *input, to);
    });
}

template <typename T>
static __global__ void add_view(
    const np_cuda_step *step, int tta, const T *logits, T *mean, float *sum, uint64_t n)
{
    const float weight = np_view_weight(tta, step->view);

    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        const float value = weight * np_get(logits[i]);

        sum[i] = step->view == 0 ? value : sum[i] + value;
        np_put(&mean[i], sum[i]);
    }
}

extern "C" void np_cuda_views(void *stream, enum np_cuda_dtype dtype, const np_cuda_step *step,
    int tta, const void *logits, void *mean, float *sum, uint64_t n)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(add_view<T>, np_blocks(n), NP_THREADS, 0, stream, step, tta, (const T *)logits,
            (T *)mean, sum, n));
}

/* --- y = f(a, b) ----------------------------------------------------------------------------- */

struct relu_of {
    static const bool two = false; /* operands */
    static __device__ float of(float a, float)
    {
        return np_relu(a);
    }
};
struct relu_back { /* of dy, y */
    static const bool two = true;
    static __device__ float of(float a, float b)
    {
        return b > 0 ? a : 0;
    }
};
struct sum_of {
    static const bool two = true;
    static __device__ float of(float a, float b)
    {
        return a + b;
    }
};
struct relu_sum {
    static const bool two = true;
    static __device__ float of(float a, float b)
    {
        return np_relu(a + b);
    }
};
struct relu_dropout_back { /* of dy, y */
    static const bool two = true;
    float scale;
    __device__ float of(float a, float b) const
    {
        return b > 0 ? a * scale : 0;
    }
};

#define AT_ONCE 4 /* loads of each operand */

/* N elements per thread at a time; the remainder one by one. b may be NULL where F has one operand; y may be a or b: each
 * thread reads its elements before it writes them. */
template <typename T, typename F, int N>
static __global__ void __launch_bounds__(NP_THREADS, 2)
    pointwise(F f, const T *a, const T *b, T *y, uint64_t n)
{
    typedef np_pack<T, N> pack;
    const uint64_t nr_packs = n / N, stride = np_stride();

    for (uint64_t i = np_thread(); i < nr_packs; i += AT_ONCE * stride) {
        np_loaded<pack> first[AT_ONCE], second[AT_ONCE];

        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++) {
            const uint64_t at = i + u * stride < nr_packs ? i + u * stride : nr_packs - 1;

            first[u] = np_load_last((const pack *)a + at);
            if (F::two)
                second[u] = np_load_last((const pack *)b + at);
        }
        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++) {
            pack in = np_open<pack>(first[u]), more = in;

            if (i + u * stride >= nr_packs)
                break;
            if (F::two)
                more = np_open<pack>(second[u]);
            NP_UNROLL(N)
            for (int k = 0; k < N; k++)
                np_put(&in.v[k], f.of(np_get(in.v[k]), F::two ? np_get(more.v[k]) : 0.0f));
            ((pack *)y)[i + u * stride] = in;
        }
    }
    for (uint64_t i = nr_packs * N + np_thread(); i < n; i += stride)
        np_put(&y[i], f.of(np_get(a[i]), F::two ? np_get(b[i]) : 0.0f));
}

/* Packs of a thread, at least, where there are many. */
static int few_blocks(uint64_t packs)
{
    return np_blocks((packs + AT_ONCE - 1) / AT_ONCE);
}

template <typename F>
static void run_pointwise(
    void *stream, enum np_cuda_dtype dtype, F f, const void *a, const void *b, void *y, uint64_t n)
{
    bool wide = np_aligned(a) && np_aligned(b) && np_aligned(y);

    NP_FOR_DTYPE(dtype, T, {
        const int wide_n = np_width<T>::n;

        if (wide)
            NP_LAUNCH((pointwise<T, F, wide_n>), few_blocks(n / wide_n), NP_THREADS, 0, stream, f,
                (const T *)a, (const T *)b, (T *)y, n);
        else
            NP_LAUNCH((pointwise<T, F, 1>), few_blocks(n), NP_THREADS, 0, stream, f, (const T *)a,
                (const T *)b, (T *)y, n);
    });
}

extern "C" void np_cuda_relu(
    void *stream, enum np_cuda_dtype dtype, const void *x, void *y, uint64_t n)
{
    run_pointwise(stream, dtype, relu_of(), x, NULL, y, n);
}

extern "C" void np_cuda_relu_dgrad(
    void *stream, enum np_cuda_dtype dtype, const void *dy, const void *y, void *dx, uint64_t n)
{
    run_pointwise(stream, dtype, relu_back(), dy, y, dx, n);
}

extern "C" void np_cuda_add(void *stream, enum np_cuda_dtype dtype, const void *a, const void *b,
    bool relu, void *y, uint64_t n)
{
    if (relu)
        run_pointwise(stream, dtype, relu_sum(), a, b, y, n);
    else
        run_pointwise(stream, dtype, sum_of(), a, b, y, n);
}

/* --- casts, sums ----------------------------------------------------------------------------- */

/* N elements per thread at a time; the remainder one by one. */
template <typename From, typename To, int N>
static __global__ void __launch_bounds__(NP_THREADS) cast(const From *x, To *y, uint64_t n)
{
    const uint64_t nr_packs = n / N, stride = np_stride();

    for (uint64_t i = np_thread(); i < nr_packs; i += AT_ONCE * stride) {
        np_pack<From, N> in[AT_ONCE];

        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++)
            if (i + u * stride < nr_packs)
                in[u] = np_load_once((const np_pack<From, N> *)x + i + u * stride);
        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++) {
            np_pack<To, N> out;

            if (i + u * stride >= nr_packs)
                break;
            NP_UNROLL(N)
            for (int k = 0; k < N; k++)
                np_put(&out.v[k], np_get(in[u].v[k]));
            ((np_pack<To, N> *)y)[i + u * stride] = out;
        }
    }
    for (uint64_t i = nr_packs * N + np_thread(); i < n; i += stride)
        np_put(&y[i], np_get(x[i]));
}

extern "C" void np_cuda_cast(void *stream, enum np_cuda_dtype from, const void *x,
    enum np_cuda_dtype to, void *y, uint64_t n)
{
    const bool wide = np_aligned(x) && np_aligned(y);

    NP_FOR_DTYPE(from, From, {
        NP_FOR_DTYPE(to, To, {
            const From *in = (const From *)x;

            if (wide)
                NP_LAUNCH(
                    (cast<From, To, 4>), few_blocks(n / 4), NP_THREADS, 0, stream, in, (To *)y, n);
            else
                NP_LAUNCH(
                    (cast<From, To, 1>), few_blocks(n), NP_THREADS, 0, stream, in, (To *)y, n);
        });
    });
}

static __global__ void zero(float *x, int n)
{
    for (uint64_t i = np_thread(); i < (uint64_t)n; i += np_stride())
        x[i] = 0;
}

extern "C" void np_cuda_zero(void *stream, float *x, int n)
{
    NP_LAUNCH(zero, np_blocks(n), NP_THREADS, 0, stream, x, n);
}

template <typename T> static __global__ void fill(T *x, uint64_t n, float scale)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        uint32_t h = (uint32_t)i * 2654435761u; /* mixed as by splitmix */

        h = (h ^ (h >> 15)) * 0x2c1b3c6du;
        h = (h ^ (h >> 12)) * 0x297a2d39u;
        np_put(&x[i], (float)((int32_t)((h ^ (h >> 15)) >> 8) - (1 << 23)) * (scale / (1 << 23)));
    }
}

extern "C" void np_cuda_fill(
    void *stream, enum np_cuda_dtype dtype, void *x, uint64_t n, float scale)
{
    NP_FOR_DTYPE(
        dtype, T, NP_LAUNCH((fill<T>), np_blocks(n), NP_THREADS, 0, stream, (T *)x, n, scale));
}

template <int N>
static __global__ void __launch_bounds__(NP_THREADS)
    accumulate(const float *x, float *sum, bool first, uint64_t n)
{
    typedef np_pack<float, N> pack;

    for (uint64_t i = np_thread(); i < n / N; i += np_stride()) {
        pack in = np_load_once((const pack *)x + i), so_far = in;

        if (!first)
            so_far = ((const pack *)sum)[i];
        NP_UNROLL(N)
        for (int k = 0; k < N; k++)
            in.v[k] = first ? in.v[k] : so_far.v[k] + in.v[k];
        ((pack *)sum)[i] = in;
    }
}

extern "C" void np_cuda_accumulate(void *stream, const float *x, float *sum, bool first, uint64_t n)
{
    if (n % 4 == 0 && np_aligned(x) && np_aligned(sum))
        NP_LAUNCH(accumulate<4>, np_blocks(n / 4), NP_THREADS, 0, stream, x, sum, first, n);
    else
        NP_LAUNCH(accumulate<1>, np_blocks(n), NP_THREADS, 0, stream, x, sum, first, n);
}

/* --- bias ------------------------------------------------------------------------------------ */

template <typename T>
static __global__ void add_bias(const float *bias, bool relu, T *y, uint64_t n, int c)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        float value = np_get(y[i]) + bias[i - np_quotient(i, c) * c];

        np_put(&y[i], relu ? np_relu(value) : value);
    }
}

extern "C" void np_cuda_bias(void *stream, enum np_cuda_dtype dtype, const float *bias, bool relu,
    void *y, uint64_t rows, int c)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(add_bias<T>, np_blocks(rows * c), NP_THREADS, 0, stream, bias, relu, (T *)y,
            rows * c, c));
}

/* --- dropout --------------------------------------------------------------------------------- */

#define DROPPED 2 /* packs of a thread at a time: a draw takes longer than a load */

/* The random words of the four elements from 4 quarter on. */
static __device__ inline void draw(
    const np_cuda_drop &drop, uint64_t number, uint64_t quarter, uint32_t words[4])
{
    words[0] = (uint32_t)quarter;
    words[1] = (uint32_t)(quarter >> 32);
    words[2] = (uint32_t)number;
    words[3] = (uint32_t)(number >> 32);
    np_philox((uint32_t)drop.seed, (uint32_t)(drop.seed >> 32), words);
}

template <typename T>
static __device__ inline void put_kept(T *x, const np_cuda_drop &drop, float scale, uint32_t word)
{
    const float value = drop.relu ? np_relu(np_get(*x)) : np_get(*x);

    np_put(x, word * 0x1p-32 >= drop.rate ? value * scale : 0.0f);
}

/* n is a multiple of N, which is one of 4. */
template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS)
    dropout(const np_cuda_step *step, np_cuda_drop drop, float scale, const T *x, T *y, uint64_t n)
{
    typedef np_pack<T, N> pack;
    const uint64_t number = step->step, nr_packs = n / N, stride = np_stride();

    for (uint64_t i = np_thread(); i < nr_packs; i += DROPPED * stride) {
        np_loaded<pack> raw[DROPPED];

        NP_UNROLL(DROPPED)
        for (int u = 0; u < DROPPED; u++)
            raw[u] = np_load_last(
                (const pack *)x + (i + u * stride < nr_packs ? i + u * stride : nr_packs - 1));
        NP_UNROLL(DROPPED)
        for (int u = 0; u < DROPPED; u++) {
            const uint64_t at = i + u * stride;
            pack in = np_open<pack>(raw[u]);

            if (at >= nr_packs)
                break;
            NP_UNROLL(N / 4)
            for (int q = 0; q < N / 4; q++) {
                uint32_t words[4];

                draw(drop, number, at * (N / 4) + q, words);
                NP_UNROLL(4)
                for (int k = 0; k < 4; k++)
                    put_kept(&in.v[4 * q + k], drop, scale, words[k]);
            }
            ((pack *)y)[at] = in;
        }
    }
}

/* Any n: a thread has four elements. */
template <typename T>
static __global__ void __launch_bounds__(NP_THREADS) dropout_each(
    const np_cuda_step *step, np_cuda_drop drop, float scale, const T *x, T *y, uint64_t n)
{
    for (uint64_t i = np_thread(); i < (n + 3) / 4; i += np_stride()) {
        uint32_t words[4];

        draw(drop, step->step, i, words);
        NP_UNROLL(4)
        for (int k = 0; k < 4; k++) {
            if (4 * i + k >= n)
                break;
            T in = x[4 * i + k];

            put_kept(&in, drop, scale, words[k]);
            y[4 * i + k] = in;
        }
    }
}

extern "C" void np_cuda_dropout(void *stream, enum np_cuda_dtype dtype, const np_cuda_step *step,
    const np_cuda_drop *drop, const void *x, void *y, uint64_t n)
{
    const float scale = (float)(1 / (1 - drop->rate));
    const bool aligned = np_aligned(x) && np_aligned(y);

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;

        if (aligned && n % wide == 0)
            NP_LAUNCH((dropout<T, wide>), np_blocks((n / wide + DROPPED - 1) / DROPPED), NP_THREADS,
                0, stream, step, *drop, scale, (const T *)x, (T *)y, n);
        else
            NP_LAUNCH(dropout_each<T>, np_blocks((n + 3) / 4), NP_THREADS, 0, stream, step, *drop,
                scale, (const T *)x, (T *)y, n);
    });
}

extern "C" void np_cuda_dropout_mask(void *stream, enum np_cuda_dtype dtype, double rate,
    const void *dy, const void *y, void *dx, uint64_t n)
{
    run_pointwise(stream, dtype, relu_dropout_back{(float)(1 / (1 - rate))}, dy, y, dx, n);
}
