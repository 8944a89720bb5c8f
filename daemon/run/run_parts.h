/* Private to the files of a run; other code includes run.h.
 *
 *   run.c        opens, connects, closes: calls all parts, is called by none
 *   run_best.c   the best evaluation           run_early.c   the end before the last step
 *   run_hooks.c  work at each step             run_model.c   network, weights
 *   run_save.c   checkpoints
 *   run_place.c  which folder; may it resume?  run_data.c    sets and their order
 *   run_report.c messages at start and end     run_facts.c   facts stored with the weights
 *   run_pipeline.c  pipeline counters          run_say.c     messages, names
 *   run_peers.c  the other processes           run_bad.c     bad samples
 *   replay.c     rows of a past run; calls run_data, run_facts, run_place
 * and below them, without struct np_run:
 *   run_folder.c the folder, its checkpoints   run_change.c  rates and length changed on resume
 *   run_log.c    log files                     watch.c       signals and long waits
 *   near.c       readers beside their GPU */
#ifndef NP_RUN_PARTS_H
#define NP_RUN_PARTS_H

#include <sched.h>

#include "daemon/config/setup.h"
#include "daemon/run/compute.h"
#include "daemon/run/figures.h"
#include "daemon/run/outcomes.h"
#include "daemon/run/run_change.h"
#include "daemon/run/run_log.h"
#include "daemon/run/run_options.h"
#include "daemon/run/watch.h"
#include "daemon/track/track.h"
#include "daemon/ui/curves.h"
#include "daemon/ui/progress.h"
#include "loader/loader.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan.h"

/* Sums since the last progress line, since the epoch's start, and of the whole run. */
struct np_run_sums {
    double seconds, stall_seconds, loss_sum;
    uint64_t rows, correct;
};

struct np_run_pipeline {
    struct np_knobs knobs;           /* set once, with line_ns */
    struct np_snapshot start;        /* of the current window; ns 0: it begins with the next step */
    uint64_t line_ns;                /* time of the last line; 0: none, and the knobs are not set */
    uint64_t blame_ns[NP_NR_STAGES]; /* its value when run->lately was last set to zero */
};

struct np_run {
    struct np_config *config; /* borrowed */
    const struct np_run_options *options;
    struct np_ui ui;
    uint64_t start_ns;

    char *dir; /* path of the run folder; NULL: not yet. Messages use np_run_name() */
    int lock_fd;
    pthread_mutex_t say_lock; /* for the log: the watchdog also writes to it */
    struct np_run_log log;
    struct np_track *track; /* NULL: none */
    struct np_json line, facts;
    /* plan_ops->state() of the newest checkpoint on a device of each kind, np_state_kind();
     * NULL: none */
    char *device_state[NP_NR_STATE_KINDS];
    struct np_node
        *resolved; /* config with base, -o and defaults, or with the resumed run's values */

    /* The run's other processes; NULL: none. Rank 0 leads: it alone has a folder, or writes into the
     * one of a resumed run, and prints. */
    struct np_comm *comm;
    bool all_stop;                       /* with comm: the processes have agreed to stop */
    struct np_metrics *numbers;          /* (train.lanes); NULL: one lane */
    int rank;                            /* 0: leads, or is alone */
    struct np_loader_options of_process; /* with comm: the config's, but for the budget */
    uint64_t *samples;                   /* (batch), of a batch's rows in all processes */

    struct np_setup setup;
    struct np_device *device;
    struct np_device_info *described; /* the device; NULL: not asked yet */
    bool device_absent;               /* the device could not be opened */
    enum np_dtype precision;
    int lanes, threads; /* of the CPU's plan */
    int batchnorm_over; /* np_plan_options.batchnorm_over; only in lanes (train.lanes) */
    /* Processes whose number decides how sums round: now, and in the checkpoint; 1: as one process. */
    int sums_of, sums_before;
    struct np_plan *plan;
    float *arrays[NP_ARRAY_GRADS]; /* by NP_ARRAY_*: host copies, flat; NULL: not used */
    int nr_states;                 /* of the optimizer */

