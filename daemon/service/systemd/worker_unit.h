/* Runs as units of the user's systemd: nnpipe-worker@ID.service, of a sandboxed template whose
 * standard input is the job. Once started, a unit's process is found, watched and stopped like a
 * child. */
#ifndef NP_WORKER_UNIT_H
#define NP_WORKER_UNIT_H

#include "daemon/service/worker.h"

/* Connects to the user's systemd below $XDG_RUNTIME_DIR. Calls of struct np_units take at most ten
 * seconds a step. -ENOENT: systemd does not know the template; -EHOSTDOWN: no connection. */
int np_units_open(struct np_units **ret_units, struct np_err *err);
void np_units_close(struct np_units *units); /* NULL: does nothing */

#endif
