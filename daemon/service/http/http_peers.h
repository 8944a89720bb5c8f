/* Connections and their callers: identity, shares and timeouts. Knows sockets, not HTTP: it only
 * shuts a connection down, and http.c then reads the end of it. Called by the service's thread.
 *
 * So that no caller can keep others out, connections, held requests and bytes of bodies are shared
 * by one rule: half of each is reserved for root and the service's own user, and each caller may
 * have a quarter of the other half. A caller is a user; all of TCP without a token is one caller. A
 * new connection above its share replaces the connection that has been idle longest, but none whose
 * request is being answered. */
#ifndef NP_HTTP_PEERS_H
#define NP_HTTP_PEERS_H

#include <stdint.h>

#include "daemon/service/access.h"

enum np_peer_state {
    NP_PEER_AWAITED,  /* until the end of a request's header */
    NP_PEER_TAKEN,    /* until the end of its body */
    NP_PEER_SERVED,   /* until the answer */
    NP_PEER_ANSWERED, /* until the answer is sent */
};

struct np_peer {
    int fd;                  /* borrowed */
    struct np_caller caller; /* over TCP: of its last request */
    enum np_peer_state state;
    uint64_t since_ns; /* start of the state */
    size_t body_bytes; /* of its request, in memory */
    bool bad_target;   /* for http.c: the request's target is not a path */
    bool shut;
    struct np_peer *next, **link;
};

enum np_shared { NP_SHARED_CONNECTIONS, NP_SHARED_WAITS, NP_SHARED_BODIES, NP_NR_SHARED };

struct np_peers {
    /* set once */
    size_t max[NP_NR_SHARED];             /* of all callers together; bodies: bytes */
    uint64_t idle_ns, body_ns, answer_ns; /* max time in a state */
    uid_t own_uid;                        /* root and this user are the service's own */
    bool one_caller;                      /* all callers are one, which may have everything */

    struct np_peer *first;
};

void np_peers_init(
    struct np_peers *peers, const size_t max[NP_NR_SHARED], double idle_s, uid_t own_uid);
/* Adds a connection, which may be shut down at once. Copies caller. np_peers_drop() frees it. */
struct np_peer *np_peers_add(
    struct np_peers *peers, int fd, const struct np_caller *caller, uint64_t now_ns);
void np_peers_drop(struct np_peer *peer); /* call before its descriptor is closed */
void np_peer_becomes(struct np_peer *peer, enum np_peer_state state, uint64_t now_ns);
/* Shuts down the connections whose state has lasted too long. */
void np_peers_turn(struct np_peers *peers, uint64_t now_ns);
/* May the caller have so much more? */
bool np_peers_may(
    const struct np_peers *peers, const struct np_caller *caller, enum np_shared what, size_t more);
/* Do both count as one caller: the same user, or both over TCP without a token? */
bool np_peer_is_same(const struct np_caller *a, const struct np_caller *b);

/* --- callers: identified by the kernel on a Unix socket, by a token on TCP ---------------- */

/* Sets user, group, and whether the user is a member of `group` ((gid_t)-1: no). *ret_caller is
 * unchanged if the kernel does not know. */
void np_caller_of_socket(int fd, gid_t group, struct np_caller *ret_caller);
/* The token of an Authorization field, "Bearer TOKEN"; NULL: another scheme. */
const char *np_caller_token(const char *field);
/* Compares tokens in constant time. */
bool np_caller_has_token(const char *given, const char *token);
/* Is host ("localhost:7411") a name of loopback, and origin ("http://localhost:7411"; NULL: no page
 * sent the request) the same? */
bool np_caller_is_local(const char *host, const char *origin);

#endif
