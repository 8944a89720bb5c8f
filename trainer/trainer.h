/* One step, and the loop of steps. Trainer thread. Knows no files and no signals: it
 * reports, and asks whether to stop. */
#ifndef NP_TRAINER_H
#define NP_TRAINER_H

#include "trainer/feed.h"
#include "trainer/optim.h"
#include "trainer/plan.h"
#include "trainer/schedule.h"

struct np_step_report {
    uint64_t step; /* done, this one included */
    double epoch;
    double loss, lr; /* mean over the step's rows */
    uint64_t rows, correct;
    double seconds, stall_seconds; /* of this step */
    const struct np_batch *batch;  /* how its rows came about; valid during the call */
};
struct np_eval_report {
    uint64_t step, images, correct, top5;
    double loss, seconds;
};

/* Called on the trainer thread; a negative return ends the loop with it. */
struct np_trainer_hooks {
    int (*step)(void *context, const struct np_step_report *report);
    int (*eval)(void *context, const struct np_eval_report *report);
    /* After each step and its evaluation: write a checkpoint now? stop now? */
    int (*boundary)(void *context, uint64_t step, bool eval_due);
    void *context;
};

struct np_trainer_config {
    struct np_device *device;
    struct np_plan *plan;
    struct np_feed *feed;
    const struct np_optim_options *optim;
    const struct np_schedule_options *schedule;
    uint64_t nr_steps, nr_train; /* nr_train: samples in an epoch */
    int batch, accumulate;
    uint64_t first_step;
    struct np_trainer_hooks hooks;
    struct np_block *block;
};
/* Runs to the last step (0), a hook's refusal (its value) or an error. */
int np_trainer_run(const struct np_trainer_config *config, struct np_err *err);

#endif
