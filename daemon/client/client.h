/* The service, asked: one request at a time over its Unix socket. Main thread. */
#ifndef NP_CLIENT_H
#define NP_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/cmd.h"
#include "loader/base/err.h"
#include "loader/base/node.h"

/* The last rows of a command's table of flags: where to put --json (a bool) and --socket (a text). */
#define NP_SERVICE_FLAGS(json, socket)                                                             \
    {"--json", NULL, &(json), NULL}, {"--socket", &(socket), NULL, NULL},                          \
    {                                                                                              \
        NULL, NULL, NULL, NULL                                                                     \
    }

struct np_client;
/* path NULL: $NNPIPE_SOCKET, the user's socket where there is one, else the box's. -ENOENT, -ECONNREFUSED:
 * no service is there, and err says how to start one. */
int np_client_open(const char *path, struct np_client **ret_client, struct np_err *err);
void np_client_close(struct np_client *client);

struct np_answer {
    long status;
    char *body; /* NUL-ended, lent until the next request */
    size_t bytes;
    char next[64]; /* X-Next; "" */
    char tag[96];  /* ETag; "" */
};
/* method "GET", target "/v1/runs?state=running", body NULL or JSON. An error of the service's (status 400 and
 * above) is -EREMOTEIO with its text in err, and *ret_answer is filled in all the same. */
int np_client_ask(struct np_client *client, const char *method, const char *target,
    const char *body, struct np_answer *ret_answer, struct np_err *err);
/* The next request is a question whether its answer still has this tag: then its status is 304, and its body empty. The
 * text is copied; "" asks nothing. */
void np_client_unless(struct np_client *client, const char *tag);
/* The same, with the JSON of the answer as a node: np_node_free. */
int np_client_ask_node(struct np_client *client, const char *method, const char *target,
    const char *body, struct np_node **ret_node, struct np_err *err);
/* Is the service gone, so that the same request may succeed later? */
bool np_client_is_away(int code, const struct np_answer *answer);
/* GET, again and again while the service is away, which is said once on standard error. */
int np_client_retry_get(
    struct np_client *client, const char *target, struct np_answer *ret_answer, struct np_err *err);
/* Waits, restarts of the service included, until a run is over or until until_s (np_now_ns() in seconds; INFINITY:
 * however long): then -ETIMEDOUT. *ret_run: the last RUN; np_node_free. */
int np_client_await_end(struct np_client *client, int64_t id, double until_s,
    struct np_node **ret_run, struct np_err *err);
/* The end of a command: closes the client (NULL: none), complains where code is below 0, and returns the exit code:
 * NP_EXIT_FAILED for an error, else code. */
int np_client_end(struct np_client *client, int code, const struct np_err *err);
/* A text as it may stand in a target: np_free. */
char *np_client_escape(const char *text);

#endif
