/* The watchdog thread of a run: takes SIGINT, SIGTERM and SIGHUP, and names waits that last
 * 5 s. The first signal asks the run to stop at the next step; a second one ends the
 * process at once. */
#ifndef NP_WATCH_H
#define NP_WATCH_H

#include <stdbool.h>

#include "loader/base/err.h"
#include "loader/base/stat.h"

struct np_watch;
/* Blocks the signals in the calling thread, so that every thread started later blocks them too. Call
 * it before any other thread starts. say (any thread may call it) gets a line for each long wait and
 * each signal. */
int np_watch_start(struct np_stat *stat, void (*say)(void *context, const char *text),
    void *context, struct np_watch **ret_watch, struct np_err *err);
/* From now on a signal asks; before, it ends the process: there is nothing to save yet. */
void np_watch_arm(struct np_watch *watch);
/* The signal that asked, or 0. Any thread. */
int np_watch_stopping(struct np_watch *watch);
/* Joins the thread and unblocks the signals. NULL works. */
void np_watch_stop(struct np_watch *watch);

#endif