    struct np_stat *stat;
    struct np_block *block;
    struct np_watch *watch;
    struct np_sampler *sampler; /* for questions about the order; the loader has its own */
    struct np_loader *loader;
    struct np_feed *feed;
    struct np_exchanged exchanged; /* of this process, when the loader was stopped */
    struct np_cache_shared pictures;
    struct np_io io; /* for files that must survive a power cut */

    uint64_t nr_train, nr_eval, nr_steps;
    char train_names[17];      /* checksum over names and labels; empty: not computed yet */
    char train_sum[17];        /* over labels and sizes */
    bool warned_changed[2];    /* by enum np_batch_kind: np_run_say_changed() */
    bool said_flush;           /* the log has the reason why entries are not kept */
    bool old_order;            /* classes are in the checkpoint's order, not the config's */
    struct np_changes changes; /* of rate, schedule and length since the run began */
    struct np_position position;
    /* np_run_mark(): position and buffers at the last update; later batches are accumulated
     * only. */
    struct np_position mark;
    float *mark_buffers; /* NULL: none */
    float *losses;       /* (batch), of a step's rows; NULL: no sample_losses.bin */
    bool at_mark;        /* `position` is `mark`: the plan's buffers are ahead of it */
    uint64_t first_step; /* of this process */
    uint64_t saved_step; /* of the last checkpoint on the disk; UINT64_MAX: none */
    struct np_saving
        *saving; /* a checkpoint that is being written while training goes on; NULL: none */
    bool saved_eval_due;
    bool best_unsaved; /* the last evaluation was the best one so far */
    double best_value; /* of train.best, at position.best_step; NAN: not known */
    double f1;         /* of the last evaluation; only with train.best: f1, as the next two */
    struct np_outcomes outcomes; /* of the evaluation so far */
    struct np_kept kept;         /* the same, and of run->figures, for other labels than classes */
    float *logits;               /* (batch, classes), of an evaluation's batch in all processes */
    void *labels;                /* and its labels */
    struct np_figures figures, test_figures; /* of `eval` and `test`, if labels are not classes */
    /* The last evaluation of val, or of test without val; images 0: none. */
    struct np_eval_report eval;
    struct np_eval_report test; /* at the end, if there is a val; images 0: none */
    bool testing;               /* the final test is running */
    struct np_node *overrides;  /* the -o texts that the run began with: a list */
    double lr;                  /* of the last step; NAN: none yet */
    struct np_bad_sample *bad;  /* of batches prefetched, not yet reported */
    int nr_bad;
    size_t room_bad;
    struct np_run_sums lately, epoch, total;
    struct np_run_pipeline pipeline;
    struct np_curves curves;
    int stop_code; /* why a hook ended the loop: 0 or -errno */
    struct np_err stop_err;
    struct np_err
        save_err; /* of a checkpoint that was written while training went on: ends it at the next boundary */
    bool usage; /* the config or command line caused the error: exit code NP_EXIT_USAGE */
    /* Counts batches of any kind, checkpoints, steps of a listing: while it grows, the run is
     * alive. */
    uint64_t nr_done;
    char opening[48]; /* text for np_run_at() while data are listed or unpacked */
};

/* --- run_say.c: shared by the parts. A part calls no other part but those that its line names
 * --- */

