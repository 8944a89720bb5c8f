/* Batch seq always lies in slot (seq - first) % nr_slots, so a slot's counters are its whole state:
 * `open` is the batch that may be written into it, `rows_left` the number of missing rows, `ready`
 * the batch that is complete. ring_wait.c holds the lock under which threads sleep, ring_gauge.c
 * the measurements. */
#include "loader/ring.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>

#include "loader/ring_gauge.h"
#include "loader/ring_wait.h"

#define CLOSED UINT64_MAX

struct slot {
    _Alignas(NP_ALIGN) _Atomic uint64_t open;
    _Atomic int rows_left;
    _Atomic uint64_t ready; /* the batch that may be taken, plus 1 */
    struct np_batch batch;  /* set once except seq; the reader of row 0 sets kind, step, part */
};

struct np_ring {
    struct np_batch_shape shape; /* set once */
    int nr_slots;
    struct np_allocator allocator;
    void *memory; /* images, labels and facts of all slots */
    size_t memory_bytes;
    struct slot *slots;
    uint64_t first_seq; /* set before the first claim */
    bool gated;         /* a free slot waits for np_ring_open() */
    /* set once; NULL: every batch is good */
    int (*judge)(void *context, uint64_t seq, struct np_err *err);
    void *judge_context;

    uint64_t next_seq; /* trainer thread only */
    struct np_ring_gauge *gauge;
    struct np_ring_wait wait;
};

/* Pairs with the store to `open` in np_ring_release(). */
static bool is_open(const void *context, uint64_t seq)
{
    const struct slot *slot = context;

    return atomic_load(&slot->open) == seq;
}

