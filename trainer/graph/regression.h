/* The losses of numbers, for CPU and GPU: of a difference d of an output to its value. */
#ifndef NP_REGRESSION_H
#define NP_REGRESSION_H

#ifdef __CUDACC__
#define NP_REGRESSION_INLINE static inline __device__
#else
#define NP_REGRESSION_INLINE static inline
#endif

/* d * d, |d|, or Huber's (Annals of Mathematical Statistics 35, 1964): d * d / 2 up to |d| = delta,
 * then delta * (|d| - delta / 2). */
enum np_regression { NP_REGRESSION_MSE, NP_REGRESSION_L1, NP_REGRESSION_HUBER };

NP_REGRESSION_INLINE float np_regression_loss(enum np_regression kind, float delta, float d)
{
    const float size = d < 0 ? -d : d;

    if (kind == NP_REGRESSION_MSE)
        return d * d;
    if (kind == NP_REGRESSION_L1)
        return size;
    return size <= delta ? d * d / 2 : delta * (size - delta / 2);
}

/* Its derivative; of |d| at 0: 0, as in torch. A NaN stays one. */
NP_REGRESSION_INLINE float np_regression_slope(enum np_regression kind, float delta, float d)
{
    if (kind == NP_REGRESSION_MSE)
        return 2 * d;
    if (kind == NP_REGRESSION_L1)
        return d > 0 ? 1 : d < 0 ? -1 : d;
    return d > delta ? delta : d < -delta ? -delta : d;
}

#endif
