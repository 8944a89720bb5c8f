/* HTTP requests to calls of the service, and back: docs/SERVICE.md has the table. The service's thread. */
#ifndef NP_ROUTES_H
#define NP_ROUTES_H

#include "daemon/service/http/http.h"

struct np_service;
struct np_routes;
/* Neither is owned. */
int np_routes_new(struct np_service *service, struct np_routes **ret_routes, struct np_err *err);
void np_routes_free(struct np_routes *routes); /* held requests are not answered any more */
/* For np_http_open(). */
bool np_routes_hear(void *routes, const struct np_http_request *request);
void np_routes_handle(void *routes, const struct np_http_request *request);
bool np_routes_user_of(void *routes, const char *token, uid_t *ret_uid);
/* Answers what was waited for: checks and reads that have ended, long polls. With each turn of the loop, after HTTP's.
 * True: it has answered, or begun, something: HTTP has more to do. */
bool np_routes_turn(struct np_routes *routes);
/* Readable: there is something to do for np_routes_turn(). */
int np_routes_fd(const struct np_routes *routes);

#endif