/* Pairs with the store to `ready` in np_ring_commit(). */
static bool is_ready(const void *context, uint64_t seq)
{
    const struct slot *slot = context;

    return atomic_load(&slot->ready) == seq + 1;
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static int ring_memory(struct np_ring *ring, struct np_err *err)
{
    const struct np_batch_shape *shape = &ring->shape;
    const size_t rows = (size_t)shape->rows;
    const size_t image_bytes = round_up(rows * np_batch_row_room(shape), 4096);
    const size_t label_bytes = round_up(np_batch_label_bytes(shape), NP_ALIGN);
    const size_t about_bytes = round_up(rows * sizeof(struct np_row), NP_ALIGN);
    uint8_t *at;

    ring->memory_bytes = (size_t)ring->nr_slots * (image_bytes + label_bytes + about_bytes);
    ring->memory = ring->allocator.alloc(ring->allocator.context, ring->memory_bytes);
    ring->slots = np_try_array((size_t)ring->nr_slots, sizeof *ring->slots, NULL);
    if (!ring->memory || !ring->slots)
        return np_err_set(err, -ENOMEM,
            "cannot allocate %zu MiB of pinned memory for %d batches of %d x %d x %d x %d; lower "
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
    struct np_ring *ring = np_try_alloc(sizeof *ring, err);
    int code;

    assert(nr_slots >= 2 && shape->rows > 0);
    if (!ring)
        return -ENOMEM;
    ring->shape = *shape;
    ring->nr_slots = nr_slots;
    ring->allocator = *allocator;
    np_ring_wait_init(&ring->wait, is_open, is_ready);
    ring->gauge = np_ring_gauge_new(err);
    code = ring->gauge ? ring_memory(ring, err) : -ENOMEM;
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
    np_ring_wait_fini(&ring->wait);
    np_ring_gauge_free(ring->gauge);
    np_free(ring->slots);
    if (ring->memory)
        ring->allocator.free(ring->allocator.context, ring->memory, ring->memory_bytes);
    np_free(ring);
}

void np_ring_start(struct np_ring *ring, uint64_t first_seq)
{
    ring->first_seq = ring->next_seq = first_seq;
    for (int i = 0; i < ring->nr_slots; i++) {
        struct slot *slot = &ring->slots[i];

        slot->batch.seq = first_seq + (uint64_t)i;
        atomic_init(&slot->rows_left, ring->shape.rows);
        atomic_init(&slot->ready, 0);
        atomic_init(&slot->open, ring->gated ? CLOSED : slot->batch.seq);
    }
}

static struct slot *slot_of(const struct np_ring *ring, uint64_t seq)
{
    return &ring->slots[(seq - ring->first_seq) % (uint64_t)ring->nr_slots];
}

struct np_batch *np_ring_try_claim(struct np_ring *ring, uint64_t seq)
{
    struct slot *slot = slot_of(ring, seq);

    if (np_ring_stopped(ring) || !is_open(slot, seq))
        return NULL;
    return &slot->batch;
}

struct np_batch *np_ring_claim(struct np_ring *ring, uint64_t seq, struct np_block *block)
{
    struct np_batch *batch = np_ring_try_claim(ring, seq);

    assert(seq >= ring->first_seq);
    if (batch || np_ring_stopped(ring))
        return batch;
    np_stat_wait(block, NP_STATE_BLOCKED, "np_ring_claim", "a free slot for batch", seq);
    np_ring_wait_sleep(&ring->wait, NP_RING_READERS, slot_of(ring, seq), seq, UINT64_MAX);
    np_stat_done(block);
    return np_ring_try_claim(ring, seq);
}

uint8_t *np_ring_row(
    const struct np_ring *ring, const struct np_batch *batch, size_t row_bytes, int row)
{
    assert(row >= 0 && row < ring->shape.rows && row_bytes <= np_batch_row_room(&ring->shape));
    return batch->images + (size_t)row * row_bytes;
}

static void commit(
    struct np_ring *ring, struct np_batch *batch, int nr_rows, const struct np_block *block)
{
    struct slot *slot = &ring->slots[batch->slot];
    /* Releases what this reader wrote, and acquires what the others wrote, for the trainer: it
     * pairs with the same subtraction for every other row. */
    const int left = atomic_fetch_sub_explicit(&slot->rows_left, nr_rows, memory_order_acq_rel);

    assert(left >= nr_rows);
    if (left > nr_rows)
        return;
    np_ring_gauge_ready(ring->gauge, batch->seq, block);
    atomic_store(&slot->ready, batch->seq + 1); /* pairs with is_ready() */
    np_ring_wait_wake(&ring->wait, NP_RING_TRAINER);
}

void np_ring_commit(struct np_ring *ring, struct np_batch *batch, const struct np_block *block)
{
    commit(ring, batch, 1, block);
}

void np_ring_commit_all(struct np_ring *ring, struct np_batch *batch, const struct np_block *block)
{
    commit(ring, batch, ring->shape.rows, block);
}

uint64_t np_ring_ready_ns(const struct np_ring *ring)
{
    return np_ring_gauge_ready_ns(ring->gauge);
}

void np_ring_late(
    const struct np_ring *ring, const struct np_batch *batch, uint64_t ret_ns[NP_NR_STAGES])
{
    np_ring_gauge_late(ring->gauge, batch->seq, ret_ns);
}

static void explain(struct np_ring *ring, struct np_err *err)
{
    if (err && !err->code && !np_ring_wait_why(&ring->wait, err))
        np_err_set(err, -EINTR, "interrupted while waiting for batch %llu",
            (unsigned long long)ring->next_seq);
}

void np_ring_expect(struct np_ring *ring, struct np_block *block, uint64_t until_ns)
{
    const uint64_t seq = ring->next_seq;

    if (np_ring_stopped(ring) || is_ready(slot_of(ring, seq), seq))
        return;
    np_ring_gauge_wait(ring->gauge, seq);
    np_stat_wait(block, NP_STATE_STARVED, "np_ring_take", "the rows of batch", seq);
    np_ring_wait_sleep(&ring->wait, NP_RING_TRAINER, slot_of(ring, seq), seq, until_ns);
    np_stat_done(block);
}

struct np_batch *np_ring_take(struct np_ring *ring, struct np_block *block, struct np_err *err)
{
    const uint64_t seq = ring->next_seq;
    struct slot *slot = slot_of(ring, seq);
    struct np_err verdict = {0};

    np_stat_about(block, seq, -1);
    np_ring_expect(ring, block, UINT64_MAX);
    if (!np_ring_stopped(ring) && is_ready(slot, seq) && ring->judge &&
        ring->judge(ring->judge_context, seq, &verdict) < 0)
        np_ring_stop(ring, &verdict);
    if (np_ring_stopped(ring) || !is_ready(slot, seq)) {
        explain(ring, err);
        return NULL;
    }
    np_ring_gauge_take(ring->gauge);
    ring->next_seq++;
    return &slot->batch;
}

bool np_ring_ready(const struct np_ring *ring)
{
    return !np_ring_stopped(ring) && is_ready(slot_of(ring, ring->next_seq), ring->next_seq);
}

bool np_ring_starves(const struct np_ring *ring)
{
    return atomic_load_explicit(
               &ring->wait.sides[NP_RING_TRAINER].nr_waiting, memory_order_relaxed) > 0;
}

void np_ring_release(struct np_ring *ring, struct np_batch *batch)
{
    struct slot *slot = &ring->slots[batch->slot];

    assert(atomic_load_explicit(&slot->rows_left, memory_order_relaxed) == 0);
    batch->seq += (uint64_t)ring->nr_slots;
    atomic_store_explicit(&slot->rows_left, ring->shape.rows, memory_order_relaxed);
    if (!ring->gated)
        np_ring_open(ring, batch->seq);
}

void np_ring_gate(struct np_ring *ring)
{
    ring->gated = true;
}

void np_ring_open(struct np_ring *ring, uint64_t seq)
{
    struct slot *slot = slot_of(ring, seq);

    assert(slot->batch.seq == seq);
    atomic_store(&slot->open, seq); /* pairs with is_open() */
    np_ring_wait_wake(&ring->wait, NP_RING_READERS);
}

void np_ring_swap(struct np_batch *batch, struct np_batch_memory *memory)
{
    const struct np_batch_memory old = {batch->images, batch->labels, batch->about};

    batch->images = memory->images;
    batch->labels = memory->labels;
    batch->about = memory->about;
    *memory = old;
}

void np_ring_stop(struct np_ring *ring, const struct np_err *err)
{
    np_ring_wait_stop(&ring->wait, err);
}

void np_ring_judge(struct np_ring *ring,
    int (*judge)(void *context, uint64_t seq, struct np_err *err), void *context)
{
    ring->judge = judge;
    ring->judge_context = context;
}

void np_ring_interrupt(struct np_ring *ring)
{
    np_ring_wait_interrupt(&ring->wait);
}

void np_ring_join(struct np_ring *ring)
{
    np_ring_wait_join(&ring->wait);
}

void np_ring_leave(struct np_ring *ring)
{
    np_ring_wait_leave(&ring->wait);
}

bool np_ring_stopped(const struct np_ring *ring)
{
    return atomic_load_explicit(&ring->wait.stopped, memory_order_relaxed);
}

int np_ring_slots(const struct np_ring *ring)
{
    return ring->nr_slots;
}

int np_ring_full(const struct np_ring *ring)
{
    return np_ring_gauge_full(ring->gauge);
}
