/* Turns HTTP requests into calls of the service; docs/SERVICE.md has the table. Called by the
 * service's thread. */
#ifndef NP_ROUTES_H
#define NP_ROUTES_H

#include "daemon/service/http/http.h"

struct np_service;
struct np_routes;
/* service is borrowed. -errno of epoll_create1(). */
int np_routes_new(struct np_service *service, struct np_routes **ret_routes, struct np_err *err);
void np_routes_free(struct np_routes *routes); /* does not answer held requests */
/* For struct np_http_options. */
bool np_routes_allow(void *routes, const struct np_http_request *request);
void np_routes_handle(void *routes, const struct np_http_request *request);
bool np_routes_user_of(void *routes, const char *token, uid_t *ret_uid);
/* Call in each turn of the loop, after np_http_turn(): answers waiting requests (finished checks
 * and reads, long polls). Returns true if np_http_turn() has more to do. */
bool np_routes_turn(struct np_routes *routes);
/* Readable when np_routes_turn() has work. */
int np_routes_fd(const struct np_routes *routes);

#endif
