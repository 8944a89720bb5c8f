/* Connections, and whose they are: what each caller may have of all there is, and how long a connection may take. Knows
 * sockets, no HTTP: a connection that must go is shut down, and whoever reads it sees its end.
 *
 * Connections, waiting requests and bytes of bodies are shared by one rule. There is one number of each; half of it is
 * for root and the service's own user alone, of the other half each caller may have a quarter. Callers are users, and
 * on TCP those without a token together, so nobody can keep others out. A newcomer above its share takes the place of
 * the connection that has been idle the longest; one whose request is being answered is left alone. */
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
    int fd;                  /* the connection's, not owned */
    struct np_caller caller; /* on TCP: of its last request */
    enum np_peer_state state;
    uint64_t since_ns; /* in that state */
    size_t body_bytes; /* kept for its request */
    bool bad_target;   /* http.c's: what it asks for is not a path */
    bool shut;
    struct np_peer *next, **link;
};

enum np_shared { NP_SHARED_CONNECTIONS, NP_SHARED_WAITS, NP_SHARED_BODIES, NP_NR_SHARED };

struct np_peers {
    size_t most[NP_NR_SHARED];            /* set once: of all callers; bodies: bytes */
    uint64_t idle_ns, body_ns, answer_ns; /* set once: how long a state lasts at most */
    uid_t own_uid;                        /* set once: it and root are the service's own */
    struct np_peer *first;
};

/* idle_s: for which an idle connection is kept. */
void np_peers_init(
    struct np_peers *peers, const size_t most[NP_NR_SHARED], double idle_s, uid_t own_uid);
/* caller is copied. The new one may be shut already. np_peers_drop() frees it. */
struct np_peer *np_peers_add(
    struct np_peers *peers, int fd, const struct np_caller *caller, uint64_t now_ns);
void np_peers_drop(struct np_peer *peer); /* before its descriptor is closed */
void np_peer_becomes(struct np_peer *peer, enum np_peer_state state, uint64_t now_ns);
/* Shuts those that took too long. */
void np_peers_turn(struct np_peers *peers, uint64_t now_ns);
/* May the caller have so much more? */
bool np_peers_may(
    const struct np_peers *peers, const struct np_caller *caller, enum np_shared what, size_t more);
/* Does one count for the other's share: the same user, or both on TCP without a token? */
bool np_peer_is_same(const struct np_caller *a, const struct np_caller *b);

#endif
