/* Pooling and permutations. One thread per output element, channels across threads: a warp's
 * reads are adjacent. */
#include "trainer/cuda/kernels_half.cuh"

#include <math.h>

/* --- max pooling ----------------------------------------------------------------------------- */

/* The place of a thread's N channels: picture n, line y, pixel x. */
struct place {
    uint64_t picture;
    int y, x, c;
};

/* i counts packs of N channels of (n, h, w, c). */
template <int N> static __device__ inline place place_of_32(uint32_t i, int h, int w, int c)
{
    uint32_t packs = (uint32_t)(c / N), pixel = i / packs, line = pixel / (uint32_t)w;

    return {line / (uint32_t)h, (int)(line % (uint32_t)h), (int)(pixel - line * (uint32_t)w),
        (int)(i - pixel * packs) * N};
}

/* In 32 bits if possible: a 64-bit division takes longer than the rest of a pooling. */
template <int N> static __device__ inline place place_of(uint64_t i, int h, int w, int c)
{
    if (i >> 32)
        return {i / (c / N) / w / h, (int)(i / (c / N) / w % h), (int)(i / (c / N) % w),
            (int)(i % (c / N)) * N};
    return place_of_32<N>((uint32_t)i, h, w, c);
}

static __device__ inline int within(int i, int n)
{
    return i < 0 ? 0 : i < n ? i : n - 1;
}

/* Windows of K x K; n: packs of y. A line of a window is loaded before it is compared. What lies outside of the picture is loaded
 * from its edge, and not compared: a load behind a condition waits for those before it. */
template <typename T, int N, int K>
static __global__ void __launch_bounds__(NP_THREADS, 2)
    maxpool_known(np_cuda_pool p, const T *x, T *y, uint8_t *argmax, uint32_t n)
{
    typedef np_pack<T, N> pack;
    typedef np_pack<uint8_t, N> pack_of_bytes;

    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        const place o = place_of_32<N>((uint32_t)i, p.out_h, p.out_w, p.c);
        const int top = o.y * p.stride_h - p.pad_h, left = o.x * p.stride_w - p.pad_w;
        float most[N];
        int at[N];
        pack out;
        pack_of_bytes chosen;

        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            most[k] = -INFINITY;
            at[k] = -1;
        }
        NP_UNROLL(1)
        for (int ky = 0; ky < K; ky++) {
            const int iy = top + ky;
            const T *line = x + (o.picture * p.h + within(iy, p.h)) * p.w * p.c + o.c;
            np_loaded<pack> raw[K];

            NP_UNROLL(K)
            for (int kx = 0; kx < K; kx++)
                raw[kx] = np_load((const pack *)(line + (int64_t)within(left + kx, p.w) * p.c));
            NP_UNROLL(K)
            for (int kx = 0; kx < K; kx++) {
                const pack in = np_open<pack>(raw[kx]);
                const bool there = iy >= 0 && iy < p.h && left + kx >= 0 && left + kx < p.w;

                NP_UNROLL(N)
                for (int k = 0; k < N; k++) {
                    const float v = np_get(in.v[k]);
                    const bool wins = there && (at[k] < 0 || v > most[k] || v != v);

                    most[k] = wins ? v : most[k];
                    at[k] = wins ? ky * K + kx : at[k];
                }
            }
        }
        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            np_put(&out.v[k], most[k]);
            chosen.v[k] = (uint8_t)(at[k] < 0 ? 0 : at[k]);
        }
        ((pack *)y)[i] = out;
        if (argmax)
            ((pack_of_bytes *)argmax)[i] = chosen;
    }
}

