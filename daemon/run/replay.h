/* Rows of a run's training steps, made again: the same pixels, samples and labels. Main thread. */
#ifndef NP_REPLAY_H
#define NP_REPLAY_H

#include "daemon/config/setup.h"
#include "daemon/data/remake.h"
#include "daemon/run/run_options.h"

struct np_replay {
    uint64_t nr_steps;            /* of the run, by the keys in force */
    int batch;                    /* rows */
    const struct np_setup *setup; /* train, classes, size */
    struct np_loader_config loader;
    char changed[1024]; /* a file that has changed since it was listed; "": none */
    bool usage;         /* the command line or the data caused the error: exit code 2 */

    /* private to replay.c */
    struct np_run *run;
    struct np_run_options options;
    struct np_stat *stat;
};

/* Opens the training set of the run in dir, whose config is `config` (borrowed; data.test and
 * data.val are left out). Rate, schedule and length are those of its newest checkpoint. Checks
 * names and labels of the set against that checkpoint; progress->note reports changed sizes.
 * -EINVAL: the set is another one. The caller calls np_replay_close() in any case. */
int np_replay_open(struct np_replay *replay, struct np_config *config, const char *dir,
    const struct np_source_progress *progress, struct np_err *err);
void np_replay_close(struct np_replay *replay);
/* Makes one row (0 to batch - 1) of a step (steps before it), or all rows (row -1), and calls
 * take() for each. -ERANGE: there is no such step or row. */
int np_replay_step(struct np_replay *replay, uint64_t step, int row, np_remade_fn *take,
    void *context, struct np_err *err);

#endif
