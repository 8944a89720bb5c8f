/* The service: keeps runs, starts each as a process, and answers requests about them.
 *
 *   nnpipe submit, ls, ...   the page   Prometheus
 *            |                  |           |      HTTP/1.1 + JSON (docs/SERVICE.md, openapi.json)
 *            v                  v           v
 *        http/http.c     Unix socket and loopback TCP: bytes -> requests of callers (libmicrohttpd)
 *            v
 *        http/routes.c   request -> permission (access.c) -> service_queue.c -> JSON (answer.c)
 *
 *        service.c   the one loop: timers, signals; carries out the orders of dispatch.c
 *          |
 *          |- service_life.c, service_errands.c   start, watch and end workers; errands
 *          |- service_queue.c, service_limits.c, devices.c   requests of users, and their limits
 *          |- notify.c, retention.c   after a run's end
 *          v
 *        book.c   a change: in the queue's file (queue.c, SQLite), then in memory
 *          v
 *        worker.c   one process a run (systemd/: one unit a run): starts, watches, stops, finds it
 *          v
 *        run folder: config.yaml, checkpoints, metrics.jsonl, output/, report (the pipe)
 *
 * Work that may block on a user's disk runs in short-lived children with the rights of the run's
 * owner (child.c, as_user.c): checks of submissions (checker.c), reads of log and metrics
 * (log_reader.c), the pruning of checkpoints (retention.c), the owner's on_end command (notify.c).
 *
 * One thread, one epoll, no lock. The queue's file records the work to do, a run's folder the work
 * done; everything else may be lost at any moment. A change is in the file before it is answered or
 * carried out. */
#ifndef NP_SERVICE_H
#define NP_SERVICE_H

#include "daemon/service/book.h"

/* Opens the queue and looks for workers of an earlier daemon. Errors: settings, queue, token. */
int np_service_open(
    const struct np_service_start *start, struct np_service **ret_service, struct np_err *err);
/* Runs the loop until SIGTERM or SIGINT, and then until every worker has written its checkpoint and
 * ended. Their runs stay in the queue. */
int np_service_run(struct np_service *service, struct np_err *err);
void np_service_close(struct np_service *service); /* workers continue */
/* Reads service.yaml again. -EINVAL: it has mistakes, and no setting was changed. */
int np_service_reload(struct np_service *service, struct np_err *err);

#endif
