/* See shelf.h. A page of atomics, then the slots. Any reader thread. */
#include "loader/share/shelf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"

#define PAGE 4096u

struct slot_head {
    _Atomic uint64_t generation; /* odd: it is being written */
    _Atomic uint64_t seq;        /* plus 1; 0: nothing yet */
};

/* The first page. */
struct head {
    _Atomic uint64_t beats;
    _Atomic uint64_t making[NP_SHELF_MAX]; /* seq plus 1, at seq % NP_SHELF_MAX; 0: none */
    struct slot_head slots[NP_SHELF_MAX];
};
_Static_assert(sizeof(struct head) <= PAGE, "the head is one page");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "no lock stands behind an atomic of two processes");

struct np_shelf {
    struct np_shelf_shape shape; /* set once, as all but busy and next */
    int fd;
    struct head *head;
    size_t bytes;
    _Atomic uint64_t next; /* slot to write, modulo nr_slots */
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
    return round_up(bytes, PAGE);
}

static size_t all_bytes(const struct np_shelf_shape *shape)
{
    return PAGE + (size_t)shape->nr_slots * slot_bytes(shape);
}

/* --- one's own ------------------------------------------------------------------------------ */

/* The limit of a file's size (ulimit -f) holds for memfds, too, and a process that passes it gets
 * SIGXFSZ. */
static bool may_have(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) < 0 || bytes <= limit.rlim_cur;
}

static int set_up(struct np_shelf *shelf, struct np_err *err)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    void *memory;

    shelf->fd = memfd_create("nnpipe-share", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (shelf->fd < 0)
        return np_err_set(err, -errno, "memfd_create: %s", strerror(errno));
    if (!may_have(shelf->bytes) || ftruncate(shelf->fd, (off_t)shelf->bytes) < 0)
        return np_err_set(err, -EFBIG, "a memfd of %zu bytes is not allowed", shelf->bytes);
    memory = mmap(NULL, shelf->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shelf->fd, 0);
    if (memory == MAP_FAILED)
        return np_err_set(
            err, -EFBIG, "no %zu bytes of address space: %s", shelf->bytes, strerror(errno));
    shelf->head = memory;
    if (fcntl(shelf->fd, F_ADD_SEALS, seals) < 0)
        return np_err_set(err, -errno, "a memfd cannot be sealed: %s", strerror(errno));
    return 0;
}

int np_shelf_new(
    const struct np_shelf_shape *shape, struct np_shelf **ret_shelf, struct np_err *err)
{
    struct np_shelf *shelf = np_try_alloc(sizeof(*shelf), err);
    int code;

    assert(shape->nr_slots >= 1 && shape->nr_slots <= NP_SHELF_MAX);
    if (!shelf)
        return -ENOMEM;
    shelf->shape = *shape;
    shelf->bytes = all_bytes(shape);
    code = set_up(shelf, err);
    if (code) {
        np_shelf_free(shelf);
        return code;
    }
    *ret_shelf = shelf;
    return 0;
}

void np_shelf_free(struct np_shelf *shelf)
{
    if (!shelf)
        return;
    if (shelf->head)
        munmap(shelf->head, shelf->bytes);
    if (shelf->fd >= 0)
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

bool np_shelf_put(struct np_shelf *shelf, uint64_t seq, const void *const parts[NP_SHELF_PARTS],
    const size_t bytes[NP_SHELF_PARTS])
{
    const int i = (int)(atomic_fetch_add(&shelf->next, 1) % (uint64_t)shelf->shape.nr_slots);
    struct slot_head *slot = &shelf->head->slots[i];
    uint8_t *at = (uint8_t *)shelf->head + PAGE + (size_t)i * slot_bytes(&shelf->shape);
    uint64_t generation;

    if (atomic_exchange_explicit(&shelf->busy[i], true, memory_order_acquire))
        return false;
    generation = atomic_load_explicit(&slot->generation, memory_order_relaxed);
    atomic_store_explicit(&slot->generation, generation + 1, memory_order_relaxed);
    /* The odd generation is visible before any byte of what follows; pairs with the fence of
     * np_shelf_copy(). */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&slot->seq, seq + 1, memory_order_relaxed);
    for (int p = 0; p < NP_SHELF_PARTS; p++) {
        assert(bytes[p] <= shelf->shape.part_bytes[p]);
        memcpy(at, parts[p], bytes[p]);
        at += round_up(shelf->shape.part_bytes[p], NP_ALIGN);
    }
    /* Pairs with the first load of np_shelf_copy(): the batch is whole. */
    atomic_store_explicit(&slot->generation, generation + 2, memory_order_release);
    atomic_store_explicit(&shelf->busy[i], false, memory_order_release);
    return true;
}

/* --- another process's ---------------------------------------------------------------------- */

static bool is_sealed(int fd, size_t bytes)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return seals >= 0 && (seals & wanted) == wanted && fstat(fd, &st) == 0 &&
           st.st_size == (off_t)bytes;
}

int np_shelf_view_new(
    int fd, const struct np_shelf_shape *shape, struct np_shelf_view **ret_view, struct np_err *err)
{
    struct np_shelf_view *view;
    void *memory;

    /* A file that could shrink would kill this process at its next read. */
    if (!is_sealed(fd, all_bytes(shape)))
        return np_err_set(err, -EBADMSG, "the memory of another process is not a shelf");
    view = np_try_alloc(sizeof(*view), err);
    if (!view)
        return -ENOMEM;
    view->shape = *shape;
    view->bytes = all_bytes(shape);
    memory = mmap(NULL, view->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        np_free(view);
        return np_err_set(err, -ENOMEM, "a shelf cannot be mapped: %s", strerror(errno));
    }
    view->head = memory;
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
    const uint8_t *at = (const uint8_t *)view->head + PAGE;
    uint64_t generation;

    if (i < 0)
        return false;
    at += (size_t)i * slot_bytes(&view->shape);
    generation = atomic_load_explicit(&slot->generation, memory_order_acquire);
    if (generation % 2 || atomic_load_explicit(&slot->seq, memory_order_relaxed) != seq + 1)
        return false;
    for (int p = 0; p < NP_SHELF_PARTS; p++) {
        memcpy(parts[p], at, view->shape.part_bytes[p]);
        at += round_up(view->shape.part_bytes[p], NP_ALIGN);
    }
    /* Pairs with the fence of np_shelf_put(): had a byte of a later batch been copied, the odd
     * generation would be seen here. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&slot->generation, memory_order_relaxed) == generation;
}

uint64_t np_shelf_beats(const struct np_shelf_view *view)
{
    return atomic_load_explicit(&view->head->beats, memory_order_relaxed);
}
