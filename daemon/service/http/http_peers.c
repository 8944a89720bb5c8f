#include "daemon/service/http/http_peers.h"

#include <string.h>
#include <sys/socket.h>

#include "loader/base/mem.h"

#define BODY_S     30 /* for a body of at most 1 MiB */
#define ANSWER_S   60
#define MAX_GROUPS 1024 /* of a caller; with more, only the primary group counts */

void np_peers_init(
    struct np_peers *peers, const size_t max[NP_NR_SHARED], double idle_s, uid_t own_uid)
{
    const uint64_t idle_ns = (uint64_t)(idle_s * 1e9), body_ns = BODY_S * 1000000000ull;

    *peers = (struct np_peers){.idle_ns = idle_ns,
        .body_ns = idle_ns < body_ns ? idle_ns : body_ns,
        .answer_ns = ANSWER_S * 1000000000ull,
        .own_uid = own_uid};
    memcpy(peers->max, max, sizeof(peers->max));
}

bool np_peer_is_same(const struct np_caller *a, const struct np_caller *b)
{
    if (a->socket != b->socket || a->token != b->token || a->user != b->user)
        return false;
    return (!a->socket && !a->user) || a->uid == b->uid;
}

/* --- callers ---------------------------------------------------------------------------------- */

/* The kernel's facts of the time of connect(). Does not look at the process: its PID may belong to
 * another process now. */
void np_caller_of_socket(int fd, gid_t group, struct np_caller *ret_caller)
{
    struct ucred ucred;
    socklen_t bytes = sizeof(ucred);
    gid_t groups[MAX_GROUPS];

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &bytes) < 0 || bytes != sizeof(ucred) ||
        ucred.uid == (uid_t)-1)
        return;
    *ret_caller = (struct np_caller){.socket = true, .uid = ucred.uid, .gid = ucred.gid};
    if (group == (gid_t)-1)
        return;
    ret_caller->member = ucred.gid == group;
    bytes = sizeof(groups);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
        return;
    for (size_t i = 0; i < bytes / sizeof(*groups); i++)
        ret_caller->member |= groups[i] == group;
}

bool np_caller_has_token(const char *given, const char *token)
{
    const size_t bytes = strlen(token);
    unsigned char differs = 0;

    if (bytes == 0 || strlen(given) != bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned char)(given[i] ^ token[i]);
    return differs == 0;
}

const char *np_caller_token(const char *field)
{
    static const char bearer[] = "Bearer ";

    return strncasecmp(field, bearer, strlen(bearer)) == 0 ? field + strlen(bearer) : NULL;
}

static bool is_local(const char *name)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const size_t bytes = strlen(names[i]);
        const char *port = name + bytes;

        if (strncasecmp(name, names[i], bytes) != 0 || (*port != '\0' && *port != ':'))
            continue;
        return *port == '\0' || strspn(port + 1, "0123456789") == strlen(port + 1);
    }
    return false;
}

bool np_caller_is_local(const char *host, const char *origin)
{
    return is_local(host) && (!origin || (strncasecmp(origin, "http://", 7) == 0 &&
                                             strcasecmp(origin + 7, host) == 0));
}

/* --- shares ----------------------------------------------------------------------------------- */

static bool is_own(const struct np_peers *peers, const struct np_caller *caller)
{
    return caller->socket && (caller->uid == 0 || caller->uid == peers->own_uid);
}

static bool is_same(
    const struct np_peers *peers, const struct np_caller *a, const struct np_caller *b)
{
    if (peers->one_caller)
        return true;
    return is_own(peers, a) ? is_own(peers, b) : np_peer_is_same(a, b);
}

/* A connection that was shut down keeps its request, with its memory, until it is answered. */
static size_t amount_of(const struct np_peer *peer, enum np_shared what)
{
    switch (what) {
    case NP_SHARED_CONNECTIONS: return !peer->shut;
    case NP_SHARED_WAITS: return peer->state == NP_PEER_SERVED;
    default: return peer->body_bytes;
    }
}

static size_t share_of(
    const struct np_peers *peers, const struct np_caller *caller, enum np_shared what)
{
    const size_t part = peers->one_caller ? 1 : is_own(peers, caller) ? 2 : 8;
    const size_t share = peers->max[what] / part;

    return share > 0 ? share : 1;
}

/* caller NULL: of all but the service's own users. */
static size_t used_by(
    const struct np_peers *peers, const struct np_caller *caller, enum np_shared what)
{
    size_t used = 0;

    for (const struct np_peer *peer = peers->first; peer; peer = peer->next)
        if (caller ? is_same(peers, &peer->caller, caller) : !is_own(peers, &peer->caller))
            used += amount_of(peer, what);
    return used;
}

bool np_peers_may(
    const struct np_peers *peers, const struct np_caller *caller, enum np_shared what, size_t more)
{
    if (used_by(peers, caller, what) + more > share_of(peers, caller, what))
        return false;
    return peers->one_caller || is_own(peers, caller) ||
           used_by(peers, NULL, what) + more <= peers->max[what] - peers->max[what] / 2;
}

/* --- connections ------------------------------------------------------------------------------ */

static void shut(struct np_peer *peer)
{
    peer->shut = true;
    shutdown(peer->fd, SHUT_RDWR);
}

/* Frees a place for the caller: shuts down a connection of its own if its share is full, else one
 * of any caller but the service's own users. False: all are being answered. */
static bool make_room(const struct np_peers *peers, const struct np_caller *caller)
{
    const enum np_shared what = NP_SHARED_CONNECTIONS;
    const bool is_full = used_by(peers, caller, what) >= share_of(peers, caller, what);
    struct np_peer *oldest = NULL;

    if (np_peers_may(peers, caller, what, 1))
        return true;
    for (struct np_peer *peer = peers->first; peer; peer = peer->next)
        if (!peer->shut && peer->state != NP_PEER_SERVED &&
            (is_full ? is_same(peers, &peer->caller, caller) : !is_own(peers, &peer->caller)) &&
            (!oldest || peer->since_ns < oldest->since_ns))
            oldest = peer;
    if (oldest)
        shut(oldest);
    return oldest != NULL;
}

struct np_peer *np_peers_add(
    struct np_peers *peers, int fd, const struct np_caller *caller, uint64_t now_ns)
{
    struct np_peer *peer = np_alloc(sizeof(*peer));
    const bool welcome = make_room(peers, caller);

    *peer = (struct np_peer){.fd = fd,
        .caller = *caller,
        .since_ns = now_ns,
        .next = peers->first,
        .link = &peers->first};
    if (peer->next)
        peer->next->link = &peer->next;
    peers->first = peer;
    if (!welcome)
        shut(peer);
    return peer;
}

void np_peers_drop(struct np_peer *peer)
{
    if (!peer)
        return;
    *peer->link = peer->next;
    if (peer->next)
        peer->next->link = peer->link;
    np_free(peer);
}

void np_peer_becomes(struct np_peer *peer, enum np_peer_state state, uint64_t now_ns)
{
    peer->state = state;
    peer->since_ns = now_ns;
}

void np_peers_turn(struct np_peers *peers, uint64_t now_ns)
{
    const uint64_t max[] = {[NP_PEER_AWAITED] = peers->idle_ns,
        [NP_PEER_TAKEN] = peers->body_ns,
        [NP_PEER_SERVED] = UINT64_MAX,
        [NP_PEER_ANSWERED] = peers->answer_ns};

    for (struct np_peer *peer = peers->first; peer; peer = peer->next)
        if (!peer->shut && now_ns - peer->since_ns > max[peer->state])
            shut(peer);
}
