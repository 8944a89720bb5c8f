/* `nnpipe profile`: which stage limits a run, by how much, and which key to change.
 *
 *   measure.c    what is run, and in which order
 *   trial.c      runs the real pipeline, or a part of it alone, for some seconds
 *   observe.c    what the counters said over these seconds: an observation
 *   model.c      an observation and the parts' ceilings -> costs an image -> the rate if a stage cost less
 *   verdict.c    the limiter, the gain, the next limit; or balanced, or inconclusive
 *   deep.c       the same with the gains measured: a stage's work left out, its output replayed
 *   advise.c     the limiter -> the key, its value, what it gains and costs
 *   consistent.c  what no profile may say
 *   screen.c html.c profile_json.c   the same struct np_profile, told three ways
 *   tune.c compare.c                 what is built upon it
 *
 * Rates are images a second, times seconds, shares 0..1. Main thread, but where said. */
#ifndef NP_PROFILE_H
#define NP_PROFILE_H

#include <stdbool.h>
#include <stdio.h>

#include "loader/base/err.h"
#include "loader/base/stat.h"
#include "trainer/feed.h"

/* --- what was measured ------------------------------------------------------------------------ */

struct np_observed_stage {
    uint64_t items, bytes; /* an item is an image; of copy, step and checkpoint one each */
    double work_s;         /* sum over threads */
    double p50_s, p99_s;
};

/* The whole pipeline over some seconds of training: counters at the end less counters at the start. */
struct np_observation {
    double seconds;
    uint64_t images, steps;
    double images_per_second;
    struct np_observed_stage stages[NP_NR_STAGES];
    /* Sums over the readers. work + starved + blocked + io_wait = nr_readers * seconds, within 0.5 %. */
    int nr_readers;
    double reader_s[NP_NR_STATES];
    double reader_cpu_s;   /* on a core */
    double reader_delay_s; /* ready, and waiting for a core (schedstat) */
    double trainer_s[NP_NR_STATES];
    double process_cpu_s;      /* all threads */
    double cores;              /* usable by this process */
    double other_cores;        /* of these, what other processes used */
    double ring_full;          /* batches ready, as a share of the ring's slots: mean over time */
    double reads_full;         /* reads in flight, as a share of readers * depth: mean over time */
    struct np_feed_times feed; /* zeros on a device that reads the host's memory */
    double stall_s;            /* the device had nothing to do, for want of a batch */
    /* The same by cause: what the reader of the late batch's last row did meanwhile, or its copy
     * (np_feed_blame(); np_stat_sum.blame_ns for other threads). Sums to stall_s. */
    double blame_s[NP_NR_STAGES];
    double bridged_s[NP_FEED_BRIDGES]; /* of stall_s, by a longer ring: np_feed_bridged() */
    double checkpoint_s;               /* the trainer's time in writing checkpoints */
    uint64_t nr_checkpoints;
    double
        checkpoint_each_s; /* what one takes; measured behind the window where none was due in it. 0: none is */
};

/* Parts alone, each with nobody to wait for, at the run's own readers, depth and prefetch. 0: there is no
 * such part, or it was not measured. */
struct np_ceilings {
    double read_cold, read_warm; /* reading alone: page cache dropped for these files; as it is */
    double read_deep;            /* cold, with NP_DEEPER times the reads in flight */
    double loader;               /* reading to finished batches */
    double copy;                 /* host to device */
    double step;                 /* the training step on a batch that is there */
};

#define NP_DEEPER    8
#define NP_MAX_DEPTH 64 /* that is measured or advised */

/* What a part alone did cannot be less than it did in the run: of the step the larger of both holds; another
 * part that was slower alone was not measured under the run's conditions, and is left out (0). */
void np_ceilings_settle(const struct np_observation *observation, struct np_ceilings *ceilings);

/* What the run is made of. */
struct np_knobs {
    int readers, depth, prefetch, batch;
    char io[16], cache[16], device[32], precision[8];
    double checkpoint_steps; /* between two checkpoints, as configured; 0: none comes in the run */
    uint64_t nr_samples;     /* of the training set */
    uint64_t set_bytes;      /* its encoded bytes */
    uint64_t picture_bytes;  /* of one decoded picture, about */
    uint64_t row_bytes;      /* of one in a batch */
    uint64_t device_room;    /* for a cache on the device, free there; 0: it keeps none */
    uint64_t memory_bytes, free_bytes; /* of the box */
    double cores;                      /* usable */
    bool device_has_memory;            /* a GPU or sim: the step takes no core */
    bool packed;                       /* samples lie in zstd frames */
    bool cache_fills;   /* at the end of what was seen it was still in its first epoch */
    bool geometry_only; /* the device can make the rows: crops, flips and sizes */
};