/* Any window. */
template <typename T, int N>
static __global__ void maxpool(np_cuda_pool p, const T *x, T *y, uint8_t *argmax, uint64_t n)
{
    typedef np_pack<T, N> pack;
    typedef np_pack<uint8_t, N> pack_of_bytes;

    for (uint64_t i = np_thread(); i < n / N; i += np_stride()) {
        const place o = place_of<N>(i, p.out_h, p.out_w, p.c);
        float most[N];
        int at[N];

        for (int k = 0; k < N; k++) {
            most[k] = -INFINITY;
            at[k] = -1;
        }
        for (int ky = 0; ky < p.kernel_h; ky++)
            for (int kx = 0; kx < p.kernel_w; kx++) {
                int iy = o.y * p.stride_h - p.pad_h + ky;
                int ix = o.x * p.stride_w - p.pad_w + kx;

                if (iy < 0 || iy >= p.h || ix < 0 || ix >= p.w)
                    continue;
                pack in = *(const pack *)&x[((o.picture * p.h + iy) * p.w + ix) * p.c + o.c];

                for (int k = 0; k < N; k++) {
                    float v = np_get(in.v[k]);

                    if (at[k] < 0 || v > most[k] || v != v) { /* the first of equals; a NaN wins */
                        most[k] = v;
                        at[k] = ky * p.kernel_w + kx;
                    }
                }
            }
        pack out;
        pack_of_bytes chosen;

        for (int k = 0; k < N; k++) {
            np_put(&out.v[k], most[k]);
            chosen.v[k] = (uint8_t)(at[k] < 0 ? 0 : at[k]);
        }
        ((pack *)y)[i] = out;
        if (argmax)
            ((pack_of_bytes *)argmax)[i] = chosen;
    }
}

/* The windows over a square of 2 x 2 pixels, as they were loaded: W * W of them, where windows of K x K have a
 * stride of 2. */
template <typename T, int N, int W> struct windows {
    np_loaded<np_pack<T, N>> dy[W * W], made[W * W];
    np_loaded<np_pack<uint8_t, N>> chosen[W * W];
};

/* at: of the square, whose first pixel is (2 y, 2 x) of the padded picture. A window that is not there is another one
 * in its place. */
template <typename T, int N, int W, bool MASKED>
static __device__ inline void load_windows(const np_cuda_pool &p, const place &at, const T *dy,
    const uint8_t *argmax, const T *y, windows<T, N, W> *to)
{
    NP_UNROLL(W * W)
    for (int w = 0; w < W * W; w++) {
        const int oy = within(at.y - (W - 1) + w / W, p.out_h);
        const int ox = within(at.x - (W - 1) + w % W, p.out_w);
        const uint64_t o = ((at.picture * p.out_h + oy) * p.out_w + ox) * p.c + at.c;

        to->dy[w] = np_load((const np_pack<T, N> *)&dy[o]);
        to->chosen[w] = np_load((const np_pack<uint8_t, N> *)&argmax[o]);
        if (MASKED)
            to->made[w] = np_load((const np_pack<T, N> *)&y[o]);
    }
}

/* The gradient of the square's pixel (py, px), both 0 or 1. */
template <typename T, int N, int K, int W, bool MASKED>
static __device__ inline np_pack<T, N> gather(
    const np_cuda_pool &p, const place &at, const windows<T, N, W> &from, int py, int px)
{
    float sum[N] = {0};
    np_pack<T, N> out;

    NP_UNROLL(W * W)
    for (int w = 0; w < W * W; w++) { /* outputs in their order */
        const int before_y = W - 1 - w / W, before_x = W - 1 - w % W;
        const int oy = at.y - before_y, ox = at.x - before_x;
        const int ky = py + 2 * before_y, kx = px + 2 * before_x;
        const bool there = oy >= 0 && ox >= 0 && oy < p.out_h && ox < p.out_w;

        if (ky >= K || kx >= K)
            continue;
        const np_pack<T, N> dy = np_open<np_pack<T, N>>(from.dy[w]);
        const np_pack<T, N> made = MASKED ? np_open<np_pack<T, N>>(from.made[w]) : dy;
        const np_pack<uint8_t, N> chosen = np_open<np_pack<uint8_t, N>>(from.chosen[w]);

        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            const bool mine = there && chosen.v[k] == ky * K + kx;

            sum[k] += mine && (!MASKED || np_get(made.v[k]) > 0) ? np_get(dy.v[k]) : 0.0f;
        }
    }
    NP_UNROLL(N)
    for (int k = 0; k < N; k++)
        np_put(&out.v[k], sum[k]);
    return out;
}

/* Each pixel's sum of the gradients of the windows over it that chose it, from the first on; MASKED, by y, which the
 * pool made: of those that made a positive one. Windows of K x K with a stride of 2. A thread has N channels of
 * squares of 2 x 2 pixels, U squares at a time, whose windows it loads before it adds: each window is loaded for 4
 * pixels, or 1 if it overlaps no other. n: packs of all squares, of which a picture has h x w. */
