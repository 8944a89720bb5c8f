/* See lib.h. A batch is free when its last owner is gone: one atomic count, and nothing else, so that
 * a destructor of another program's object can release it at any time, in any thread. */
#include <errno.h>
#include <stdatomic.h>

#include "loader/base/mem.h"
#include "loader/lib/lib.h"

#define PAGE 4096u

struct nnp_store {
    _Atomic int nr_users; /* the owner, and each batch that is held */
    size_t row_bytes;
    int rows, held;
    struct ring_block {
        void *memory;
        size_t bytes;
    } ring;                    /* the ring's, once it was given back; freed with the store */
    struct nnp_batch *batches; /* (held) */
    void **memories;           /* (held): what each batch was given at first */
};

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t images_bytes(const struct nnp_store *store)
{
    return round_up((size_t)store->rows * store->row_bytes, PAGE);
}

/* Of a batch's memory: images, labels, about, and the labels for the program. */
static size_t memory_bytes(const struct nnp_store *store)
{
    const size_t rows = (size_t)store->rows;

    return images_bytes(store) + round_up(rows * sizeof(int32_t), NP_ALIGN) +
           round_up(rows * sizeof(struct np_row), NP_ALIGN) + rows * sizeof(int64_t);
}

struct nnp_store *np_store_new(const struct np_batch_shape *shape, int held, struct np_err *err)
{
    struct nnp_store *store = np_try_alloc(sizeof(*store), err);

    if (!store)
        return NULL;
    store->row_bytes = np_batch_row_bytes(shape);
    store->rows = shape->rows;
    store->held = held;
    atomic_init(&store->nr_users, 1);
    store->batches = np_try_array((size_t)held, sizeof(*store->batches), err);
    store->memories = np_try_array((size_t)held, sizeof(*store->memories), err);
    if (!store->batches || !store->memories) {
        np_store_drop(store);
        return NULL;
    }
    for (int i = 0; i < held; i++)
        store->batches[i].store = store;
    return store;
}

static void free_store(struct nnp_store *store)
{
    for (int i = 0; store->memories && i < store->held; i++)
        np_page_allocator.free(NULL, store->memories[i], memory_bytes(store));
    np_page_allocator.free(NULL, store->ring.memory, store->ring.bytes);
    np_free(store->memories);
    np_free(store->batches);
    np_free(store);
}

void np_store_drop(struct nnp_store *store)
{
    /* Acquires what the other users released, for free_store(). */
    if (store && atomic_fetch_sub_explicit(&store->nr_users, 1, memory_order_acq_rel) == 1)
        free_store(store);
}

static void *ring_alloc(void *context, size_t bytes)
{
    return np_page_allocator.alloc(NULL, bytes);
}

static void ring_free(void *context, void *memory, size_t bytes)
{
    ((struct nnp_store *)context)->ring = (struct ring_block){memory, bytes};
}

struct np_allocator np_store_allocator(struct nnp_store *store)
{
    return (struct np_allocator){ring_alloc, ring_free, store};
}

static int new_memory(struct nnp_store *store, int i, struct np_err *err)
{
    const size_t bytes = memory_bytes(store), rows = (size_t)store->rows;
    struct nnp_batch *batch = &store->batches[i];
    uint8_t *at = np_page_allocator.alloc(NULL, bytes);

    if (!at)
        return np_err_set(err, -ENOMEM, "out of memory: %zu bytes asked for, for a batch", bytes);
    store->memories[i] = batch->memory.images = at;
    at += images_bytes(store);
    batch->memory.labels = (int32_t *)(void *)at;
    at += round_up(rows * sizeof(int32_t), NP_ALIGN);
    batch->memory.about = (struct np_row *)(void *)at;
    at += round_up(rows * sizeof(struct np_row), NP_ALIGN);
    batch->labels = (int64_t *)(void *)at;
    return 0;
}

struct nnp_batch *np_store_take(struct nnp_store *store, struct np_err *err)
{
    for (int i = 0; i < store->held; i++) {
        struct nnp_batch *batch = &store->batches[i];

        /* Acquires the last owner's use of the memory. */
        if (atomic_load_explicit(&batch->nr_owners, memory_order_acquire) > 0)
            continue;
        if (!batch->memory.images && new_memory(store, i, err) < 0)
            return NULL;
        atomic_store_explicit(&batch->nr_owners, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&store->nr_users, 1, memory_order_relaxed);
        return batch;
    }
    np_err_set(err, -EBUSY,
        "the program holds %d batches and asks for one more: each tensor or view of a batch keeps "
        "its memory; copy what you keep (in torch: images.clone()), or raise the option `held`",
        store->held);
    return NULL;
}

int np_store_held(const struct nnp_store *store)
{
    int n = 0;

    for (int i = 0; i < store->held; i++)
        n += atomic_load_explicit(&store->batches[i].nr_owners, memory_order_relaxed) > 0;
    return n;
}

void nnp_batch_retain(struct nnp_batch *batch)
{
    atomic_fetch_add_explicit(&batch->nr_owners, 1, memory_order_relaxed);
}

void nnp_batch_release(struct nnp_batch *batch)
{
    struct nnp_store *store = batch->store;

    if (atomic_fetch_sub_explicit(&batch->nr_owners, 1, memory_order_acq_rel) == 1)
        np_store_drop(store);
}
