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
    double loss, lr; /* mean over the step's rows; the rate of the next or last update */
    double loss_sum; /* over the rows */
    double grad_norm;
    uint64_t rows, correct;
    double seconds, stall_seconds; /* of this step */
};
struct np_eval_report {
    uint64_t step, images, correct, top5;
    double loss, seconds;
};

/* Called on the trainer thread; a negative return ends the loop with it. */
struct np_trainer_hooks {
    /* Optional. A batch of either kind has arrived; its rows are valid during the call. */
    int (*batch)(void *context, const struct np_batch *batch);
    int (*step)(void *context, const struct np_step_report *report);
    int (*eval)(void *context, const struct np_eval_report *report);
    /* Optional. A batch of an evaluation is queued: the plan's logits are its own. */
    int (*evaluated)(void *context, const struct np_batch *batch);
    /* Does an evaluation come after so many steps? As the sampler has it. */
    bool (*eval_follows)(void *context, uint64_t step);
    /* Shall the loop end at the next boundary? Asked after each batch. */
    bool (*stopping)(void *context);
    /* Optional: NULL means always. Would boundary() write or end the run after this step? Only
     * then it is called, and all steps are reported first; else the numbers of a step are read while
     * the next one runs. */
    bool (*boundary_follows)(void *context, uint64_t step);
    /* The weights are whole: after each update and its evaluation. Writes a checkpoint where one
     * is due; must return negative when stopping() was true. eval_due: the evaluation after this
     * step has not been made, or was cut. */
    int (*boundary)(void *context, uint64_t step, bool eval_due);
    /* Optional. The next batch does not come: it cannot be read (-EIO), its samples are too bad
     * (-EBADMSG), or a stop came while it was waited for (-EINTR). A last chance to save; the loop then ends with `why`. step: of the last update; batches accumulated
     * since have moved the buffers, weights and optimizer are as boundary() found them. */
    void (*rescue)(void *context, uint64_t step, bool eval_due, int why);
    void *context;
};

struct np_trainer_config {
    struct np_device *device;
    struct np_plan *plan;
    struct np_feed *feed;
    const struct np_optim_options *optim;
    const struct np_schedule_options *schedule;
    uint64_t nr_steps,
        nr_train; /* batches of the run, a multiple of accumulate; samples an epoch */
    int batch, accumulate;
    uint64_t schedule_start; /* steps done when the schedule began; 0: with the run */
    uint64_t first_step;     /* a multiple of accumulate, at or behind schedule_start */
    bool eval_due;           /* an evaluation comes before the first step */
    struct np_trainer_hooks hooks;
    struct np_block *block;
    unsigned stubs; /* 1 << NP_STAGE_STEP: batches are given back at once, nothing is computed */
};
/* Runs to the last step (0), a hook's refusal (its value) or an error; a loss that is no number is
 * -EDOM. */
int np_trainer_run(const struct np_trainer_config *config, struct np_err *err);
/* One whole evaluation from the feed: batches up to the last part. Used alone by `eval`.
 * *ret_cut: stopping() was true and it was left (NULL: it is not asked). */
int np_trainer_eval(const struct np_trainer_config *config, uint64_t step, bool *ret_cut,
    struct np_eval_report *ret_report, struct np_err *err);

#endif
