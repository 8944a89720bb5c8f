/* Decides the next state of a run whose worker has ended. Pure: no clock, no file, no process.
 * The service's thread records the result in the queue's file before it acts on it. */
#ifndef NP_DECIDE_H
#define NP_DECIDE_H

#include "daemon/service/queue.h"
#include "daemon/service/worker.h"

struct np_end {
    const struct np_worker_exit *left;
    bool stop_asked;                   /* the service asked the worker to stop */
    bool hung;                         /* the service killed it: it made no progress */
    bool never_began;                  /* the daemon died before the worker started */
    bool unstarted;                    /* no process could be started, for left->reason */
    double now;                        /* Unix time */
    double retry_first_s, retry_cap_s; /* as np_back_off() */
};

/* Sets state, exit_code, retries, not_before, ended and reason of *to, whose state is still the
 * requested one (running, stopping, pausing, yielding). An attempt counts if the run itself failed:
 * exit code 74 or 1, or a process that died. An attempt does not count, and is retried without
 * limit, if the disk was full, or the machine could not start the process or open its device.
 * *waits: such ends in a row; kept by the caller, 0 at first. */
void np_decide(const struct np_end *end, struct np_entry *to, int *waits);
/* Seconds to wait before retry nr (1, 2, ...): first_s, doubled each time, at most cap_s. */
double np_back_off(double first_s, double cap_s, int64_t nr);

#endif
