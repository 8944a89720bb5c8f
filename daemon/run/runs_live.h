/* Runs in other processes, as their folders tell: for `nnpipe top` without a service. Nothing of a run is touched.
 * Main thread. */
#ifndef NP_RUNS_LIVE_H
#define NP_RUNS_LIVE_H

#include "daemon/analysis/profile.h"
#include "loader/base/node.h"

/* The process that holds the lock of the run in dir; 0: none. */
int np_run_holder(const char *dir);
/* At most the last max_bytes of a regular file in dir; np_free. NULL: there is none, or no memory. */
char *np_run_tail(const char *dir, const char *name, size_t max_bytes, size_t *ret_bytes);

/* {"runs": [RUN...]} with RUN of docs/SERVICE.md, as far as folders tell: the running ones below `runs`, by name; or with
 * dir (not NULL) that one, running or not. A line of metrics.jsonl that is being written is left out. -errno: `runs`, or
 * dir's metrics.jsonl, cannot be read. np_node_free. */
int np_live_runs(
    const char *runs, const char *dir, struct np_node **ret_answer, struct np_err *err);
/* The folder that a word names: a folder below `runs`, a path, or the beginning of a name below `runs` (where there are
 * several the one whose metrics are newest). Where there is none: the word. np_free. */
char *np_live_find(const char *runs, const char *word);
/* Of lines of a metrics.jsonl, oldest first: the newest pipeline line; NULL: there is none. */
const struct np_node *np_live_pipeline(const struct np_node *points);
/* The same of dir's metrics.jsonl, whose end is read; np_node_free. */
struct np_node *np_live_read_pipeline(const char *dir);
/* The profile that a pipeline line gives, no part of it measured alone: what the step can do is what it did in this
 * run. Sets text to the names of stages without a ceiling: "read, batch". false: the line is not whole. */
bool np_live_profile(
    const struct np_node *pipeline, struct np_profile *ret_profile, char *text, size_t bytes);

#endif
