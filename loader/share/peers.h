/* The other processes of this user that want the same batches, or the same pictures. They meet in a
 * folder that only the user can enter: each listens on a socket of its own there, and a newcomer
 * connects to those that it finds. Both sides then pass a descriptor of the memory that they offer
 * (memfd.h). The socket's end is the peer's end. Nothing here waits: what has not come is looked
 * for at the next poll. The caller holds one lock around all calls, except where a line says
 * otherwise. */
#ifndef NP_PEERS_H
#define NP_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

#define NP_PEERS_MAX 63

struct np_peer {
    uint64_t id;
    void *view;          /* NULL: not met yet; stays while nr_users > 0 */
    int nr_users;        /* threads that read it; the caller counts them */
    uint64_t shunned_ns; /* for the caller */

    /* for peers.c */
    int fd;    /* -1: it has ended */
    bool twin; /* the second connection of two processes that met each other */
};

/* What this process offers, and how it reads what others offer. */
struct np_peers_options {
    /* Of all that the offers are a function of, and of their form; processes with another one are
     * strangers. */
    uint64_t hash;
    int fd; /* of the offer; borrowed */
    /* Makes a peer's view of its fd, which stays the caller's. NULL: it is no such memory, or ours
     * is out. */
    void *(*view_new)(int fd, const void *context);
    void (*view_free)(void *view);
    const void *context; /* borrowed */
};

struct np_peers;
/* Errors: there is no folder that only this user can enter, or no socket in it; -ENOMEM. */
int np_peers_open(
    const struct np_peers_options *options, struct np_peers **ret_peers, struct np_err *err);
void np_peers_close(struct np_peers *peers); /* when no thread uses a view */
uint64_t np_peers_id(const struct np_peers *peers);
/* Meets newcomers, and lets go of peers that have ended. One system call if nothing happened. */
void np_peers_poll(struct np_peers *peers);
/* Peer number i, from 0; NULL: no more. Valid until the next poll, or while nr_users > 0. Some have
 * no view. */
struct np_peer *np_peers_get(const struct np_peers *peers, int i);
int np_peers_met(const struct np_peers *peers); /* those with a view; any thread */

#endif
