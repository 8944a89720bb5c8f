/* A run as JSON: RUN of docs/SERVICE.md. Called by the service's thread. */
#ifndef NP_RUN_JSON_H
#define NP_RUN_JSON_H

#include "daemon/service/book.h"
#include "loader/base/json.h"

/* Adds the fields to the open object. whole false: without names of users and files. */
void np_service_write_run(const struct np_service *service, struct np_json *json,
    const struct np_service_run *run, bool whole);

#endif
