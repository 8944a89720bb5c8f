/* Runs as units of the user's systemd: nnpipe-worker@ID.service, a template with a sandbox of its own, whose
 * standard input is the job. Once one is begun it is a worker like any other: found by its lock, watched by a
 * pidfd, told by signals. Asking systemd blocks, milliseconds as a rule, at most ten seconds a call. */
#ifndef NP_WORKER_UNIT_H
#define NP_WORKER_UNIT_H

#include "daemon/service/worker.h"

struct np_units;
/* Of the user's own systemd, below $XDG_RUNTIME_DIR. -ENOENT: it does not know the template; -EHOSTDOWN: there
 * is none to be reached. */
int np_units_open(struct np_units **ret_units, struct np_err *err);
void np_units_close(struct np_units *units);

/* The reason of one that the kernel ended so. */
#define NP_UNITS_NO_MEMORY "the machine had no memory left for it"

/* start->dir is made first. -EBUSY: the unit has a process already. One that has ended at once is there as a
 * worker that is over. */
int np_units_start(struct np_units *units, int64_t id, const struct np_worker_start *start,
    struct np_worker *ret_worker, struct np_err *err);
/* One that has not taken its lock yet. -ESRCH: the unit has no process. */
int np_units_find(
    struct np_units *units, int64_t id, struct np_worker *ret_worker, struct np_err *err);
/* Of one that has ended: what systemd knows where the worker itself has said nothing; the unit is forgotten. */
void np_units_end(struct np_units *units, int64_t id, struct np_worker_exit *exit);
/* nnpipe-ended@ID.service, with this text as its standard input. */
int np_units_tell_ended(struct np_units *units, int64_t id, const char *text, struct np_err *err);

#endif
