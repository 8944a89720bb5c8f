/* Which stage limits a run, by how much, and which key to change: what was seen, and what follows from it.
 *
 *   observe.c    what the counters said over some seconds: an observation
 *   model.c      an observation and the parts' ceilings -> costs an image -> the rate if a stage cost less
 *   verdict.c    the limiter, the gain, the next limit; or balanced, or inconclusive
 *   advise.c     the limiter -> the key, its value, what it gains and costs
 *   consistent.c  what no profile may say
 *   words.c profile_json.c   the same struct np_profile for people and for programs
 *
 * daemon/profile/ measures one. Rates are images a second, times seconds, shares 0..1. Main thread. */
#ifndef NP_PROFILE_H
#define NP_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

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
    /* What one takes; measured after the window where none was due in it; 0: none comes. */
    double checkpoint_each_s;
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
    double thread_s[NP_NR_STAGES];  /* a reader's time in each of its stages: waits left out */
    double blocked_s[NP_NR_STAGES]; /* of it, in calls that wait without a core: a slow `open` */
    double read_rate;               /* what the disk gives at this concurrency */
    double read_max;                /* and at any; 0: not known */
    double copy_rate, step_rate;    /* 0: no such stage */
    double step_cpu_s;        /* core-seconds of the CPU device's threads; else the trainer's own */
    double checkpoint_each_s; /* a save; 0: none comes */
    double checkpoint_share;  /* of the trainer's time, at the configured interval */
    /* rate / the model's rate without it: what hand-over in small pieces costs; <= 1 */
    double coupling;
    double bridged[NP_FEED_BRIDGES]; /* of the time, that 1, 2, 4, ... more slots would give back */
};

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
/* --- the whole of it -------------------------------------------------------------------------- */

#define NP_PROFILE_MAX_RIBBON 256
struct np_ribbon { /* a tenth of a second of the run */
    double at_s, rate;
    double wait_s[NP_NR_STAGES]; /* stall by cause */
};

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
    double curve_faster[NP_PROFILE_MAX_CURVE]; /* what-if of the limiter */
    double curve_rate[NP_PROFILE_MAX_CURVE];
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

/* profile.json: docs/PROFILING.md has the schema. The `done` event of --json is its first level. */
char *np_profile_json(const struct np_profile *profile); /* caller frees; NULL: no memory */
char *np_profile_done(const struct np_profile *profile); /* the event alone, in one line */
struct np_json;
/* The verdict and a bar a stage, into the object under way: what a page draws of a run that goes on. */
void np_profile_write_look(struct np_json *json, const struct np_profile *profile);
/* Any bytes. The caller gives what was read back with np_profile_fini(). */
int np_profile_read(const char *path, struct np_profile *ret_profile, struct np_err *err);
int np_profile_parse(
    const char *text, size_t bytes, struct np_profile *ret_profile, struct np_err *err);
void np_profile_fini(struct np_profile *profile); /* ribbon and before, of np_profile_read() */
#endif
