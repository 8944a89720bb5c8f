/* See lib.h. A batch is free when its last owner is gone: atomic counts, and nothing else, so that a
 * destructor of another program's object can release it at any time, in any thread. With a GPU the
 * last owner also records events there. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "loader/base/mem.h"
#include "loader/lib/lib.h"

#define PAGE 4096u

struct nnp_store {
    _Atomic int nr_users; /* the owner, and each batch that is held */
    size_t row_bytes;
    size_t label_bytes; /* as the ring's */
    int rows, held, nr_values;
    struct np_store_gpu gpu; /* plugin NULL: none */
    struct np_tally *tally;
    struct np_err pin_error;
    struct ring_block {
        void *memory;
        size_t bytes;
    } ring,
        spares; /* the ring's, once it was given back; of np_store_spares(); freed with the store */
    struct nnp_batch *batches; /* (held) */
    void **memories;           /* (held): what each batch was given at first */
};

struct np_tally *np_tally_new(struct np_err *err)
{
    struct np_tally *tally = np_try_alloc(sizeof(*tally), err);

    if (tally)
        atomic_init(&tally->nr_users, 1);
    return tally;
}

void np_tally_drop(struct np_tally *tally)
{
    if (tally && atomic_fetch_sub_explicit(&tally->nr_users, 1, memory_order_acq_rel) == 1)
        np_free(tally);
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t images_bytes(const struct nnp_store *store)
{
    return round_up((size_t)store->rows * store->row_bytes, PAGE);
}

/* Of a batch's memory: images, labels, about, and the labels and values for the program. */
static size_t memory_bytes(const struct nnp_store *store)
{
    const size_t rows = (size_t)store->rows;

    return (store->gpu.gpu ? 0 : images_bytes(store)) + round_up(store->label_bytes, NP_ALIGN) +
           round_up(rows * sizeof(struct np_row), NP_ALIGN) + rows * sizeof(int64_t) +
           rows * (size_t)store->nr_values * sizeof(float);
}

static void close_gpu(const struct np_store_gpu *gpu)
{
    if (gpu->gpu)
        gpu->plugin->gpu->close(gpu->gpu);
}

struct nnp_store *np_store_new(const struct np_batch_shape *shape, int held,
    const struct np_store_gpu *gpu, struct np_tally *tally, struct np_err *err)
{
    struct nnp_store *store = np_try_alloc(sizeof(*store), err);

    if (!store) {
        close_gpu(gpu);
        return NULL;
    }
    store->gpu = *gpu;
    store->tally = tally;
    atomic_fetch_add_explicit(&tally->nr_users, 1, memory_order_relaxed);
    store->row_bytes = np_batch_row_bytes(shape);
    store->rows = shape->rows;
    store->label_bytes = np_batch_label_bytes(shape);
    store->nr_values = shape->values;
    store->held = held;
    atomic_init(&store->nr_users, 1);
    store->batches = np_try_array((size_t)held, sizeof(*store->batches), err);
    store->memories = np_try_array((size_t)held, sizeof(*store->memories), err);
    if (!store->batches || !store->memories) {
        np_store_drop(store);
        return NULL;
    }
    for (int i = 0; i < held; i++) {
        store->batches[i].store = store;
        pthread_mutex_init(&store->batches[i].lock, NULL);
    }
    return store;
}

const struct np_store_gpu *np_store_gpu(const struct nnp_store *store)
{
    return &store->gpu;
}

static void free_store(struct nnp_store *store)
{
    close_gpu(&store->gpu); /* which may still read the memory */
    for (int i = 0; store->batches && store->memories && i < store->held; i++)
        pthread_mutex_destroy(&store->batches[i].lock);
    for (int i = 0; store->memories && i < store->held; i++)
        np_page_allocator.free(NULL, store->memories[i], memory_bytes(store));
    np_page_allocator.free(NULL, store->ring.memory, store->ring.bytes);
    np_page_allocator.free(NULL, store->spares.memory, store->spares.bytes);
    np_tally_drop(store->tally);
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
    struct nnp_store *store = context;
    void *memory = np_page_allocator.alloc(NULL, bytes);

    if (!memory || !store->gpu.gpu ||
        store->gpu.plugin->gpu->pin(
            store->gpu.gpu, memory, round_up(bytes, PAGE), &store->pin_error) == 0)
        return memory;
    np_page_allocator.free(NULL, memory, bytes);
    return NULL;
}

static void ring_free(void *context, void *memory, size_t bytes)
{
    ((struct nnp_store *)context)->ring = (struct ring_block){memory, bytes};
}

struct np_allocator np_store_allocator(struct nnp_store *store)
{
    return (struct np_allocator){ring_alloc, ring_free, store};
}

void np_store_explain(const struct nnp_store *store, struct np_err *err)
{
    if (store->pin_error.code)
        *err = store->pin_error;
}

/* Splits the memory at *at as a batch's; moves *at behind it. */
static struct np_batch_memory split(const struct nnp_store *store, uint8_t **at, uint8_t *images)
{
    const size_t rows = (size_t)store->rows;
    struct np_batch_memory memory = {.images = images ? images : *at};

    *at += images ? 0 : images_bytes(store);
    memory.labels = (int32_t *)(void *)*at;
    *at += round_up(store->label_bytes, NP_ALIGN);
    memory.about = (struct np_row *)(void *)*at;
    *at += round_up(rows * sizeof(struct np_row), NP_ALIGN);
    return memory;
}

int np_store_spares(
    struct nnp_store *store, int n, struct np_batch_memory *ret_spares, struct np_err *err)
{
    const size_t each = images_bytes(store) + round_up(memory_bytes(store), PAGE);
    uint8_t *at;

    store->spares.bytes = (size_t)n * each;
    at = store->spares.memory = ring_alloc(store, store->spares.bytes);
    if (!at) {
        np_err_set(
            err, -ENOMEM, "out of memory: %zu bytes asked for, for batches", (size_t)n * each);
        np_store_explain(store, err);
        return err->code;
    }
    for (int i = 0; i < n; i++) {
        uint8_t *from = at + (size_t)i * each;

        ret_spares[i] = split(store, &from, NULL);
    }
    return 0;
}

static int new_memory(struct nnp_store *store, int i, struct np_err *err)
{
    const size_t bytes = memory_bytes(store);
    const struct np_rows_plugin *plugin = store->gpu.plugin;
    struct nnp_batch *batch = &store->batches[i];
    uint8_t *images = NULL, *at;

    if (store->gpu.gpu && !batch->buffer &&
        plugin->buffers->new (store->gpu.gpu, &batch->buffer, err) < 0)
        return err->code;
    if (batch->buffer)
        images = plugin->buffers->images(batch->buffer);
    at = store->memories[i] = np_page_allocator.alloc(NULL, bytes);
    if (!at)
        return np_err_set(err, -ENOMEM, "out of memory: %zu bytes asked for, for a batch", bytes);
    batch->memory = split(store, &at, images);
    batch->labels = (int64_t *)(void *)at;
    batch->values = store->nr_values ? (float *)(void *)(batch->labels + store->rows) : NULL;
    return 0;
}

int np_store_busy(int held, struct np_err *err)
{
    return np_err_set(err, -EBUSY,
        "the program holds %d batches and asks for one more: each tensor or view of a batch keeps "
        "its memory; copy what you keep (in torch: images.clone()), or raise the option `held`",
        held);
}

struct nnp_batch *np_store_take(struct nnp_store *store, struct np_err *err)
{
    for (int i = 0; i < store->held; i++) {
        struct nnp_batch *batch = &store->batches[i];

        /* Acquires the last owner's use of the memory. */
        if (atomic_load_explicit(&batch->taken, memory_order_acquire))
            continue;
        if (!batch->memory.images && new_memory(store, i, err) < 0)
            return NULL;
        batch->use_error.text[0] = '\0';
        atomic_store_explicit(&batch->nr_owners, 1, memory_order_relaxed);
        atomic_store_explicit(&batch->taken, true, memory_order_relaxed);
        atomic_fetch_add_explicit(&store->nr_users, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&store->tally->nr_taken, 1, memory_order_relaxed);
        return batch;
    }
    np_store_busy(store->held, err);
    return NULL;
}

int np_store_held(const struct nnp_store *store)
{
    int n = 0;

    for (int i = 0; i < store->held; i++)
        n += atomic_load_explicit(&store->batches[i].taken, memory_order_relaxed);
    return n;
}

void nnp_batch_retain(struct nnp_batch *batch)
{
    atomic_fetch_add_explicit(&batch->nr_owners, 1, memory_order_relaxed);
}

void nnp_batch_release(struct nnp_batch *batch)
{
    struct nnp_store *store = batch->store;

    if (atomic_fetch_sub_explicit(&batch->nr_owners, 1, memory_order_acq_rel) > 1)
        return;
    if (batch->buffer)
        store->gpu.plugin->buffers->release(batch->buffer);
    atomic_fetch_sub_explicit(&store->tally->nr_taken, 1, memory_order_relaxed);
    atomic_store_explicit(&batch->taken, false, memory_order_release);
    np_store_drop(store);
}

int nnp_batch_use(struct nnp_batch *batch, void *stream)
{
    struct np_err err = {0};
    int code;

    if (batch->buffer)
        code = batch->store->gpu.plugin->buffers->use(batch->buffer, stream, &err);
    else
        code = np_err_set(&err, -ENOTSUP, "the images of this batch are in host memory");
    if (code) {
        pthread_mutex_lock(&batch->lock);
        batch->use_error = err;
        pthread_mutex_unlock(&batch->lock);
    }
    return code;
}

size_t nnp_batch_error(struct nnp_batch *batch, char *text, size_t text_bytes)
{
    size_t length;

    pthread_mutex_lock(&batch->lock);
    length = (size_t)snprintf(text, text_bytes, "%s", batch->use_error.text);
    pthread_mutex_unlock(&batch->lock);
    return length;
}
