#include "trainer/early.h"

#include <math.h>
#include <stddef.h>

#include "trainer/plateau.h"

#define AT(field) offsetof(struct np_early_options, field)

const struct np_option np_early_table[] = {
    {"metric", NP_OPT_WORD, AT(metric), "loss", 0, 0, NP_METRIC_WORDS, NP_METRIC_HELP},
    {"patience", NP_OPT_INT, AT(patience), "10", 0, 1e9, NULL,
        "Evaluations in a row without an improvement that are allowed; the next one ends the run."},
    {"threshold", NP_OPT_FLOAT, AT(threshold), "1e-4", 0, 1, NULL,
        "A smaller improvement, as a share of the best value so far, does not count."},
    {"min_epochs", NP_OPT_FLOAT, AT(min_epochs), "0", 0, 1e6, NULL, "The run does not end before."},
    NP_OPTIONS_END,
};

void np_early_step(const struct np_early_options *options, double metric, uint64_t step,
    double epoch, struct np_early *early)
{
    if (early->stopped)
        return;
    if (early->nr_evals++ == 0)
        early->best = (double)NAN;
    early->nr_bad++;
    if (np_metric_better(options->metric, options->threshold, metric, early->best)) {
        early->best = metric;
        early->nr_bad = 0;
    }
    if (early->nr_bad > (uint64_t)options->patience && epoch >= options->min_epochs)
        early->stopped = step;
}
