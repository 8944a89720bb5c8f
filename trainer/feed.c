/* Ring slot -> device -> slot back. Trainer thread alone.
 *
 * A device with memory of its own has three buffers: one that the running step reads, one
 * whose step is queued behind it, one that is being filled. A slot goes back when its copy
 * has passed, a buffer when the calls that read it have. A device that reads the host's
 * memory (alloc NULL) gets the slot itself, and it goes back at np_feed_release().
 *
 * Where the device keeps a copy of the cache's pictures, only what was drawn is copied for a row
 * whose picture is there, and the device makes the row, behind the copies, before `copied`. */
#include "trainer/feed_account.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/clock.h"
#include "trainer/staging.h"

#define NR_BUFFERS       NP_FEED_BUFFERS
#define MAX_STAGED_BYTES ((uint64_t)8 << 20) /* of a piece */

enum buffer_state {
    FREE,
    LOADED,   /* its copy is queued, nobody has it yet */
    HANDED,   /* an input of the trainer */
    DRAINING, /* given back; calls that read it are queued */
};

struct buffer {
    enum buffer_state state;
    void *images, *labels; /* device: u8 (rows, height, width, channels); i32 (rows) */
    void *rows;            /* device: struct np_row (rows); NULL: it keeps no pictures */
    struct np_batch *slot; /* held until its copy has passed; else NULL */
    /* Reached by the copy stream before the copies and behind them; by the compute stream before the
     * calls that read the buffer and behind them. */
    struct np_event copying, copied, computing, consumed;
    uint64_t bytes;        /* of it */
    uint64_t handed_ns;    /* when the host queued what reads it */
    struct np_batch batch; /* facts, with the two arrays below */
    struct np_row *about;  /* (rows) */
    int32_t *host_labels;  /* (rows) */
};

struct np_feed {
    struct np_device *device; /* set once */
    struct np_ring *ring;
    struct np_block *block;
    size_t image_bytes, label_bytes;
    struct np_batch_shape shape;
    struct np_cache *cache; /* what the device has a copy of; NULL: nothing */
    void *arena;            /* device: the copy, each picture where it lies in the cache's arena */
    struct np_staging *staging; /* of pictures on their way there */

    struct buffer buffers[NR_BUFFERS]; /* filled and handed out in turn */
    unsigned stubs;                    /* bits 1 << enum np_stage */
    unsigned nr_filled, nr_handed;     /* so far, modulo NR_BUFFERS the next one */
    struct np_event last_compute;      /* recorded at the last release */
    bool has_computed;
    uint64_t taken_ns; /* when the last batch was; 0: none has been */
    struct np_account account;
    int failed; /* what a device call gave where nobody could be told; np_feed_upload() does */
};

static bool has_memory(const struct np_feed *feed)
{
    return feed->device->ops->alloc != NULL;
}

static int buffer_init(struct np_feed *feed, struct buffer *buffer)
{
    const struct np_device_ops *ops = feed->device->ops;

    buffer->images = ops->alloc(feed->device, feed->image_bytes);
    buffer->labels = ops->alloc(feed->device, feed->label_bytes);
    buffer->about = np_alloc_array((size_t)feed->shape.rows, sizeof(*buffer->about));
    buffer->host_labels = np_alloc_array((size_t)feed->shape.rows, sizeof(*buffer->host_labels));
    return buffer->images && buffer->labels && buffer->about && buffer->host_labels ? 0 : -ENOMEM;
}

int np_feed_new(struct np_device *device, struct np_ring *ring, const struct np_batch_shape *shape,
    struct np_block *block, struct np_feed **ret_feed, struct np_err *err)
{
    struct np_feed *feed = np_alloc(sizeof(*feed));

