/* Every change of a run: in the queue's file first, then in memory. The service's thread. */
#ifndef NP_COMMIT_H
#define NP_COMMIT_H

#include "daemon/service/book.h"

/* run's entry becomes *to (its texts are the entry's own). On failure it stays as it was. */
int np_commit(struct np_service *service, struct np_service_run *run, const struct np_entry *to,
    struct np_err *err);
/* The run's reason becomes this text; where the file cannot be written, it stays. */
void np_commit_reason(struct np_service *service, struct np_service_run *run, const char *format,
    ...) __attribute__((format(printf, 3, 4)));
/* A queued run is not started before so many seconds from now, and its reason says why. */
int np_commit_delay(struct np_service *service, struct np_service_run *run, double seconds,
    const char *why, struct np_err *err);
/* Is anything to be done when this run is over (notify.h)? */
bool np_commit_notifies(const struct np_service_options *options, const struct np_entry *entry);

#endif
