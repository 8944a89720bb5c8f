/* Changes a run: first in the queue's file, then in memory. Called by the service's thread. */
#ifndef NP_COMMIT_H
#define NP_COMMIT_H

#include "daemon/service/book.h"

/* Replaces run's entry by *to, which shares its texts. On failure the entry is unchanged; errors
 * as np_queue_update(). */
int np_commit(struct np_service *service, struct np_service_run *run, const struct np_entry *to,
    struct np_err *err);
/* Sets the run's reason; if the file cannot be written, the reason is unchanged. */
void np_commit_reason(struct np_service *service, struct np_service_run *run, const char *format,
    ...) __attribute__((format(printf, 3, 4)));
/* Delays the start of a queued run by so many seconds; why becomes its reason. */
int np_commit_delay(struct np_service *service, struct np_service_run *run, double seconds,
    const char *why, struct np_err *err);
/* Is any notification needed when this run is over (notify.h)? */
bool np_commit_notifies(const struct np_service_options *options, const struct np_entry *entry);

#endif