    if (feed == NULL)
        return np_err_set(err, -ENOMEM, "%s: out of memory", device->name);
    feed->device = device;
    feed->ring = ring;
    feed->block = block;
    feed->account = (struct np_account){.block = block, .ring = ring};
    feed->shape = *shape;
    feed->image_bytes = (size_t)shape->rows * (size_t)shape->height * (size_t)shape->width *
                        (size_t)shape->channels;
    feed->label_bytes = (size_t)shape->rows * sizeof(int32_t);
    for (int i = 0; i < NR_BUFFERS && has_memory(feed); i++) {
        if (buffer_init(feed, &feed->buffers[i]) < 0) {
            size_t mib = (feed->image_bytes + feed->label_bytes) >> 20;
            np_feed_free(feed);
            return np_err_set(err, -ENOMEM,
                "%s: no memory for %d batches of %zu MiB on the device; use a smaller loader.batch",
                device->name, NR_BUFFERS, mib);
        }
    }
    if (has_memory(feed)) {
        feed->account.copies = np_stat_track(block, "device copy");
        feed->account.computes = np_stat_track(block, "device compute");
    }
    *ret_feed = feed;
    return 0;
}

int np_feed_keep(struct np_feed *feed, struct np_cache *cache, struct np_err *err)
{
    struct np_device *device = feed->device;
    const size_t bytes = (size_t)feed->shape.rows * sizeof(struct np_row);
    const uint64_t piece = np_cache_cap(cache) / 8 + 1;
    bool whole = (feed->arena = device->ops->alloc(device, np_cache_cap(cache))) != NULL;

    assert(device->ops->make_rows && feed->nr_filled == 0);
    for (int i = 0; i < NR_BUFFERS && whole; i++)
        whole = (feed->buffers[i].rows = device->ops->alloc(device, bytes)) != NULL;
    if (!whole)
        return np_err_set(err, -ENOMEM,
            "%s: no memory for loader.cache: {device: %llu MiB} beside the model; give it less, or "
            "take `decoded`",
            device->name, (unsigned long long)np_cache_cap(cache) >> 20);
    feed->cache = cache;
    return np_staging_new(
        device, piece < MAX_STAGED_BYTES ? piece : MAX_STAGED_BYTES, &feed->staging, err);
}

void np_feed_stub(struct np_feed *feed, unsigned stubs)
{
    assert(feed->nr_filled == 0);
    feed->stubs = stubs;
}

/* When a batch's event passed; one behind it has. */
static uint64_t passed_ns(struct np_feed *feed, struct np_event *event)
{
    const int passed = feed->device->ops->done(feed->device, event, true);

    if (passed < 0)
        feed->failed = passed;
    return event->passed_ns;
}

/* The copy has passed: count it, give the slot back. */
static void finish_copy(struct np_feed *feed, struct buffer *buffer)
{
    const uint64_t start_ns = passed_ns(feed, &buffer->copying);

    np_ring_release(feed->ring, buffer->slot);
    buffer->slot = NULL;
    np_account_copy(
        &feed->account, start_ns, buffer->copied.passed_ns, buffer->batch.seq, buffer->bytes);
}

/* The calls that read the buffer have passed. */
static void finish_compute(struct np_feed *feed, struct buffer *buffer)
{
    np_account_compute(
        &feed->account, &(struct np_account_step){.start_ns = passed_ns(feed, &buffer->computing),
                            .end_ns = buffer->consumed.passed_ns,
                            .queued_ns = buffer->handed_ns,
                            .copying_ns = buffer->copying.passed_ns,
                            .copied_ns = buffer->copied.passed_ns,
                            .seq = buffer->batch.seq});
    buffer->state = FREE;
}

/* Gives back the slots and buffers whose events have passed; wait: for every copy under way. */
static void collect(struct np_feed *feed, bool wait)
{
    const struct np_device_ops *ops = feed->device->ops;

    for (unsigned i = 0; i < NR_BUFFERS && feed->failed == 0; i++) {
        struct buffer *buffer = &feed->buffers[(feed->nr_filled + i) % NR_BUFFERS]; /* by age */
        int passed = 0;
        if (buffer->slot != NULL) {
            passed = ops->done(feed->device, &buffer->copied, wait);
            if (passed > 0)
                finish_copy(feed, buffer);
        }
        if (passed >= 0 && buffer->state == DRAINING && buffer->slot == NULL) {
            passed = ops->done(feed->device, &buffer->consumed, false);
            if (passed > 0)
                finish_compute(feed, buffer);
        }
        if (passed < 0)
            feed->failed = passed;
    }
}

