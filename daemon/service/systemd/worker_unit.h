/* Runs as units of the user's systemd: nnpipe-worker@ID.service, a template with a sandbox of its own, whose standard
 * input is the job. Once one is begun it is a worker like any other: found by its lock, watched by a pidfd, told by
 * signals. */
#ifndef NP_WORKER_UNIT_H
#define NP_WORKER_UNIT_H

#include "daemon/service/worker.h"

/* Of the user's own systemd, below $XDG_RUNTIME_DIR. Each call (struct np_units) takes at most ten seconds a step.
 * -ENOENT: it does not know the template; -EHOSTDOWN: there is none to be reached. */
int np_units_open(struct np_units **ret_units, struct np_err *err);
void np_units_close(struct np_units *units); /* NULL: nothing */

#endif
