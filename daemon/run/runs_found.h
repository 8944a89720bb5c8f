/* Finds runs by reading their folders: for `nnpipe runs`, and `nnpipe top` without a service.
 * Writes and locks nothing; skips files that are missing, damaged or not regular. Main thread. */
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
    time_t started;   /* when its config was written; 0: unknown */
    enum np_run_state state;
    int pid;                         /* of the process that holds its lock; 0: none */
    struct np_node *step, *pipeline; /* the newest lines of its metrics. Owned; NULL: none */
    struct np_progress progress;
    double train_loss, lr;           /* of the last step; NAN: unknown, as for all numbers here */
    double loss, accuracy;           /* of the final test, else of the last evaluation */
    double best_accuracy, best_step; /* the best evaluation while training */
    char set[8];                     /* the evaluated set: "val", "test"; "": no evaluation yet */
    uint64_t bytes;                  /* on the disk */
    char *message;                   /* why it failed; NULL: it did not fail. Owned */
    char *reason;                    /* why it was done before its last step; NULL: it was not */
    struct np_node *config, *overrides; /* its config.yaml; the texts of -o. Owned; NULL: none */
    struct np_node *differs; /* key: value where it differs from other runs. Owned; NULL: none */
};

struct np_found_runs {
    struct np_found_run *runs;
    int nr_runs;
    size_t room;
};

/* Adds the run in dir, or the runs in the folders directly in it. live: only running ones,
 * without the fields that take long (size, config, the best checkpoint). -ENOENT and the like:
 * dir cannot be read. */
int np_runs_find(const char *dir, bool live, struct np_found_runs *runs, struct np_err *err);
/* Adds a run that has no folder yet. Takes ownership of config (or NULL). */
void np_runs_add_unstarted(struct np_found_runs *runs, const char *dir, struct np_node *config);
void np_runs_free(struct np_found_runs *runs);
struct np_json;
/* Writes the list "runs", sorted by folder: RUN of docs/SERVICE.md, with the fields that a
 * folder has. */
void np_runs_write(struct np_json *json, struct np_found_runs *runs);
/* Writes what a run's evaluations gave: set, best_accuracy, best_step, accuracy, loss. */
void np_run_write_result(struct np_json *json, const struct np_found_run *run);
/* The folder of RUN on a command line: a path, a name below `runs`, or the beginning of such
 * names, of which the newest run counts. np_free. */
char *np_runs_folder(const char *runs, const char *word);
/* Sets `differs`: compares the configs of runs of the same network key by key, but for name and
 * folder. all_networks: compares all runs, and `model` is one key, whose value is a hash. */
void np_runs_differ(struct np_found_runs *runs, bool all_networks);

#endif
