/* An HTTP client for the service's Unix socket, one request at a time. Main thread. */
#ifndef NP_CLIENT_H
#define NP_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/cmd.h"
#include "loader/base/err.h"
#include "loader/base/node.h"

/* The last rows of a command's flag table: --json sets a bool, --socket a text. */
#define NP_SERVICE_FLAGS(json, socket)                                                             \
    {"--json", NULL, &(json), NULL}, {"--socket", &(socket), NULL, NULL},                          \
    {                                                                                              \
        NULL, NULL, NULL, NULL                                                                     \
    }

struct np_client;
/* Prepares requests to the socket `path`; NULL: $NNPIPE_SOCKET, else the user's socket if it
 * exists, else the box's. Does not connect. */
struct np_client *np_client_open(const char *path);
void np_client_close(struct np_client *client);

struct np_response {
    long status;
    char *body; /* with a NUL; valid until the next request */
    size_t bytes;
    char next[64]; /* the header X-Next, or "" */
    char tag[96];  /* the header ETag, or "" */
};
/* Blocks up to 90 s for the response. target: as "/v1/runs?state=running"; body: JSON or NULL.
 * -EREMOTEIO: status 400 or more; err has the service's text, and *ret_response is filled.
 * -ECONNREFUSED: no service; -EACCES: no permission for the socket. */
int np_client_request(struct np_client *client, const char *method, const char *target,
    const char *body, struct np_response *ret_response, struct np_err *err);
/* Makes the next request conditional (If-None-Match): if the resource still has this tag, the
 * status is 304 and the body empty. Copies tag; "": unconditional. */
void np_client_if_changed(struct np_client *client, const char *tag);
/* As np_client_request(), with the response's JSON as a tree; the caller frees it. */
int np_client_request_node(struct np_client *client, const char *method, const char *target,
    const char *body, struct np_node **ret_node, struct np_err *err);
/* Is the service unavailable for a while, so that the request may be retried? */
bool np_client_is_away(int code, const struct np_response *response);
/* GET, retried while the service is unavailable; prints once on standard error that it waits. */
int np_client_retry_get(struct np_client *client, const char *target,
    struct np_response *ret_response, struct np_err *err);
/* Waits until a run has finished, through restarts of the service. until_s: np_now_ns() in seconds,
 * or INFINITY; then -ETIMEDOUT. The caller frees *ret_run. */
int np_client_wait_end(struct np_client *client, int64_t id, double until_s,
    struct np_node **ret_run, struct np_err *err);
/* Ends a command: closes the client (or NULL). code below 0: prints err and returns
 * NP_EXIT_FAILED; else returns code. */
int np_client_end(struct np_client *client, int code, const struct np_err *err);
/* Adds "&key=value" to a target, which it frees; value NULL: returns target. np_free. */
char *np_client_filter(char *target, const char *key, const char *value);

#endif
