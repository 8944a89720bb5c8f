#include "trainer/average.h"

#include <math.h>
#include <stddef.h>

#define AT(field) offsetof(struct np_average_options, field)

const struct np_option np_average_table[] = {
    {"decay", NP_OPT_FLOAT, AT(decay), "0.999", 1e-3, 0.99999999, NULL,
        "`average = decay * average + (1 - decay) * weight`."},
    {"every", NP_OPT_INT, AT(every), "1", 1, 1e9, NULL, "Updates between two averages."},
    {"warmup", NP_OPT_BOOL, AT(warmup), "false", 0, 0, NULL,
        "The k-th average decays by `(1 + k) / (10 + k)` at most, to forget the first weights."},
    {"rise", NP_OPT_FLOAT, AT(rise), "0", 0, 100, NULL,
        "Multiplies `decay` by `(update / updates of the run) ^ rise`: early weights are "
        "forgotten, "
        "and the last ones hardly count. 0: it stays as it is."},
    {"lookahead", NP_OPT_BOOL, AT(lookahead), "false", 0, 0, NULL,
        "Each average also becomes the weights and running statistics (Lookahead); with "
        "`decay: 0.5, every: 5` as in its paper."},
    NP_OPTIONS_END,
};

float np_average_weight(
    const struct np_average_options *options, uint64_t updates, uint64_t nr_updates)
{
    const uint64_t every = options->every > 0 ? (uint64_t)options->every : 1;
    const double k = (double)(updates / every) - 1, rising = (1 + k) / (10 + k);
    double decay = options->decay;

    if (decay == 0 || updates % every != 0)
        return 0;
    if (options->warmup && rising < decay)
        decay = rising;
    if (options->rise > 0)
        decay *= pow((double)updates / (double)nr_updates, options->rise);
    return (float)(1 - decay);
}

/* gcc 12 at -O2 does not vectorise loops of unknown length. */
__attribute__((optimize("O3"))) void np_average_blend(
    float *restrict average, const float *restrict values, uint64_t n, float weight)
{
    for (uint64_t i = 0; i < n; i++)
        average[i] += weight * (values[i] - average[i]);
}
