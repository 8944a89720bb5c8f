/* `profile --tune`: readers, depth, prefetch, cache and io of the loader, by trials. Main thread. */
#ifndef NP_TUNE_H
#define NP_TUNE_H

#include "daemon/analysis/profile.h"

#define NP_TUNE_TRIALS 15 /* at most, the config as it is and the last four among them */

struct np_tune_options {
    uint64_t max_memory; /* bytes of cache, batches and reads together; 0: half of what is free */
    int max_cores;       /* readers at most; 0: as many as there are cores */
    double noise;        /* of equal trials, relative */
    /* Images a second with these knobs. Any error ends the search, but one of a wish that cannot be had
     * (-EINVAL, -ENOMEM, -EOPNOTSUPP) of knobs that are not the config's own: those are out. */
    int (*trial)(void *context, const struct np_knobs *knobs, double *ret_rate, struct np_err *err);
    void *context;
    const struct np_knobs *advised; /* the verdict's setting, tried before all others; NULL: none */
};

struct np_tune_trial {
    struct np_knobs knobs;
    double rate;      /* 0: it could not be had */
    double predicted; /* by the model */
};

struct np_tuned {
    struct np_tune_trial trials[NP_TUNE_TRIALS];
    int nr_trials;
    struct np_knobs base;        /* the config as it is; within the caps, where it is not */
    struct np_knobs best;        /* base, where nothing is better beyond noise */
    double base_rate, best_rate; /* of the trials in turn, where there were such */
    double least;                /* gain that could be chance */
    bool better, beyond;         /* best is not base; the config as it is breaks a cap */
};

/* Memory that the loader takes with these knobs, about. */
uint64_t np_tune_memory(const struct np_knobs *knobs);
/* The knobs that differ, as settings ("loader.readers=4"), at most five; their number. */
#define NP_TUNE_KEYS 5
int np_tune_settings(
    const struct np_knobs *from, const struct np_knobs *to, char ret_settings[NP_TUNE_KEYS][48]);
/* -ERANGE, before any trial: max_memory is less than the loader takes at the least. */
int np_tune(const struct np_model *model, const struct np_tune_options *options,
    struct np_tuned *ret_tuned, struct np_err *err);

#endif
