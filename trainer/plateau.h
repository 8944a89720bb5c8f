/* The schedule `plateau`: its state, which a checkpoint stores. Trainer thread. */
#ifndef NP_PLATEAU_H
#define NP_PLATEAU_H

#include "trainer/schedule.h"

struct np_plateau {
    uint64_t nr_evals; /* seen so far; 0: the other fields are 0, too */
    uint64_t nr_bad;   /* evaluations without an improvement */
    uint64_t cooldown; /* evaluations left that do not count */
    double best;       /* metric of the best one; not finite: none yet */
    double factor;     /* on the rate */
};
/* Is a value of an evaluation better than the best one so far, by more than that share of it?
 * metric: enum np_metric. No finite best: any number is. */
bool np_metric_better(int metric, double threshold, double value, double best);
/* Takes the metric of an evaluation: its loss, its accuracy in 0 to 1, or another one. A metric that is not a
 * number is no improvement. As torch's ReduceLROnPlateau with threshold_mode rel. */
void np_plateau_step(
    const struct np_schedule_options *options, double metric, struct np_plateau *plateau);
/* Factor on the rate; 1 before the first evaluation. */
double np_plateau_factor(const struct np_plateau *plateau);

#endif
