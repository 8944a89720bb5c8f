/* Retention of finished runs: selects old runs to remove from the queue, and prunes checkpoints
 * beyond the limit of bytes (`nnpipe prune` in a child with the owner's rights; one run at a time,
 * oldest first, down to its best checkpoint). Called by the service's thread. */
#ifndef NP_RETENTION_H
#define NP_RETENTION_H

#include "daemon/service/book.h"

struct np_retention *np_retention_new(void);
void np_retention_free(struct np_retention *retention); /* NULL: does nothing */
/* Call in each turn of the loop: takes the child's answer and starts the next child. */
void np_retention_turn(struct np_service *service);
/* Kills the child if it works on this run's checkpoints. */
void np_retention_leave(struct np_retention *retention, int64_t id);
/* Does the child hold this run's folder? Then a worker could not lock it. */
bool np_retention_is_at(const struct np_retention *retention, int64_t id);
/* The run to remove from the queue now, or NULL. */
struct np_service_run *np_retention_next(struct np_service *service);

/* Pure: have wall clock and monotonic clock advanced together for an hour? Before that ages are not
 * trusted: the clock may lack a battery, or a date was mistyped. Seconds; *clock is zeroed at
 * first. */
struct np_steady {
    double apart, since;
};
bool np_retention_is_steady(struct np_steady *clock, double now, double ticks);
/* Pure: the finished run to remove, by keep_runs (of each owner) and keep_s; 0: none. entries: by
 * ID. */
int64_t np_retention_oldest(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, double now);

#endif
