/* The service: keeps runs, starts them one process each, and answers for them.
 *
 *   nnpipe submit, ls, ...   the page   Prometheus
 *            |                  |           |        HTTP/1.1 + JSON (docs/SERVICE.md, docs/openapi.json)
 *            v                  v           v
 *        http/http.c   the socket and, where asked for, loopback TCP: bytes -> requests of callers (libmicrohttpd)
 *            v
 *        http/routes.c   request -> may they (access.c)? -> a call of service_queue.c -> JSON (answer.c)
 *
 *        service.c   the one loop: timers, signals; carries out what dispatch.c orders
 *          |
 *          |- service_life.c, service_errands.c   a worker begun, heard, ended; what is asked about it
 *          |- service_queue.c, service_limits.c, devices.c   what users ask for, and what they may have
 *          |- notify.c, retention.c   what is done with runs that are over
 *          v
 *        commit.c   a change: in the queue's file (queue.c, SQLite), then in memory (book.c)
 *          v
 *        worker.c   a process a run (systemd/: a unit a run): started, watched over a pipe, told to stop, found again
 *          v
 *        run folder: config.yaml, checkpoints, metrics.jsonl, output/, report (the pipe)
 *
 * Beside it short-lived processes with the rights of a run's owner, so that the loop waits for nobody's disk
 * (child.c, as_user.c): a submission's check (checker.c), its log and curves (log_reader.c), old checkpoints
 * (retention.c), and the command that a run's owner wants run when it is over (notify.c).
 *
 * One thread, one epoll: nothing here is locked. The queue's file is the truth of what is to be done, a run's
 * folder of what was done; all else can be lost at any moment. A change is in the file before it is answered
 * or carried out. */
#ifndef NP_SERVICE_H
#define NP_SERVICE_H

#include "daemon/service/book.h"

/* Runs that have a worker from before are found again. */
int np_service_open(
    const struct np_service_start *start, struct np_service **ret_service, struct np_err *err);
/* The loop calls turn in each round. */
void np_service_each_turn(struct np_service *service, void (*turn)(void *context), void *context);
/* Until SIGTERM or SIGINT: then every run is asked to write its checkpoint, and stays queued. */
int np_service_run(struct np_service *service, struct np_err *err);
void np_service_close(struct np_service *service); /* workers continue */
/* Reads service.yaml again; one that is wrong changes nothing. */
int np_service_reload(struct np_service *service, struct np_err *err);

#endif
