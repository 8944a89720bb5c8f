/* See cache_peers.h. Views are only added, and published by their number, so that readers look them
 * up without a lock; the one lock is around the meeting place, and nobody waits for it. */
#include "loader/cache_peers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/cache_memory.h"
#include "loader/share/memfd.h"
#include "loader/share/peers.h"

#define POLL_NS      10000000u /* between two looks for newcomers */
#define GREET_NS     1000000u  /* between two looks for greetings, and how long a newcomer looks */
#define MAX_GREET_NS 50000000u
#define SHUN_NS      10000000000u /* a process that is too slow is not waited for */
#define SLOW         10           /* times as slow as we may wait: too slow */

/* The cache of another process. */
struct view {
    const uint8_t *memory; /* set once, as the next two; mapped to read */
    size_t bytes;
    uint64_t arena_bytes;
    struct np_peer *peer; /* under lock */
    _Atomic bool ended;
    _Atomic uint64_t beats, beat_ns; /* the last that was seen, and when */
    _Atomic uint64_t silent_beats;   /* not waited for while it has so many, plus 1 */
    _Atomic uint64_t shunned_ns;     /* nor until then */
};

struct np_cache_peers {
    struct np_cache_sharing sharing; /* set once, as all up to meeting */
    uint64_t words_at[2], arena_at;
    struct np_peers *meeting; /* under lock */
    pthread_mutex_t lock;
    _Atomic uint64_t met_ns;
    struct view *views[NP_PEERS_MAX]; /* (nr_views), each set once */
    _Atomic int nr_views;
    _Atomic uint64_t found; /* pictures */
};

/* --- meeting -------------------------------------------------------------------------------- */

static void free_view(void *context)
{
    struct view *view = context;

    munmap((void *)(uintptr_t)view->memory, view->bytes);
    np_free(view);
}

/* The size is the peer's own choice; what is before the arena is not. */
static void *new_view(int fd, const void *context)
{
    const struct np_cache_peers *peers = context;
    struct view *view = np_try_alloc(sizeof(*view), NULL);
    const void *memory;

    if (!view)
        return NULL;
    if (np_memfd_view(fd, &view->bytes, &memory, NULL) < 0) {
        np_free(view);
        return NULL;
    }
    view->memory = memory;
    if (view->bytes <= peers->arena_at) {
        free_view(view);
        return NULL;
    }
    view->arena_bytes = view->bytes - peers->arena_at;
    return view;
}

/* Under lock. Adds the views of new peers, which stay, and marks those of peers that have ended. */
static void take_views(struct np_cache_peers *peers)
{
    int nr_views = atomic_load(&peers->nr_views);
    struct np_peer *peer;

    for (int i = 0; (peer = np_peers_get(peers->meeting, i)); i++) {
        struct view *view = peer->view;

        if (view && peer->nr_users == 0 && peer->fd >= 0) {
            peer->nr_users = 1;
            view->peer = peer;
            peers->views[nr_views++] = view;
        } else if (view && peer->fd < 0) {
            atomic_store(&view->ended, true);
        }
    }
    /* Pairs with the loads of readers: the views are whole. */
    atomic_store_explicit(&peers->nr_views, nr_views, memory_order_release);
}

static bool is_expected(const struct np_cache_peers *peers)
{
    const struct np_peer *peer;

    for (int i = 0; (peer = np_peers_get(peers->meeting, i)); i++)
        if (peer->fd >= 0 && !peer->view && !peer->twin)
            return true;
    return false;
}

/* So that the first pictures of a newcomer are not decoded once more. A process whose trainer has
 * batches enough may answer late. */
static void await_greetings(struct np_cache_peers *peers)
{
    const uint64_t wait_ns = peers->sharing.wait_ns;
    const uint64_t until_ns = np_now_ns() + (wait_ns < MAX_GREET_NS ? wait_ns : MAX_GREET_NS);

    while (is_expected(peers) && np_now_ns() < until_ns) {
        np_sleep_until_ns(np_now_ns() + GREET_NS);
        np_peers_poll(peers->meeting);
    }
    take_views(peers);
}

int np_cache_peers_open(const struct np_cache_sharing *sharing, int fd, int nr_sets,
    const uint64_t *nr_samples, struct np_cache_peers **ret_peers, struct np_err *err)
{
    struct np_cache_peers *peers = np_try_alloc(sizeof(*peers), err);
    const struct np_peers_options options = {.hash = sharing->hash,
        .fd = fd,
        .view_new = new_view,
        .view_free = free_view,
        .context = peers};
    int code;

    if (!peers)
        return -ENOMEM;
    peers->sharing = *sharing;
    for (int s = 0; s < nr_sets; s++)
        peers->words_at[s] = np_cache_words_at(nr_samples, s);
    peers->arena_at = np_cache_arena_at(nr_samples, nr_sets);
    pthread_mutex_init(&peers->lock, NULL);
    code = np_peers_open(&options, &peers->meeting, err);
    if (code) {
        np_cache_peers_close(peers);
        return code;
    }
    await_greetings(peers);
    *ret_peers = peers;
    return 0;
}

void np_cache_peers_close(struct np_cache_peers *peers)
{
    if (!peers)
        return;
    for (int i = 0; i < atomic_load(&peers->nr_views); i++)
        peers->views[i]->peer->nr_users = 0;
    np_peers_close(peers->meeting);
    pthread_mutex_destroy(&peers->lock);
    np_free(peers);
}

