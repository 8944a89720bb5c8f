/* Batches in turn, and the position. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "loader/base/clock.h"
#include "loader/lib/lib.h"
#include "loader/lib/lib_deal.h"

/* --- one batch ---------------------------------------------------------------------------------- */

/* Rows of a batch of the ring. */
static int count_rows(const struct nnp_loader *loader, uint64_t seq)
{
    struct np_ticket ticket;
    int rows = loader->shape.rows;

    if (loader->dealer)
        return np_dealer_rows(loader->dealer, seq);
    if ((seq + 1) % loader->length != 0) /* only an epoch's last batch may be short */
        return rows;
    for (; rows > 1; rows--) {
        np_sampler_ticket(loader->running->sampler, seq, rows - 1, &ticket);
        if (!ticket.masked)
            break;
    }
    return rows;
}

/* NaN for a row without a sample: zeros are labels. */
static void copy_values(
    const struct nnp_loader *loader, const struct np_batch *from, struct nnp_batch *batch)
{
    const size_t width = (size_t)loader->shape.values;
    const float *values = np_batch_values(from->labels, loader->shape.rows);

    memcpy(batch->values, values, (size_t)batch->rows * width * sizeof(float));
    for (size_t i = 0; i < (size_t)batch->rows * width; i++)
        if (from->labels[i / width] < 0)
            batch->values[i] = NAN;
}

/* The rows' own facts are not read here: a reader has just written them, and each would be a miss of
 * this core's cache. */
void np_lib_describe(
    struct nnp_loader *loader, const struct np_batch *from, struct nnp_batch *batch)
{
    const uint64_t nr_judged = np_loader_nr_bad(loader->running);

    batch->rows = count_rows(loader, from->seq);
    for (int r = 0; r < batch->rows; r++)
        batch->labels[r] = from->labels[r];
    if (batch->values)
        copy_values(loader, from, batch);
    batch->nr_bad = nr_judged - loader->nr_judged;
    loader->nr_judged = nr_judged;
}

int np_lib_take_ring(
    struct nnp_loader *loader, uint64_t until_ns, struct np_batch **ret_batch, struct np_err *err)
{
    struct np_ring *ring = loader->running->ring;
    int code = loader->dealer ? np_dealer_deal(loader->dealer, ring, err) : 0;

    if (code)
        return code;
    np_ring_expect(ring, loader->block, until_ns);
    if (!np_ring_ready(ring) && !np_ring_stopped(ring) && np_now_ns() >= until_ns)
        return -ETIMEDOUT;
    *ret_batch = np_ring_take(ring, loader->block, err);
    if (*ret_batch)
        return 0;
    loader->failed = true;
    return err->code ? err->code : np_err_set(err, -ESHUTDOWN, "the readers have stopped");
}

/* Takes the ring's next batch that is not void. */
static int take_ready(
    struct nnp_loader *loader, uint64_t until_ns, struct np_batch **ret_batch, struct np_err *err)
{
    for (;;) {
        int code = np_lib_take_ring(loader, until_ns, ret_batch, err);

        if (code || !loader->dealer || np_dealer_took(loader->dealer, (*ret_batch)->seq))
            return code;
        loader->nr_judged = np_loader_nr_bad(loader->running);
        np_ring_release(loader->running->ring, *ret_batch);
    }
}

static int take(
    struct nnp_loader *loader, uint64_t until_ns, struct nnp_batch **ret_batch, struct np_err *err)
{
    struct nnp_batch *batch = np_store_take(loader->store, err);
    struct np_batch *from;
    int code;

    if (!batch)
        return err->code;
    code = take_ready(loader, until_ns, &from, err);
    if (code) {
        nnp_batch_release(batch);
        return code;
    }
    np_lib_describe(loader, from, batch);
    /* The program gets the memory of the ring's slot, and the slot that of the batch. */
    np_ring_swap(from, &batch->memory);
    np_ring_release(loader->running->ring, from);
    *ret_batch = batch;
    return 1;
}

static void count(struct nnp_loader *loader, const struct nnp_batch *batch, uint64_t wait_ns)
{
    pthread_mutex_lock(&loader->error_lock);
    loader->wait_ns += wait_ns;
    if (batch) {
        loader->nr_batches++;
        loader->nr_images += (uint64_t)batch->rows;
        loader->nr_bad += batch->nr_bad;
    }
    pthread_mutex_unlock(&loader->error_lock);
}

/* Under the lock. */
static int next(
    struct nnp_loader *loader, uint64_t until_ns, struct nnp_batch **ret_batch, struct np_err *err)
{
    const uint64_t start_ns = np_now_ns();
    int code = 0;

