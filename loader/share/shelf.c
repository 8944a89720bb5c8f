/* See shelf.h. A page of atomics, then the slots. Any reader thread. */
#include "loader/share/shelf.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "loader/base/mem.h"
#include "loader/share/memfd.h"

#define PAGE        4096u
#define LARGE_BYTES 65536u /* a copy past the caches pays off */

struct slot_head {
    _Atomic uint64_t generation; /* odd: it is being written */
    _Atomic uint64_t seq;        /* plus 1; 0: nothing yet */
};

/* The first page. */
struct head {
    _Atomic uint64_t beats;
    _Atomic uint64_t wanted;               /* the first batch that may still be taken from others */
    _Atomic uint64_t making[NP_SHELF_MAX]; /* seq plus 1, at seq % NP_SHELF_MAX; 0: none */
    struct slot_head slots[NP_SHELF_MAX];
};
_Static_assert(sizeof(struct head) <= PAGE, "the head is one page");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "no lock stands behind an atomic of two processes");

struct np_shelf {
    struct np_shelf_shape shape; /* set once, as all but busy */
    int fd;
    struct head *head;
    size_t bytes;
    _Atomic bool busy[NP_SHELF_MAX];
};

struct np_shelf_view {
    struct np_shelf_shape shape; /* set once, as all */
    const struct head *head;
    size_t bytes;
};

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t slot_bytes(const struct np_shelf_shape *shape)
{
    size_t bytes = 0;

    for (int p = 0; p < NP_SHELF_PARTS; p++)
        bytes += round_up(shape->part_bytes[p], NP_ALIGN);
    return round_up(bytes, bytes < NP_MEMFD_BLOCK ? PAGE : NP_MEMFD_BLOCK);
}

/* Of slot i, from the start of the memory. Large slots consist of whole huge pages. */
static size_t slot_at(const struct np_shelf_shape *shape, int i)
{
    const size_t bytes = slot_bytes(shape);

    return (bytes < NP_MEMFD_BLOCK ? PAGE : NP_MEMFD_BLOCK) + (size_t)i * bytes;
}

static size_t all_bytes(const struct np_shelf_shape *shape)
{
    return slot_at(shape, shape->nr_slots);
}

/* A batch is larger than the caches of a core, and another thread reads it later: so stores that
 * pass them by, which spares a read of the memory that is overwritten. */
static void copy(void *to, const void *from, size_t bytes)
{
    size_t done = 0;

#if defined(__x86_64__)
    if (bytes >= LARGE_BYTES && (uintptr_t)to % sizeof(__m128i) == 0) {
        const __m128i *src = from;
        __m128i *dst = to;

        for (; done + sizeof(*dst) <= bytes; done += sizeof(*dst))
            _mm_stream_si128(dst++, _mm_loadu_si128(src++));
        _mm_sfence();
    }
#endif
    memcpy((uint8_t *)to + done, (const uint8_t *)from + done, bytes - done);
}

/* --- one's own ------------------------------------------------------------------------------ */

int np_shelf_new(
    const struct np_shelf_shape *shape, struct np_shelf **ret_shelf, struct np_err *err)
{
    struct np_shelf *shelf = np_try_alloc(sizeof(*shelf), err);
    void *memory;
    int code;

    assert(shape->nr_slots >= 1 && shape->nr_slots <= NP_SHELF_MAX);
    if (!shelf)
        return -ENOMEM;
    shelf->shape = *shape;
    shelf->bytes = all_bytes(shape);
    code = np_memfd_new(shelf->bytes, &shelf->fd, &memory, err);
    if (code) {
        np_free(shelf);
        return code;
    }
    shelf->head = memory;
    *ret_shelf = shelf;
    return 0;
}

void np_shelf_free(struct np_shelf *shelf)
{
    if (!shelf)
        return;
    munmap(shelf->head, shelf->bytes);
    close(shelf->fd);
    np_free(shelf);
}

int np_shelf_fd(const struct np_shelf *shelf)
{
    return shelf->fd;
}

void np_shelf_announce(struct np_shelf *shelf, uint64_t seq)
{
    atomic_store(&shelf->head->making[seq % NP_SHELF_MAX], seq + 1);
}

void np_shelf_withdraw(struct np_shelf *shelf, uint64_t seq)
{
    uint64_t word = seq + 1;

    /* Unless a later batch stands in its place. */
    atomic_compare_exchange_strong(&shelf->head->making[seq % NP_SHELF_MAX], &word, 0);
}

void np_shelf_beat(struct np_shelf *shelf)
{
    atomic_fetch_add_explicit(&shelf->head->beats, 1, memory_order_relaxed);
}

void np_shelf_want(struct np_shelf *shelf, uint64_t seq)
{
    atomic_store_explicit(&shelf->head->wanted, seq, memory_order_relaxed);
}

/* Makes slot i this thread's, if its batch is older than before. */
static bool claim(struct np_shelf *shelf, int i, uint64_t before)
{
    if (atomic_exchange_explicit(&shelf->busy[i], true, memory_order_acquire))
        return false;
    if (atomic_load_explicit(&shelf->head->slots[i].seq, memory_order_relaxed) <= before)
        return true;
    atomic_store_explicit(&shelf->busy[i], false, memory_order_release);
    return false;
}

/* The first slot whose batch nobody wants, since memory that was used before costs less; else the
 * slot with the oldest batch. -1: other threads write it. */