static int upload(
    struct np_feed *feed, struct buffer *buffer, void *dst, const void *src, size_t bytes)
{
    buffer->bytes += bytes;
    return feed->device->ops->upload(feed->device, dst, src, bytes);
}

/* The cache's memory is pageable. */
static int upload_picture(struct np_feed *feed, struct buffer *buffer, const struct np_row *row)
{
    const size_t bytes =
        (size_t)row->source_w * (size_t)row->source_h * (size_t)feed->shape.channels;

    buffer->bytes += bytes;
    return np_staging_upload(feed->staging, (uint8_t *)feed->arena + row->resident,
        np_cache_arena(feed->cache) + row->resident, bytes);
}

/* Rows that are made on the device: the pictures it has not got yet, and what was drawn.
 * ret_all: are all of the batch's? */
static int upload_rows(
    struct np_feed *feed, struct buffer *buffer, const struct np_batch *batch, bool *ret_all)
{
    int result = 0;

    *ret_all = true;
    for (int i = 0; i < feed->shape.rows && result == 0; i++) {
        const struct np_row *row = &batch->about[i];

        if (row->resident == NP_NOT_RESIDENT)
            *ret_all &= row->sample == UINT64_MAX;
        else if (np_cache_mirror(feed->cache, row->resident))
            result = upload_picture(feed, buffer, row);
    }
    if (result == 0)
        result = upload(feed, buffer, buffer->rows, batch->about,
            (size_t)feed->shape.rows * sizeof(struct np_row));
    return result;
}

/* Are the pixels that a buffer got first to do for all? */
static bool keeps_pixels(const struct np_feed *feed)
{
    return feed->stubs & 1u << NP_STAGE_COPY && feed->nr_filled >= NR_BUFFERS;
}

static int upload_batch(struct np_feed *feed, struct buffer *buffer, const struct np_batch *batch)
{
    struct np_residents residents = {
        .rows = buffer->rows,
        .arena = feed->arena,
        .shape = feed->shape,
        .images = buffer->images,
    };
    bool all_resident = false;
    int result = 0;

    buffer->bytes = 0;
    if (feed->cache)
        result = upload_rows(feed, buffer, batch, &all_resident);
    if (result == 0 && !all_resident && !keeps_pixels(feed))
        result = upload(feed, buffer, buffer->images, batch->images, feed->image_bytes);
    if (result == 0)
        result = upload(feed, buffer, buffer->labels, batch->labels, feed->label_bytes);
    if (result == 0 && feed->cache)
        result = feed->device->ops->make_rows(feed->device, &residents);
    return result;
}

/* Copies batch into the next buffer. The slot stays with the buffer until that has passed. */
static void start_copy(struct np_feed *feed, struct np_batch *batch)
{
    const struct np_device_ops *ops = feed->device->ops;
    struct buffer *buffer = &feed->buffers[feed->nr_filled % NR_BUFFERS];

    assert(buffer->state == FREE && buffer->slot == NULL);
    memcpy(buffer->about, batch->about, (size_t)feed->shape.rows * sizeof(*buffer->about));
    memcpy(buffer->host_labels, batch->labels, feed->label_bytes);
    buffer->batch = *batch;
    buffer->batch.images = NULL; /* the slot will be somebody else's before the step has ended */
    buffer->batch.about = buffer->about;
    buffer->batch.labels = buffer->host_labels;
    buffer->slot = batch;
    ops->record(feed->device, NP_STREAM_COPY, &buffer->copying);
    int result = upload_batch(feed, buffer, batch);
    if (result < 0)
        feed->failed = result;
    ops->record(feed->device, NP_STREAM_COPY, &buffer->copied);
    buffer->state = LOADED;
    feed->nr_filled++;
}

