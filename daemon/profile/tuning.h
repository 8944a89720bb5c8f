/* `nnpipe profile --tune` around np_tune(): trials of the real run, the table, and the config with the
 * result. Main thread. */
#ifndef NP_TUNING_H
#define NP_TUNING_H

#include "daemon/profile/trial.h"
#include "loader/base/json.h"
#include "daemon/profile/tune.h"

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
/* Writes NAME.tuned.yaml to dir if a setting changes: `base:` names the config; each setting has its gain in
 * a comment. */
int np_tuning_write(
    struct np_tuning *tuning, const char *config_path, const char *dir, struct np_err *err);
/* --verify: writes NAME.advised.yaml if the measured gain of the advice is above noise. *ret_path: the file,
 * np_free; unchanged if none was written. */
int np_advice_write(const struct np_profile *profile, const char *config_path, const char *dir,
    char **ret_path, struct np_err *err);
/* Prints a line per trial, then the result. */
void np_tuning_print(const struct np_tuning *tuning, FILE *out);
/* The event `tuned`; the line belongs to json. */
const char *np_tuning_event(const struct np_tuning *tuning, struct np_json *json);
void np_tuning_fini(struct np_tuning *tuning);

#endif