/* Prints to the screen and the run's log. warn: to stderr; any thread. */
void np_run_say(struct np_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
void np_run_note(void *run, const char *text);
void np_run_warn(void *run, const char *text);
/* Reports the activity to the follower: "opening", "listing 512 files", "training",
 * "evaluating", "saving". */
void np_run_at(struct np_run *run, const char *doing);
/* Has a signal requested a stop? With several processes: have they agreed on one? */
bool np_run_stopping(void *run);
/* The name of dir, this run's folder or another one, for messages. */
const char *np_run_name(const struct np_run *run, const char *dir);
double np_run_epoch_at(const struct np_run *run, uint64_t step); /* epochs after that many steps */
/* Does the run evaluate a val set (data.val or data.split) while it trains? If not: the test
 * set. */
bool np_run_has_val(const struct np_run *run);
const char *np_run_set_name(const struct np_run *run); /* the set being evaluated: "val", "test" */
/* "val_loss": value. */
void np_run_put_of_set(struct np_json *line, const char *set, const char *what, double value);
/* Writes val_* and test_* loss and accuracy to run->line. eval: of the set evaluated while
 * training; test: of the final test of a run with a val set. NULL or no images: null. test_* are
 * always written, val_* if there is a val set. */
/* "loss 0.1234, accuracy 12.34%", or the figures of other labels than classes. */
#define NP_EVAL_TEXT (NP_FIGURES_TEXT + 60)
void np_run_eval_text(
    const struct np_run *run, const struct np_eval_report *eval, char text[NP_EVAL_TEXT]);
/* Adds val_loss and what else is known of an evaluation: run->eval or run->test. */
void np_run_put_eval(struct np_run *run, const char *set, const struct np_eval_report *eval);
void np_run_put_evals(
    struct np_run *run, const struct np_eval_report *eval, const struct np_eval_report *test);
double np_eval_accuracy(const struct np_eval_report *eval); /* 0 to 1; NAN: no images */

/* --- run_peers.c --------------------------------------------------------------------------- */

/* True: this process writes the folder and the screen. */
static inline bool np_run_leads(const struct np_run *run)
{
    return np_comm_rank(run->comm) == 0;
}
/* Opens the config's device, of several processes on a machine each its own GPU. */
int np_run_open_device(struct np_run *run, struct np_err *err);
/* No step follows: the device leaves the other processes. At the same point in all of them, or after an
 * error. */
void np_run_leave(struct np_run *run);
/* Meets the other processes, if there are any, and listens to them from then on. */
int np_run_meet(struct np_run *run, struct np_err *err);
void np_run_part(struct np_run *run); /* closes run->comm */
/* All processes learn which run rank 0 resumes; *ret_dir: "", or its folder. */
int np_run_share_dir(struct np_run *run, char *dir, size_t room, struct np_err *err);
/* Binds this thread, and those that it starts, to the CPUs of the device's NUMA node, where that is
 * fair (near.h). True: np_run_leave_node() must follow. */
bool np_run_enter_node(struct np_run *run, cpu_set_t *ret_before);
void np_run_leave_node(const cpu_set_t *before);
/* Rank 0's number for all. */
int np_run_share_lanes(struct np_run *run, struct np_err *err);
/* Resolves `train.lanes: auto`: those of the resumed run; 1 for one process; else a number of its own. */
int np_run_take_lanes(struct np_run *run, struct np_err *err);
/* Compares config, data, weights and versions of the processes. -EINVAL names the difference. */
int np_run_compare_peers(struct np_run *run, struct np_err *err);
/* The samples of a batch's rows in all processes: (batch), valid until the next call. */
int np_run_all_samples(struct np_run *run, const struct np_batch *batch, struct np_err *err);
/* Before a checkpoint, which one process wants (saves) or more: have all the same weights and state?
 * -EBADE: no, and err names whose differ. One process: 0. */
int np_run_compare_arrays(struct np_run *run, uint64_t step, bool saves, struct np_err *err);
/* Waits until all processes are here; the others learn which checkpoint rank 0 has. code: of this process; returns the
 * first one that is negative. */
int np_run_barrier(struct np_run *run, int code, struct np_err *err);
/* The result is written: rank 0 says so. The others wait for it, and end as rank 0 does. */
int np_run_await_first(struct np_run *run, struct np_err *err);

/* --- run_data.c ---------------------------------------------------------------------------- */

int np_run_open_data(struct np_run *run, struct np_err *err);
/* Sets samples, steps and sampler; again after run_place.c has changed the run's length. */
int np_run_open_order(struct np_run *run, struct np_err *err);
/* Steps of a run with that many epochs, or, if epochs is 0, steps. For a probe: practically
 * endless. */
uint64_t np_run_steps(const struct np_run *run, double epochs, int64_t steps);
/* The set evaluated while training: val, the split, or test. */
struct np_index *np_run_eval_set(const struct np_run *run, const int32_t **ret_labels);
void np_run_sampler_options(const struct np_run *run, struct np_sampler_options *ret_options);
/* For single rows of the training set in the run's order; stat is borrowed. */
void np_run_rows_config(
    const struct np_run *run, struct np_stat *stat, struct np_loader_config *ret_config);
/* Reports files that changed since they were listed: the first one when it is read, the number
 * of them at the end. The stored index of that set is deleted. */
void np_run_say_changed(struct np_run *run, bool end);

/* --- run_facts.c --------------------------------------------------------------------------- */

const char *np_run_facts_json(struct np_run *run); /* valid until the next call */
/* Is data.train the set that the run in dir was trained on? -EINVAL names the difference. */
int np_run_check_data(
    struct np_run *run, const char *dir, const struct np_node *facts, struct np_err *err);
/* Takes lanes and precision from the newest checkpoint; reports what has changed since. */
int np_run_load_facts(struct np_run *run, struct np_err *err);

/* --- run_place.c --------------------------------------------------------------------------- */

/* Finds the run to resume: run->dir is its folder, locked, and the config gets its current values.
 * run->dir stays NULL if a new run begins. */
int np_run_find_folder(struct np_run *run, struct np_err *err);
int np_run_new_folder(struct np_run *run, struct np_err *err);
/* Takes pixels rule and split from a run's resolved config; dir: for messages. */
int np_run_take_own(
    const struct np_node *resolved, const char *dir, struct np_config *config, struct np_err *err);

/* --- run_weights.c ------------------------------------------------------------------------- */

/* --weights: loads the tensors that fit by name over the initial ones; prints the table of what was
 * loaded, as an event "weights", too. */
int np_run_load_weights(struct np_run *run, struct np_err *err);
/* Fills the weights that have NP_INIT_WHITENING. Errors: those of reading the training set. */
int np_run_whiten(struct np_run *run, struct np_err *err);

/* --- run_model.c --------------------------------------------------------------------------- */

/* 1 << NP_ARRAY_* of each array that the run has. */
unsigned np_run_arrays(const struct np_run *run);
/* Copies weights, buffers and the optimizer's state from the device into run->arrays, when no checkpoint is being
 * written from these any more. */
int np_run_read_arrays(struct np_run *run, struct np_err *err);
/* Does the run keep an average of its weights? Then this is what it evaluates and saves. */
static inline bool np_run_averages(const struct np_run *run)
{
    return run->config->run.ema_node != NULL;
}
/* Sets precision, lanes, graph, weights (random, given, or of the newest complete checkpoint),
 * position and plan. */
int np_run_open_model(struct np_run *run, struct np_err *err);
/* True: rows of the batch behind `step` have another size than the network is built for. */
bool np_run_grows(const struct np_run *run, uint64_t step);
/* Builds the network for the rows behind the current step, with the weights and states of the run. All
 * steps are reported. */
int np_run_grow(struct np_run *run, struct np_err *err);

/* --- run_save.c --------------------------------------------------------------------------- */

/* Blocks until the checkpoint is on the disk. Of several processes rank 0 alone writes, and the others do not wait: a
 * barrier follows, or the exchange is over. */
int np_run_save(struct np_run *run, uint64_t step, bool eval_due, struct np_err *err);
/* The same, but it only begins, if the device can make a snapshot. np_run_poll_save(), called after each step and while
 * there is no batch, takes its next step; true: it has one left that needs this thread. save_err: its failure.
 * np_run_finish_save() blocks until it is on the disk, and returns its error; np_run_settle_save() says it, where a later
 * checkpoint is about to be written. */
int np_run_start_save(struct np_run *run, uint64_t step, bool eval_due, struct np_err *err);
bool np_run_poll_save(struct np_run *run);
void np_run_settle_save(struct np_run *run);
int np_run_finish_save(struct np_run *run, struct np_err *err);
/* Is this checkpoint being written? */
bool np_run_saves(const struct np_run *run, uint64_t step, bool eval_due);
uint64_t np_run_checkpoint_bytes(const struct np_run *run);
/* A checkpoint of the run's arrays and position; they stay the run's. */
void np_run_fill_checkpoint(struct np_run *run, struct np_checkpoint *ret_checkpoint);
/* Reads the device's state of the checkpoint into run->device_state. */
int np_run_read_state(struct np_run *run, struct np_err *err);
/* The link to the best checkpoint in the folder dir; a failure is said. */
void np_run_link_best(struct np_run *run, const char *dir);
/* With train.accumulate above 1: remembers the position right after an update. Called before the
 * first update, and after each. */
int np_run_mark(struct np_run *run, struct np_err *err);

/* --- run_report.c -------------------------------------------------------------------------- */

void np_run_report_start(struct np_run *run);
/* Reports how many batches and pictures came from other jobs, if any, and keeps the numbers. */
void np_run_report_shared(struct np_run *run);
/* Reads the weights from the device and writes result.json. */
int np_run_report_done(struct np_run *run, struct np_err *err);

/* --- run_pipeline.c ------------------------------------------------------------------------ */

void np_run_observed(struct np_run *run, struct np_observed *ret_seen);
/* After a step: every two seconds writes a line of the pipeline's counters. */
void np_run_pipeline_step(
    struct np_run *run, const struct np_step_report *report, bool eval_follows);
/* Fills the known fields of *progress and leaves the others as they were. */
void np_run_progress(const struct np_run *run, struct np_progress *progress);

/* --- run_best.c ---------------------------------------------------------------------------- */

/* Decides whether an evaluation is the best one so far, and notes it in the position. */
void np_run_best(struct np_run *run, const struct np_eval_report *report);
/* A number (enum np_metric) of the evaluation that np_run_best() took last. */
double np_run_metric(const struct np_run *run, const struct np_eval_report *report, int metric);
/* Adds to an `eval` line what train.best needs; nothing by default. */
void np_run_best_put(struct np_run *run, const struct np_eval_report *report);
/* At a resume: takes the best value from the `eval` line of the best step. */
void np_run_best_reload(struct np_run *run, const struct np_node *line);
/* Takes run->logits, if train.best or the labels need the answers for all images; before training. */
int np_run_best_room(struct np_run *run, struct np_err *err);
/* Hook `evaluated`: keeps these answers. */
int np_run_best_look(void *run, const struct np_batch *batch);

/* --- run_early.c --------------------------------------------------------------------------- */

/* Judges an evaluation by train.stop. True: the run ends at the next boundary, and run->line has
 * an event "early_stop", not ended. */
bool np_run_early(struct np_run *run, const struct np_eval_report *report);
/* Of a run that ended early: why, without a full stop. */
#define NP_EARLY_TEXT 200
void np_run_early_text(const struct np_run *run, char *text, size_t text_bytes);
/* The step after which the run ends, as far as is known. */
uint64_t np_run_last_step(const struct np_run *run);

/* --- run_bad.c ------------------------------------------------------------------------------ */

/* With several processes: gathers the bad samples of a batch that all have taken into run->bad, and
 * judges the budget by them, as the loader of a single process does. -EBADMSG: it is spent. */
int np_run_judge_bad(struct np_run *run, const struct np_batch *batch, struct np_err *err);
/* Reports a bad sample in bad_samples.jsonl, the log and on the screen. */
void np_run_write_bad(struct np_run *run, const struct np_bad_sample *bad);
/* Writes the bad samples of finished steps in the samples' order. The others stay for later, so
 * that a resumed run, which cuts the list back to its checkpoint, writes each exactly once. */
void np_run_take_bad(struct np_run *run, uint64_t steps_done, bool eval_done);

/* --- run_hooks.c: calls run_bad, run_best, run_data, run_early, run_model, run_pipeline ---------------------------------- */

void np_run_hooks(struct np_run *run, struct np_trainer_hooks *ret_hooks);
void np_run_reload_curves(struct np_run *run); /* from metrics.jsonl */

#endif
