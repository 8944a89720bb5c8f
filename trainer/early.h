/* Early stopping (`train.stop`): a run ends when its evaluations no longer improve (Prechelt 1998,
 * "Early stopping - but when?", UP criterion). A checkpoint stores the state. Trainer thread. */
#ifndef NP_EARLY_H
#define NP_EARLY_H

#include "loader/base/option.h"

struct np_early_options {
    int metric; /* enum np_metric */
    int64_t patience;
    double threshold, min_epochs;
};
extern const struct np_option np_early_table[];

struct np_early {
    uint64_t nr_evals; /* seen so far; 0: the other fields are 0, too */
    uint64_t nr_bad;   /* evaluations in a row without an improvement */
    uint64_t stopped;  /* step of the evaluation that ended the run; 0: it goes on */
    double best;       /* metric of the best one; not finite: none yet */
};
/* Takes the metric of the evaluation after `step`, as np_plateau_step(); epoch: of that step. Sets
 * `stopped` if it is the first one at or after min_epochs with more than `patience` evaluations in
 * a row without an improvement; then the state no longer changes. */
void np_early_step(const struct np_early_options *options, double metric, uint64_t step,
    double epoch, struct np_early *early);

#endif
