/* `profile --tune`: finds the loader's readers, depth, prefetch, cache and io by trials. tune.c
 * searches; tuning.c makes the trials and prints and writes the result. Main thread. */
#ifndef NP_TUNE_H
#define NP_TUNE_H

#include "daemon/profile/trial.h"
#include "loader/base/json.h"

#define NP_TUNE_TRIALS 15 /* at most, including the unchanged config and the last four */

struct np_tune_options {
    uint64_t max_memory; /* bytes of cache, batches and reads together; 0: half of what is free */
    int max_cores;       /* limit of readers; 0: the number of cores */
    double noise;        /* of equal trials, relative */
    /* Measures images per second with these knobs. An error ends the search; but -EINVAL, -ENOMEM
     * and -EOPNOTSUPP only drop these knobs, unless they are the config's own. */
    int (*trial)(void *context, const struct np_knobs *knobs, double *ret_rate, struct np_err *err);
    void *context;
    const struct np_knobs *advised; /* the verdict's advice, tried first; NULL: none */
};

struct np_tune_trial {
    struct np_knobs knobs;
    double rate; /* 0: not possible */
    double predicted;
};

struct np_tuned {
    struct np_tune_trial trials[NP_TUNE_TRIALS];
    int nr_trials;
    struct np_knobs base;        /* the config, reduced to the caps if it breaks them */
    struct np_knobs best;        /* base, if nothing is better beyond noise */
    double base_rate, best_rate; /* of the trials in turn, if any were made */
    double least;                /* largest gain that could be chance */
    bool better, beyond;         /* best is not base; the config breaks a cap */
};

/* Estimates the loader's memory with these knobs, bytes. */
uint64_t np_tune_memory(const struct np_knobs *knobs);
#define NP_TUNE_KEYS 5
struct np_tune_setting { /* a key and two values of it */
    const char *key;     /* "loader.readers" */
    char from[16], to[16];
};
/* Fills the settings that differ; returns their number. */
int np_tune_settings(const struct np_knobs *from, const struct np_knobs *to,
    struct np_tune_setting ret_settings[NP_TUNE_KEYS]);
bool np_tune_same(const struct np_knobs *a, const struct np_knobs *b);
/* False: no such key. */
bool np_tune_set(struct np_knobs *knobs, const char *key, const char *value);
/* -ERANGE, before any trial: max_memory is less than the loader's minimum. */
int np_tune(const struct np_model *model, const struct np_tune_options *options,
    struct np_tuned *ret_tuned, struct np_err *err);

struct np_tuning {
    struct np_tuned tuned;
    struct np_knobs from;    /* of the measured run */
    struct np_knobs advised; /* with the verdict's advice; `from` if that has none of these knobs */
    bool fills[NP_TUNE_TRIALS];   /* by trial: the cache was still in its first epoch at the end */
    char *file;                   /* the config written; NULL: none */
    const struct np_model *model; /* borrowed: the profile's */
};

/* Parses the caps ("8G", "4"; NULL: none) into options; -EINVAL names the wrong one. */
int np_tuning_caps(const char *max_memory, const char *max_cores,
    struct np_tune_options *ret_options, struct np_err *err);
/* Each trial runs for that many seconds. profile: of the unchanged run. */
int np_tuning_run(struct np_rig *rig, const struct np_profile *profile,
    const struct np_tune_options *caps, double seconds, struct np_tuning *ret_tuning,
    struct np_err *err);
/* Writes NAME.tuned.yaml to dir if a setting changes: `base:` names the config; each setting has
 * its gain in a comment. */
int np_tuning_write(
    struct np_tuning *tuning, const char *config_path, const char *dir, struct np_err *err);
/* --verify: writes NAME.advised.yaml if the measured gain of the advice is above noise.
 * *ret_path: the file, np_free; unchanged if none was written. */
int np_advice_write(const struct np_profile *profile, const char *config_path, const char *dir,
    char **ret_path, struct np_err *err);
void np_tuning_print(const struct np_tuning *tuning, FILE *out);
/* The event `tuned`. json owns the line. */
const char *np_tuning_event(const struct np_tuning *tuning, struct np_json *json);
void np_tuning_fini(struct np_tuning *tuning);

#endif
