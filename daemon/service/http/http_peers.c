/* See http_peers.h. */
#include "daemon/service/http/http_peers.h"

#include <sys/socket.h>

#include "loader/base/mem.h"

#define BODY_S   30 /* for a body of at most 1 MiB */
#define ANSWER_S 60

void np_peers_init(struct np_peers *peers, int most, int max_tcp, double idle_s, uid_t own_uid)
{
    const int each = most / 16;

    *peers = (struct np_peers){.max_own = most / 2,
        .max_others = most - most / 2,
        .max_each = each > 0 ? each : 1,
        .max_tcp = max_tcp,
        .idle_ns = (uint64_t)(idle_s * 1e9),
        .own_uid = own_uid};
    peers->body_ns =
        peers->idle_ns < BODY_S * 1000000000ull ? peers->idle_ns : BODY_S * 1000000000ull;
    peers->answer_ns = ANSWER_S * 1000000000ull;
}

bool np_peer_is_own(const struct np_peers *peers, const struct np_caller *caller)
{
    return caller->socket && (caller->uid == 0 || caller->uid == peers->own_uid);
}

bool np_peer_is_same(const struct np_caller *a, const struct np_caller *b)
{
    return a->socket == b->socket && (!a->socket || a->uid == b->uid);
}

enum share { OWN, EACH, OTHERS, TCP };

static bool shares(const struct np_peers *peers, const struct np_peer *peer,
    const struct np_caller *caller, enum share share)
{
    switch (share) {
    case OWN: return np_peer_is_own(peers, &peer->caller);
    case OTHERS: return peer->caller.socket && !np_peer_is_own(peers, &peer->caller);
    default: return np_peer_is_same(&peer->caller, caller);
    }
}

static void shut(struct np_peer *peer)
{
    peer->shut = true;
    shutdown(peer->fd, SHUT_RDWR);
}

/* Makes room in a share for one more; false: all of it is being seen to. */
static bool make_room(
    const struct np_peers *peers, const struct np_caller *caller, enum share share, int most)
{
    struct np_peer *oldest = NULL;
    int nr = 0;

    for (struct np_peer *peer = peers->first; peer; peer = peer->next) {
        if (peer->shut || !shares(peers, peer, caller, share))
            continue;
        nr++;
        if (peer->state != NP_PEER_SERVED && (!oldest || peer->since_ns < oldest->since_ns))
            oldest = peer;
    }
    if (nr < most)
        return true;
    if (oldest)
        shut(oldest);
    return oldest != NULL;
}

static bool may_come(const struct np_peers *peers, const struct np_caller *caller)
{
    if (!caller->socket)
        return make_room(peers, caller, TCP, peers->max_tcp);
    if (np_peer_is_own(peers, caller))
        return make_room(peers, caller, OWN, peers->max_own);
    return make_room(peers, caller, EACH, peers->max_each) &&
           make_room(peers, caller, OTHERS, peers->max_others);
}

struct np_peer *np_peers_add(
    struct np_peers *peers, int fd, const struct np_caller *caller, uint64_t now_ns)
{
    struct np_peer *peer = np_alloc(sizeof(*peer));
    const bool welcome = may_come(peers, caller);

    if (!peer)
        return NULL;
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
    const uint64_t most[] = {[NP_PEER_AWAITED] = peers->idle_ns,
        [NP_PEER_TAKEN] = peers->body_ns,
        [NP_PEER_SERVED] = UINT64_MAX,
        [NP_PEER_ANSWERED] = peers->answer_ns};

    for (struct np_peer *peer = peers->first; peer; peer = peer->next)
        if (!peer->shut && now_ns - peer->since_ns > most[peer->state])
            shut(peer);
}
