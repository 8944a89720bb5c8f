/* Notifications: after the end of a run, a few child processes at a time run on_end, post to the
 * webhook, and run the run's own command with its owner's rights (hook.h). The queue's file
 * records each, so it happens at least once even if the service is killed. Called by the service's
 * thread. */
#ifndef NP_NOTIFY_H
#define NP_NOTIFY_H

#include "daemon/service/book.h"

struct np_notifiers *np_notify_new(void);
/* Kills the runs' own commands: the next daemon runs them again. NULL: does nothing. */
void np_notify_free(struct np_notifiers *notifiers);
/* Call in each turn of the loop: starts a process for each finished run without a notification,
 * and records those that have ended. If runs are units, these processes are units, too: on_end
 * must not run in the daemon's sandbox. A process that cannot be started is logged and retried; a
 * failure of command or webhook is only logged. */
void np_notify_turn(struct np_service *service);

#endif