void np_cache_peers_meet(struct np_cache_peers *peers)
{
    const uint64_t now_ns = np_now_ns();

    if (now_ns - atomic_load_explicit(&peers->met_ns, memory_order_relaxed) < POLL_NS ||
        pthread_mutex_trylock(&peers->lock) != 0)
        return;
    atomic_store_explicit(&peers->met_ns, now_ns, memory_order_relaxed);
    np_peers_poll(peers->meeting);
    take_views(peers);
    pthread_mutex_unlock(&peers->lock);
}

/* --- pictures ------------------------------------------------------------------------------- */

static uint64_t word_of(
    const struct np_cache_peers *peers, const struct view *view, int set, uint64_t sample)
{
    const uint64_t *words = (const void *)(view->memory + peers->words_at[set]);

    /* Acquire: pairs with the release store of np_cache_put(); the entry is whole. */
    return __atomic_load_n(&words[sample], __ATOMIC_ACQUIRE);
}

/* The other process may have written anything, and may do so at any time: the head is copied, and
 * then checked. */
static bool read_entry(const struct np_cache_peers *peers, const struct view *view, uint64_t offset,
    struct np_cached *ret_cached)
{
    const uint8_t *at = view->memory + peers->arena_at + offset;
    struct np_cache_entry head = {0};

    if (offset % NP_CACHE_ALIGN || offset > view->arena_bytes ||
        view->arena_bytes - offset < sizeof(head))
        return false;
    for (size_t i = 0; i < sizeof(head); i++)
        ((uint8_t *)&head)[i] = ((const volatile uint8_t *)at)[i];
    if (head.width <= 0 || head.height <= 0 || head.channels != peers->sharing.channels ||
        (uint64_t)head.width * (uint64_t)head.height > UINT32_MAX ||
        (uint64_t)head.width * (uint64_t)head.height * (uint64_t)head.channels != head.bytes ||
        head.bytes > view->arena_bytes - offset - sizeof(head))
        return false;
    *ret_cached = (struct np_cached){.data = at + sizeof(head),
        .bytes = head.bytes,
        .width = head.width,
        .height = head.height,
        .channels = head.channels};
    return true;
}

bool np_cache_peers_find(
    struct np_cache_peers *peers, int set, uint64_t sample, struct np_cached *ret_cached)
{
    const int nr_views = atomic_load_explicit(&peers->nr_views, memory_order_acquire);

    for (int i = 0; i < nr_views; i++) {
        const struct view *view = peers->views[i];
        const uint64_t word = word_of(peers, view, set, sample);

        if (word >= NP_CACHE_FIRST && read_entry(peers, view, word - NP_CACHE_FIRST, ret_cached)) {
            atomic_fetch_add_explicit(&peers->found, 1, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

/* True: the process that makes the picture lives, and is not too slow. since_ns: since when the
 * caller waits. A process that was silent for too long is not waited for until it shows a sign of
 * life; on a busy machine it may only have got no core. */
static bool is_worth_waiting(
    const struct np_cache_peers *peers, struct view *view, uint64_t since_ns, uint64_t now_ns)
{
    const struct np_cache_head *head = (const void *)view->memory;
    const uint64_t beats = __atomic_load_n(&head->beats, __ATOMIC_RELAXED);
    const uint64_t wait_ns = peers->sharing.wait_ns;

    if (atomic_load_explicit(&view->ended, memory_order_relaxed) ||
        atomic_load_explicit(&view->silent_beats, memory_order_relaxed) == beats + 1 ||
        now_ns < atomic_load_explicit(&view->shunned_ns, memory_order_relaxed))
        return false;
    if (atomic_exchange_explicit(&view->beats, beats, memory_order_relaxed) != beats)
        atomic_store_explicit(&view->beat_ns, now_ns, memory_order_relaxed);
    if (now_ns - since_ns >= SLOW * wait_ns) {
        atomic_store_explicit(&view->shunned_ns, now_ns + SHUN_NS, memory_order_relaxed);
        return false;
    }
    if (now_ns - since_ns < wait_ns ||
        now_ns < wait_ns + atomic_load_explicit(&view->beat_ns, memory_order_relaxed))
        return true;
    atomic_store_explicit(&view->silent_beats, beats + 1, memory_order_relaxed);
    return false;
}

bool np_cache_peers_await(
    struct np_cache_peers *peers, int set, uint64_t sample, uint64_t since_ns, uint64_t now_ns)
{
    const int nr_views = atomic_load_explicit(&peers->nr_views, memory_order_acquire);
    bool awaited = false;

    for (int i = 0; i < nr_views; i++) {
        struct view *view = peers->views[i];
        const uint64_t word = word_of(peers, view, set, sample);

        if (word >= NP_CACHE_FIRST)
            return false; /* it is there */
        awaited |= word == NP_CACHE_TAKEN && is_worth_waiting(peers, view, since_ns, now_ns);
    }
    return awaited;
}

int np_cache_peers_met(const struct np_cache_peers *peers)
{
    return atomic_load_explicit(&peers->nr_views, memory_order_relaxed);
}

uint64_t np_cache_peers_found(const struct np_cache_peers *peers)
{
    return atomic_load_explicit(&peers->found, memory_order_relaxed);
}
