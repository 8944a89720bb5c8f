/* When a run is over: runs on_end, posts to the webhook, and runs the run's own command with its owner's rights, in
 * processes of their own, a few at a time. The queue's file records what was done, so that it is done at least once even
 * if the service is killed. The service's thread. */
#ifndef NP_NOTIFY_H
#define NP_NOTIFY_H

#include "daemon/service/book.h"

struct np_notifiers *np_notify_new(void);
/* Ends the runs' own commands: the next service runs them again. NULL: nothing. */
void np_notify_free(struct np_notifiers *notifiers);
/* In each turn of the loop: starts a process for each run whose end was not announced yet, and records those that have
 * finished. Where runs are units, these processes are too: on_end must not run in the daemon's sandbox. A process that
 * cannot be started is logged and tried again; an error of the command or the address is logged only. */
void np_notify_turn(struct np_service *service);
/* Does it in this process, which ends within some minutes: {"on_end", "webhook", "run": TEXT}, and of the run's own
 * command {"own", "dir", "environment", "umask"}, read from fd. -EBADMSG: it is not that. */
int np_notify_do(int fd, struct np_err *err);

#endif
