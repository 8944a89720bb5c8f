/* The table of trackers: programs that draw runs read a run's numbers from files of their own
 * format. One file each (track_NAME.c), and a line in np_trackers[] in track.c. Main thread. */
#ifndef NP_TRACKER_H
#define NP_TRACKER_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/node.h"

struct np_scalar {
    const char *tag; /* "train/loss": a group, a slash, a name */
    double value;    /* finite */
};

/* What a run knows when it starts or resumes; borrowed for the call of open(). */
struct np_tracked_run {
    const char *dir;              /* the run's folder */
    const char *name;             /* of its config */
    const struct np_node *config; /* resolved */
    uint64_t step;                /* steps done: later numbers of an earlier process are dropped */
    bool eval_due; /* the evaluation after `step` is still to be made: its numbers, too */
};
/* Must a number that an earlier process wrote be dropped, because this one will write it again?
 * Once true it stays true for all later numbers of a file. */
bool np_tracked_again(const struct np_tracked_run *run, uint64_t step, const char *tag);

/* Is a key of the resolved config, as np_node_leaves() names it, a parameter that somebody compares?
 * Layers are not. */
bool np_tracked_param(const char *path);

enum np_track_end { NP_TRACK_DONE, NP_TRACK_STOPPED, NP_TRACK_FAILED };

struct np_tracker {
    const char *name; /* the word of `track:` */
    /* Begins or continues a run: cuts its files back to run->step. */
    int (*open)(const struct np_tracked_run *run, void **ret_state, struct np_err *err);
    /* Writes numbers of one step, in the order of steps; may keep them in memory. time: seconds
     * since 1970. */
    int (*add)(void *state, uint64_t step, double time, const struct np_scalar *scalars, int n,
        struct np_err *err);
    /* Makes what was added readable for other processes; not between numbers of one step, but for
     * those of the final test. */
    int (*flush)(void *state, struct np_err *err);
    /* Frees the state. errors of the last writes are lost. */
    void (*close)(void *state, enum np_track_end end);
};
extern const struct np_tracker np_track_tensorboard, np_track_mlflow, np_track_wandb;

#endif