static int choose(struct np_shelf *shelf, uint64_t wanted)
{
    uint64_t oldest = UINT64_MAX;
    int best = 0;

    for (int i = 0; i < shelf->shape.nr_slots; i++) {
        const uint64_t seq = atomic_load_explicit(&shelf->head->slots[i].seq, memory_order_relaxed);

        if (seq <= wanted && claim(shelf, i, wanted))
            return i;
        if (seq < oldest) {
            oldest = seq;
            best = i;
        }
    }
    return claim(shelf, best, oldest) ? best : -1;
}

bool np_shelf_put(struct np_shelf *shelf, uint64_t seq, uint64_t wanted,
    const void *const parts[NP_SHELF_PARTS], const size_t bytes[NP_SHELF_PARTS])
{
    const int i = choose(shelf, wanted);
    struct slot_head *slot = &shelf->head->slots[i < 0 ? 0 : i];
    uint8_t *at = (uint8_t *)shelf->head + slot_at(&shelf->shape, i < 0 ? 0 : i);
    uint64_t generation;

    if (i < 0)
        return false;
    if (atomic_load_explicit(&slot->seq, memory_order_relaxed) == 0 && /* its first batch */
        np_memfd_populate(shelf->head, slot_at(&shelf->shape, i), slot_bytes(&shelf->shape)) < 0) {
        atomic_store_explicit(&shelf->busy[i], false, memory_order_release);
        return false;
    }
    generation = atomic_load_explicit(&slot->generation, memory_order_relaxed);
    atomic_store_explicit(&slot->generation, generation + 1, memory_order_relaxed);
    /* The odd generation is visible before any byte of what follows; pairs with the fence of
     * np_shelf_copy(). */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&slot->seq, seq + 1, memory_order_relaxed);
    for (int p = 0; p < NP_SHELF_PARTS; p++) {
        assert(bytes[p] <= shelf->shape.part_bytes[p]);
        copy(at, parts[p], bytes[p]);
        at += round_up(shelf->shape.part_bytes[p], NP_ALIGN);
    }
    /* Pairs with the first load of np_shelf_copy(): the batch is whole. */
    atomic_store_explicit(&slot->generation, generation + 2, memory_order_release);
    atomic_store_explicit(&shelf->busy[i], false, memory_order_release);
    return true;
}

/* --- another process's ---------------------------------------------------------------------- */

int np_shelf_view_new(
    int fd, const struct np_shelf_shape *shape, struct np_shelf_view **ret_view, struct np_err *err)
{
    struct np_shelf_view *view;
    const void *memory;
    size_t bytes;
    int code = np_memfd_view(fd, &bytes, &memory, err);

    if (code < 0)
        return code;
    if (bytes != all_bytes(shape))
        code = np_err_set(err, -EBADMSG, "the memory of another process is not a shelf");
    view = code ? NULL : np_try_alloc(sizeof(*view), err);
    if (!view) {
        munmap((void *)(uintptr_t)memory, bytes);
        return code ? code : -ENOMEM;
    }
    *view = (struct np_shelf_view){*shape, memory, bytes};
    *ret_view = view;
    return 0;
}

void np_shelf_view_free(struct np_shelf_view *view)
{
    if (!view)
        return;
    munmap((void *)(uintptr_t)view->head, view->bytes);
    np_free(view);
}

/* The slot with batch seq; -1: none. */
static int find(const struct np_shelf_view *view, uint64_t seq)
{
    for (int i = 0; i < view->shape.nr_slots; i++)
        if (atomic_load_explicit(&view->head->slots[i].seq, memory_order_relaxed) == seq + 1)
            return i;
    return -1;
}

enum np_shelf_state np_shelf_look(const struct np_shelf_view *view, uint64_t seq)
{
    const bool making = atomic_load(&view->head->making[seq % NP_SHELF_MAX]) == seq + 1;
    const int i = find(view, seq);

    if (i >= 0 &&
        atomic_load_explicit(&view->head->slots[i].generation, memory_order_acquire) % 2 == 0)
        return NP_SHELF_READY;
    return making ? NP_SHELF_MAKING : NP_SHELF_NONE;
}

bool np_shelf_copy(
    const struct np_shelf_view *view, uint64_t seq, void *const parts[NP_SHELF_PARTS])
{
    const int i = find(view, seq);
    const struct slot_head *slot = &view->head->slots[i < 0 ? 0 : i];
    const uint8_t *at = (const uint8_t *)view->head + slot_at(&view->shape, i < 0 ? 0 : i);
    uint64_t generation;

    if (i < 0)
        return false;
    generation = atomic_load_explicit(&slot->generation, memory_order_acquire);
    if (generation % 2 || atomic_load_explicit(&slot->seq, memory_order_relaxed) != seq + 1)
        return false;
    for (int p = 0; p < NP_SHELF_PARTS; p++) {
        copy(parts[p], at, view->shape.part_bytes[p]);
        at += round_up(view->shape.part_bytes[p], NP_ALIGN);
    }
    /* Pairs with the fence of np_shelf_put(): had a byte of a later batch been copied, the odd
     * generation would be seen here. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&slot->generation, memory_order_relaxed) == generation;
}

uint64_t np_shelf_wanted(const struct np_shelf_view *view)
{
    return atomic_load_explicit(&view->head->wanted, memory_order_relaxed);
}

uint64_t np_shelf_beats(const struct np_shelf_view *view)
{
    return atomic_load_explicit(&view->head->beats, memory_order_relaxed);
}
