/* Starts errands (errand.h) and acts on their answers, one at a time for each run: the free space
 * of its disk, its report, its exit.json, its worker from an earlier daemon. A missing answer
 * changes only the run's reason, and the errand is repeated. Called by the service's thread. */
#ifndef NP_SERVICE_ERRANDS_H
#define NP_SERVICE_ERRANDS_H

#include "daemon/service/book.h"

#define NP_DISK_WAIT_S 5.0 /* delay before a run whose disk is full is retried */

/* Takes the answer of the run's errand and begins the next errand. */
void np_service_run_errands(struct np_service *service, struct np_service_run *run);
/* Has the run's disk enough space? 0: yes; 1: no, or the disk hangs: the run waits, for that
 * reason; 2: not known yet; -errno: the queue's file cannot be written. */
int np_service_await_room(
    struct np_service *service, struct np_service_run *run, struct np_err *err);
/* Begins to search for the run's worker from an earlier daemon. */
void np_service_adopt(struct np_service_run *run);

#endif
