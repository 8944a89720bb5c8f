/* Connections and their callers: who sends a request, how much each caller may have, and how
 * long a connection may take. Knows sockets, not HTTP: it only shuts a connection down; its
 * reader sees the end.
 *
 * Connections, held requests and bytes of bodies are shared by one rule. Of the total of each,
 * half is reserved for root and the service's own user; of the other half each caller may have a
 * quarter. A caller is a user; all of TCP without a token is one caller. So no caller can keep
 * others out. A new connection above its share replaces the connection that has been idle
 * longest; a connection whose request is being answered stays. */
#ifndef NP_HTTP_PEERS_H
#define NP_HTTP_PEERS_H

#include <stdint.h>

#include "daemon/service/access.h"

enum np_peer_state {
    NP_PEER_AWAITED,  /* waits for the end of a request's header */
    NP_PEER_TAKEN,    /* receives the body */
    NP_PEER_SERVED,   /* the request is being handled */
    NP_PEER_ANSWERED, /* sends the answer */
};

struct np_peer {
    int fd;                  /* the connection's; not owned */
    struct np_caller caller; /* over TCP: of its last request */
    enum np_peer_state state;
    uint64_t since_ns; /* of that state's start */
    size_t body_bytes; /* held for its request */
    bool bad_target;   /* used by http.c: the request's target is not a path */
    bool shut;
    struct np_peer *next, **link;
};

enum np_shared { NP_SHARED_CONNECTIONS, NP_SHARED_WAITS, NP_SHARED_BODIES, NP_NR_SHARED };

struct np_peers {
    size_t max[NP_NR_SHARED];             /* set once: of all callers together; bodies: bytes */
    uint64_t idle_ns, body_ns, answer_ns; /* set once: longest time in a state */
    uid_t own_uid;                        /* set once: root and this user are the service's own */
    struct np_peer *first;
};

/* idle_s: idle timeout of a connection. */
void np_peers_init(
    struct np_peers *peers, const size_t max[NP_NR_SHARED], double idle_s, uid_t own_uid);
/* Adds a connection; caller is copied. It may be shut down already. np_peers_drop() frees it. */
struct np_peer *np_peers_add(
    struct np_peers *peers, int fd, const struct np_caller *caller, uint64_t now_ns);
void np_peers_drop(struct np_peer *peer); /* before its descriptor is closed */
void np_peer_becomes(struct np_peer *peer, enum np_peer_state state, uint64_t now_ns);
/* Shuts down connections that took too long. */
void np_peers_turn(struct np_peers *peers, uint64_t now_ns);
/* May the caller have so much more? */
bool np_peers_may(
    const struct np_peers *peers, const struct np_caller *caller, enum np_shared what, size_t more);
/* Do both count as one caller: the same user, or both over TCP without a token? */
bool np_peer_is_same(const struct np_caller *a, const struct np_caller *b);

/* --- callers: identified by the kernel on a Unix socket, by a token on TCP --------------------- */

/* Gets user and group of the connected process, and whether it belongs to `group` ((gid_t)-1:
 * no). *ret_caller is unchanged if the kernel does not know. */
void np_caller_of_socket(int fd, gid_t group, struct np_caller *ret_caller);
/* The token of an Authorization field, "Bearer TOKEN"; NULL: it is of another kind. */
const char *np_caller_token(const char *field);
/* Compares tokens in constant time. */
bool np_caller_has_token(const char *given, const char *token);
/* Is host ("localhost:7411") a name of loopback, and origin ("http://localhost:7411"; NULL: no
 * page sent it) the same? */
bool np_caller_is_local(const char *host, const char *origin);

#endif
