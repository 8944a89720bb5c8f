/* Batchnorm's formulas, with a channel's constants folded. kernels_norm.cu applies them,
 * kernels_channels.cu sums. */
#ifndef NP_KERNELS_BN_CUH
#define NP_KERNELS_BN_CUH

#include "trainer/cuda/kernels_half.cuh"

/* y = scale x + offset. One rounding each, written out: whether the relu after it passes an element
 * has to be the same decision forward and backward, in any compiler's order of products and sums. */
struct np_bn_line {
    float scale, offset;
};

static __device__ inline np_bn_line np_bn_fold(float mean, float inv_std, float gamma, float beta)
{
    float scale = inv_std * gamma;

    return {scale, fmaf(-mean, scale, beta)};
}

static __device__ inline float np_bn_at(np_bn_line line, float x)
{
    return fmaf(x, line.scale, line.offset);
}

#endif
