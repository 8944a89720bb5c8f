/* HTTP requests to calls of the service, and back: docs/SERVICE.md has the table. The service's thread. */
#ifndef NP_ROUTES_H
#define NP_ROUTES_H

#include "daemon/service/http.h"
#include "daemon/service/service.h"

struct np_routes;
/* Neither is owned. */
int np_routes_new(struct np_service *service, struct np_routes **ret_routes, struct np_err *err);
void np_routes_free(struct np_routes *routes); /* held requests are not answered any more */
void np_routes_handle(void *routes, const struct np_http_request *request); /* for np_http_open() */
/* Answers what was waited for: checks that have ended, long polls. With each turn of the loop. */
void np_routes_turn(struct np_routes *routes);
/* Descriptors of checks under way, to wait on: readable. */
int np_routes_fds(const struct np_routes *routes, int *ret_fds, int most);

#endif
