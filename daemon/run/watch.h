/* The watchdog thread of a run: handles SIGINT, SIGTERM, SIGUSR1 and SIGHUP, and reports each wait before
 * it has lasted 5 s, and every 5 s after that. The effect of a signal depends on the state:
 *
 *   nothing to save yet   prints a line; the signal kills the process
 *   armed, first signal   asks the run to stop at the next step's end, with a checkpoint
 *   armed, second signal  kills the process at once; within half a second of the first it is taken
 *                         for the same request and ignored
 *   settled               ends the process at once, with the exit code given; but a process that waits for
 *                         rank 0's checkpoint ignores the first signal after it heard of the stop
 *
 * Arming leaves the settled state: there is something to save again. */
#ifndef NP_WATCH_H
#define NP_WATCH_H

#include <stdbool.h>

#include "loader/base/err.h"
#include "loader/base/stat.h"

struct np_comm;
struct np_ring;
struct np_watch;
/* Blocks the signals in the calling thread and in every thread it starts later: call this before
 * any other thread starts. Calls say, from its own thread, with a line for each long wait and
 * signal. saves: a run that stops leaves a checkpoint; false for one that only measures. */
int np_watch_start(struct np_stat *stat, void (*say)(void *context, const char *text),
    void *context, bool saves, struct np_watch **ret_watch, struct np_err *err);
void np_watch_arm(struct np_watch *watch);
/* Everything is saved: from now on a signal may end the process without loss. */
void np_watch_settle(struct np_watch *watch, int exit_code);
/* Sets the ring that the first stop signal interrupts, or this call if the signal has come: so
 * the trainer does not wait for a batch. NULL: none; the watchdog thread does not use the former
 * ring any more. */
void np_watch_ring(struct np_watch *watch, struct np_ring *ring);
/* Interrupts the ring as a signal would, but is none: another process of the run stops or has ended. Any
 * thread. */
void np_watch_interrupt(struct np_watch *watch);
/* The processes that hear of the first stop signal, or of one that has come. NULL: none; the watchdog
 * thread does not use the former comm any more. */
void np_watch_comm(struct np_watch *watch, struct np_comm *comm);
/* The signal that requested the stop, or 0. Any thread. */
int np_watch_stopping(struct np_watch *watch);
/* Joins the thread. The signals stay blocked: the process is about to end, and a late signal
 * must not change its exit code. NULL works. */
void np_watch_stop(struct np_watch *watch);

#endif
