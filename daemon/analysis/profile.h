/* A profile: which stage limits a run, by how much, and which key to change.
 *
 *   observe.c    the counters of some seconds -> an observation
 *   model.c      observation and ceilings of the parts -> costs per image -> the rate if a stage
 *                cost less
 *   verdict.c    the limiter, the gain, the next limit; or balanced, or inconclusive
 *   advise.c     the limiter -> the key to change, its value, the gain and the cost
 *   consistent.c  finds figures that contradict each other
 *   words.c profile_json.c   struct np_profile as text for people, as JSON for programs
 *
 * daemon/profile/ measures one. Rates are images per second, times seconds, shares 0..1. Main
 * thread. */
#ifndef NP_PROFILE_H
#define NP_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/stat.h"
#include "trainer/feed.h"

struct np_observed_stage {
    uint64_t items, bytes; /* items: images; for copy, step, checkpoint: copies and so on */
    double work_s;         /* sum over threads */
    double p50_s, p99_s;
};

/* The whole pipeline over some seconds of training: counters at the end less counters at the
 * start. */
struct np_observation {
    double seconds;
    uint64_t images, steps;
    double images_per_second;
    struct np_observed_stage stages[NP_NR_STAGES];
    uint64_t entered, missed; /* JPEGs decoded from an entry; JPEGs without one yet */
    /* Batches made here, and taken from other jobs; images decoded here, and found in the caches of
     * other jobs. Zeros: they are not shared. */
    uint64_t made, taken, decoded, found;
    /* Sums over the readers. work + starved + blocked + io_wait = nr_readers * seconds, within
     * 0.5 %. */
    int nr_readers;
    double reader_s[NP_NR_STATES];
    double reader_cpu_s;   /* on a core */
    double reader_delay_s; /* runnable, waiting for a core (schedstat) */
    double trainer_s[NP_NR_STATES];
    double process_cpu_s;      /* all threads */
    double cores;              /* usable by this process */
    double other_cores;        /* the part of `cores` that other processes used */
    double ring_full;          /* batches ready, as a share of the ring's slots: mean over time */
    double reads_full;         /* reads in flight, as a share of readers * depth: mean over time */
    struct np_feed_times feed; /* zeros on a device that reads the host's memory */
    double stall_s;            /* the device was idle because no batch was ready */
    /* stall_s by cause: the stage in which the reader of the late batch's last row was, or the copy
     * (np_account.blame_ns; np_stat_sum.blame_ns for other threads). Sums to stall_s. */
    double blame_s[NP_NR_STAGES];
    /* The part of stall_s that a longer ring saves: np_account.bridged_ns. */
    double bridged_s[NP_FEED_BRIDGES];
    double checkpoint_s; /* the trainer's time in writing checkpoints */
    uint64_t nr_checkpoints;
    /* Per checkpoint; measured after the window if none was due in it; 0: the run writes none. */
    double checkpoint_each_s;
};

/* Rates of parts that run alone and wait for no other part, with the run's readers, depth and
 * prefetch. 0: the run has no such part, or it was not measured. */
struct np_ceilings {
    double read_cold; /* reading alone, the files dropped from the page cache */
    double read_warm; /* not dropped */
    double read_deep; /* cold, with NP_DEEPER times the reads in flight */
    double loader;    /* from reading to finished batches */
    double copy;
    double step; /* the training step on a batch that is ready */
};

struct np_knobs {
    int readers, depth, prefetch, batch;
    char io[16], cache[16], device[32], precision[8];
    double checkpoint_steps; /* between two checkpoints, as configured; 0: the run writes none */
    uint64_t nr_samples;     /* of the training set */
    uint64_t set_bytes;      /* its encoded bytes */
    uint64_t picture_bytes;  /* of one decoded picture, about */
    uint64_t row_bytes;
    uint64_t device_room; /* bytes free on the device for a cache; 0: it has no cache */
    uint64_t memory_bytes, free_bytes; /* of the machine */
    double cores;                      /* usable */
    bool device_has_memory;            /* a GPU or sim: the step takes no core */
    bool packed;                       /* samples are stored in zstd frames */
    bool cache_fills;   /* the cache was still in its first epoch when the observation ended */
    bool geometry_only; /* the device can make the rows: crops, flips and resizes only */
};

