/* When a run is over: runs on_end, posts to the webhook, and runs the run's own command with its owner's rights, in
 * processes of their own, a few at a time. The queue's file records what was done, so that it is done at least once even
 * if the service is killed. Also: which finished runs the queue forgets. The service's thread. */
#ifndef NP_NOTIFY_H
#define NP_NOTIFY_H

#include "daemon/service/child.h"
#include "daemon/service/service.h"

#define NP_MAX_NOTIFIERS 4
#define NP_MAX_HOOKS     2 /* commands of one owner at a time: the others' have room */

struct np_notifiers {
    struct np_notifier {
        int64_t id; /* of the run; 0: none */
        pid_t pid;  /* of the service's command and webhook; 0: has ended, or none */
        int pid_fd;
        double ended; /* of the run: it may have been tried again, and have ended again, since */
        struct np_child own; /* the run's command; pid 0: has ended, or none */
    } at[NP_MAX_NOTIFIERS];
    double not_before; /* by np_service_ticks(), after a process could not be started */
};

/* In each turn of the loop: starts a process for each run whose end was not announced yet, and records those that have
 * finished. Where runs are units, these processes are too: on_end must not run in the daemon's sandbox. A process that
 * cannot be started is logged and tried again; an error of the command or the address is logged only. */
struct np_service;
void np_notify_turn(struct np_service *service);
/* Ends the runs' own commands: the next service runs them again. */
void np_notify_stop(struct np_service *service);
/* Is anything to be done when this run is over? */
bool np_notify_is_wanted(const struct np_service_options *options, const struct np_entry *entry);
/* Does it in this process, which ends within some minutes: {"on_end", "webhook", "run": TEXT}, and of the run's own
 * command {"own", "dir", "environment", "umask"}, read from fd. -EBADMSG: it is not that. */
int np_notify_do(int fd, struct np_err *err);
/* Has the wall clock gone as the one that nobody sets for an hour? What a clock that was just set calls old may not be:
 * it has no battery, or somebody mistyped a date. Seconds of both; zeroed at first. */
struct np_steady {
    double apart, since;
};
bool np_notify_is_steady(struct np_steady *clock, double now, double ticks);
/* Which of the runs that are over is to be forgotten now, by keep_runs (of each owner) and keep_s; 0: none.
 * entries: by id. */
int64_t np_notify_oldest(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, double now);

#endif
