/* Batches on a GPU. A call of nnp_next() gives the oldest batch whose copy is queued, and queues the
 * copies of up to NP_AHEAD more that are ready: they run while the program works. There is no thread
 * for it, because a batch that is not ready then is one for which the program will wait anyway, and
 * its copy takes a millisecond.
 *
 * The program runs ahead of the GPU until no spare pinned memory is free, because a copy waits for
 * the work on its buffer: then nnp_next() waits for the GPU. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "loader/base/clock.h"
#include "loader/lib/lib.h"
#include "loader/lib/lib_deal.h"

#define POLL_NS 50000

static int nr_queued(const struct np_ahead *ahead)
{
    return atomic_load_explicit(&ahead->nr_queued, memory_order_relaxed);
}

/* --- pinned memory ------------------------------------------------------------------------------ */

static int hold_spares(struct nnp_loader *loader, struct np_err *err)
{
    struct np_batch_memory memories[NP_SPARES];
    int code;

    if (loader->ahead.spares[0].memory.images)
        return 0;
    code = np_store_spares(loader->store, NP_SPARES, memories, err);
    for (int i = 0; !code && i < NP_SPARES; i++)
        loader->ahead.spares[i] = (struct np_spare){.memory = memories[i]};
    return code;
}

/* Looks for a spare whose copy has ended: 1, 0 for none, or an error. */
static int look(struct nnp_loader *loader, struct np_spare **ret_spare, struct np_err *err)
{
    const struct np_store_gpu *gpu = np_store_gpu(loader->store);

    for (int i = 0; i < NP_SPARES; i++) {
        struct np_spare *spare = &loader->ahead.spares[i];
        int code = spare->copying ? gpu->plugin->gpu->copied(gpu->gpu, spare->copy, err) : 1;

        if (code == 0)
            continue;
        spare->copying = false;
        *ret_spare = spare;
        return code;
    }
    return 0;
}

static int free_spare(
    struct nnp_loader *loader, uint64_t until_ns, struct np_spare **ret_spare, struct np_err *err)
{
    for (;;) {
        int code = look(loader, ret_spare, err);

        if (code < 0)
            loader->failed = true;
        if (code)
            return code < 0 ? code : 0;
        if (np_now_ns() >= until_ns)
            return -ETIMEDOUT;
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

/* --- the queue ---------------------------------------------------------------------------------- */

/* Queues the copy of the ring's batch, whose memory is then a spare, and the spare the ring's. */
static int queue_copy(struct nnp_loader *loader, struct np_batch *from, struct np_spare *spare,
    struct nnp_batch *batch, struct np_err *err)
{
    const struct np_gpu_buffer_ops *buffers = np_store_gpu(loader->store)->plugin->buffers;
    struct np_ahead *ahead = &loader->ahead;
    const int n = nr_queued(ahead);
    int code;

    np_lib_describe(loader, from, batch);
    memcpy(batch->memory.about, from->about, (size_t)batch->rows * sizeof(*from->about));
    code = buffers->fill(batch->buffer,
        &(struct np_batch_memory){from->images, from->labels, from->about}, batch->rows,
        &spare->copy, err);
    if (code) {
        loader->failed = true;
        return code;
    }
    spare->copying = true;
    ahead->queue[n] = (struct np_queued){batch, from->seq};
    atomic_store_explicit(&ahead->nr_queued, n + 1, memory_order_relaxed);
    np_ring_swap(from, &spare->memory);
    np_ring_release(loader->running->ring, from);
    return 0;
}

/* One batch of the ring goes into the queue. */
static int queue_one(struct nnp_loader *loader, uint64_t until_ns, struct np_err *err)
{
    struct nnp_batch *batch = NULL;
    struct np_spare *spare;
    struct np_batch *from;
    int code = hold_spares(loader, err);

    if (!code)
        code = free_spare(loader, until_ns, &spare, err);
    if (!code && !(batch = np_store_take(loader->store, err)))
        code = err->code;
    if (!code)
        code = np_lib_take_ring(loader, until_ns, &from, err);
    if (!code)
        code = queue_copy(loader, from, spare, batch, err);
    if (code && batch)
        nnp_batch_release(batch);
    return code;
}

/* Takes the queue's first; NULL: it was dealt in vain, and is dropped. */
static struct nnp_batch *pop(struct nnp_loader *loader)
{
    struct np_ahead *ahead = &loader->ahead;
    const struct np_queued first = ahead->queue[0];
    const int left = nr_queued(ahead) - 1;

    memmove(ahead->queue, ahead->queue + 1, (size_t)left * sizeof(first));
    atomic_store_explicit(&ahead->nr_queued, left, memory_order_relaxed);
    if (!loader->dealer || np_dealer_took(loader->dealer, first.seq))
        return first.batch;
    nnp_batch_release(first.batch);
    return NULL;
}

/* What goes wrong ahead is for the call that asks for that batch. */
static void look_ahead(struct nnp_loader *loader)
{
    const struct np_ring *ring = loader->running->ring;
    int code = 0;

    while (!code && nr_queued(&loader->ahead) < NP_AHEAD && np_ring_ready(ring)) {
        struct np_err err = {0};

        code = queue_one(loader, 0, &err);
        if (loader->failed && code)
            loader->ahead.error = err;
    }
    if (loader->ahead.error.code)
        loader->failed = false; /* until then */
}

int np_ahead_take(
    struct nnp_loader *loader, uint64_t until_ns, struct nnp_batch **ret_batch, struct np_err *err)
{
    struct np_ahead *ahead = &loader->ahead;
    struct nnp_batch *batch = NULL;
    int code = 0;

    if (np_store_held(loader->store) - nr_queued(ahead) >= loader->options.held)
        return np_store_busy(loader->options.held, err);
    while (!code && !batch) {
        if (nr_queued(ahead) == 0 && ahead->error.code) {
            *err = ahead->error;
            loader->failed = true;
            return err->code;
        }
        if (nr_queued(ahead) == 0)
            code = queue_one(loader, until_ns, err);
        if (!code)
            batch = pop(loader);
    }
    if (code)
        return code;
    if (!ahead->error.code)
        look_ahead(loader);
    *ret_batch = batch;
    return 1;
}

void np_ahead_drop(struct np_ahead *ahead)
{
    const int n = nr_queued(ahead);

    /* nnp_counters() may read it. */
    atomic_store_explicit(&ahead->nr_queued, 0, memory_order_relaxed);
    for (int i = 0; i < n; i++)
        nnp_batch_release(ahead->queue[i].batch);
    memset(ahead->spares, 0, sizeof(ahead->spares));
    memset(&ahead->error, 0, sizeof(ahead->error));
}
