/* Averages of an adaptive pool, upsampling and blur: along each side an output is a weighted sum of
 * adjacent inputs. Included by C and .cu files. */
#ifndef NP_RESAMPLE_H
#define NP_RESAMPLE_H

#ifdef __CUDACC__
#define NP_RESAMPLE_FN static __host__ __device__ inline
#else
#define NP_RESAMPLE_FN static inline
#endif

enum np_resample { NP_RESAMPLE_MEAN, NP_RESAMPLE_NEAREST, NP_RESAMPLE_BILINEAR, NP_RESAMPLE_BLUR };

/* Inputs first .. first + count - 1; the weight of input `main`, and that of each other. */
struct np_blend {
    int first, count, main;
    float weight, rest;
};
NP_RESAMPLE_FN float np_blend_weight(struct np_blend span, int at)
{
    return at == span.main ? span.weight : span.rest;
}

/* Output `at` of `out` from `in` inputs, as torch: adaptive_avg_pool2d's bins (which overlap where in
 * is no multiple of out), interpolate's nearest and bilinear with align_corners=False. Blur: a convolution with 1/4, 1/2,
 * 1/4 and a border of zeros; of stride 2 unless out is in (Zhang, arXiv:1904.11486). */
NP_RESAMPLE_FN struct np_blend np_resample_blend(int mode, int at, int in, int out)
{
    struct np_blend span;

    if (mode == NP_RESAMPLE_MEAN) {
        span.first = (int)((long long)at * in / out);
        span.count = (int)((((long long)at + 1) * in + out - 1) / out) - span.first;
        span.weight = span.rest = 1 / (float)span.count;
    } else if (mode == NP_RESAMPLE_NEAREST) {
        span.first = (int)((long long)at * in / out);
        span.count = 1;
        span.weight = span.rest = 1;
    } else if (mode == NP_RESAMPLE_BLUR) {
        const int at_in = out == in ? at : 2 * at;

        span.main = at_in;
        span.first = at_in > 0 ? at_in - 1 : 0;
        span.count = (at_in + 1 < in ? at_in + 2 : in) - span.first;
        span.weight = 0.5f;
        span.rest = 0.25f;
        return span;
    } else {
        const float middle = ((float)at + 0.5f) * ((float)in / (float)out) - 0.5f;
        const float place = middle < 0 ? 0 : middle;

        span.first = (int)place;
        span.rest = place - (float)span.first;
        span.weight = 1 - span.rest;
        span.count = span.first + 1 < in ? 2 : 1;
        if (span.count == 1)
            span.weight = 1;
    }
    span.main = span.first;
    return span;
}

#endif
