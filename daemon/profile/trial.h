/* Measures a profile: trials of the real run, of parts of it, and of the run with a stage replayed.
 *
 *   trial.c    the real pipeline, or a part of it alone, for some seconds
 *   deep.c     the verdict with gains measured: a stage's work left out, its output replayed
 *   measure.c  the order of measurements
 *   report_text.c html.c   a profile for people;   tune.c tuning.c compare.c   built on profiles
 *
 * Main thread, which is the trainer thread of the runs. */
#ifndef NP_TRIAL_H
#define NP_TRIAL_H

#include <stdio.h>

#include "daemon/analysis/profile.h"
#include "daemon/cmd.h"

struct np_config;
struct np_launch;
struct np_observed;
struct np_run;
struct np_rig { /* a config, and the settings of its last trial; strings are borrowed */
    const char *config_path, *device; /* device NULL: the config's own */
    struct np_overrides overrides;
    struct np_knobs knobs; /* of the last trial; readers 0: none yet */
    double pace; /* factor of the duration of all trials and parts, and of their warm-ups */
};

struct np_trial_options {
    double warmup_s, seconds;
    double fill_s;                  /* longest wait for a cache's first epoch; 0: 4 * warmup_s */
    struct np_overrides *overrides; /* more -o of this trial; NULL: none */
    unsigned stubs;         /* bits 1 << enum np_stage: replaced by replay of its stored output */
    struct np_trace *trace; /* NULL: no spans */
    /* Instead of the observation: as struct np_run_probe, and the rank of this process. */
    bool (*step)(void *context, struct np_run *run, const struct np_observed *seen);
    void *context;
    const struct np_launch *launch;
    /* (NP_PROFILE_MAX_RIBBON), *nr_ribbon rows are filled; NULL: not wanted */
    struct np_ribbon *ribbon;
    int *nr_ribbon;
};
/* Measures the real run (`np_run_train()` in a temporary folder beside the runs): without
 * evaluations, with checkpoints as configured. -EINTR: stopped by a signal. */
int np_trial_run(struct np_rig *rig, const struct np_trial_options *options,
    struct np_observation *ret_observation, struct np_err *err);
/* Measures one part alone for about `seconds`: `nnpipe bench io|loader|step` in a child process.
 * Copies need no trial: the device's events time them in every run. */
enum np_part {
    NP_PART_READ_COLD,
    NP_PART_READ_DEEP,
    NP_PART_READ_WARM,
    NP_PART_LOADER,
    NP_PART_STEP
};
int np_trial_part(
    struct np_rig *rig, enum np_part part, double seconds, double *ret_rate, struct np_err *err);

/* deep.c. By stage: the rate of the trial without its cost, and the limiter of that trial. */
struct np_deep {
    double rate[NP_NR_STAGES]; /* 0: not measured */
    enum np_stage next[NP_NR_STAGES];
};
/* Adds an observation with the stage replayed. ceilings, knobs: of the unchanged run. */
void np_deep_add(struct np_deep *deep, enum np_stage stage, const struct np_observation *seen,
    const struct np_ceilings *ceilings, const struct np_knobs *knobs);
/* Makes the verdict again with measured gains instead of computed ones. base: the rate of the
 * unchanged run in the same measurement. The model's limiter stays unless another stage gains
 * clearly more. Raises the model's ceilings to the rates of those trials. */
void np_deep_judge(const struct np_deep *deep, double base, struct np_model *model, double noise,
    struct np_profile_verdict *verdict);

#define NP_WARMUP_S 0.7
#define NP_TRIAL_S  2.0
#define NP_FILL_S   12.0 /* longest wait for a cache's first epoch */
struct np_measure_options {
    bool deep, verify;
    /* Called with the first verdict, that many seconds after the start; NULL: not wanted. */
    void (*so_far)(void *context, const struct np_profile *profile, double seconds);
    void *context;
};
/* Measures a profile, all but its names and files. Returns the run's errors; leaves out a part
 * that cannot be measured. */
int np_profile_measure(struct np_rig *rig, const struct np_measure_options *options,
    struct np_profile *profile, struct np_err *err);

/* Prints the terminal screen: the verdict, then a bar per stage, at most `width` columns. */
void np_profile_screen(const struct np_profile *profile, int width, bool colour, FILE *out);
/* Writes profile.html: one file with profile.json in it, without other files. */
int np_profile_html(const char *json, const char *path, struct np_err *err);
void np_profile_html_to(FILE *out, const void *json);

/* compare.c. `profile --compare OLD.json`: is the run slower, and because of which stage? */
#define NP_EXIT_REGRESSED 3
struct np_comparison {
    double change;       /* rate now / rate then - 1 */
    double least;        /* a smaller change, up or down, may be chance */
    bool regressed;      /* slower by more than that */
    enum np_stage stage; /* if regressed: the stage whose cost per image explains most of it */
    double share;        /* old rate with that stage's new cost / old rate - 1 */
    char text[400];
};
/* For one config on one machine. Pure arithmetic. -EINVAL: batch, device or precision differ. */
int np_profile_compare(const struct np_profile *then, const struct np_profile *now,
    struct np_comparison *ret_comparison, struct np_err *err);

#endif
