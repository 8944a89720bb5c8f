/* Adaptive average pool, upsampling and blur. One thread per element that is written, channels across
 * threads: a warp's reads are adjacent, and sums have one order. Twin: kernels_ref_resample.c. */
#include "trainer/cuda/kernels_half.cuh"
#include "trainer/graph/resample.h"

template <typename T>
static __global__ void resample(np_cuda_resample p, const T *x, T *y, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        int c = (int)(i % p.c), ox = (int)(i / p.c % p.out_w);
        int oy = (int)(i / p.c / p.out_w % p.out_h);
        uint64_t picture = i / p.c / p.out_w / p.out_h;
        np_blend down = np_resample_blend(p.mode, oy, p.h, p.out_h);
        np_blend along = np_resample_blend(p.mode, ox, p.w, p.out_w);
        float sum = 0;

        for (int iy = down.first; iy < down.first + down.count; iy++)
            for (int ix = along.first; ix < along.first + along.count; ix++)
                sum += np_blend_weight(down, iy) * np_blend_weight(along, ix) *
                       np_get(x[((picture * p.h + iy) * p.w + ix) * p.c + c]);
        np_put(&y[i], sum);
    }
}

struct range { /* of outputs, among which are all whose span has an input */
    int first, end;
};

static __device__ inline range outputs_of(int at, int in, int out)
{
    int first = (int)(((long long)at - 1) * out / in) - 1;
    int end = (int)(((long long)at + 2) * out / in) + 2;

    return {first < 0 ? 0 : first, end > out ? out : end};
}

/* Each dx gathers from the outputs that read it, in their order: no atomics. */
template <typename T>
static __global__ void resample_dgrad(np_cuda_resample p, const T *dy, T *dx, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        int c = (int)(i % p.c), ix = (int)(i / p.c % p.w), iy = (int)(i / p.c / p.w % p.h);
        uint64_t picture = i / p.c / p.w / p.h;
        range rows = outputs_of(iy, p.h, p.out_h), columns = outputs_of(ix, p.w, p.out_w);
        float sum = 0;

        for (int oy = rows.first; oy < rows.end; oy++) {
            np_blend down = np_resample_blend(p.mode, oy, p.h, p.out_h);

            if (iy < down.first || iy >= down.first + down.count)
                continue;
            for (int ox = columns.first; ox < columns.end; ox++) {
                np_blend along = np_resample_blend(p.mode, ox, p.w, p.out_w);

                if (ix >= along.first && ix < along.first + along.count)
                    sum += np_blend_weight(down, iy) * np_blend_weight(along, ix) *
                           np_get(dy[((picture * p.out_h + oy) * p.out_w + ox) * p.c + c]);
            }
        }
        np_put(&dx[i], sum);
    }
}

extern "C" void np_cuda_resample_run(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_resample *p, const void *x, void *y)
{
    uint64_t n = (uint64_t)p->n * p->out_h * p->out_w * p->c;

    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(resample<T>, np_blocks(n), NP_THREADS, 0, stream, *p, (const T *)x, (T *)y, n));
}

extern "C" void np_cuda_resample_dgrad(
    void *stream, enum np_cuda_dtype dtype, const np_cuda_resample *p, const void *dy, void *dx)
{
    uint64_t n = (uint64_t)p->n * p->h * p->w * p->c;

    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(
            resample_dgrad<T>, np_blocks(n), NP_THREADS, 0, stream, *p, (const T *)dy, (T *)dx, n));
}
