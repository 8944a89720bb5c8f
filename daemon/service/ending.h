/* When a run is over: a command and a webhook are told, in a process of its own that nobody waits for. And what of
 * runs that are over is kept. The service's thread. */
#ifndef NP_ENDING_H
#define NP_ENDING_H

#include "daemon/service/service.h"

/* json: the run, one line. Errors of the command or the address go to standard error. */
void np_ending_tell(const struct np_service_options *options, const char *json);
/* Which of the runs that are over is to be forgotten now, by keep_runs and keep_s; 0: none. entries: by id. */
int64_t np_ending_oldest(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, double now);

#endif
