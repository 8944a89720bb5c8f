/* What is kept of runs that are over: which the queue forgets, and how many bytes their checkpoints may take (the
 * oldest runs are pruned to their best one: `nnpipe prune`, as the run's owner, one at a time). The service's thread. */
#ifndef NP_RETENTION_H
#define NP_RETENTION_H

#include "daemon/service/book.h"

struct np_retention *np_retention_new(void);
void np_retention_free(struct np_retention *retention); /* NULL: nothing */
/* In each turn of the loop: takes what the child said, and begins the next. */
void np_retention_turn(struct np_service *service);
/* Ends the child that is at the run's checkpoints, if one is. */
void np_retention_leave(struct np_retention *retention, int64_t id);
/* Is it at the run's checkpoints, or not yet gone from them? A worker would find the run's folder locked. */
bool np_retention_is_at(const struct np_retention *retention, int64_t id);
/* The run that is to be forgotten now; NULL: none. A clock that was just set makes no run old. */
struct np_service_run *np_retention_next(struct np_service *service);

/* The pure parts of that. Has the wall clock gone as the monotonic one for an hour? What a clock that was just set calls
 * old may not be: it has no battery, or somebody mistyped a date. Seconds of both; zeroed at first. */
struct np_steady {
    double apart, since;
};
bool np_retention_is_steady(struct np_steady *clock, double now, double ticks);
/* Which of the runs that are over is to be forgotten, by keep_runs (of each owner) and keep_s; 0: none. entries: by
 * id. */
int64_t np_retention_oldest(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, double now);

#endif
