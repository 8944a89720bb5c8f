/* Limits of runs: memory and CPUs, running time, and the number of runs of a user. Called by the
 * service's thread. */
#ifndef NP_SERVICE_LIMITS_H
#define NP_SERVICE_LIMITS_H

#include "daemon/service/book.h"

/* May a run have the entry's limits? -ENOTSUP: this service cannot limit memory and CPUs. */
int np_service_may_limit(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err);
/* Gives the entry the settings' default limits, for each of its processes, where it has none and the service can enforce
 * them. */
void np_service_default_limits(const struct np_service *service, struct np_entry *entry);
/* Do the settings have default limits that this service cannot enforce? Then text is a message
 * for /healthz and the log. */
#define NP_LIMITS_TEXT 512
bool np_service_lacks_limits(const struct np_service *service, char *text, size_t bytes);
/* Creates the run's cgroup before its child starts: *ret_fd is its cgroup.procs (the caller closes
 * it); unchanged if the run has no limits. */
int np_service_enter_group(const struct np_service *service, const struct np_entry *entry,
    int *ret_fd, struct np_err *err);
/* Removes the cgroup after the worker's end; sets the reason of run->left if the worker exceeded
 * its memory limit. */
void np_service_leave_group(const struct np_service *service, struct np_service_run *run);

/* May its user queue this run? -EDQUOT: limits.queued_per_user is reached, or the run has more
 * processes than limits.running_per_user. */
int np_service_may_queue(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err);
/* Sets `full` of the queued runs that limits.running_per_user keeps from starting. */
void np_service_mark_full(struct np_service *service);

/* Running time of all attempts since the run was submitted or retried, seconds. */
double np_service_ran(const struct np_service_run *run);
/* For a run with a worker: records its running time, and stops it at its time limit. */
void np_service_watch_time(struct np_service *service, struct np_service_run *run);
/* Adds the ended worker's running time to *to; the state becomes timeout if it reached the
 * limit. */
void np_service_count_time(const struct np_service_run *run, struct np_entry *to);

#endif
