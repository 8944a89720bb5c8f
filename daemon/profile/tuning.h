/* `nnpipe profile --tune` around np_tune(): trials of the real run, the table, and the config with what came
 * of them. Main thread. */
#ifndef NP_TUNING_H
#define NP_TUNING_H

#include "daemon/profile/trial.h"
#include "loader/base/json.h"
#include "daemon/profile/tune.h"

struct np_tuning {
    struct np_tuned tuned;
    struct np_knobs from; /* what the run was made of */
    struct np_knobs
        advised; /* with the verdict's setting; from, where it has none of these knobs */
    bool fills[NP_TUNE_TRIALS]; /* of a trial: at its end the cache was still in its first epoch */
    char *file;                 /* that builds on the config; NULL: there is none */
    const struct np_model *model; /* borrowed: the profile's */
};

/* The caps' texts ("8G", "4"; NULL: none) into options; -EINVAL says which is none. */
int np_tuning_caps(const char *max_memory, const char *max_cores,
    struct np_tune_options *ret_options, struct np_err *err);
/* Each trial runs for so many seconds. profile: of the run as it is. */
int np_tuning_run(struct np_rig *rig, const struct np_profile *profile,
    const struct np_tune_options *caps, double seconds, struct np_tuning *ret_tuning,
    struct np_err *err);
/* NAME.tuned.yaml into dir, where anything is to change: `base:` the config, and the settings, each with its gain in a
 * comment. */
int np_tuning_write(
    struct np_tuning *tuning, const char *config_path, const char *dir, struct np_err *err);
/* --verify: NAME.advised.yaml, where the advice was measured to gain more than noise. *ret_path: the file, np_free;
 * untouched where there is none. */
int np_advice_write(const struct np_profile *profile, const char *config_path, const char *dir,
    char **ret_path, struct np_err *err);
/* The trials, a line each, and what came of them. */
void np_tuning_print(const struct np_tuning *tuning, FILE *out);
/* The event `tuned`; the line is json's. */
const char *np_tuning_event(const struct np_tuning *tuning, struct np_json *json);
void np_tuning_fini(struct np_tuning *tuning);

#endif
