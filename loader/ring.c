/* Pinned batches between reader threads and the trainer. Batch seq lies in slot
 * (seq - first) % nr_slots, always, so a slot's counters say everything: `open` is the batch
 * that may be written into it, `rows_left` how much of it is missing, `ready` the batch that
 * is whole. Readers and the trainer touch only these; the lock is for going to sleep.
 *
 * Who wakes whom: a counter is changed first and the number of sleepers read after it; a
 * sleeper counts itself first and reads the counter after that. All four are sequentially
 * consistent, so one of the two sees the other. Each sleeper has a condition variable of its own,
 * and only those are woken whose batch it is.
 *
 * A wait that nobody can end any more is found by whoever made it so, under the lock: the trainer
 * sleeps, its batch is not ready, and every reader has left or sleeps for a slot that the trainer
 * holds. It is a bug of ours, and ends the ring with an error. */
#include "loader/ring.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "loader/base/clock.h"

struct slot {
    _Alignas(NP_ALIGN) _Atomic uint64_t open; /* batch that may be claimed */
    _Atomic int rows_left;
    _Atomic uint64_t ready;         /* batch that may be taken, plus 1 */
    uint64_t late_ns[NP_NR_STAGES]; /* np_ring_late(); by the last reader, before `ready` */
    _Atomic uint64_t ready_ns;      /* when it became so; likewise */
    struct np_batch batch;          /* set once but seq; kind, step, part: reader of row 0 */
};

/* A thread that sleeps until its batch's slot is open, or the batch is ready. */
struct sleeper {
    bool (*holds)(const struct slot *slot, uint64_t seq);
    uint64_t seq;
    pthread_cond_t wake;
    struct sleeper *next;
};

/* Sleepers of one side. */
struct bench {
    _Alignas(NP_ALIGN) _Atomic int nr_waiting; /* changed under the lock */
    struct sleeper *first;                     /* under the lock */
};

struct np_ring {
    struct np_batch_shape shape; /* set once */
    int nr_slots;
    struct np_allocator allocator;
    void *memory; /* images, labels and facts of all slots */
    size_t memory_bytes, row_bytes;
    struct slot *slots;
    uint64_t first_seq; /* before the first claim */
    int (*judge)(
        void *context, uint64_t seq, struct np_err *err); /* set once; NULL: all are good */
    void *judge_context;

    uint64_t next_seq;          /* trainer thread only: the batch take() gives next */
    _Atomic uint64_t shown_seq; /* next_seq for np_ring_ready() elsewhere */
    _Atomic uint64_t ready_ns;  /* written by the trainer: sum over the batches taken */
    _Atomic uint64_t version;   /* odd: the trainer is at these two */
    _Atomic uint64_t wait_ns;   /* the trainer waits for shown_seq since then; 0: it does not */
    _Atomic int nr_full;
    _Atomic bool stopped;
    _Atomic bool interrupted; /* the trainer shall not wait */
    struct bench readers, trainer;

    pthread_mutex_t lock;
    struct np_err stop_err;    /* under lock */
    int nr_joined, nr_working; /* readers, under lock: so far; of them not left yet */
};

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static int ring_memory(struct np_ring *ring, struct np_err *err)
{
    const struct np_batch_shape *shape = &ring->shape;
    const size_t rows = (size_t)shape->rows;
    const size_t image_bytes = round_up(rows * ring->row_bytes, 4096);
    const size_t label_bytes = round_up(rows * sizeof(int32_t), NP_ALIGN);
    const size_t about_bytes = round_up(rows * sizeof(struct np_row), NP_ALIGN);
    uint8_t *at;

    ring->memory_bytes = (size_t)ring->nr_slots * (image_bytes + label_bytes + about_bytes);
    ring->memory = ring->allocator.alloc(ring->allocator.context, ring->memory_bytes);
    ring->slots = np_try_array((size_t)ring->nr_slots, sizeof *ring->slots, NULL);
    if (!ring->memory || !ring->slots)
        return np_err_set(err, -ENOMEM,
            "cannot get %zu MiB of pinned memory for %d batches of %d x %d x %d x %d; lower "
            "loader.batch or loader.prefetch",
            ring->memory_bytes >> 20, ring->nr_slots, shape->rows, shape->height, shape->width,
            shape->channels);
    at = ring->memory;
    for (int i = 0; i < ring->nr_slots; i++, at += image_bytes)
        ring->slots[i].batch.images = at;
    for (int i = 0; i < ring->nr_slots; i++, at += label_bytes)
        ring->slots[i].batch.labels = (int32_t *)(void *)at;
    for (int i = 0; i < ring->nr_slots; i++, at += about_bytes) {
        ring->slots[i].batch.about = (struct np_row *)(void *)at;
        ring->slots[i].batch.slot = i;
    }
    return 0;
}

