/* Connections, by whom they are of: how many each may have, and how long one may take. Knows sockets, no HTTP:
 * one that must go is shut down, and whoever reads it sees its end.
 *
 * Nobody can keep the service's own user and root out: they have connections that nobody else is given. Within a
 * share a newcomer takes the place of the connection that has been waited for the longest; one whose request is being
 * seen to is left alone. */
#ifndef NP_HTTP_PEERS_H
#define NP_HTTP_PEERS_H

#include <stdint.h>

#include "daemon/service/access.h"

enum np_peer_state {
    NP_PEER_AWAITED,  /* nothing of a request is there, or not all of its head */
    NP_PEER_TAKEN,    /* its body comes */
    NP_PEER_SERVED,   /* it is being seen to */
    NP_PEER_ANSWERED, /* the answer goes out */
};

struct np_peer {
    int fd; /* the connection's, not owned */
    struct np_caller caller;
    enum np_peer_state state;
    uint64_t since_ns; /* in that state */
    bool bad_target;   /* http.c's: what it asks for is not a path */
    bool shut;
    struct np_peer *next, **link;
};

struct np_peers {
    int max_own, max_others, max_each, max_tcp; /* set once */
    uint64_t idle_ns, body_ns, answer_ns;       /* set once: how long a state lasts at most */
    uid_t own_uid;                              /* set once: it and root are the service's own */
    struct np_peer *first;
};

/* most: of all; idle_s: for which an idle one is kept. */
void np_peers_init(struct np_peers *peers, int most, int max_tcp, double idle_s, uid_t own_uid);
/* caller is copied. NULL: out of memory. The new one may be shut already. np_peers_drop() frees it. */
struct np_peer *np_peers_add(
    struct np_peers *peers, int fd, const struct np_caller *caller, uint64_t now_ns);
void np_peers_drop(struct np_peer *peer); /* before its descriptor is closed */
void np_peer_becomes(struct np_peer *peer, enum np_peer_state state, uint64_t now_ns);
/* Shuts those that took too long. */
void np_peers_turn(struct np_peers *peers, uint64_t now_ns);
bool np_peer_is_own(const struct np_peers *peers, const struct np_caller *caller);
/* Does one count for the other's share: the same user, or both on TCP? */
bool np_peer_is_same(const struct np_caller *a, const struct np_caller *b);

#endif
