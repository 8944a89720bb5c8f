/* What the files of a run share; others take run.h.
 *
 *   run.c        opens, wires, closes: the conductor; no other file calls it
 *   run_hooks.c  what happens at each step     run_model.c   network, weights, plan
 *   run_place.c  which folder, may it continue run_data.c    sets, order, val.txt
 *   run_report.c start and end                 run_save.c    checkpoints
 *   run_pipeline.c  what its counters say      run_facts.c   what stands beside the weights
 * and below them, without struct np_run:
 *   run_folder.c the folder, its checkpoints   run_change.c  rates and length changed on the way
 *   run_log.c    its files                     watch.c       signals and what hangs */
#ifndef NP_RUN_PARTS_H
#define NP_RUN_PARTS_H

#include "daemon/config/setup.h"
#include "daemon/run/compute.h"
#include "daemon/run/run.h"
#include "daemon/run/run_change.h"
#include "daemon/run/run_log.h"
#include "daemon/run/watch.h"
#include "daemon/ui/curves.h"
#include "daemon/ui/progress.h"
#include "loader/loader.h"
#include "trainer/checkpoint/checkpoint.h"

enum np_device_trouble { NP_DEVICE_WELL, NP_DEVICE_ABSENT /* not opened */, NP_DEVICE_FAILED };

/* Hears what the run is doing, with each batch and each change. Trainer thread. */
struct np_run_follower {
    void (*at)(void *context, const struct np_run *run, const char *doing);
    void *context;
    struct np_err *err; /* receives the error of a run that failed; the screen has it too */
    enum np_device_trouble *trouble; /* and whether its device was the reason */
};

/* Sums since the last progress line, since the epoch's start, and of the whole run. */
struct np_run_sums {
    double seconds, stall_seconds, loss_sum;
    uint64_t rows, correct;
};

struct np_run {
    struct np_config *config; /* borrowed */
    const struct np_run_options *options;
    struct np_ui ui;
    uint64_t start_ns;

    char *dir; /* the run's folder, for opening; NULL: not yet. np_run_name() for people */
    int lock_fd;
    pthread_mutex_t say_lock; /* of the log: the watchdog writes into it too */
    struct np_run_log log;
    struct np_json line, facts;
    /* plan_ops->state() of the newest checkpoint on a device of each kind, np_state_kind(); NULL: none */
    char *device_state[NP_NR_STATE_KINDS];
    struct np_node *normal; /* the config in normal form */

    struct np_setup setup;
    struct np_device *device;
    bool device_absent; /* it could not be opened */
    enum np_dtype precision;
    int lanes, threads;
    struct np_plan *plan;
    float *params, *buffers, *state[2]; /* host copies, flat */
    int nr_states;

    struct np_stat *stat;
    struct np_block *block;
    struct np_watch *watch;
    struct np_sampler *sampler; /* asked for the order only */
    struct np_loader *loader;
    struct np_feed *feed;
    struct np_io io; /* for what must survive */
    bool io_open;

    uint64_t nr_train, nr_eval, nr_steps;
    char train_names[17];      /* sum over names and labels; empty: not asked for yet */
    char train_sum[17];        /* over labels and sizes */
    bool said_changed[2];      /* by enum np_batch_kind: np_run_say_changed() */
    bool kept_order;           /* classes are in a checkpoint's order, not in the config's */
    struct np_changes changes; /* of rate, schedule and length since the run began */
    struct np_position position;
    /* np_run_mark(): what batches that were accumulated since have moved; the weights have not. */
    struct np_position mark;
    float *mark_buffers; /* NULL: none */
    bool at_mark;        /* `position` is `mark`: the arrays' buffers are ahead of it */
    uint64_t first_step; /* of this process */
    uint64_t saved_step; /* of the last checkpoint; UINT64_MAX: none */
    bool saved_eval_due;
    bool best_unsaved; /* the last evaluation was the best one so far */
    /* The last one of val, or of test where there is no val; images 0: none. */
    struct np_eval_report eval;
    struct np_eval_report test; /* at the end, where there is a val; images 0: none */
    bool testing;               /* this one is under way */
    struct np_node *overrides;  /* the texts of -o that the run began with: a list */
    double lr;                  /* of the last step; NAN: none yet */
    struct np_bad_sample *bad;  /* not yet reported: of steps to come */
    int nr_bad;
    size_t room_bad;
    struct np_run_sums lately, epoch, total;
    struct np_run_pipeline *pipeline; /* of run_pipeline.c */
    struct np_curves curves;
    int stop_code; /* why a hook ended the loop: 0 or -errno */
    struct np_err stop_err;
    bool usage; /* the error is one of the config */
    /* Batches of any kind, checkpoints, and steps of a listing: it goes on as long as this grows. */
    uint64_t nr_done;
    const char *doing; /* "opening", "listing 512 files", "training", "evaluating", "saving" */
    char opening[48];  /* what `doing` points at while data are listed or unpacked */
};

/* --- run_say.c: what the parts call; none of them calls another but as its line below says ---------- */

