/* When a run is over: a command and a webhook are told, in a process of its own that nobody waits for. And what of
 * runs that are over is kept. The service's thread. */
#ifndef NP_ENDING_H
#define NP_ENDING_H

#include "daemon/service/service.h"

/* json: the run, one line. Errors of the command or the address go to standard error. units NULL: a process of the
 * daemon's; else a unit of its own, as the daemon's sandbox is not for other people's commands. */
void np_ending_tell(
    const struct np_service_options *options, struct np_units *units, int64_t id, const char *json);
/* The same in this process, which ends within some minutes: {"on_end", "webhook", "run": TEXT}, read from fd.
 * -EBADMSG: it is not that. */
int np_ending_do(int fd, struct np_err *err);
/* Which of the runs that are over is to be forgotten now, by keep_runs (of each owner) and keep_s; 0: none.
 * entries: by id. */
int64_t np_ending_oldest(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, double now);

#endif
