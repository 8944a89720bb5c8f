/* Starts workers, takes their reports, kills those that hang, and records their ends. Called by the
 * service's thread. */
#ifndef NP_SERVICE_LIFE_H
#define NP_SERVICE_LIFE_H

#include "daemon/service/book.h"

/* Starts the run on the devices (a bit for the index of each), once its disk has enough space. A worker that cannot be started is
 * no error: the run is retried. Errors as np_book_commit(). */
int np_service_begin(
    struct np_service *service, struct np_service_run *run, uint64_t devices, struct np_err *err);
/* Call in each turn of the loop. */
void np_service_watch_worker(struct np_service *service, struct np_service_run *run);

#endif
