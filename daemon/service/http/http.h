/* HTTP on a Unix socket and on loopback TCP: bytes to requests of callers whom the kernel or the token vouches
 * for. One thread: whoever owns the service turns it. */
#ifndef NP_HTTP_H
#define NP_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/service/access.h"
#include "loader/base/err.h"

#define NP_HTTP_MAX_BODY  (1u << 20)
#define NP_HTTP_MAX_WAITS 256 /* requests that are kept, of all callers */

struct np_http_request {
    const char *method; /* "GET" */
    const char *path;   /* decoded, without the query */
    const char *body;   /* NUL behind its bytes; "" */
    size_t body_bytes;
    struct np_caller caller;
    struct np_http_held *held; /* http.c's */
};
/* A parameter of the query, decoded; a field of the head. NULL: it is not there. */
const char *np_http_query(const struct np_http_request *request, const char *name);
const char *np_http_field(const struct np_http_request *request, const char *name);

/* With the head alone: is the caller to be heard? The body of one who is not is dropped as it comes. */
typedef bool np_http_hears_fn(void *context, const struct np_http_request *request);
/* Answers with np_http_reply(), now, or later where it keeps the request by np_http_hold(). */
typedef void np_http_handler_fn(void *context, const struct np_http_request *request);

/* Whose is this token, which is not the administrator's? False: nobody's. */
typedef bool np_http_user_fn(void *context, const char *token, uid_t *ret_uid);

struct np_http_options {
    int socket_fd;            /* a bound Unix socket; -1: none */
    int tcp_fd;               /* a bound loopback one; -1: none */
    gid_t group;              /* whose members are `member`; (gid_t)-1: nobody is */
    const char *token;        /* the administrator's, of TCP; NULL: nobody has one; borrowed */
    np_http_user_fn *user_of; /* NULL: no user has one */
    int max_connections;      /* of all; fewer where the process may not open so many files */
    double idle_s;            /* that a connection is kept for which says nothing; 0: 75 */
    np_http_hears_fn *hears;
    np_http_handler_fn *handler;
    void *context;
};
struct np_http;
/* Both descriptors are its own once it returns 0. Raises the process' limit of open files where it may. */
int np_http_open(
    const struct np_http_options *options, struct np_http **ret_http, struct np_err *err);
/* TCP that could not be had before: np_http_fds() has one more then. fd is its own once it returns 0. */
int np_http_add_tcp(struct np_http *http, int fd, struct np_err *err);
/* Requests that are held are answered with 503. */
void np_http_close(struct np_http *http);
/* Readable: there is something to do for np_http_turn(); which is to be called each second all the same. -1: none. */
#define NP_HTTP_FDS 3
void np_http_fds(const struct np_http *http, int ret_fds[NP_HTTP_FDS]);
void np_http_turn(struct np_http *http);

struct np_http_field { /* of a reply's head */
    const char *name, *value;
};
/* body is copied. type: "application/json". field: one more, or NULL. Once a request. */
void np_http_reply(struct np_http_held *held, unsigned status, const char *type, const char *body,
    size_t bytes, const struct np_http_field *field);
/* The request, with method, path, body and query, stays until it is answered. NULL: the caller has as many as it may
 * (http_peers.h). */
const struct np_http_request *np_http_hold(const struct np_http_request *request);

#endif
