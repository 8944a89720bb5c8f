/* Starts errands (errand.h) and acts on their answers, one at a time for each run: has its disk
 * room, where is its report, how did it end, is its worker from an earlier daemon alive? A
 * missing answer changes only the run's reason; the errand is repeated. Called by the service's
 * thread. */
#ifndef NP_SERVICE_ERRANDS_H
#define NP_SERVICE_ERRANDS_H

#include "daemon/service/book.h"

#define NP_DISK_WAIT_S 5.0 /* delay before a run whose disk is full is retried */

/* Takes the answer of a run's errand and begins the next one. */
void np_service_run_errands(struct np_service *service, struct np_service_run *run);
/* Is there room on the run's disk? 0: yes; 1: no, or the disk does not answer: the run waits and
 * its reason says so; 2: not known yet; -errno: the queue's file cannot be written. */
int np_service_await_room(
    struct np_service *service, struct np_service_run *run, struct np_err *err);
/* Begins to search for the worker that an earlier daemon started for this run. */
void np_service_adopt(struct np_service_run *run);

#endif