/* Starts every copy that needs no waiting. */
static void prefetch(struct np_feed *feed)
{
    while (feed->failed == 0 && feed->buffers[feed->nr_filled % NR_BUFFERS].state == FREE &&
           np_ring_ready(feed->ring)) {
        struct np_batch *batch = np_ring_take(feed->ring, feed->block, NULL);
        if (batch == NULL)
            return; /* stopped in between: the next upload says so */
        start_copy(feed, batch);
    }
}

/* What the device takes for a batch: one that reads the host's memory works between two takes. */
static uint64_t batch_ns(const struct np_feed *feed, uint64_t now_ns)
{
    if (has_memory(feed))
        return np_account_batch_ns(&feed->account);
    return feed->taken_ns > 0 ? now_ns - feed->taken_ns : 0;
}

/* The next batch, waited for. What of the wait the device spent without work is the stall. */
static int take(struct np_feed *feed, struct np_batch **ret_batch, struct np_err *err)
{
    uint64_t start = np_now_ns();
    const uint64_t each = batch_ns(feed, start);
    bool waits = !np_ring_ready(feed->ring);
    struct np_err why = {0};
    struct np_batch *batch = np_ring_take(feed->ring, feed->block, &why);
    uint64_t end = np_now_ns();

    if (batch == NULL)
        return np_err_set(err, why.code ? why.code : -ESHUTDOWN, "%s",
            why.code ? why.text : "the loader was stopped");
    *ret_batch = batch;
    feed->taken_ns = end;
    if (!waits)
        return 0;
    if (has_memory(feed) && feed->has_computed) {
        int passed = feed->device->ops->done(feed->device, &feed->last_compute, false);
        if (passed == 0)
            return 0;
        if (passed < 0)
            feed->failed = passed; /* np_feed_upload() tells */
        else if (feed->last_compute.passed_ns > start)
            start = feed->last_compute.passed_ns;
    }
    np_account_wait(&feed->account, batch, end > start ? end - start : 0, each);
    return 0;
}

/* Waits until the next buffer is free: the device has more than enough to do. */
static void wait_for_buffer(struct np_feed *feed)
{
    struct buffer *buffer = &feed->buffers[feed->nr_filled % NR_BUFFERS];

    assert(buffer->state == DRAINING); /* more inputs held than there are buffers */
    np_stat_about(feed->block, buffer->batch.seq, -1);
    np_stat_wait(
        feed->block, NP_STATE_BLOCKED, "np_feed_upload", feed->device->name, buffer->batch.seq);
    if (buffer->slot != NULL && feed->failed == 0)
        collect(feed, true);
    if (feed->failed == 0) {
        int passed = feed->device->ops->done(feed->device, &buffer->consumed, true);
        if (passed > 0)
            finish_compute(feed, buffer);
        else
            feed->failed = passed < 0 ? passed : -EIO;
    }
    np_stat_done(feed->block);
}

/* Gives back the slots of all copies under way: the readers might lack the very slots that we hold. */
static void wait_for_copies(struct np_feed *feed)
{
    bool any = false;

    for (int i = 0; i < NR_BUFFERS; i++)
        any |= feed->buffers[i].slot != NULL;
    if (!any)
        return;
    np_stat_wait(
        feed->block, NP_STATE_BLOCKED, "np_feed_upload", feed->device->name, feed->nr_filled);
    collect(feed, true);
    np_stat_done(feed->block);
}

static int load_one(struct np_feed *feed, struct np_err *err)
{
    struct np_batch *batch;

    if (feed->buffers[feed->nr_filled % NR_BUFFERS].state != FREE)
        wait_for_buffer(feed);
    if (!np_ring_ready(feed->ring))
        wait_for_copies(feed);
    if (feed->failed < 0)
        return 0;
    int result = take(feed, &batch, err);
    if (result < 0)
        return result;
    start_copy(feed, batch);
    return 0;
}