template <typename T, int N, int K, bool MASKED>
static __global__ void __launch_bounds__(NP_THREADS, 2) maxpool_dgrad_known(
    np_cuda_pool p, int h, int w, const T *dy, const uint8_t *argmax, const T *y, T *dx, uint32_t n)
{
    const int W = K - 1, U = W > 1 ? 1 : MASKED ? 2 : 4;

    for (uint64_t i = np_thread(); i < n; i += U * np_stride()) {
        windows<T, N, W> in[U];
        place at[U];

        NP_UNROLL(U)
        for (int u = 0; u < U; u++) {
            const uint64_t mine = i + u * np_stride();

            at[u] = place_of_32<N>(mine < n ? (uint32_t)mine : n - 1, h, w, p.c);
            load_windows<T, N, W, MASKED>(p, at[u], dy, argmax, y, &in[u]);
        }
        NP_UNROLL(U)
        for (int u = 0; u < U; u++) {
            const int top = 2 * at[u].y - p.pad_h, left = 2 * at[u].x - p.pad_w;

            if (i + u * np_stride() >= n)
                break;
            NP_UNROLL(4)
            for (int pixel = 0; pixel < 4; pixel++) {
                const int py = pixel / 2, px = pixel % 2, row = top + py, column = left + px;
                const np_pack<T, N> out = gather<T, N, K, W, MASKED>(p, at[u], in[u], py, px);

                if (row >= 0 && row < p.h && column >= 0 && column < p.w)
                    *(np_pack<T, N> *)&dx[((at[u].picture * p.h + row) * p.w + column) * p.c +
                                          at[u].c] = out;
            }
        }
    }
}

/* Any window. */
template <typename T, int N>
static __global__ void maxpool_dgrad(
    np_cuda_pool p, const T *dy, const uint8_t *argmax, const T *y, T *dx, uint64_t n)
{
    typedef np_pack<T, N> pack;
    typedef np_pack<uint8_t, N> pack_of_bytes;

    for (uint64_t i = np_thread(); i < n / N; i += np_stride()) {
        const place at = place_of<N>(i, p.h, p.w, p.c);
        float sum[N] = {0};

        /* ky falls as oy rises: outputs in their order */
        for (int ky = p.kernel_h - 1; ky >= 0; ky--) {
            int top = at.y + p.pad_h - ky, oy = top / p.stride_h;

            if (top < 0 || oy * p.stride_h != top || oy >= p.out_h)
                continue;
            for (int kx = p.kernel_w - 1; kx >= 0; kx--) {
                int left = at.x + p.pad_w - kx, ox = left / p.stride_w;

                if (left < 0 || ox * p.stride_w != left || ox >= p.out_w)
                    continue;
                uint64_t o = ((at.picture * p.out_h + oy) * p.out_w + ox) * p.c + at.c;
                pack_of_bytes chosen = *(const pack_of_bytes *)&argmax[o];
                pack in = *(const pack *)&dy[o], made = y ? *(const pack *)&y[o] : in;

                NP_UNROLL(N)
                for (int k = 0; k < N; k++) {
                    const bool mine =
                        chosen.v[k] == ky * p.kernel_w + kx && (!y || np_get(made.v[k]) > 0);

                    sum[k] += mine ? np_get(in.v[k]) : 0.0f;
                }
            }
        }
        pack out;

        NP_UNROLL(N)
        for (int k = 0; k < N; k++)
            np_put(&out.v[k], sum[k]);
        ((pack *)dx)[i] = out;
    }
}

/* Are the windows squares of this side and stride, and the picture's packs counted in 32 bits? */
static bool is_square(const np_cuda_pool *pool, int kernel, int stride)
{
    return pool->kernel_h == kernel && pool->kernel_w == kernel && pool->stride_h == stride &&
           pool->stride_w == stride &&
           ((uint64_t)pool->n * (pool->h + 2) * (pool->w + 2) * pool->c) >> 32 == 0;
}

