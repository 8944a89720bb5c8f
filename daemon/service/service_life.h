/* A worker's life as the service sees it: begun, heard, asked to stop, ended; and what becomes of its run. What is
 * decided is in the queue's file before it is done. The service's thread. */
#ifndef NP_SERVICE_LIFE_H
#define NP_SERVICE_LIFE_H

#include "daemon/service/book.h"

/* Starts the run on the device, once its disk has room. A worker that could not be started is no error: the run is
 * tried again. */
int np_service_begin(
    struct np_service *service, struct np_service_run *run, const char *device, struct np_err *err);
/* In each turn of the loop: takes its reports, stops it where it hangs, and records its end. */
void np_service_watch_worker(struct np_service *service, struct np_service_run *run);

#endif
