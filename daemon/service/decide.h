/* What becomes of a run whose worker has ended. Pure: no clock, no file, no process; the service's thread writes
 * the answer into the queue's file before it acts on it. */
#ifndef NP_DECIDE_H
#define NP_DECIDE_H

#include "daemon/service/queue.h"
#include "daemon/service/worker.h"

struct np_end {
    const struct np_worker_exit *left;
    bool told;        /* the service has told the worker to stop */
    bool hung;        /* it made no progress, and was killed */
    bool never_began; /* the daemon went away before the worker had done anything */
    bool unstarted;   /* no process could be started; left->reason says why */
    double now;       /* Unix time */
    double retry_first_s, retry_cap_s; /* the wait doubles from one to the other */
};

/* Sets the state, exit_code, retries, not_before, ended and reason of *to, whose state is still what was asked of it
 * (running, stopping, pausing, yielding). A try counts where the run ended by itself without being done: exit code
 * 74, 1, or a process that died. It does not count, and is repeated for as long as it takes, where the disk is full
 * or the machine could not start it or open its device. *waits: how many such ends there were in a row; the caller
 * keeps it, 0 at first. */
void np_decide(const struct np_end *end, struct np_entry *to, int *waits);
/* Seconds to wait before try `nr` (from 1 on): first, doubled from try to try, up to cap. */
double np_back_off(double first_s, double cap_s, int64_t nr);

#endif