/* To the screen and the run's log. warn: to stderr; any thread. */
void np_run_say(struct np_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
void np_run_note(void *run, const char *text);
void np_run_warn(void *run, const char *text);
void np_run_at(struct np_run *run, const char *doing); /* for the follower */
bool np_run_stopping(void *run);                       /* has a signal asked for it? */
/* What dir, the run's folder or another one, is called in messages. */
const char *np_run_name(const struct np_run *run, const char *dir);
double np_run_epoch_at(const struct np_run *run, uint64_t step);
/* Does the run evaluate a val set while it trains, its own or data.split's? Else it is the test set. */
bool np_run_has_val(const struct np_run *run);
const char *np_run_set_name(const struct np_run *run); /* of the set evaluated now: "val", "test" */
/* "val_loss": value. */
void np_run_put_of_set(struct np_json *line, const char *set, const char *what, double value);
/* Into run->line: loss and accuracy of what is evaluated while training (`eval`) and of the test at the
 * end of a run with a val set; NULL or without images: null. test_* are always there, val_* where there is
 * a val set. */
void np_run_put_evals(
    struct np_run *run, const struct np_eval_report *eval, const struct np_eval_report *test);
double np_eval_accuracy(const struct np_eval_report *eval); /* 0 to 1; NAN: no images */

/* --- run_data.c ------------------------------------------------------------------------------------ */

int np_run_open_data(struct np_run *run, struct np_err *err); /* and their order */
/* Samples, steps and sampler: anew when run_place.c has taken over another length. */
int np_run_open_order(struct np_run *run, struct np_err *err);
/* The steps of a run of so many epochs, or steps where epochs is 0; of a probe more than it waits for. */
uint64_t np_run_steps(const struct np_run *run, double epochs, int64_t steps);
/* What is evaluated while training: val, the split, or test. */
struct np_index *np_run_eval_set(const struct np_run *run, const int32_t **ret_labels);
void np_run_sampler_options(const struct np_run *run, struct np_sampler_options *ret_options);
void np_run_shape(const struct np_run *run, struct np_batch_shape *ret_shape);
/* val.txt in the run's folder, where data.split keeps samples from training. */
int np_run_write_split(struct np_run *run, struct np_err *err);
/* Files that are not as they were listed: the first one when it is met, their number at the end; the
 * set's index is not kept. */
void np_run_say_changed(struct np_run *run, bool end);
void np_run_keep_crcs(const struct np_run *run); /* once the loader is stopped */

/* --- run_facts.c ----------------------------------------------------------------------------------- */

const char *np_run_facts_json(struct np_run *run); /* valid until the next call */
/* Is data.train what the run in dir was trained on? -EINVAL: it is not, and in what it differs. */
int np_run_check_data(
    struct np_run *run, const char *dir, const struct np_node *facts, struct np_err *err);
/* Lanes and precision of the newest checkpoint; says what has changed since. */
int np_run_load_facts(struct np_run *run, struct np_err *err);

/* --- run_place.c ----------------------------------------------------------------------------------- */

/* The run to continue: its folder in run->dir, locked, and the values in force there in the config;
 * run->dir NULL: a new one follows. */
int np_run_find_folder(struct np_run *run, struct np_err *err);
int np_run_new_folder(struct np_run *run, struct np_err *err);

/* --- run_save.c ------------------------------------------------------------------------------------ */

int np_run_save(struct np_run *run, uint64_t step, bool eval_due, struct np_err *err);
uint64_t np_run_checkpoint_bytes(const struct np_run *run);
/* With train.accumulate above 1: remembers where the run stands with an update made. Before the first
 * update, and after each. */
int np_run_mark(struct np_run *run, struct np_err *err);
/* Where the mark is of this step, batches accumulated since are as if they had not been: np_run_save()
 * then saves what stood there. The run ends with it. */
void np_run_go_to_mark(struct np_run *run, uint64_t step);
/* The newest whole checkpoint of the folder into the host arrays (which are there) and the position.
 * Before the plan is made. */
int np_run_load(struct np_run *run, struct np_err *err);

/* --- run_model.c, run_report.c --------------------------------------------------------------------- */

/* Precision and lanes, graph, weights (fresh, given, or the checkpoint's: run_save.c), plan. */
int np_run_open_model(struct np_run *run, struct np_err *err);
void np_run_report_start(struct np_run *run);
int np_run_report_done(struct np_run *run, struct np_err *err);
/* Already finished: prints the stored result, writes nothing. */
int np_run_report_finished(struct np_run *run, struct np_err *err);
void np_run_report_error(struct np_run *run, const struct np_err *err);

/* --- run_pipeline.c -------------------------------------------------------------------------------- */

void np_run_observed(struct np_run *run, struct np_observed *ret_seen);
/* After a step: every few seconds a line of what the pipeline did. */
void np_run_pipeline_step(
    struct np_run *run, const struct np_step_report *report, bool eval_follows);
void np_run_pipeline_cut(struct np_run *run); /* after an evaluation: a new window begins */
/* What is known of the run's progress; the rest of *progress stays as it was. */
void np_run_progress(const struct np_run *run, struct np_progress *progress);
void np_run_stall_restart(struct np_run *run); /* run->lately begins anew */
void np_run_pipeline_free(struct np_run *run);

/* --- run_hooks.c: calls run_data, run_save, run_pipeline ---------------------------------------------- */

void np_run_hooks(struct np_run *run, struct np_trainer_hooks *ret_hooks);
/* Names a bad sample in bad_samples.jsonl, the log and on the screen. */
void np_run_write_bad(struct np_run *run, const struct np_bad_sample *bad);
/* Bad samples ended the run: names those of batches ahead of the steps done, too. What continues from the
 * checkpoint cuts the list back to it. */
void np_run_list_bad(struct np_run *run);
void np_run_reload_curves(struct np_run *run); /* from metrics.jsonl */

#endif
