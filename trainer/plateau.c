#include "trainer/plateau.h"

#include <math.h>

const char *const np_metric_names[] = {
    [NP_METRIC_LOSS] = "loss",
    [NP_METRIC_ACCURACY] = "accuracy",
    [NP_METRIC_MAP] = "map",
    [NP_METRIC_MAE] = "mae",
    [NP_METRIC_RMSE] = "rmse",
    [NP_METRIC_R2] = "r2",
    [NP_NR_METRICS] = NULL,
};

bool np_metric_better(int metric, double threshold, double value, double best)
{
    if (!isfinite(best))
        return isfinite(value);
    if (metric == NP_METRIC_LOSS || metric == NP_METRIC_MAE || metric == NP_METRIC_RMSE)
        return value < best * (1 - threshold);
    return value > best * (1 + (best < 0 ? -threshold : threshold)); /* R2 may be below 0 */
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