/* Costs per image. The five loader stages share the reader threads. */
struct np_model {
    struct np_knobs knobs;
    double rate;                   /* as observed, with checkpoints at the configured interval */
    double cores;                  /* knobs.cores - other_cores: available to this run */
    double thread_s[NP_NR_STAGES]; /* a reader's time in each of its stages, without waits */
    /* The part of it in calls that wait without a core, such as a slow open(). */
    double blocked_s[NP_NR_STAGES];
    double read_rate;            /* of the disk at this number of reads in flight */
    double read_max;             /* and at any number; 0: unknown */
    double copy_rate, step_rate; /* 0: no such stage */
    double step_cpu_s;        /* core-seconds of the CPU device's threads; else the trainer's own */
    double checkpoint_each_s; /* per checkpoint; 0: the run writes none */
    double checkpoint_share;  /* of the trainer's time, at the configured interval */
    /* rate / the rate that the costs alone allow: the loss through handing over batches; <= 1 */
    double coupling;
    double bridged[NP_FEED_BRIDGES]; /* share of the time that 1, 2, 4, ... more slots would save */
};

enum np_verdict_kind { NP_LIMITED, NP_BALANCED, NP_INCONCLUSIVE };
extern const char *const np_verdict_names[]; /* "limited", "balanced", "inconclusive" */

struct np_advice {
    char key[48]; /* "loader.readers"; "": no key helps */
    char from[32], to[64];
    char text[256]; /* a sentence: what to do and why; also without a key */
    double rate;    /* predicted with the advice */
    double cores;   /* in addition to those used now */
    uint64_t memory_bytes;
};

struct np_profile_verdict {
    enum np_verdict_kind kind;
    enum np_stage limiter; /* balanced: the lower of the two */
    double gain;           /* rate without the limiter's cost / rate, up to the next limit */
    enum np_stage next;    /* the limiter after that */
    double next_rate;      /* the highest rate that removing the limiter can reach */
    double headroom;       /* the lowest ceiling but the limiter's / rate - 1 */
    struct np_advice advice;
    char reason[256]; /* balanced, inconclusive: why */
};

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

/* Everything in a report. Owned by cmd_profile.c. */
struct np_profile {
    char config[256], version[64], started_at[32];
    /* Paths of the files written, separated by two spaces; or "". */
    char files[3 * NP_PROFILE_PATH_BYTES];
    struct np_knobs knobs;
    struct np_observation observation;
    struct np_ceilings ceilings;
    struct np_model model;
    struct np_profile_verdict verdict;
    double noise;    /* relative difference of equal (A/A) trials; 0: not measured */
    double overhead; /* of the profiler, relative, measured */
    double seconds;
    bool deep, verified;
    bool verify_fills; /* the advised cache was still in its first epoch: nothing was verified */
    struct np_deep_stage stubbed[NP_NR_STAGES];
    double verified_rate; /* --verify: measured with the advice */
    struct np_ribbon *ribbon;
    int nr_ribbon;
    double curve_faster[NP_PROFILE_MAX_CURVE]; /* rate with a limiter so many times faster */
    double curve_rate[NP_PROFILE_MAX_CURVE];
    int nr_curve;
    const struct np_profile *before; /* --compare: the older profile; NULL: none */
};

/* Settles the ceilings and makes model, verdict and curve from observation, ceilings, knobs and
 * noise. */
void np_profile_think(struct np_profile *profile);
/* Makes the curve of a verdict; if the gain was measured, the curve ends at the measured rate. */
void np_profile_curve(struct np_profile *profile);
/* Do two figures contradict each other? Never in a correct profile. If so, text names the two,
 * else it is not changed. */
bool np_profile_contradicts(const struct np_profile *profile, char *text, size_t bytes);
/* Makes a profile from some seconds of a run, without trials of single parts: the ceiling of the
 * step is its rate in the run. Allocates nothing. */
void np_profile_look(const struct np_observation *observation, const struct np_knobs *knobs,
    struct np_profile *ret_profile);

/* The text of profile.json; docs/PROFILING.md has the schema. The `done` event has its first
 * level. */
/* NULL: out of memory. np_free. */
char *np_profile_json(const struct np_profile *profile, struct np_err *err);
char *np_profile_done(const struct np_profile *profile, struct np_err *err); /* only the event */
struct np_json;
/* Writes the verdict and a bar per stage to the open object: a page draws them for a running
 * run. */
void np_profile_write_look(struct np_json *json, const struct np_profile *profile);
/* Reads profile.json; safe for any bytes. The caller frees the result with np_profile_fini(). */
int np_profile_read(const char *path, struct np_profile *ret_profile, struct np_err *err);
int np_profile_parse(
    const char *text, size_t bytes, struct np_profile *ret_profile, struct np_err *err);
void np_profile_fini(struct np_profile *profile); /* frees ribbon and before of np_profile_read() */
#endif
