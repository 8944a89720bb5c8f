#include "trainer/plateau.h"

#include <math.h>

bool np_metric_better(int metric, double threshold, double value, double best)
{
    if (!isfinite(best))
        return isfinite(value);
    return metric == NP_METRIC_LOSS ? value < best * (1 - threshold)
                                    : value > best * (1 + threshold);
}

void np_plateau_step(
    const struct np_schedule_options *options, double metric, struct np_plateau *plateau)
{
    if (plateau->nr_evals++ == 0) {
        plateau->factor = 1;
        plateau->best = (double)NAN;
    }
    plateau->nr_bad++;
    if (np_metric_better(options->metric, options->threshold, metric, plateau->best)) {
        plateau->best = metric;
        plateau->nr_bad = 0;
    }
    if (plateau->cooldown > 0) {
        plateau->cooldown--;
        plateau->nr_bad = 0;
    }
    if (plateau->nr_bad <= (uint64_t)options->patience)
        return;
    plateau->factor = fmax(plateau->factor * options->gamma, options->min);
    plateau->cooldown = (uint64_t)options->cooldown;
    plateau->nr_bad = 0;
}

double np_plateau_factor(const struct np_plateau *plateau)
{
    return plateau->nr_evals > 0 ? plateau->factor : 1;
}
