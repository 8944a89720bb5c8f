/* Runs that go on, in other processes, as their folders tell: nothing of a run is touched. Main
 * thread. */
#ifndef NP_TOP_H
#define NP_TOP_H

#include "daemon/analysis/profile.h"
#include "loader/base/node.h"

struct np_top_run {
    char name[128]; /* the folder's */
    int pid;        /* of the process that holds its lock; 0: it does not go on */
    double step, total_steps, epoch, loss, eta_seconds; /* < 0: not known yet; loss: NAN */
    double images_per_second, stall_ratio;              /* < 0: not known yet */
    char cause[16];                                     /* of most of the stall; "": none */
    bool seen;                                          /* of the newest `pipeline` line: */
    struct np_observation observation;
    struct np_knobs knobs;
};

/* The process that holds the lock of the run in dir; 0: none. */
int np_top_holder(const char *dir);
/* A run's folder: its lock, and the end of its metrics.jsonl, of which a line under way is left out. */
int np_top_read(const char *dir, struct np_top_run *ret_run, struct np_err *err);
/* The same of lines of a metrics.jsonl, a list; neither name nor process. false: there is no pipeline line
 * among them, and the run stays as it is. */
bool np_top_take(const struct np_node *points, struct np_top_run *ret_run);
/* The profile that the observation gives, no part of it measured alone: what the step can do is what it
 * did in this run. Adds the names of stages without a ceiling to text: "read, batch". */
void np_top_profile(
    const struct np_top_run *run, struct np_profile *ret_profile, char *text, size_t bytes);

#endif
