#include "trainer/plateau.h"

#include <math.h>

static bool better(const struct np_schedule_options *options, double metric, double best)
{
    if (!isfinite(best))
        return isfinite(metric);
    return options->metric == NP_METRIC_LOSS ? metric < best * (1 - options->threshold)
                                             : metric > best * (1 + options->threshold);
}

void np_plateau_step(
    const struct np_schedule_options *options, double metric, struct np_plateau *plateau)
{
    if (plateau->nr_evals++ == 0) {
        plateau->factor = 1;
        plateau->best = (double)NAN;
    }
    plateau->nr_bad++;
    if (better(options, metric, plateau->best)) {
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
