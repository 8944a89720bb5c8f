/* What the service asks about its runs (errand.h), one thing at a time for each run: is there room on its disk, where
 * is its report, how did it end, does its worker from before still live? What is not answered changes nothing but the
 * run's reason: it is asked again. The service's thread. */
#ifndef NP_SERVICE_ERRANDS_H
#define NP_SERVICE_ERRANDS_H

#include "daemon/service/book.h"

#define NP_DISK_WAIT_S 5.0 /* before a run whose disk is full is tried again */

/* Begins a run's next errand, and takes the answer of the one under way. */
void np_service_run_errands(struct np_service *service, struct np_service_run *run);
/* 0: its disk has room; 1: it has not, or does not answer, so the run waits, and says so; 2: it is being asked;
 * -errno. */
int np_service_await_room(
    struct np_service *service, struct np_service_run *run, struct np_err *err);
/* Begins to look for the worker that an earlier daemon started for this run. */
void np_service_adopt(struct np_service_run *run);

#endif
