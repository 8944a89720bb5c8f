/* Runs as their folders tell: for `nnpipe runs`, and `nnpipe top` without a service. Nothing of a run is touched, and what is missing,
 * damaged or not a regular file is passed over. Main thread. */
#ifndef NP_RUNS_FOUND_H
#define NP_RUNS_FOUND_H

#include <stdint.h>
#include <time.h>

#include "daemon/ui/progress_fields.h"
#include "loader/base/err.h"
#include "loader/base/node.h"

enum np_run_state { NP_RUN_RUNNING, NP_RUN_DONE, NP_RUN_FAILED, NP_RUN_STOPPED };
extern const char *const np_run_states[];

struct np_found_run {
    char *dir;        /* the folder's path; owned */
    const char *name; /* its last part */
    time_t started;   /* when its config was written; 0: not known */
    enum np_run_state state;
    int pid;                         /* of the process that holds its lock; 0: none */
    struct np_node *step, *pipeline; /* the newest lines of its metrics. Owned; NULL: none */
    struct np_progress progress;
    double train_loss, lr; /* of the last step; NAN: not known, and so for all numbers here */
    double loss, accuracy; /* of the last evaluation: of the test set at the end, if there */
    double best_accuracy, best_step;    /* of the evaluations while training */
    char set[8];                        /* that those were of: "val", "test"; "": none was made */
    uint64_t bytes;                     /* on the disk */
    char *message;                      /* why it failed; NULL: it did not. Owned */
    struct np_node *config, *overrides; /* its config.yaml; the texts of -o. Owned; NULL: none */
    /* np_runs_differ(): the keys in which it differs from others, a map of texts; owned; NULL: none. */
    struct np_node *differs;
};

struct np_found_runs {
    struct np_found_run *runs;
    int nr_runs;
    size_t room;
};

/* Adds the run in dir, or the runs in folders right below it: with live the running ones alone, and what takes long to
 * find out (size, config, the best checkpoint) is left out. -ENOENT and the like: dir cannot be read. */
int np_runs_find(const char *dir, bool live, struct np_found_runs *runs, struct np_err *err);
void np_runs_free(struct np_found_runs *runs);
/* Fills differs: runs of one network are compared with each other, key by key; their names and folders
 * are left out. */
void np_runs_differ(struct np_found_runs *runs);

#endif
