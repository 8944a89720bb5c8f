/* Limits of runs: memory and CPUs, running time, and runs of one user at a time. The service's thread. */
#ifndef NP_SERVICE_LIMITS_H
#define NP_SERVICE_LIMITS_H

#include "daemon/service/book.h"

/* -ENOTSUP: the entry has a limit of memory or CPUs, and this service cannot enforce one. */
int np_service_may_limit(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err);
/* Sets the settings' memory and CPU limits where the entry has none of its own and the service can enforce them. */
void np_service_default_limits(const struct np_service *service, struct np_entry *entry);
/* The settings have default limits of memory or CPUs that this service cannot enforce: sets text, for /healthz. */
#define NP_LIMITS_TEXT 512
bool np_service_lacks_limits(const struct np_service *service, char *text, size_t bytes);
/* The same for the log, once the settings are in force. */
void np_service_warn_of_limits(const struct np_service *service);
/* Of a child that is about to start: *ret_fd: cgroup.procs of its group, the caller's to close; it stays where the run
 * has no limits. */
int np_service_enter_group(const struct np_service *service, const struct np_entry *entry,
    int *ret_fd, struct np_err *err);
/* Its worker has ended: removes the group; run->left's reason says so where it needed more memory than its limit. */
void np_service_leave_group(const struct np_service *service, struct np_service_run *run);

/* -EDQUOT: this user has as many runs that are not over as a member may. */
int np_service_may_queue(const struct np_service *service, uid_t uid, struct np_err *err);
/* Marks the queued runs that limits.running_per_user keeps from starting. */
void np_service_mark_full(struct np_service *service);

/* Seconds that its processes have run, since it was submitted or retried. */
double np_service_ran(const struct np_service_run *run);
/* Takes down the running time of a run that has a worker, and stops it at its time limit. */
void np_service_watch_time(struct np_service *service, struct np_service_run *run);
/* Its worker has ended: adds its running time to *to, whose state becomes timeout where the limit is reached. */
void np_service_count_time(const struct np_service_run *run, struct np_entry *to);

#endif
