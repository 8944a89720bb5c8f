/* What a caller of np_run_train() chooses, and receives while the run trains. Main thread. */
#ifndef NP_RUN_OPTIONS_H
#define NP_RUN_OPTIONS_H

#include "daemon/analysis/observe.h"
#include "daemon/cmd.h"
#include "trainer/trainer.h"

struct np_run;

/* For a run that is measured: no evaluations, no messages; it runs until step() returns true. */
struct np_run_probe {
    /* Called after each step; true ends the run without a checkpoint. `seen` is valid during the
     * call. */
    bool (*step)(void *context, struct np_run *run, const struct np_observed *seen);
    void *context;
    struct np_err *err; /* receives the run's error; nothing is printed */
    unsigned stubs;     /* bits 1 << enum np_stage: stages to skip, copy and step only */
};
/* For the probe: waits for queued steps, writes a checkpoint, returns the seconds that training waits for it; 0: it
 * failed. */
double np_run_time_save(struct np_run *run);
/* NULL: it trains alone. */
struct np_comm *np_run_comm(const struct np_run *run);
/* The settings of the run at this moment, with `auto` resolved. */
void np_run_knobs(const struct np_run *run, struct np_knobs *ret_knobs);

enum np_device_trouble { NP_DEVICE_WELL, NP_DEVICE_ABSENT /* not opened */, NP_DEVICE_FAILED };

/* Called with each batch, and when the activity changes. */
struct np_run_follower {
    void (*at)(void *context, const struct np_run *run, const char *doing);
    void *context;
    struct np_err *err; /* receives the error of a failed run, which is also printed */
    char *ended;        /* NP_EARLY_TEXT bytes: receives why a run was done before its last step */
    enum np_device_trouble *trouble; /* receives whether the device caused it */
};

struct np_run_options {
    const struct np_run_probe *probe;       /* NULL: none */
    const struct np_run_follower *follower; /* NULL: none */
    const char *into;      /* a folder that the caller has locked; NULL: a new one below `runs` */
    const char *into_name; /* `into` in messages and records */
    bool json, resume, reset_schedule;
    const char *resume_dir;               /* NULL: the newest unfinished run */
    bool resume_auto;                     /* and if there is none, a new run begins */
    const char *weights;                  /* NULL: random ones */
    const struct np_overrides *overrides; /* for messages */
    const char *submitted; /* -o of a submitted run, a line each, already applied; or NULL */
    const struct np_launch *launch; /* NULL: this process trains alone */
    struct np_trace *trace;         /* NULL: none; the caller finishes it afterwards */
};

#endif
