/* One run: joins loader, trainer and device; its folder, its checkpoints, its reports. The
 * only place where the loader meets the device. Main thread.
 *
 *   run.c        opens, wires, closes       run_hooks.c  what happens at each step
 *   run_model.c  network and weights        run_report.c what it says at start and end
 *   run_save.c   checkpoints and facts      run_folder.c run_log.c  the folder and its files
 *   run_find.c   checkpoints found again     run_split.c  val.txt
 *   run_place.c  which folder, may it go on run_change.c rates and length changed on the way
 *   run_pipeline.c  what the pipeline says of itself */
#ifndef NP_RUN_H
#define NP_RUN_H

#include "daemon/cmd.h"
#include "daemon/run/run_change.h"
#include "daemon/run/run_log.h"
#include "daemon/config/setup.h"
#include "daemon/ui/curves.h"
#include "daemon/ui/progress.h"
#include "daemon/run/watch.h"
#include "loader/loader.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/trainer.h"

struct np_run;
/* For who measures a run (daemon/profile/): it trains without evaluations and without an end, and says
 * nothing, until step() has seen enough. */
struct np_run_probe {
    /* Behind each step's report; true ends the run at once, without a checkpoint. */
    bool (*step)(void *context, struct np_run *run, const struct np_step_report *report);
    void *context;
    struct np_err *err; /* where an error goes instead of the screen */
    /* Bits 1 << enum np_stage: of the device's stages, copy and step, what is left out. The loader's
     * are in the config's loader.stubs. */
    unsigned stubs;
};

enum np_device_trouble { NP_DEVICE_WELL, NP_DEVICE_ABSENT /* not opened */, NP_DEVICE_FAILED };

/* For who looks after a run (daemon/service/): what it is at, with each batch and each change. Trainer
 * thread. */
struct np_run_follower {
    void (*at)(void *context, const struct np_run *run, const char *doing);
    void *context;
    struct np_err *err;              /* of a run that failed, beside the screen */
    enum np_device_trouble *trouble; /* and whether its device was the reason */
};

struct np_run_options {
    const struct np_run_probe *probe;       /* NULL: a run for its own sake */
    const struct np_run_follower *follower; /* NULL: nobody */
    /* Its folder, which the caller has made and holds the lock of: gone on with where it has a
     * checkpoint; "." where the caller has entered it (run_enter.h). NULL: a new one below `runs`. */
    const char *into;
    const char *into_name; /* how `into` is called in messages and records */
    bool json;
    bool resume;
    bool reset_schedule;                  /* it begins anew where the run is resumed */
    const char *resume_dir;               /* NULL: the newest unfinished one */
    const char *weights;                  /* NULL: fresh ones */
    const struct np_overrides *overrides; /* for messages */
    const char *submitted;  /* -o of a submission, already in the config, a line each; NULL: none */
    struct np_trace *trace; /* NULL: none; the caller finishes it afterwards */
};

/* Sums since the last progress line, since the epoch's start, and of the whole run. */
struct np_run_sums {
    double seconds, stall_seconds, loss_sum;
    uint64_t rows, correct;
};

/* Under which key of the facts what a device wants to find again stands: a run that goes on on a device
 * of the other kind keeps both. */
enum np_state_kind { NP_STATE_GPU, NP_STATE_CPU, NP_NR_STATE_KINDS };
extern const char *const np_state_keys[NP_NR_STATE_KINDS];
enum np_state_kind np_state_kind(const struct np_device *device);

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
    int nr_cpus; /* usable */
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
    struct np_eval_report
        eval; /* the last one of val, or of test where there is no val; images 0: none */
    struct np_eval_report
        test;     /* of the test set at the end, where there is a val; images 0: none */
    bool testing; /* this one is under way */
    struct np_node *overrides; /* the texts of -o that the run began with: a list */
    double lr;                 /* of the last step; NAN: none yet */
    struct np_bad_sample *bad; /* not yet reported: of steps to come */
    int nr_bad, room_bad;
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

/* Trains: opens all, runs to the end, closes. Returns the exit code. */
int np_run_train(struct np_config *config, const struct np_run_options *options);

/* --- for cmd_eval.c and cmd_predict.c ------------------------------------------------------- */

/* The number of compute threads `auto` stands for. */
int np_run_threads(const struct np_config *config);
/* The precision a run has: the config's, or the device's own. */
enum np_dtype np_run_precision(const struct np_config *config, const struct np_device *device);
extern const char *const np_precision_names[];

/* --- between the run_*.c files ----------------------------------------------------------------- */

