/* The other processes of this user that want the same batches. They meet in a folder that only the
 * user can enter: each listens on a socket of its own there, and a newcomer connects to those that
 * it finds. Both sides then pass their shelf (shelf.h). The socket's end is the peer's end. Nothing
 * here waits: what has not come is looked for at the next poll. The caller holds one lock around
 * all calls, except where a line says otherwise. */
#ifndef NP_PEERS_H
#define NP_PEERS_H

#include "loader/share/shelf.h"

struct np_peer {
    uint64_t id;
    struct np_shelf_view *view; /* NULL: not met yet; stays while nr_users > 0 */
    int nr_users;               /* threads that copy from it; the caller counts them */
    uint64_t shunned_ns;        /* for the caller */

    /* for peers.c */
    int fd;    /* -1: it has ended */
    bool twin; /* the second connection of two processes that met each other */
};

struct np_peers;
/* hash: of all that batches are a function of, and of the shape; processes with another one are
 * strangers. The shelf is borrowed. Errors: there is no folder that only this user can enter, or no
 * socket in it; -ENOMEM. */
int np_peers_open(uint64_t hash, const struct np_shelf_shape *shape, const struct np_shelf *shelf,
    struct np_peers **ret_peers, struct np_err *err);
void np_peers_close(struct np_peers *peers); /* when no thread uses a view */
uint64_t np_peers_id(const struct np_peers *peers);
/* Meets newcomers, and lets go of peers that have ended. One system call if nothing happened. */
void np_peers_poll(struct np_peers *peers);
/* Peer number i, from 0; NULL: no more. Valid until the next poll, or while nr_users > 0. Some have
 * no view. */
struct np_peer *np_peers_get(const struct np_peers *peers, int i);
int np_peers_met(const struct np_peers *peers); /* those with a view; any thread */

#endif
