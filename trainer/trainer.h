/* The training loop. Trainer thread. Knows no files and no signals: hooks receive its results
 * and decide when to stop. */
#ifndef NP_TRAINER_H
#define NP_TRAINER_H

#include "trainer/average.h"
#include "trainer/feed.h"
#include "trainer/lanes.h"
#include "trainer/optim.h"
#include "trainer/plan.h"
#include "trainer/plateau.h"

struct np_step_report {
    uint64_t step; /* steps done, this one included */
    double epoch;
    double loss, lr; /* mean over the step's rows; the rate of its update, or of the next one */
    double loss_sum; /* over the rows */
    double grad_norm;
    const float *losses; /* (batch), of the rows; NULL: not wanted. Valid during the hook */
    uint64_t rows, correct;
    double seconds, stall_seconds; /* of this step */
};
struct np_eval_report {
    bool numbers; /* labels are numbers: nothing is correct */
    uint64_t step, images, correct, top5;
    double loss, seconds;
};

/* Called on the trainer thread; a negative return value ends the loop, which returns it. */
struct np_trainer_hooks {
    /* Optional. A batch for training or evaluation has arrived; its rows are valid during the
     * call. */
    int (*batch)(void *context, const struct np_batch *batch);
    int (*step)(void *context, const struct np_step_report *report);
    /* Optional. There is no batch yet. True: it has more to do, and wants to be called again soon. */
    bool (*idle)(void *context);
    int (*eval)(void *context, const struct np_eval_report *report);
    /* Optional. A batch of an evaluation is queued: the plan's logits belong to it. */
    int (*evaluated)(void *context, const struct np_batch *batch);
    /* True: an evaluation follows this number of steps. Must agree with the sampler. */
    bool (*eval_follows)(void *context, uint64_t step);
    /* True: the loop must end at the next boundary. Called after each batch. */
    bool (*stopping)(void *context);
    /* With several processes: stopping() was true in one of them, so all end at the next boundary. */
    void (*agreed)(void *context);
    /* Optional: NULL means always. One process may say so for all. True: boundary() would write or end the run after this step.
     * Only then is boundary() called, after all steps are reported; otherwise a step's numbers are
     * read while later steps run. */
    bool (*boundary_follows)(void *context, uint64_t step);
    /* Called after an update and its evaluation, when weights and optimizer agree. Writes a
     * checkpoint if one is due; must return negative when stopping() was true. eval_due: the
     * evaluation after this step is still to be made, or was cut short. */
    int (*boundary)(void *context, uint64_t step, bool eval_due);
    /* Optional: NULL means never. True: the run ends at this boundary, though steps remain. Called
     * after boundary(). */
    bool (*ends)(void *context);
    /* Optional. There is no next batch: it cannot be read (-EIO), too many samples are bad
     * (-EBADMSG), or a stop came while the loop waited for it (-EINTR). Last chance to save; the
     * loop then ends with `why`. step: of the last update; batches accumulated since have changed
     * only the buffers. */
    void (*rescue)(void *context, uint64_t step, bool eval_due, int why);
    void *context;
};

struct np_trainer_config {
    struct np_device *device;
    struct np_plan *plan;
    struct np_feed *feed;
    const struct np_optim_options *optim;
    const struct np_schedule_options *schedule;
    const struct np_plateau *plateau;         /* the caller's, changed by its eval(); NULL: none */
    const struct np_average_options *average; /* NULL: none */
    uint64_t nr_steps,
        nr_train;            /* batches of the run, a multiple of accumulate; samples per epoch */
    int batch, accumulate;   /* batch: rows of all processes */
    struct np_lanes lanes;   /* nr above 1: a batch is computed in lanes */
    uint64_t schedule_start; /* steps done when the schedule began; 0: at the run's start */
    uint64_t first_step;     /* a multiple of accumulate, at or after schedule_start */
    bool eval_due;           /* an evaluation comes before the first step */
    bool numbers;            /* of the evaluations' reports */
    struct np_trainer_hooks hooks;
    struct np_block *block;
    float *losses; /* (batch), the caller's: step() gets the rows' losses in it; NULL: not wanted */
    unsigned stubs; /* 1 << NP_STAGE_STEP: nothing is computed, batches are released at once */
};
/* Trains until the last step (returns 0), until a hook returns a negative value (returns it) or
 * until an error. -EDOM: the loss or the gradients are not finite. */
int np_trainer_run(const struct np_trainer_config *config, struct np_err *err);
/* Runs one whole evaluation from the feed. Also used alone, by `eval`. *ret_cut: stopping() was
 * true and the evaluation was cut short (NULL: stopping() is not called). */
int np_trainer_eval(const struct np_trainer_config *config, uint64_t step, bool *ret_cut,
    struct np_eval_report *ret_report, struct np_err *err);

#endif
