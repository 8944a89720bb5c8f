/* A moving average of the weights (EMA; Polyak and Juditsky 1992) and Lookahead (arXiv:1907.08610),
 * which also sets the weights to it; and the running statistics, as airbench94's code does (timm's
 * Lookahead is an optimizer, which sees only weights). Devices keep the average beside the weights
 * (NP_ARRAY_AVERAGE) and swap both around an evaluation. */
#ifndef NP_AVERAGE_H
#define NP_AVERAGE_H

#include "loader/base/option.h"

struct np_average_options {
    double decay; /* 0: no average */
    int64_t every;
    double rise; /* 0: the decay is the same in the whole run */
    bool warmup, lookahead;
};
extern const struct np_option np_average_table[]; /* `train.ema` */

/* The weight of the new values after `updates` of the run's nr_updates, this one included: average +=
 * weight * (new - average). 0: no average is due. Pure.
 *
 *   weight = 1 - decay;  with warmup, at average number k (from 0):
 *   weight = 1 - min(decay, (1 + k) / (10 + k)), as TensorFlow's ExponentialMovingAverage
 *   with rise: decay * (updates / nr_updates)^rise instead of decay, as Jordan's airbench94
 *              (arXiv:2404.00498) */
float np_average_weight(
    const struct np_average_options *options, uint64_t updates, uint64_t nr_updates);
/* average[i] += weight * (values[i] - average[i]), as torch's lerp_(); any thread. */
void np_average_blend(float *average, const float *values, uint64_t n, float weight);

#endif
