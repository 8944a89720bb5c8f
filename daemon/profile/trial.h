/* How a profile is measured: trials of the real run, of parts of it, and of the run with a stage replayed.
 *
 *   trial.c    the real pipeline, or a part of it alone, for some seconds
 *   deep.c     the verdict with gains measured: a stage's work left out, its output replayed
 *   measure.c  what is run, and in which order
 *   report_text.c html.c   a profile for people;   tune.c compare.c   what is built upon it
 *
 * Main thread, which is the trainer thread of the runs. */
#ifndef NP_TRIAL_H
#define NP_TRIAL_H

#include <stdio.h>

#include "daemon/analysis/profile.h"

/* --- trials ----------------------------------------------------------------------------------- */

struct np_config;
struct np_overrides;
struct np_rig; /* a config, and what the last trial of it was made of */

struct np_trial_options {
    double warmup_s, seconds;
    double fill_s; /* a cache in its first epoch is waited for, so long at most; 0: 4 * warmup_s */
    struct np_overrides *overrides; /* more -o of this trial; NULL: none */
    unsigned stubs;         /* bits 1 << enum np_stage: replaced by replay of its stored output */
    struct np_trace *trace; /* NULL: no spans */
    /* (NP_PROFILE_MAX_RIBBON) filled as far as *nr_ribbon says; NULL: not asked for */
    struct np_ribbon *ribbon;
    int *nr_ribbon;
};
int np_rig_open(const char *config_path, const struct np_overrides *overrides, const char *device,
    struct np_rig **ret_rig, struct np_err *err);
void np_rig_close(struct np_rig *rig);
/* From now on all trials and parts, and their warm-ups, last `factor` times as long. */
void np_rig_pace(struct np_rig *rig, double factor);
const struct np_knobs *np_rig_knobs(const struct np_rig *rig);
/* The real run (`np_run_train()` in a folder of its own beside the runs, removed afterwards): evaluations
 * left out, checkpoints as configured. -EINTR: stopped by a signal. */
int np_trial_run(struct np_rig *rig, const struct np_trial_options *options,
    struct np_observation *ret_observation, struct np_err *err);
/* One part alone for about `seconds`: `nnpipe bench io|loader|step`, a process of its own. Copies need no
 * trial: the device's events time them in every run. */
enum np_part {
    NP_PART_READ_COLD,
    NP_PART_READ_DEEP,
    NP_PART_READ_WARM,
    NP_PART_LOADER,
    NP_PART_STEP
};
int np_trial_part(
    struct np_rig *rig, enum np_part part, double seconds, double *ret_rate, struct np_err *err);

/* --- --deep: measured with a stage replayed --------------------------------------------------- */

/* deep.c. One stage's trial: with it costing nothing, so many images a second, and this limits. */
struct np_deep {
    double rate[NP_NR_STAGES]; /* 0: not measured */
    enum np_stage next[NP_NR_STAGES];
};
/* What was seen with the stage replayed, into deep. ceilings, knobs: of the run as it is. */
void np_deep_add(struct np_deep *deep, enum np_stage stage, const struct np_observation *seen,
    const struct np_ceilings *ceilings, const struct np_knobs *knobs);
/* The verdict again, with measured gains in place of computed ones. base: the rate of the run as it is,
 * measured as those were. The limiter of the model stays where no other one gains clearly more; the model
 * learns what the stages did in those trials. */
void np_deep_judge(const struct np_deep *deep, double base, struct np_model *model, double noise,
    struct np_profile_verdict *verdict);

/* --- the whole of it -------------------------------------------------------------------------- */

#define NP_WARMUP_S 0.7 /* of a trial */
#define NP_TRIAL_S  2.0
struct np_measure_options {
    bool deep, verify;
    /* The first verdict, so many seconds after the start; NULL: nobody asks. */
    void (*so_far)(void *context, const struct np_profile *profile, double seconds);
    void *context;
};
/* All of a profile but its names and files. The run's errors; a part that cannot be measured is left out. */
int np_profile_measure(struct np_rig *rig, const struct np_measure_options *options,
    struct np_profile *profile, struct np_err *err);

/* The terminal screen: verdict first, a bar a stage, at most `width` columns. */
void np_profile_screen(const struct np_profile *profile, int width, bool colour, FILE *out);
/* profile.json as one page, a file that needs no other. */
int np_profile_html(const char *json, const char *path, struct np_err *err);
void np_profile_html_to(const char *json, FILE *out);

#endif