extern "C" void np_cuda_maxpool(void *stream, enum np_cuda_dtype dtype, const np_cuda_pool *pool,
    const void *x, void *y, uint8_t *argmax)
{
    uint64_t n = (uint64_t)pool->n * pool->out_h * pool->out_w * pool->c;
    bool aligned = np_aligned(x) && np_aligned(y) && np_aligned(argmax);

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;

        if (aligned && pool->c % wide == 0 && is_square(pool, 3, pool->stride_h))
            NP_LAUNCH((maxpool_known<T, wide, 3>), np_blocks(n / wide), NP_THREADS, 0, stream,
                *pool, (const T *)x, (T *)y, argmax, (uint32_t)(n / wide));
        else if (aligned && pool->c % wide == 0 && is_square(pool, 2, pool->stride_h))
            NP_LAUNCH((maxpool_known<T, wide, 2>), np_blocks(n / wide), NP_THREADS, 0, stream,
                *pool, (const T *)x, (T *)y, argmax, (uint32_t)(n / wide));
        else if (aligned && pool->c % wide == 0)
            NP_LAUNCH((maxpool<T, wide>), np_blocks(n / wide), NP_THREADS, 0, stream, *pool,
                (const T *)x, (T *)y, argmax, n);
        else
            NP_LAUNCH((maxpool<T, 1>), np_blocks(n), NP_THREADS, 0, stream, *pool, (const T *)x,
                (T *)y, argmax, n);
    });
}

/* Squares of pixels of a side of the padded picture. */
static int squares(int pixels, int pad)
{
    return (pixels + pad + 1) / 2;
}

template <typename T, int K>
static void dgrad_known(
    void *stream, const np_cuda_pool *pool, const T *dy, const uint8_t *argmax, const T *y, T *dx)
{
    const int wide = np_width<T>::n;
    const int h = squares(pool->h, pool->pad_h), w = squares(pool->w, pool->pad_w);
    const uint32_t n = (uint32_t)((uint64_t)pool->n * h * w * (pool->c / wide));

    if (y)
        NP_LAUNCH((maxpool_dgrad_known<T, wide, K, true>), np_blocks(n), NP_THREADS, 0, stream,
            *pool, h, w, dy, argmax, y, dx, n);
    else
        NP_LAUNCH((maxpool_dgrad_known<T, wide, K, false>), np_blocks(n), NP_THREADS, 0, stream,
            *pool, h, w, dy, argmax, y, dx, n);
}

extern "C" void np_cuda_maxpool_dgrad(void *stream, enum np_cuda_dtype dtype,
    const struct np_cuda_pool *pool, const void *dy, const uint8_t *argmax, const void *y, void *dx)
{
    uint64_t n = (uint64_t)pool->n * pool->h * pool->w * pool->c;
    bool aligned = np_aligned(dy) && np_aligned(dx) && np_aligned(argmax) && np_aligned(y);

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;
        const T *in = (const T *)dy, *made = (const T *)y;

        if (aligned && pool->c % wide == 0 && is_square(pool, 3, 2))
            dgrad_known<T, 3>(stream, pool, in, argmax, made, (T *)dx);
        else if (aligned && pool->c % wide == 0 && is_square(pool, 2, 2))
            dgrad_known<T, 2>(stream, pool, in, argmax, made, (T *)dx);
        else if (aligned && pool->c % wide == 0)
            NP_LAUNCH((maxpool_dgrad<T, wide>), np_blocks(n / wide), NP_THREADS, 0, stream, *pool,
                in, argmax, made, (T *)dx, n);
        else
            NP_LAUNCH((maxpool_dgrad<T, 1>), np_blocks(n), NP_THREADS, 0, stream, *pool, in, argmax,
                made, (T *)dx, n);
    });
}

/* --- average pooling ------------------------------------------------------------------------- */

/* Elements of a window: those in the padding count, those beyond it (ceil_mode) do not. */
static __device__ inline int area_of(const np_cuda_pool &p, int oy, int ox)
{
    int beyond_h = oy * p.stride_h + p.kernel_h - 2 * p.pad_h - p.h;
    int beyond_w = ox * p.stride_w + p.kernel_w - 2 * p.pad_w - p.w;

    return (p.kernel_h - (beyond_h > 0 ? beyond_h : 0)) *
           (p.kernel_w - (beyond_w > 0 ? beyond_w : 0));
}

