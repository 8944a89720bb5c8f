/* Runs as units of the user's systemd: nnpipe-worker@ID.service, a sandboxed template whose
 * standard input is the job. Once started it is a worker like any other: found by its lock,
 * watched through a pidfd, stopped by signals. */
#ifndef NP_WORKER_UNIT_H
#define NP_WORKER_UNIT_H

#include "daemon/service/worker.h"

/* Connects to the user's systemd below $XDG_RUNTIME_DIR. Each call of struct np_units takes at
 * most ten seconds a step. -ENOENT: systemd does not know the template; -EHOSTDOWN: it cannot be
 * reached. */
int np_units_open(struct np_units **ret_units, struct np_err *err);
void np_units_close(struct np_units *units); /* NULL: does nothing */

#endif