void np_run_say(struct np_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
void np_run_note(void *run, const char *text); /* the same, where a function is asked for */
void np_run_warn(
    struct np_run *run, const char *text); /* to stderr and the run's log; any thread */
/* Files that are not as they were listed: the first one when it is met, their number at the end; the
 * set's index is not kept. */
void np_run_say_changed(struct np_run *run, bool end);
/* Tells the follower, if there is one. */
void np_run_at(struct np_run *run, const char *doing);
/* run_hooks.c */
void np_run_hooks(struct np_run *run, struct np_trainer_hooks *ret_hooks);
/* Has a signal asked? context: the run. */
bool np_run_stopping(void *context);
/* Names a bad sample in bad_samples.jsonl, the log and on the screen. */
void np_run_write_bad(struct np_run *run, const struct np_bad_sample *bad);
/* Bad samples ended the run: names those of batches ahead of the steps done, too. What goes on from the
 * checkpoint cuts the list back to it. */
void np_run_list_bad(struct np_run *run);
/* What dir, the run's folder or another one, is called in messages. */
const char *np_run_name(const struct np_run *run, const char *dir);
/* Does an epoch end with this step? */
bool np_run_epoch_ends(const struct np_run *run, uint64_t step);
/* The curves so far, from metrics.jsonl. */
void np_run_reload_curves(struct np_run *run);
/* run_pipeline.c. After a step: every few seconds a line of what the pipeline did. */
void np_run_pipeline_step(
    struct np_run *run, const struct np_step_report *report, bool eval_follows);
/* An evaluation was made: what comes next is a window of its own. */
void np_run_pipeline_cut(struct np_run *run);
/* What is known of the run's progress; the rest of *progress stays as it was. */
void np_run_progress(const struct np_run *run, struct np_progress *progress);
void np_run_stall_restart(struct np_run *run); /* run->lately begins anew */
void np_run_pipeline_free(struct np_run *run);
/* The steps of a run of so many epochs, or steps where epochs is 0. */
uint64_t np_run_steps(const struct np_run *run, double epochs, int64_t steps);
/* run_place.c. A run to go on with: its folder is in run->dir, locked, and the config holds the values
 * that are in force there; NULL: a new one follows. */
int np_run_find_folder(struct np_run *run, struct np_err *err);
int np_run_new_folder(struct np_run *run, struct np_err *err);
/* run_split.c: val.txt in the run's folder, where data.split keeps samples from training. */
int np_run_write_split(struct np_run *run, struct np_err *err);
/* Does the run evaluate a val set while it trains, its own or data.split's? Else it is the test set. */
bool np_run_has_val(const struct np_run *run);
/* run_model.c: precision and lanes, graph, weights (fresh, given, or of the checkpoint), plan. */
int np_run_open_model(struct np_run *run, struct np_err *err);
/* Into run->line: loss and accuracy of what is evaluated while training (`eval`) and of the test at the
 * end of a run with a val set; NULL or without images: null. test_* are always there, val_* where there is
 * a val set. */
void np_run_put_evals(
    struct np_run *run, const struct np_eval_report *eval, const struct np_eval_report *test);
double np_eval_accuracy(const struct np_eval_report *eval); /* 0 to 1; NAN: no images */
/* run_report.c */
void np_run_report_start(struct np_run *run);
int np_run_report_done(struct np_run *run, struct np_err *err);
/* A run whose result is there already: it is told again, and nothing is written. */
int np_run_report_finished(struct np_run *run, struct np_err *err);
void np_run_report_error(struct np_run *run, const struct np_err *err);
/* run_save.c */
/* Is data.train what the run in dir was trained on? -EINVAL: it is not, and in what it differs. */
int np_run_check_data(
    struct np_run *run, const char *dir, const struct np_node *facts, struct np_err *err);
/* Lanes and precision of the newest checkpoint; what has changed since is said. */
int np_run_load_facts(struct np_run *run, struct np_err *err);
int np_run_save(struct np_run *run, uint64_t step, bool eval_due, struct np_err *err);
/* With train.accumulate above 1: remembers where the run stands with an update made; nothing else does.
 * Before the first update, and after each. */
int np_run_mark(struct np_run *run, struct np_err *err);
/* Where the mark is of this step, batches accumulated since are as if they had not been: np_run_save()
 * then saves what stood there. The run ends with it. */
void np_run_go_to_mark(struct np_run *run, uint64_t step);
/* The newest whole checkpoint of the folder into the host arrays and the position; the facts' lanes
 * and precision are taken over. Before the plan is there: arrays must be. */
int np_run_load(struct np_run *run, struct np_err *err);
/* Bytes that a checkpoint takes. */
uint64_t np_run_checkpoint_bytes(const struct np_run *run);

/* run_find.c */
/* The facts of a run's newest checkpoint that has readable ones. -ENOENT: none. np_node_free. */
int np_run_newest_facts(const char *dir, struct np_node **ret_facts, struct np_err *err);
/* The facts of a checkpoint's folder, without its arrays. np_node_free. */
int np_facts_read(const char *checkpoint, struct np_node **ret_facts, struct np_err *err);
/* From a safetensors file, a checkpoint's folder, a run's folder (the newest one), or RUN:best,
 * RUN:last, RUN:step-N: the weights file (*ret_path) and the checkpoint's folder (*ret_checkpoint, NULL
 * for a bare file). np_free both. A checkpoint's files are held against its manifest; of a run, damaged
 * ones are named in a note and passed over. */
int np_weights_find(const char *path, const struct np_source_progress *progress, char **ret_path,
    char **ret_checkpoint, struct np_err *err);

#endif
