/* Limits of runs: memory and CPUs, running time, and the number of runs of a user. Called by the
 * service's thread. */
#ifndef NP_SERVICE_LIMITS_H
#define NP_SERVICE_LIMITS_H

#include "daemon/service/book.h"

/* May a run have the entry's limits? -ENOTSUP: it has a limit of memory or CPUs that this
 * service cannot enforce. */
int np_service_may_limit(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err);
/* Gives the entry the default limits of the settings where it has none and the service can
 * enforce them. */
void np_service_default_limits(const struct np_service *service, struct np_entry *entry);
/* Do the settings have default limits that this service cannot enforce? Then text explains it, for
 * /healthz and the log. */
#define NP_LIMITS_TEXT 512
bool np_service_lacks_limits(const struct np_service *service, char *text, size_t bytes);
/* Creates the run's cgroup for a child that is about to start: *ret_fd is its cgroup.procs (the
 * caller closes it); unchanged if the run has no limits. */
int np_service_enter_group(const struct np_service *service, const struct np_entry *entry,
    int *ret_fd, struct np_err *err);
/* Removes the cgroup after the worker's end; explains in run->left's reason if it needed more
 * memory than its limit. */
void np_service_leave_group(const struct np_service *service, struct np_service_run *run);

/* May this user queue one more run? -EDQUOT: limits.queued_per_user is reached. */
int np_service_may_queue(const struct np_service *service, uid_t uid, struct np_err *err);
/* Marks the queued runs that limits.running_per_user keeps from starting. */
void np_service_mark_full(struct np_service *service);

/* Seconds that the run's processes have run since it was submitted or retried. */
double np_service_ran(const struct np_service_run *run);
/* Records the running time of a run with a worker, and stops the run at its time limit. */
void np_service_watch_time(struct np_service *service, struct np_service_run *run);
/* Adds the running time of the ended worker to *to; its state becomes timeout if the limit is
 * reached. */
void np_service_count_time(const struct np_service_run *run, struct np_entry *to);

#endif
