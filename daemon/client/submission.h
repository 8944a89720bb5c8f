/* The requests of `nnpipe submit`: POST /v1/runs of docs/SERVICE.md. Main thread. */
#ifndef NP_SUBMISSION_H
#define NP_SUBMISSION_H

#include "daemon/client/sweep.h"
#include "daemon/cmd.h"
#include "loader/base/config_file.h"
#include "loader/base/json.h"

enum {
    NP_SUBMIT_NAME,
    NP_SUBMIT_DEVICE,
    NP_SUBMIT_PROCESSES = 9,
    NP_SUBMIT_FIELDS
};                                         /* flags whose values are sent; --name is the first */
const char *np_submission_flag(int field); /* "--name" */

/* The command line and the config. All pointers are borrowed. */
struct np_submission {
    const char *values[NP_SUBMIT_FIELDS], *socket; /* NULL: not given */
    const char *gpus;                              /* of --gpus */
    bool wait, json;
    struct np_overrides overrides;
    const char *axes[NP_MAX_REPEATS + 1]; /* of --sweep */
    struct np_sweep sweep;
    const char *text, *sent_path; /* of the config, as they are sent */
    /* for a config with a base: */
    struct np_config_file file;
    const char *path, *merged; /* its name, and the text to send; merged NULL: the file's own */
};

/* What one request sends beside the submission: a run of a sweep, or a check of it. */
struct np_job {
    int index;               /* in the sweep; -1: there is no sweep */
    const char *name, *base; /* of the run, and of the sweep; NULL: the submission's */
    bool check;              /* queue nothing */
};
/* Writes the body of a request. -EINVAL: has printed an error; err is empty. */
int np_submission_write(const struct np_submission *s, const struct np_job *job,
    struct np_json *json, struct np_err *err);

#endif
