/* The watchdog thread of a run: takes SIGINT, SIGTERM and SIGHUP, and names waits before
 * they have lasted 5 s, and as often again. What a signal does depends on what it finds:
 *
 *   nothing to save yet   says so and ends the process, which dies of it
 *   armed, the first      asks the run to stop at the next step's end, with a checkpoint
 *   armed, a second one   ends the process at once, which dies of it; within half a second of the
 *                         first it is an echo of that, and nothing happens
 *   settled               ends the process at once, with the exit code it would have ended with
 *
 * Arming ends a settled time: there is something to save again. */
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
void np_watch_arm(struct np_watch *watch);
/* All that has to be kept is written: who is in a hurry now loses nothing. */
void np_watch_settle(struct np_watch *watch, int exit_code);
/* Called with the first signal that asks (at once, where one has): wake must not block. Watchdog thread or
 * the caller's. NULL: nobody any more; it is not under way when this returns. */
void np_watch_wakes(struct np_watch *watch, void (*wake)(void *context), void *context);
/* The signal that asked, or 0. Any thread. */
int np_watch_stopping(struct np_watch *watch);
/* Joins the thread. The signals stay blocked: the process is about to end, and one that comes only
 * now must not change how. NULL works. */
void np_watch_stop(struct np_watch *watch);

#endif
