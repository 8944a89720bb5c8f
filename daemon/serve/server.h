/* The HTTP side of `nnpipe serve`: one thread that turns requests into pictures for the batcher and
 * probabilities into JSON. docs/SERVE.md has the routes. */
#ifndef NP_SERVER_H
#define NP_SERVER_H

#include "daemon/serve/batcher.h"

struct np_server_options {
    const struct np_inference *net; /* borrowed */
    const char *weights;            /* as the user named them */
    const char *listen;             /* "127.0.0.1:8500"; port 0: any */
    int top;                        /* classes in an answer, unless its request says top= */
    int max_body_mib;               /* of a picture; all bodies together: at most 1 GiB */
    int max_waiting;                /* pictures whose answers are due */
};
struct np_server;

/* Listens, but takes no connection before np_server_start(). -EINVAL: listen is no address. */
int np_server_open(
    const struct np_server_options *options, struct np_server **ret_server, struct np_err *err);
int np_server_done_fd(const struct np_server *server); /* for np_batcher_options */
const char *np_server_at(const struct np_server *server);
bool np_server_is_loopback(const struct np_server *server);
/* An eventfd: a write to it, as a signal handler may do, makes the thread call np_batcher_stop(). */
int np_server_end_fd(const struct np_server *server);
/* Starts the thread. batcher is borrowed until np_server_close(). */
int np_server_start(struct np_server *server, struct np_batcher *batcher, struct np_err *err);
/* Waits until all answers are sent, 5 s at most. Call after np_batcher_run(). */
void np_server_finish(struct np_server *server);
/* After np_batcher_close(), which ends the use of the requests' bodies. NULL: nothing. */
void np_server_close(struct np_server *server);

#endif