/* --- the model -------------------------------------------------------------------------------- */

/* Costs of one image. The five loader stages share the reader threads. */
struct np_model {
    struct np_knobs knobs;
    double rate;  /* as it was seen, less the time of checkpoints at the configured interval */
    double cores; /* knobs.cores - other_cores: what there is to share */
    double
        thread_s[NP_NR_STAGES]; /* a reader thread's time in each of its stages: waits left out */
    double blocked_s[NP_NR_STAGES]; /* of it, in calls that wait without a core: a slow `open` */
    double read_rate;               /* what the disk gives at this concurrency */
    double read_max;                /* and at any; 0: not known */
    double copy_rate, step_rate;    /* 0: no such stage */
    double
        step_cpu_s; /* core-seconds of compute threads (the CPU device); else the trainer's own */
    double checkpoint_each_s; /* a save; 0: none comes */
    double checkpoint_share;  /* of the trainer's time, at the configured interval */
    double
        coupling; /* rate / the model's rate without it: what hand-over in small pieces costs; <= 1 */
    double bridged[NP_FEED_BRIDGES]; /* of the time, that 1, 2, 4, ... more slots would give back */
};

/* From an observation of the whole run and the parts' ceilings. */
void np_model_make(const struct np_observation *observation, const struct np_ceilings *ceilings,
    const struct np_knobs *knobs, struct np_model *ret_model);
/* The run, or a trial without one stage's cost (NP_NR_STAGES: with all), did so many images a second: what
 * the model says that the others could do is raised to it. */
void np_model_reach(struct np_model *model, double rate, enum np_stage without);
/* The rate if each stage's cost were divided by faster[stage] (>= 1; INFINITY: it costs nothing).
 * The smallest of: readers / sum(thread_s); cores / (sum(thread_s - blocked_s) + step_cpu_s); each rate; times
 * coupling, less what saves cost. NULL: as it is. */
double np_model_rate(const struct np_model *model, const double faster[NP_NR_STAGES]);
/* The rate with other knobs (readers, depth, prefetch, cache, checkpoint_steps). */
double np_model_rate_with(const struct np_model *model, const struct np_knobs *knobs);
/* What a stage could do: the rate were all else free, but for those that share its threads; of these too
 * `limiter` (NP_NR_STAGES: none) is left out, if it is another one, so that no ceiling lies below the rate
 * without it. The three CPU stages of the loader have one ceiling together. INFINITY: the run has no such
 * stage. */
double np_model_ceiling(const struct np_model *model, enum np_stage stage, enum np_stage limiter);
/* Its share of what it runs on: of the readers' time, the disk's, the bus's, the device's. */
double np_model_busy(const struct np_model *model, enum np_stage stage);

/* --- the verdict ------------------------------------------------------------------------------ */

enum np_verdict_kind { NP_LIMITED, NP_BALANCED, NP_INCONCLUSIVE };
extern const char *const np_verdict_names[]; /* "limited", "balanced", "inconclusive" */

struct np_advice {
    char key[48]; /* "loader.readers"; "": nothing in the config helps */
    char from[32], to[64];
    char text[256]; /* a sentence: what to do, why; also where there is no key */
    double rate;    /* predicted with it */
    double cores;   /* more than now */
    uint64_t memory_bytes;
};

struct np_profile_verdict {
    enum np_verdict_kind kind;
    enum np_stage limiter; /* balanced: of the two, the lower */
    double gain;           /* rate without the limiter's cost / rate, up to the next limit */
    enum np_stage next;    /* what limits then */
    double next_rate;      /* and the rate there: what fixing the limiter alone can bring */
    double headroom;       /* rate of the lowest ceiling but the limiter's / rate - 1 */
    struct np_advice advice;
    char reason[256]; /* balanced, inconclusive: why */
};
#define NP_MAX_NOISE 0.10
#define NP_MIN_GAIN  0.05 /* less, from any one stage: balanced */
/* noise: relative spread of equal trials (A/A), 0: not known. Limited: removing the limiter gains more
 * than 5 % (and than twice the noise); balanced: removing any one stage gains less; inconclusive: noise
 * above 10 %, or the parts do not explain the rate. */
