/* One run: opens loader, trainer and device, trains to the end or until it is stopped, closes all. The
 * only place where the loader meets the device. Main thread. run_parts.h names its files. */
#ifndef NP_RUN_H
#define NP_RUN_H

#include "daemon/analysis/observe.h"
#include "daemon/cmd.h"
#include "trainer/trainer.h"

struct np_run;

/* Measures a run instead of finishing it: no evaluations, no messages, no end of its own. */
struct np_run_probe {
    /* After each step; true ends the run at once, without a checkpoint. `seen` lasts for the call. */
    bool (*step)(void *context, struct np_run *run, const struct np_observed *seen);
    void *context;
    struct np_err *err; /* receives the run's error instead of the screen */
    unsigned stubs;     /* bits 1 << enum np_stage: of copy and step, what to leave out */
};
/* For the probe: writes a checkpoint after all queued steps. Seconds that it took; 0: it failed. */
double np_run_time_save(struct np_run *run);
/* What the run is made of at this moment, `auto` decided. */
void np_run_knobs(const struct np_run *run, struct np_knobs *ret_knobs);

struct np_run_options {
    const struct np_run_probe *probe;       /* NULL: none */
    const struct np_run_follower *follower; /* NULL: none */
    const char *into;      /* a folder that the caller has locked; NULL: a new one below `runs` */
    const char *into_name; /* `into` in messages and records */
    bool json, resume, reset_schedule;
    const char *resume_dir;               /* NULL: the newest unfinished run */
    const char *weights;                  /* NULL: fresh ones */
    const struct np_overrides *overrides; /* for messages */
    const char *submitted;  /* -o of a submission, a line each, already in the config; or NULL */
    struct np_trace *trace; /* NULL: none; the caller finishes it afterwards */
};
int np_run_train(struct np_config *config, const struct np_run_options *options); /* exit code */

#endif
