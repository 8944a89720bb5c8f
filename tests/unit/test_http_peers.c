/* Shares of connections: which one is closed for a new one. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/service/http/http_peers.h"
#include "tests/test.h"

#define SECOND 1000000000ull

static const struct np_caller root = {.socket = true, .uid = 0}, own = {.socket = true, .uid = 7},
                              ann = {.socket = true, .uid = 1000}, tcp = {.socket = false};

static const size_t shared[] = {
    [NP_SHARED_CONNECTIONS] = 64, [NP_SHARED_WAITS] = 16, [NP_SHARED_BODIES] = 8000};

static int count(const struct np_peers *peers, const struct np_caller *caller)
{
    int n = 0;

    for (const struct np_peer *peer = peers->first; peer; peer = peer->next)
        n += !peer->shut && np_peer_is_same(&peer->caller, caller);
    return n;
}

static void drop_all(struct np_peers *peers)
{
    while (peers->first)
        np_peers_drop(peers->first);
}

Test(http_peers, the_service_users_share_cannot_be_taken)
{
    struct np_peers peers;
    struct np_caller other = {.socket = true};

    np_peers_init(&peers, shared, 75, 7);
    for (uint64_t i = 0; i < 1000; i++) {
        other.uid = (uid_t)(1000 + i % 100);
        cr_assert_not_null(np_peers_add(&peers, -1, &other, i));
    }
    int all = 0;
    for (const struct np_peer *peer = peers.first; peer; peer = peer->next)
        all += !peer->shut;
    cr_assert_eq(all, 32);
    for (int i = 0; i < 16; i++) {
        cr_assert_not(np_peers_add(&peers, -1, &root, SECOND)->shut);
        cr_assert_not(np_peers_add(&peers, -1, &own, SECOND)->shut);
    }
    cr_assert(count(&peers, &root) == 16 && count(&peers, &own) == 16);
    drop_all(&peers);
}

Test(http_peers, one_user_has_a_share_and_tcp_has_one)
{
    struct np_peers peers;

    np_peers_init(&peers, shared, 75, 7);
    for (uint64_t i = 0; i < 100; i++) {
        np_peers_add(&peers, -1, &ann, i);
        np_peers_add(&peers, -1, &tcp, i);
    }
    cr_assert_eq(count(&peers, &ann), 8);
    cr_assert_eq(count(&peers, &tcp), 8);
    drop_all(&peers);
}

Test(http_peers, a_connection_being_served_stays_and_the_new_one_is_closed)
{
    struct np_peers peers;

    np_peers_init(&peers, shared, 75, 7);
    for (int i = 0; i < 8; i++)
        np_peer_becomes(np_peers_add(&peers, -1, &ann, 0), NP_PEER_SERVED, 0);
    const struct np_peer *last = np_peers_add(&peers, -1, &ann, 1);
    cr_assert(last->shut && count(&peers, &ann) == 8);
    drop_all(&peers);
}

Test(http_peers, waits_and_bodies_are_shared_as_connections_are)
{
    static const struct np_caller page = {.token = true}, bob = {.user = true, .uid = 1001},
                                  eve = {.user = true, .uid = 1002};
    const struct np_caller *callers[] = {&ann, &tcp, &page, &bob, &eve};
    struct np_peers peers;

    np_peers_init(&peers, shared, 75, 7);
    for (int i = 0; i < 4; i++) { /* each has its share, and these are the others' half */
        cr_expect(np_peers_may(&peers, callers[i], NP_SHARED_WAITS, 2));
        cr_expect(!np_peers_may(&peers, callers[i], NP_SHARED_WAITS, 3));
        cr_expect(np_peers_may(&peers, callers[i], NP_SHARED_BODIES, 1000));
        cr_expect(!np_peers_may(&peers, callers[i], NP_SHARED_BODIES, 1001));
        for (int k = 0; k < 2; k++) {
            struct np_peer *peer = np_peers_add(&peers, -1, callers[i], 0);

            np_peer_becomes(peer, NP_PEER_SERVED, 0);
            peer->body_bytes = 500;
        }
        cr_expect(!np_peers_may(&peers, callers[i], NP_SHARED_WAITS, 1));
        cr_expect(!np_peers_may(&peers, callers[i], NP_SHARED_BODIES, 1));
    }
    cr_expect(!np_peers_may(&peers, &eve, NP_SHARED_WAITS, 1));
    cr_expect(!np_peers_may(&peers, &eve, NP_SHARED_BODIES, 1));
    cr_expect(np_peers_may(&peers, &root, NP_SHARED_WAITS, 8));
    cr_expect(!np_peers_may(&peers, &own, NP_SHARED_WAITS, 9));
    cr_expect(np_peers_may(&peers, &own, NP_SHARED_BODIES, 4000));
    np_peers_drop(peers.first); /* a wait of bob's less */
    cr_expect(np_peers_may(&peers, &eve, NP_SHARED_WAITS, 1));
    drop_all(&peers);
}

Test(http_peers, each_state_has_its_timeout)
{
    static const uint64_t most[] = {[NP_PEER_AWAITED] = 75,
        [NP_PEER_TAKEN] = 30,
        [NP_PEER_SERVED] = 0,
        [NP_PEER_ANSWERED] = 60};
    struct np_peers peers;

    np_peers_init(&peers, shared, 75, 7);
    for (int state = 0; state < 4; state++) {
        int pair[2];
        char byte;

        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        struct np_peer *peer = np_peers_add(&peers, pair[0], &ann, SECOND);
        np_peer_becomes(peer, (enum np_peer_state)state, 2 * SECOND);
        np_peers_turn(&peers, (2 + most[state]) * SECOND);
        cr_assert_not(peer->shut);
        np_peers_turn(&peers, (2 + most[state]) * SECOND + 1);
        cr_assert_eq(peer->shut, most[state] != 0);
        cr_assert_eq(recv(pair[1], &byte, 1, MSG_DONTWAIT), most[state] ? 0 : -1);
        np_peers_drop(peer);
        close(pair[0]);
        close(pair[1]);
    }
    cr_assert_null(peers.first);
}