template <typename T> static __global__ void avgpool(np_cuda_pool p, const T *x, T *y, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        const place o = place_of<1>(i, p.out_h, p.out_w, p.c);
        float sum = 0;

        for (int ky = 0; ky < p.kernel_h; ky++)
            for (int kx = 0; kx < p.kernel_w; kx++) {
                int iy = o.y * p.stride_h - p.pad_h + ky;
                int ix = o.x * p.stride_w - p.pad_w + kx;

                if (iy >= 0 && iy < p.h && ix >= 0 && ix < p.w)
                    sum += np_get(x[((o.picture * p.h + iy) * p.w + ix) * p.c + o.c]);
            }
        np_put(&y[i], sum / (float)area_of(p, o.y, o.x));
    }
}

template <typename T>
static __global__ void avgpool_dgrad(np_cuda_pool p, const T *dy, T *dx, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        const place at = place_of<1>(i, p.h, p.w, p.c);
        float sum = 0, whole = (float)(p.kernel_h * p.kernel_w);

        for (int ky = p.kernel_h - 1; ky >= 0; ky--)
            for (int kx = p.kernel_w - 1; kx >= 0; kx--) {
                int top = at.y + p.pad_h - ky, left = at.x + p.pad_w - kx;
                int oy = top / p.stride_h, ox = left / p.stride_w;

                if (top >= 0 && left >= 0 && top % p.stride_h == 0 && left % p.stride_w == 0 &&
                    oy < p.out_h && ox < p.out_w)
                    sum += np_get(dy[((at.picture * p.out_h + oy) * p.out_w + ox) * p.c + at.c]) *
                           (whole / (float)area_of(p, oy, ox));
            }
        np_put(&dx[i], sum / whole);
    }
}

extern "C" void np_cuda_avgpool(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_pool *pool, const void *x, void *y)
{
    uint64_t n = (uint64_t)pool->n * pool->out_h * pool->out_w * pool->c;

    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(avgpool<T>, np_blocks(n), NP_THREADS, 0, stream, *pool, (const T *)x, (T *)y, n));
}

extern "C" void np_cuda_avgpool_dgrad(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_pool *pool, const void *dy, void *dx)
{
    uint64_t n = (uint64_t)pool->n * pool->h * pool->w * pool->c;

    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(avgpool_dgrad<T>, np_blocks(n), NP_THREADS, 0, stream, *pool, (const T *)dy,
            (T *)dx, n));
}

#define PIXELS 8 /* that a thread loads before it adds them */

/* One thread per N channels of a picture: its pixels in their order. */
template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS)
    global_avgpool(const T *x, T *y, int hw, int c, uint64_t n)
{
    typedef np_pack<T, N> pack;

    for (uint64_t i = np_thread(); i < n / N; i += np_stride()) {
        const uint64_t picture = np_quotient(i, c / N), packs = c / N;
        const pack *from = (const pack *)x + picture * hw * packs + (i - picture * packs);
        float sum[N] = {0};
        pack out;
        int p = 0;

        for (; p + PIXELS <= hw; p += PIXELS) {
            pack in[PIXELS];

            NP_UNROLL(PIXELS)
            for (int u = 0; u < PIXELS; u++)
                in[u] = np_load_once(&from[(p + u) * packs]);
            NP_UNROLL(PIXELS)
            for (int u = 0; u < PIXELS; u++) {
                NP_UNROLL(N)
                for (int k = 0; k < N; k++)
                    sum[k] += np_get(in[u].v[k]);
            }
        }
        NP_UNROLL(1)
        for (; p < hw; p++) {
            const pack in = np_load_once(&from[p * packs]);

            NP_UNROLL(N)
            for (int k = 0; k < N; k++)
                sum[k] += np_get(in.v[k]);
        }
        NP_UNROLL(N)
        for (int k = 0; k < N; k++)
            np_put(&out.v[k], sum[k] / (float)hw);
        ((pack *)y)[i] = out;
    }
}