void np_verdict_make(
    const struct np_model *model, double noise, struct np_profile_verdict *ret_verdict);
/* Of a verdict whose limits and gain are known: headroom, its kind, the reason and the advice. */
void np_verdict_judge(
    const struct np_model *model, double noise, struct np_profile_verdict *verdict);
/* advise.c: for verdict_judge. No advice promises more than `most`, the rate without the limiter's cost. */
void np_advise(
    const struct np_model *model, enum np_stage limiter, double most, struct np_advice *ret_advice);

/* --- trials ----------------------------------------------------------------------------------- */

struct np_config;
struct np_overrides;
struct np_rig; /* a config, and what the last trial of it was made of */

#define NP_PROFILE_MAX_RIBBON 256
struct np_ribbon { /* a tenth of a second of the run */
    double at_s, rate;
    double wait_s[NP_NR_STAGES]; /* stall by cause */
};

struct np_trial_options {
    double warmup_s, seconds;
    double fill_s; /* a cache in its first epoch is waited for, so long at most; 0: 4 * warmup_s */
    struct np_overrides *overrides; /* more -o of this trial; NULL: none */
    unsigned stubs;         /* bits 1 << enum np_stage: replaced by replay of its stored output */
    struct np_trace *trace; /* NULL: no spans */
    struct np_ribbon
        *ribbon; /* (NP_PROFILE_MAX_RIBBON) filled as far as *nr_ribbon says; NULL: not asked for */
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

#define NP_PROFILE_MAX_CURVE  32
#define NP_PROFILE_PATH_BYTES 4096
struct np_deep_stage { /* --deep: measured with the stage replayed; 0: not measured */
    double rate;
};

/* All that a report says. Owned by cmd_profile.c. */
struct np_profile {
    char config[256], version[64], started_at[32];
    /* Paths that were written, two spaces between them; or "". */
    char files[3 * NP_PROFILE_PATH_BYTES];
    struct np_knobs knobs;
    struct np_observation observation;
    struct np_ceilings ceilings;
    struct np_model model;
    struct np_profile_verdict verdict;
    double noise;    /* relative, of A/A trials; 0: not measured */
    double overhead; /* of the profiler, relative; measured */
    double seconds;  /* the profile took */
    bool deep, verified;
    bool verify_fills; /* the advised cache was still in its first epoch: nothing is verified */
    struct np_deep_stage stubbed[NP_NR_STAGES];
    double verified_rate; /* --verify: with the advice applied */
    struct np_ribbon *ribbon;
    int nr_ribbon;
    double curve_faster[NP_PROFILE_MAX_CURVE],
        curve_rate[NP_PROFILE_MAX_CURVE]; /* what-if of the limiter */
    int nr_curve;
    const struct np_profile *before; /* --compare: the other one; NULL: none */
};

/* From observation, ceilings, knobs and noise: settles the ceilings, makes model, verdict and curve. */
void np_profile_think(struct np_profile *profile);
/* The curve of a verdict; where its gain was measured it ends there. */
void np_profile_curve(struct np_profile *profile);
/* Does one figure contradict another? A profile that was measured never does; if so, text names the two.
 * text is left as it is otherwise. */
bool np_profile_contradicts(const struct np_profile *profile, char *text, size_t bytes);
/* The profile that some seconds of a run give, no part of it measured alone: what the step can do is what
 * it did there. Allocates nothing. */
void np_profile_look(const struct np_observation *observation, const struct np_knobs *knobs,
    struct np_profile *ret_profile);

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
/* profile.json: docs/PROFILING.md has the schema. The `done` event of --json is its first level. */
char *np_profile_json(const struct np_profile *profile); /* caller frees; NULL: no memory */
char *np_profile_done(
    const struct np_profile *profile); /* the event alone, in one line; the same */
struct np_json;
/* The verdict and a bar a stage, into the object under way: what a page draws of a run that goes on. */
void np_profile_write_look(struct np_json *json, const struct np_profile *profile);
/* Any bytes. The caller gives what was read back with np_profile_fini(). */
int np_profile_read(const char *path, struct np_profile *ret_profile, struct np_err *err);
int np_profile_parse(
    const char *text, size_t bytes, struct np_profile *ret_profile, struct np_err *err);
void np_profile_fini(struct np_profile *profile); /* ribbon and before, of np_profile_read() */
/* profile.json as one page, a file that needs no other. */
int np_profile_html(const char *json, const char *path, struct np_err *err);
void np_profile_html_to(const char *json, FILE *out);

#endif
