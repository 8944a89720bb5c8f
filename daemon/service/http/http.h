/* HTTP on a Unix socket and on loopback TCP: turns bytes into requests of callers, whom the kernel
 * or a token identifies. Called by one thread. */
#ifndef NP_HTTP_H
#define NP_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/service/access.h"
#include "loader/base/err.h"

#define NP_HTTP_MAX_BODY  (1u << 20) /* default */
#define NP_HTTP_MAX_WAITS 256        /* held requests of all callers */

struct np_http_request {
    const char *method; /* "GET" */
    const char *path;   /* decoded, without the query */
    const char *body;   /* with a NUL; "": none */
    size_t body_bytes;
    struct np_caller caller;
    struct np_http_held *held; /* owned by http.c */
};
/* A decoded parameter of the query, or a header field; NULL: missing. */
const char *np_http_query(const struct np_http_request *request, const char *name);
const char *np_http_field(const struct np_http_request *request, const char *name);

/* Called after the header: may the caller send this request? If not, the body is discarded. */
typedef bool np_http_allows_fn(void *context, const struct np_http_request *request);
/* Answers with np_http_reply(): now, or later after np_http_hold(). */
typedef void np_http_handler_fn(void *context, const struct np_http_request *request);

/* The user of a token that is not the administrator's; false: none. */
typedef bool np_http_user_fn(void *context, const char *token, uid_t *ret_uid);

struct np_http_options {
    int socket_fd;            /* a bound Unix socket; -1: none */
    int tcp_fd;               /* a bound loopback socket; -1: none */
    gid_t group;              /* makes callers `member`; (gid_t)-1: none */
    const char *token;        /* the administrator's, for TCP; NULL: none; borrowed */
    np_http_user_fn *user_of; /* NULL: users have no tokens */
    int max_connections;      /* of all callers; fewer if the limit of open files is lower */
    double idle_s;            /* idle timeout of a connection, seconds; 0: 75 */
    size_t max_body;          /* of a request, whole MiB; 0: NP_HTTP_MAX_BODY */
    size_t max_bodies;        /* bytes of all current bodies; 0: 64 MiB */
    int max_waits;            /* held requests; 0: NP_HTTP_MAX_WAITS */
    bool one_caller; /* nothing is shared out: all callers are one and may have all of it */
    bool any_host;   /* the server has names that it does not know: any Host, any Origin */
    np_http_allows_fn *allows;
    np_http_handler_fn *handler;
    void *context;
};
struct np_http;
/* Starts serving; raises the process's limit of open files if it may. Takes both descriptors if it
 * returns 0. -errno of eventfd(); -EIO: libmicrohttpd cannot listen. */
int np_http_open(
    const struct np_http_options *options, struct np_http **ret_http, struct np_err *err);
/* Adds a TCP socket later; np_http_fds() then has one more. Takes fd if it returns 0. */
int np_http_add_tcp(struct np_http *http, int fd, struct np_err *err);
/* Answers held requests with 503 and closes everything. */
void np_http_close(struct np_http *http);
/* Descriptors that are readable when np_http_turn() has work; -1: none. Call np_http_turn() once a
 * second in any case. */
#define NP_HTTP_FDS 3
void np_http_fds(const struct np_http *http, int ret_fds[NP_HTTP_FDS]);
void np_http_turn(struct np_http *http);
/* Is a held request without its answer, or an answer not wholly sent? */
bool np_http_owes(const struct np_http *http);

struct np_http_field {
    const char *name, *value;
};
/* Answers a request; once only. Copies body. type: as "application/json". field: one more header
 * field, or NULL. */
void np_http_reply(struct np_http_held *held, unsigned status, const char *type, const char *body,
    size_t bytes, const struct np_http_field *field);
/* Keeps the request with method, path, body and query until it is answered. NULL: the caller's
 * share of held requests is full (http_peers.h). */
const struct np_http_request *np_http_hold(const struct np_http_request *request);

#endif