int np_ring_new(const struct np_batch_shape *shape, int nr_slots,
    const struct np_allocator *allocator, struct np_ring **ret_ring, struct np_err *err)
{
    struct np_ring *ring = np_try_alloc(sizeof *ring, NULL);
    int code;

    assert(nr_slots >= 2 && shape->rows > 0);
    if (!ring)
        return np_err_set(err, -ENOMEM, "out of memory for the ring");
    ring->shape = *shape;
    ring->nr_slots = nr_slots;
    ring->allocator = *allocator;
    ring->row_bytes = (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels;
    pthread_mutex_init(&ring->lock, NULL);
    code = ring_memory(ring, err);
    if (code) {
        np_ring_free(ring);
        return code;
    }
    np_ring_start(ring, 0);
    *ret_ring = ring;
    return 0;
}

void np_ring_free(struct np_ring *ring)
{
    if (!ring)
        return;
    pthread_mutex_destroy(&ring->lock);
    np_free(ring->slots);
    if (ring->memory)
        ring->allocator.free(ring->allocator.context, ring->memory, ring->memory_bytes);
    np_free(ring);
}

void np_ring_start(struct np_ring *ring, uint64_t first_seq)
{
    ring->first_seq = ring->next_seq = first_seq;
    atomic_init(&ring->shown_seq, first_seq);
    for (int i = 0; i < ring->nr_slots; i++) {
        struct slot *slot = &ring->slots[i];

        slot->batch.seq = first_seq + (uint64_t)i;
        atomic_init(&slot->rows_left, ring->shape.rows);
        atomic_init(&slot->ready, 0);
        atomic_init(&slot->open, slot->batch.seq);
    }
}

static struct slot *slot_of(const struct np_ring *ring, uint64_t seq)
{
    return &ring->slots[(seq - ring->first_seq) % (uint64_t)ring->nr_slots];
}

/* Has what a sleeper waits for come? Pairs with the store to `open` in np_ring_release() and to
 * `ready` in np_ring_commit(). */
static bool is_open(const struct slot *slot, uint64_t seq)
{
    return atomic_load(&slot->open) == seq;
}

static bool is_ready(const struct slot *slot, uint64_t seq)
{
    return atomic_load(&slot->ready) == seq + 1;
}

/* Under the lock. */
static bool has_come(const struct np_ring *ring, const struct sleeper *sleeper)
{
    return sleeper->holds(slot_of(ring, sleeper->seq), sleeper->seq);
}

/* Under the lock: all of the bench, or those whose batch has come. */
static void wake_some(struct np_ring *ring, struct bench *bench, bool all)
{
    for (struct sleeper *sleeper = bench->first; sleeper; sleeper = sleeper->next)
        if (all || has_come(ring, sleeper))
            pthread_cond_signal(&sleeper->wake);
}

/* Under the lock. */
static void stop(struct np_ring *ring, const struct np_err *err)
{
    if (!atomic_load(&ring->stopped) && err)
        ring->stop_err = *err;
    atomic_store(&ring->stopped, true);
    wake_some(ring, &ring->readers, true);
    wake_some(ring, &ring->trainer, true);
}

/* Under the lock, after a thread went to sleep or left: can what the trainer waits for still come? */
static void check_stuck(struct np_ring *ring)
{
    struct np_err err = {0};
    int nr_asleep = 0;

    if (ring->nr_joined == 0 || !ring->trainer.first || has_come(ring, ring->trainer.first))
        return;
    for (const struct sleeper *sleeper = ring->readers.first; sleeper; sleeper = sleeper->next) {
        if (has_come(ring, sleeper))
            return;
        nr_asleep++;
    }
    if (nr_asleep < ring->nr_working)
        return;
    np_err_set(&err, -EDEADLK,
        "internal error: batch %llu is waited for and cannot come: of %d readers %d have ended and "
        "%d wait for a free slot",
        (unsigned long long)ring->trainer.first->seq, ring->nr_joined,
        ring->nr_joined - ring->nr_working, nr_asleep);
    stop(ring, &err);
}

/* Under the lock. */
static void leave_bench(struct bench *bench, const struct sleeper *gone)
{
    struct sleeper **at = &bench->first;

    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    atomic_fetch_sub(&bench->nr_waiting, 1);
}

/* Sleeps until the sleeper's batch has come, the ring is stopped, or (the trainer) interrupted. */
static void sleep_on(struct np_ring *ring, struct bench *bench, struct sleeper *sleeper)
{
    const bool is_trainer = bench == &ring->trainer;

    pthread_cond_init(&sleeper->wake, NULL);
    pthread_mutex_lock(&ring->lock);
    sleeper->next = bench->first;
    bench->first = sleeper;
    atomic_fetch_add(&bench->nr_waiting, 1);
    check_stuck(ring);
    while (!atomic_load(&ring->stopped) && !has_come(ring, sleeper) &&
           !(is_trainer && atomic_load(&ring->interrupted)))
        pthread_cond_wait(&sleeper->wake, &ring->lock);
    leave_bench(bench, sleeper);
    pthread_mutex_unlock(&ring->lock);
    pthread_cond_destroy(&sleeper->wake);
}

/* After a counter was changed: somebody who sleeps for it? */
static void wake(struct np_ring *ring, struct bench *bench)
{
    if (atomic_load(&bench->nr_waiting) == 0)
        return;
    pthread_mutex_lock(&ring->lock);
    wake_some(ring, bench, false);
    pthread_mutex_unlock(&ring->lock);
}

struct np_batch *np_ring_try_claim(struct np_ring *ring, uint64_t seq)
{
    struct slot *slot = slot_of(ring, seq);

    if (atomic_load_explicit(&ring->stopped, memory_order_relaxed) || !is_open(slot, seq))
        return NULL;
    return &slot->batch;
}

struct np_batch *np_ring_claim(struct np_ring *ring, uint64_t seq, struct np_block *block)
{
    struct np_batch *batch = np_ring_try_claim(ring, seq);
    struct sleeper sleeper = {.holds = is_open, .seq = seq};

    assert(seq >= ring->first_seq);
    if (batch || np_ring_stopped(ring))
        return batch;
    np_stat_wait(block, NP_STATE_BLOCKED, "np_ring_claim", "a free slot for batch", seq);
    sleep_on(ring, &ring->readers, &sleeper);
    np_stat_done(block);
    return np_ring_try_claim(ring, seq);
}

uint8_t *np_ring_row(const struct np_ring *ring, const struct np_batch *batch, int row)
{
    assert(row >= 0 && row < ring->shape.rows);
    return batch->images + (size_t)row * ring->row_bytes;
}

/* What the last reader of a batch that is waited for did meanwhile. */
static void explain(
    struct np_ring *ring, struct slot *slot, const struct np_block *block, uint64_t now_ns)
{
    const uint64_t since_ns = atomic_load(&ring->wait_ns);

    if (since_ns > 0 &&
        atomic_load_explicit(&ring->shown_seq, memory_order_relaxed) == slot->batch.seq)
        np_stat_recent(block, since_ns, now_ns, slot->late_ns);
    else
        memset(slot->late_ns, 0, sizeof(slot->late_ns));
}

void np_ring_commit(struct np_ring *ring, struct np_batch *batch, const struct np_block *block)
{
    struct slot *slot = &ring->slots[batch->slot];
    /* Release what this reader wrote; acquire what the others wrote, for the trainer: it pairs
     * with the same subtraction of every other row. */
    const int left = atomic_fetch_sub_explicit(&slot->rows_left, 1, memory_order_acq_rel);

    assert(left >= 1);
    if (left > 1)
        return;
    atomic_fetch_add_explicit(&ring->nr_full, 1, memory_order_relaxed);
    const uint64_t now_ns = np_now_ns();
    explain(ring, slot, block, now_ns);
    atomic_store_explicit(&slot->ready_ns, now_ns, memory_order_release);
    atomic_store(&slot->ready, batch->seq + 1); /* pairs with is_ready() */
    wake(ring, &ring->trainer);
}

/* Trainer thread: the batch is out, and the ring's sums with it. A reader of them who sees one of these
 * values sees the odd version, too. */
static void count_taken(struct np_ring *ring, const struct slot *slot)
{
    const uint64_t version = atomic_load_explicit(&ring->version, memory_order_relaxed);
    const uint64_t lay_ns =
        np_now_ns() - atomic_load_explicit(&slot->ready_ns, memory_order_relaxed);

    atomic_store_explicit(&ring->version, version + 1, memory_order_relaxed);
    atomic_store_explicit(&ring->ready_ns,
        atomic_load_explicit(&ring->ready_ns, memory_order_relaxed) + lay_ns, memory_order_release);
    ring->next_seq++;
    atomic_store_explicit(&ring->shown_seq, ring->next_seq, memory_order_release);
    atomic_store_explicit(&ring->version, version + 2, memory_order_release);
}

uint64_t np_ring_ready_ns(const struct np_ring *ring)
{
    uint64_t version, seq, sum_ns;

    do {
        version = atomic_load_explicit(&ring->version, memory_order_acquire);
        sum_ns = atomic_load_explicit(&ring->ready_ns, memory_order_acquire);
        seq = atomic_load_explicit(&ring->shown_seq, memory_order_acquire);
        for (int i = 0; i < ring->nr_slots; i++) {
            const struct slot *slot = slot_of(ring, seq + (uint64_t)i);
            const uint64_t now_ns = np_now_ns();

            if (is_ready(slot, seq + (uint64_t)i)) {
                const uint64_t ready_ns =
                    atomic_load_explicit(&slot->ready_ns, memory_order_acquire);

                sum_ns += now_ns > ready_ns ? now_ns - ready_ns : 0;
            }
        }
    } while (
        version % 2 == 1 || atomic_load_explicit(&ring->version, memory_order_relaxed) != version);
    return sum_ns;
}

void np_ring_late(
    const struct np_ring *ring, const struct np_batch *batch, uint64_t ret_ns[NP_NR_STAGES])
{
    memcpy(ret_ns, ring->slots[batch->slot].late_ns, NP_NR_STAGES * sizeof(*ret_ns));
}

/* Why there is no batch. */
static void say_why(struct np_ring *ring, struct np_err *err)
{
    if (!err || err->code)
        return;
    pthread_mutex_lock(&ring->lock);
    if (atomic_load(&ring->stopped))
        *err = ring->stop_err;
    else
        np_err_set(err, -EINTR, "stopped while batch %llu was waited for",
            (unsigned long long)ring->next_seq);
    pthread_mutex_unlock(&ring->lock);
}

struct np_batch *np_ring_take(struct np_ring *ring, struct np_block *block, struct np_err *err)
{
    const uint64_t seq = ring->next_seq;
    struct slot *slot = slot_of(ring, seq);
    struct sleeper sleeper = {.holds = is_ready, .seq = seq};
    struct np_err verdict = {0};

    np_stat_about(block, seq, -1);
    if (!np_ring_stopped(ring) && !is_ready(slot, seq)) {
        atomic_store(&ring->wait_ns, np_now_ns());
        np_stat_wait(block, NP_STATE_STARVED, "np_ring_take", "the rows of batch", seq);
        sleep_on(ring, &ring->trainer, &sleeper);
        np_stat_done(block);
        atomic_store(&ring->wait_ns, 0);
    }
    if (!np_ring_stopped(ring) && is_ready(slot, seq) && ring->judge &&
        ring->judge(ring->judge_context, seq, &verdict) < 0)
        np_ring_stop(ring, &verdict);
    if (atomic_load(&ring->stopped) || !is_ready(slot, seq)) {
        say_why(ring, err);
        return NULL;
    }
    atomic_fetch_sub_explicit(&ring->nr_full, 1, memory_order_relaxed);
    count_taken(ring, slot);
    return &slot->batch;
}

bool np_ring_ready(const struct np_ring *ring)
{
    const uint64_t seq = atomic_load_explicit(&ring->shown_seq, memory_order_relaxed);

    return !atomic_load(&ring->stopped) && is_ready(slot_of(ring, seq), seq);
}

void np_ring_release(struct np_ring *ring, struct np_batch *batch)
{
    struct slot *slot = &ring->slots[batch->slot];

    assert(atomic_load_explicit(&slot->rows_left, memory_order_relaxed) == 0);
    batch->seq += (uint64_t)ring->nr_slots;
    atomic_store_explicit(&slot->rows_left, ring->shape.rows, memory_order_relaxed);
    atomic_store(&slot->open, batch->seq); /* pairs with is_open() */
    wake(ring, &ring->readers);
}

void np_ring_stop(struct np_ring *ring, const struct np_err *err)
{
    pthread_mutex_lock(&ring->lock);
    stop(ring, err);
    pthread_mutex_unlock(&ring->lock);
}

void np_ring_judge(struct np_ring *ring,
    int (*judge)(void *context, uint64_t seq, struct np_err *err), void *context)
{
    ring->judge = judge;
    ring->judge_context = context;
}

void np_ring_interrupt(struct np_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    atomic_store(&ring->interrupted, true);
    wake_some(ring, &ring->trainer, true);
    pthread_mutex_unlock(&ring->lock);
}

void np_ring_join(struct np_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    ring->nr_joined++;
    ring->nr_working++;
    pthread_mutex_unlock(&ring->lock);
}

void np_ring_leave(struct np_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    assert(ring->nr_working > 0);
    ring->nr_working--;
    check_stuck(ring);
    pthread_mutex_unlock(&ring->lock);
}

bool np_ring_stopped(const struct np_ring *ring)
{
    return atomic_load_explicit(&ring->stopped, memory_order_relaxed);
}

int np_ring_slots(const struct np_ring *ring)
{
    return ring->nr_slots;
}

int np_ring_full(const struct np_ring *ring)
{
    return atomic_load_explicit(&ring->nr_full, memory_order_relaxed);
}

uint64_t np_ring_bytes(const struct np_ring *ring)
{
    return ring->memory_bytes;
}