    if (loader->dealer && !np_dealer_has_epoch(loader->dealer))
        return np_err_set(err, -EINVAL, "no epoch was dealt: call nnp_deal_epoch() first");
    if (loader->taken == loader->length) {
        if (loader->dealer)
            np_dealer_end_epoch(loader->dealer);
        loader->taken = 0;
        loader->epoch++;
        return 0;
    }
    if (loader->failed)
        return np_err_set(
            err, -ESHUTDOWN, "the loader has failed: set its position to start again");
    if (!loader->running)
        code = np_lib_start(loader, err);
    if (!code)
        code = loader->plugin ? np_ahead_take(loader, until_ns, ret_batch, err)
                              : take(loader, until_ns, ret_batch, err);
    if (code > 0) {
        (*ret_batch)->epoch = loader->epoch;
        (*ret_batch)->number = loader->taken++;
    }
    count(loader, code > 0 ? *ret_batch : NULL, np_now_ns() - start_ns);
    return code;
}

/* Another thread may wait in nnp_next(). -ETIMEDOUT. */
static int lock_until(struct nnp_loader *loader, uint64_t until_ns)
{
    const struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};

    if (until_ns == UINT64_MAX)
        return -pthread_mutex_lock(&loader->lock);
#ifdef __SANITIZE_THREAD__ /* it does not know the call below */
    while (pthread_mutex_trylock(&loader->lock) != 0)
        if (np_now_ns() >= until_ns)
            return -ETIMEDOUT;
    return 0;
#endif
    return -pthread_mutex_clocklock(&loader->lock, CLOCK_MONOTONIC, &until);
}

int nnp_next(struct nnp_loader *loader, int timeout_ms, struct nnp_batch **ret_batch)
{
    const uint64_t until_ns =
        timeout_ms < 0 ? UINT64_MAX : np_now_ns() + (uint64_t)timeout_ms * 1000000;
    struct np_err err = {0};
    int code;

    if (np_lib_is_foreign(loader))
        return -ECHILD;
    if ((code = lock_until(loader, until_ns)) < 0)
        return code;
    code = next(loader, until_ns, ret_batch, &err);
    if (code < 0 && err.code)
        np_lib_fail(loader, &err);
    pthread_mutex_unlock(&loader->lock); /* the last access: nnp_close() may wait for it */
    return code;
}

/* --- the position ------------------------------------------------------------------------------- */

void nnp_position(struct nnp_loader *loader, uint64_t *ret_epoch, uint64_t *ret_nr_batches)
{
    *ret_epoch = *ret_nr_batches = 0;
    if (np_lib_is_foreign(loader))
        return;
    pthread_mutex_lock(&loader->lock);
    *ret_epoch = loader->epoch;
    *ret_nr_batches = loader->taken;
    pthread_mutex_unlock(&loader->lock);
}

int nnp_seek(struct nnp_loader *loader, uint64_t epoch, uint64_t nr_batches)
{
    struct np_err err = {0};
    int code = 0;

    if (np_lib_is_foreign(loader))
        return -ECHILD;
    pthread_mutex_lock(&loader->lock);
    if (loader->dealer)
        code = np_err_set(&err, -EINVAL, "an order that is dealt has no position: deal an epoch");
    else if (nr_batches > loader->length || epoch >= UINT32_MAX - 1 ||
             epoch >= NP_LIB_STEPS / loader->length)
        code = np_err_set(&err, -EINVAL,
            "no such position: batch %llu of epoch %llu, but an epoch has %llu batches, and a "
            "loader "
            "%llu in all",
            (unsigned long long)nr_batches, (unsigned long long)epoch,
            (unsigned long long)loader->length, NP_LIB_STEPS);
    /* The end of an epoch and the beginning of the next are one place for the readers. */
    const uint64_t here = loader->epoch * loader->length + loader->taken;
    if (!code && (loader->failed || here != epoch * loader->length + nr_batches))
        np_lib_stop(loader);
    if (!code) {
        loader->epoch = epoch;
        loader->taken = nr_batches;
        loader->failed = false;
    }
    if (code < 0)
        np_lib_fail(loader, &err);
    pthread_mutex_unlock(&loader->lock);
    return code;
}

int nnp_flush(struct nnp_loader *loader)
{
    struct np_err err = {0};
    const char *note = "";

    if (np_lib_is_foreign(loader))
        return -ECHILD;
    pthread_mutex_lock(&loader->lock);
    if (loader->running)
        note = np_loader_flush(loader->running);
    if (*note)
        np_err_set(&err, -EIO, "%s", note);
    if (*note)
        np_lib_fail(loader, &err);
    pthread_mutex_unlock(&loader->lock);
    return *note ? -EIO : 0;
}