template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS)
    global_avgpool_dgrad(const T *dy, T *dx, int hw, int c, uint64_t n)
{
    typedef np_pack<T, N> pack;

    for (uint64_t i = np_thread(); i < n / N; i += np_stride()) {
        const uint64_t packs = c / N, pixel = np_quotient(i, c / N);
        pack in = ((const pack *)dy)[np_quotient(pixel, hw) * packs + (i - pixel * packs)];

        NP_UNROLL(N)
        for (int k = 0; k < N; k++)
            np_put(&in.v[k], np_get(in.v[k]) / (float)hw);
        ((pack *)dx)[i] = in;
    }
}

extern "C" void np_cuda_global_avgpool(
    void *stream, enum np_cuda_dtype dtype, const void *x, void *y, int n, int hw, int c)
{
    const uint64_t all = (uint64_t)n * c;
    const bool aligned = np_aligned(x) && np_aligned(y);

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;

        if (aligned && c % wide == 0)
            NP_LAUNCH((global_avgpool<T, wide>), np_blocks(all / wide), NP_THREADS, 0, stream,
                (const T *)x, (T *)y, hw, c, all);
        else
            NP_LAUNCH((global_avgpool<T, 1>), np_blocks(all), NP_THREADS, 0, stream, (const T *)x,
                (T *)y, hw, c, all);
    });
}

extern "C" void np_cuda_global_avgpool_dgrad(
    void *stream, enum np_cuda_dtype dtype, const void *dy, void *dx, int n, int hw, int c)
{
    const uint64_t all = (uint64_t)n * hw * c;
    const bool aligned = np_aligned(dy) && np_aligned(dx);

    NP_FOR_DTYPE(dtype, T, {
        const int wide = np_width<T>::n;

        if (aligned && c % wide == 0)
            NP_LAUNCH((global_avgpool_dgrad<T, wide>), np_blocks(all / wide), NP_THREADS, 0, stream,
                (const T *)dy, (T *)dx, hw, c, all);
        else
            NP_LAUNCH((global_avgpool_dgrad<T, 1>), np_blocks(all), NP_THREADS, 0, stream,
                (const T *)dy, (T *)dx, hw, c, all);
    });
}

/* --- places ---------------------------------------------------------------------------------- */

#define MOVED 8 /* elements that a thread loads before it stores them */

/* Output element i of (n, c, hw), or back of (n, hw, c). */
template <typename T>
static __global__ void flatten(const T *x, T *y, int hw, int c, bool back, uint64_t n)
{
    const uint64_t row = (uint64_t)hw * c;
    const int inner = back ? c : hw, outer = back ? hw : c;

    for (uint64_t i = np_thread(); i < n; i += MOVED * np_stride()) {
        T in[MOVED];

        NP_UNROLL(MOVED)
        for (int u = 0; u < MOVED; u++) {
            const uint64_t to = i + u * np_stride() < n ? i + u * np_stride() : n - 1;
            const uint64_t picture = np_quotient(to, hw * c), at = to - picture * row;
            const int outer_at = (int)np_quotient(at, inner);
            const int inner_at = (int)at - outer_at * inner;

            in[u] = x[picture * row + (uint64_t)inner_at * outer + outer_at];
        }
        NP_UNROLL(MOVED)
        for (int u = 0; u < MOVED; u++)
            if (i + u * np_stride() < n)
                y[i + u * np_stride()] = in[u];
    }
}

extern "C" void np_cuda_flatten(
    void *stream, enum np_cuda_dtype dtype, const void *x, void *y, int n, int hw, int c, bool back)
{
    uint64_t all = (uint64_t)n * hw * c;

    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(flatten<T>, np_blocks(all), NP_THREADS, 0, stream, (const T *)x, (T *)y, hw, c,
            back, all));
}

template <typename T>
static __global__ void copy_channels(
    const T *x, int x_c, int from, T *y, int y_c, int to, int channels, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        uint64_t row = np_quotient(i, channels);
        int c = (int)(i - row * channels);

        y[row * y_c + to + c] = x[row * x_c + from + c];
    }
}

extern "C" void np_cuda_copy_channels(void *stream, enum np_cuda_dtype dtype, const void *x,
    int x_c, int from, void *y, int y_c, int to, int channels, uint64_t rows)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(copy_channels<T>, np_blocks(rows * channels), NP_THREADS, 0, stream, (const T *)x,
            x_c, from, (T *)y, y_c, to, channels, rows * channels));
}