static int upload_slot(struct np_feed *feed, struct np_input *ret_input, struct np_err *err)
{
    struct np_batch *batch;
    int result = take(feed, &batch, err);

    if (result < 0)
        return result;
    *ret_input = (struct np_input){.images = batch->images,
        .labels = batch->labels,
        .about = *batch,
        .slot = batch,
        .buffer = -1};
    return 0;
}

int np_feed_upload(struct np_feed *feed, struct np_input *ret_input, struct np_err *err)
{
    struct buffer *buffer = &feed->buffers[feed->nr_handed % NR_BUFFERS];

    if (!has_memory(feed))
        return upload_slot(feed, ret_input, err);
    collect(feed, false);
    if (feed->nr_handed == feed->nr_filled && feed->failed == 0) {
        int result = load_one(feed, err);
        if (result < 0)
            return result;
    }
    if (feed->failed < 0)
        return np_err_set(err, feed->failed, "%s: a copy to the device failed: %s",
            feed->device->name,
            *feed->device->fault ? feed->device->fault : strerror(-feed->failed));
    assert(buffer->state == LOADED);
    feed->device->ops->follow(feed->device, NP_STREAM_COMPUTE, &buffer->copied);
    feed->device->ops->record(feed->device, NP_STREAM_COMPUTE, &buffer->computing);
    buffer->state = HANDED;
    buffer->handed_ns = np_now_ns();
    *ret_input = (struct np_input){.images = buffer->images,
        .labels = buffer->labels,
        .about = buffer->batch,
        .buffer = (int)(feed->nr_handed % NR_BUFFERS)};
    feed->nr_handed++;
    prefetch(feed);
    return 0;
}

void np_feed_release(struct np_feed *feed, struct np_input *input)
{
    if (!has_memory(feed)) {
        np_ring_release(feed->ring, input->slot);
        input->slot = NULL;
        return;
    }
    struct buffer *buffer = &feed->buffers[input->buffer];
    assert(buffer->state == HANDED);
    feed->device->ops->record(feed->device, NP_STREAM_COMPUTE, &buffer->consumed);
    feed->last_compute = buffer->consumed;
    feed->has_computed = true;
    buffer->state = DRAINING;
    collect(feed, false);
    prefetch(feed);
}

void np_feed_times(const struct np_feed *feed, struct np_feed_times *ret_times)
{
    *ret_times = feed->account.times;
}

void np_feed_blame(const struct np_feed *feed, uint64_t ret_ns[NP_NR_STAGES])
{
    memcpy(ret_ns, feed->account.blame_ns, sizeof(feed->account.blame_ns));
}

void np_feed_bridged(const struct np_feed *feed, uint64_t ret_ns[NP_FEED_BRIDGES])
{
    memcpy(ret_ns, feed->account.bridged_ns, sizeof(feed->account.bridged_ns));
}

uint64_t np_feed_stall_ns(const struct np_feed *feed)
{
    return feed->account.stall_ns;
}

void np_feed_free(struct np_feed *feed)
{
    if (feed == NULL)
        return;
    collect(feed, true);
    np_staging_free(feed->staging);
    for (int i = 0; i < NR_BUFFERS && has_memory(feed); i++) {
        struct buffer *buffer = &feed->buffers[i];
        if (buffer->images != NULL)
            feed->device->ops->free(feed->device, buffer->images);
        if (buffer->labels != NULL)
            feed->device->ops->free(feed->device, buffer->labels);
        if (buffer->rows != NULL)
            feed->device->ops->free(feed->device, buffer->rows);
        np_free(buffer->about);
        np_free(buffer->host_labels);
    }
    if (feed->arena != NULL)
        feed->device->ops->free(feed->device, feed->arena);
    np_free(feed);
}
