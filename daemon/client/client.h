/* An HTTP client for the service's Unix socket: one request at a time. Main thread. */
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
    char *body; /* NUL-ended, valid until the next request */
    size_t bytes;
    char next[64]; /* the header X-Next, or "" */
    char tag[96];  /* the header ETag, or "" */
};
/* Sends a request and waits up to 90 s for its response: method "GET", target
 * "/v1/runs?state=running", body JSON or NULL. -EREMOTEIO: the service returned status 400 or more,
 * err has its text and *ret_response is filled. -ECONNREFUSED: no service; -EACCES: not allowed. */
int np_client_request(struct np_client *client, const char *method, const char *target,
    const char *body, struct np_response *ret_response, struct np_err *err);
/* Makes the next request conditional (If-None-Match): if the response still has this tag, its
 * status is 304 and its body empty. Copies tag; "" makes the request unconditional. */
void np_client_if_changed(struct np_client *client, const char *tag);
/* As np_client_request(), with the response's JSON as a tree; the caller frees it. */
int np_client_request_node(struct np_client *client, const char *method, const char *target,
    const char *body, struct np_node **ret_node, struct np_err *err);
/* Is the service unavailable, so that the same request may succeed later? */
bool np_client_is_away(int code, const struct np_response *response);
/* GET, repeated while the service is unavailable; prints once on standard error that it waits. */
int np_client_retry_get(struct np_client *client, const char *target,
    struct np_response *ret_response, struct np_err *err);
/* Waits until a run has finished, through restarts of the service. -ETIMEDOUT: it has not by
 * until_s (np_now_ns() in seconds; INFINITY: no limit). The caller frees *ret_run. */
int np_client_wait_end(struct np_client *client, int64_t id, double until_s,
    struct np_node **ret_run, struct np_err *err);
/* Ends a command: closes the client (may be NULL), prints err if code is negative, and returns the
 * exit code: NP_EXIT_FAILED for an error, else code. */
int np_client_end(struct np_client *client, int code, const struct np_err *err);
/* Percent-encodes a text for a target. np_free. */
char *np_client_escape(const char *text);

#endif
