/* Ring slot -> device -> slot released. Trainer thread only.
 *
 * A device with its own memory has some buffers: the running step reads one, those queued
 * behind it will read others, the last is being filled. The feed releases a slot when its copy
 * has passed, and reuses a buffer when the calls that read it have passed. A device that reads the
 * host's memory (alloc NULL) gets the slot itself, which np_feed_release() releases.
 *
 * If the device keeps a copy of the cache's pictures, only the draws are copied for a row whose
 * picture is there, and the device makes the row after the copies and before `copied`. */
#include "trainer/feed.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/clock.h"

#define NR_BUFFERS       NP_FEED_BUFFERS
#define MAX_STAGED_BYTES ((uint64_t)8 << 20) /* of a piece */

/* --- staging ---------------------------------------------------------------------------------- */

#define NR_PIECES 4

/* Copies pageable memory to the device through a small ring of pinned pieces. (With the driver's
 * own copy the caller would wait for the copy stream.) Each copy into a piece is queued at once.
 * When a piece is full an event is recorded, and the piece is filled again after the event. */
struct staging {
    struct np_device *device;
    size_t piece_bytes;
    uint8_t *memory; /* pinned: (NR_PIECES, piece_bytes) */

    int at;      /* the piece that is being filled */
    size_t used; /* bytes of it */
    struct {
        struct np_event sent;
        bool waits; /* for `sent` */
    } pieces[NR_PIECES];
};

static int staging_new(
    struct np_device *device, size_t piece_bytes, struct staging **ret_staging, struct np_err *err)
{
    struct staging *staging = np_alloc(sizeof(*staging));
    const struct np_allocator *pinned = &device->pinned;

    staging->device = device;
    staging->piece_bytes = piece_bytes;
    staging->memory = pinned->alloc(pinned->context, NR_PIECES * piece_bytes);
    if (staging->memory == NULL) {
        np_free(staging);
        return np_err_set(err, -ENOMEM, "%s: no pinned memory of %zu KiB for pictures",
            device->name, NR_PIECES * piece_bytes >> 10);
    }
    *ret_staging = staging;
    return 0;
}

static int wait_for(struct staging *staging, int piece)
{
    if (!staging->pieces[piece].waits)
        return 0;
    staging->pieces[piece].waits = false;
    int passed = staging->device->ops->done(staging->device, &staging->pieces[piece].sent, true);
    return passed < 0 ? passed : 0;
}

/* Turns to the next piece and waits until it is empty. */
static int turn(struct staging *staging)
{
    staging->device->ops->record(
        staging->device, NP_STREAM_COPY, &staging->pieces[staging->at].sent);
    staging->pieces[staging->at].waits = true;
    staging->at = (staging->at + 1) % NR_PIECES;
    staging->used = 0;
    return wait_for(staging, staging->at);
}

/* Queues the copy of src to dst on the device; the caller may reuse src at once. Blocks only while
 * all pieces are still being copied. Negative errno: the device failed. */
static int staging_upload(struct staging *staging, void *dst, const void *src, size_t bytes)
{
    const uint8_t *from = src;
    uint8_t *to = dst;
    int result = 0;

    while (bytes > 0 && result == 0) {
        if (staging->used == staging->piece_bytes && (result = turn(staging)) < 0)
            break;
        uint8_t *piece =
            staging->memory + (size_t)staging->at * staging->piece_bytes + staging->used;
        const size_t room = staging->piece_bytes - staging->used, n = bytes < room ? bytes : room;

        memcpy(piece, from, n);
        result = staging->device->ops->upload(staging->device, to, piece, n);
        staging->used += n;
        from += n;
        to += n;
        bytes -= n;
    }
    return result;
}

/* Waits for all queued copies. */
static void staging_free(struct staging *staging)
{
    if (staging == NULL)
        return;
    const struct np_allocator *pinned = &staging->device->pinned;

    turn(staging);
    for (int i = 0; i < NR_PIECES; i++)
        wait_for(staging, i);
    pinned->free(pinned->context, staging->memory, NR_PIECES * staging->piece_bytes);
    np_free(staging);
}

/* --- buffers ---------------------------------------------------------------------------------- */

enum buffer_state {
    FREE,
    LOADED,   /* its copy is queued, not yet given to the trainer */
    HANDED,   /* an input of the trainer */
    DRAINING, /* released; calls that read it are queued */
};

struct buffer {
    enum buffer_state state;
    void *images, *labels; /* device: u8 (rows, height, width, channels); np_batch_label_bytes() */
    void *rows;            /* device: struct np_row (rows); NULL: it keeps no pictures */
    struct np_batch *slot; /* until its copy has passed; else NULL */
    /* On the copy stream before the copies and after them; on the compute stream before the
     * calls that read the buffer and after them. */
    struct np_event copying, copied, computing, consumed;
    uint64_t bytes;        /* copied for the batch */
    uint64_t handed_ns;    /* when the host queued the calls that read it */
    struct np_batch batch; /* facts, with the two arrays below */
    struct np_row *about;  /* (rows) */
    int32_t *host_labels;  /* the labels, and their values */
};

struct np_feed {
    struct np_device *device; /* set once */
    bool has_memory;          /* the device has its own memory */
    struct np_ring *ring;
    struct np_block *block;
    size_t label_bytes;
    struct np_batch_shape shape;
    struct np_cache *cache; /* the device has a copy of it; NULL: no cache */
    const uint8_t *cache_arena;
    void *arena; /* device: the copy, each picture at its place in the cache's arena */
    struct staging *staging;

    /* The copy stage of the pixels: upload(), or what np_feed_stub() set. */
    int (*copy_pixels)(struct np_feed *feed, struct buffer *buffer, const struct np_batch *batch);
    struct buffer buffers[NR_BUFFERS]; /* used in turn */
    unsigned nr_filled, nr_handed;     /* so far; modulo NR_BUFFERS: the next one */
    struct np_event last_compute;      /* recorded at the last release */
    bool has_computed;
    uint64_t taken_ns; /* when the last batch was; 0: none yet */
    struct np_account account;
    int failed; /* error of a device call, returned by the next np_feed_next() */
};

static int upload(
    struct np_feed *feed, struct buffer *buffer, void *dst, const void *src, size_t bytes)
{
    buffer->bytes += bytes;
    return feed->device->ops->upload(feed->device, dst, src, bytes);
}

static int copy_pixels(struct np_feed *feed, struct buffer *buffer, const struct np_batch *batch)
{
    return upload(feed, buffer, buffer->images, batch->images,
        (size_t)feed->shape.rows * np_batch_row_bytes_of(&feed->shape, batch->kind, batch->step));
}

/* With the stub, a buffer keeps the pixels that it got first. */
static int copy_first_pixels(
    struct np_feed *feed, struct buffer *buffer, const struct np_batch *batch)
{
    return feed->nr_filled < NR_BUFFERS ? copy_pixels(feed, buffer, batch) : 0;
}

/* what: the purpose of the memory, and the user's remedy; goes into the error. */
static void *device_alloc(struct np_feed *feed, size_t bytes, const char *what, struct np_err *err)
{
    void *memory = feed->device->ops->alloc(feed->device, bytes);

    if (memory == NULL)
        np_err_set(err, -ENOMEM, "%s: no %zu MiB of memory on the device for %s",
            feed->device->name, (bytes + (1u << 20) - 1) >> 20, what);
    return memory;
}

static int buffer_init(struct np_feed *feed, struct buffer *buffer, struct np_err *err)
{
    static const char advice[] = "a batch; use a smaller loader.batch";
    const size_t rows = (size_t)feed->shape.rows;

    if (!(buffer->images =
                device_alloc(feed, rows * np_batch_row_room(&feed->shape), advice, err)) ||
        !(buffer->labels = device_alloc(feed, feed->label_bytes, advice, err)))
        return -ENOMEM;
    buffer->about = np_try_array(rows, sizeof(*buffer->about), err);
    buffer->host_labels = np_try_alloc(feed->label_bytes, err);
    return buffer->about && buffer->host_labels ? 0 : -ENOMEM;
}

int np_feed_new(struct np_device *device, struct np_ring *ring, const struct np_batch_shape *shape,
    struct np_block *block, struct np_feed **ret_feed, struct np_err *err)
{
    struct np_feed *feed = np_alloc(sizeof(*feed));

    feed->device = device;
    feed->has_memory = device->ops->alloc != NULL;
    feed->copy_pixels = copy_pixels;
    feed->ring = ring;
    feed->block = block;
    feed->account = (struct np_account){.block = block};
    feed->shape = *shape;
    feed->label_bytes = np_batch_label_bytes(shape);
    for (int i = 0; i < NR_BUFFERS && feed->has_memory; i++) {
        const int result = buffer_init(feed, &feed->buffers[i], err);

        if (result < 0) {
            np_feed_free(feed);
            return result;
        }
    }
    if (feed->has_memory) {
        feed->account.copies = np_stat_track(block, "device copy");
        feed->account.computes = np_stat_track(block, "device compute");
    }
    *ret_feed = feed;
    return 0;
}

int np_feed_keep(struct np_feed *feed, struct np_cache *cache, struct np_err *err)
{
    static const char advice[] =
        "loader.cache: device, beside the model; make it smaller, or use `decoded`";
    const size_t bytes = (size_t)feed->shape.rows * sizeof(struct np_row);
    const uint64_t piece = np_cache_cap(cache) / 8 + 1;

    assert(feed->device->ops->make_rows && feed->nr_filled == 0);
    if (!(feed->arena = device_alloc(feed, np_cache_cap(cache), advice, err)))
        return -ENOMEM;
    for (int i = 0; i < NR_BUFFERS; i++)
        if (!(feed->buffers[i].rows = device_alloc(feed, bytes, advice, err)))
            return -ENOMEM;
    feed->cache = cache;
    feed->cache_arena = np_cache_arena(cache);
    return staging_new(
        feed->device, piece < MAX_STAGED_BYTES ? piece : MAX_STAGED_BYTES, &feed->staging, err);
}

void np_feed_stub(struct np_feed *feed, unsigned stubs)
{
    assert(feed->nr_filled == 0);
    if (stubs & 1u << NP_STAGE_COPY)
        feed->copy_pixels = copy_first_pixels;
}

/* Returns when a batch's event passed; a later event has passed already. */
static uint64_t passed_ns(struct np_feed *feed, struct np_event *event)
{
    const int passed = feed->device->ops->done(feed->device, event, true);

    if (passed < 0)
        feed->failed = passed;
    return event->passed_ns;
}

/* Handles that the slot's copy has passed, or the calls that read the buffer, or both. */
static void finish(struct np_feed *feed, struct buffer *buffer, bool copied, bool consumed)
{
    struct np_account_step step = {.seq = buffer->batch.seq,
        .bytes = buffer->bytes,
        .copied = copied,
        .consumed = consumed,
        .queued_ns = buffer->handed_ns};

    step.copying_ns = passed_ns(feed, &buffer->copying);
    step.copied_ns = buffer->copied.passed_ns;
    step.start_ns = consumed ? passed_ns(feed, &buffer->computing) : 0;
    step.end_ns = buffer->consumed.passed_ns;
    if (consumed)
        buffer->state = FREE;
    np_account_step(&feed->account, &step);
    if (copied) {
        np_ring_release(feed->ring, buffer->slot);
        buffer->slot = NULL;
    }
}

/* Releases the slots and buffers whose events have passed. copies: waits for all copies; next:
 * waits for the next buffer's calls. A stream's events pass in their order: behind one that has not
 * passed the device is not asked for others. */
static void collect(struct np_feed *feed, bool copies, bool next)
{
    const struct np_device_ops *ops = feed->device->ops;
    bool copying = false, computing = false;

    for (unsigned i = 0; i < NR_BUFFERS && feed->failed == 0; i++) {
        struct buffer *buffer = &feed->buffers[(feed->nr_filled + i) % NR_BUFFERS]; /* by age */
        int copied = 0, consumed = 0;

        if (buffer->slot != NULL && !copying)
            copied = ops->done(feed->device, &buffer->copied, copies);
        copying |= buffer->slot != NULL && copied == 0;
        if (copied >= 0 && buffer->state == DRAINING && !computing &&
            (copied > 0 || buffer->slot == NULL)) {
            consumed = ops->done(feed->device, &buffer->consumed, next && i == 0);
            computing = consumed == 0;
        }
        if (copied > 0 || consumed > 0)
            finish(feed, buffer, copied > 0, consumed > 0);
        if (feed->failed == 0)
            feed->failed = copied < 0 ? copied : consumed < 0 ? consumed : 0;
    }
}

/* Through the staging pieces, because the cache's memory is pageable. */
static int upload_picture(struct np_feed *feed, struct buffer *buffer, const struct np_row *row)
{
    const size_t bytes =
        (size_t)row->source_w * (size_t)row->source_h * (size_t)feed->shape.channels;

    buffer->bytes += bytes;
    return staging_upload(feed->staging, (uint8_t *)feed->arena + row->resident,
        feed->cache_arena + row->resident, bytes);
}

/* Copies what the device needs to make rows: pictures that it does not have yet, and the draws.
 * ret_all: the device makes all rows of the batch. */
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

static int upload_batch(struct np_feed *feed, struct buffer *buffer, const struct np_batch *batch)
{
    struct np_residents residents = {
        .rows = buffer->rows,
        .arena = feed->arena,
        .shape = np_batch_shape_of(&feed->shape, batch->kind, batch->step),
        .images = buffer->images,
    };
    bool all_resident = false;
    int result = 0;

    buffer->bytes = 0;
    if (feed->cache)
        result = upload_rows(feed, buffer, batch, &all_resident);
    if (result == 0 && !all_resident)
        result = feed->copy_pixels(feed, buffer, batch);
    if (result == 0)
        result = upload(feed, buffer, buffer->labels, batch->labels, feed->label_bytes);
    if (result == 0 && feed->cache)
        result = feed->device->ops->make_rows(feed->device, &residents);
    return result;
}

/* Queues the copy of batch into the next buffer. The slot stays with the buffer until the copy
 * has passed. */
static void start_copy(struct np_feed *feed, struct np_batch *batch)
{
    const struct np_device_ops *ops = feed->device->ops;
    struct buffer *buffer = &feed->buffers[feed->nr_filled % NR_BUFFERS];

    assert(buffer->state == FREE && buffer->slot == NULL);
    memcpy(buffer->about, batch->about, (size_t)feed->shape.rows * sizeof(*buffer->about));
    memcpy(buffer->host_labels, batch->labels, feed->label_bytes);
    buffer->batch = *batch;
    buffer->batch.images = NULL; /* the slot will be reused before the step has ended */
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

/* The stall is the part of a wait for readers in which the device had no work. */
static void count_stall(struct np_feed *feed, struct np_account_wait *wait)
{
    if (feed->has_memory && feed->has_computed) {
        int passed = feed->device->ops->done(feed->device, &feed->last_compute, false);

        if (passed == 0)
            return; /* the device had work all the time */
        if (passed < 0)
            feed->failed = passed;
        else if (feed->last_compute.passed_ns > wait->start_ns)
            wait->start_ns = feed->last_compute.passed_ns;
    }
    np_account_wait(&feed->account, wait);
}

/* Returns 1 with the next batch, or 0 without waiting when the ring has none. */
static int take(struct np_feed *feed, bool blocks, struct np_batch **ret_batch, struct np_err *err)
{
    struct np_account_wait wait = {.start_ns = np_now_ns()};
    struct np_err why = {0};

    /* The device's time for a batch; a device that reads the host's memory works between two
     * takes. */
    wait.batch_ns = feed->has_memory     ? np_account_batch_ns(&feed->account)
                    : feed->taken_ns > 0 ? wait.start_ns - feed->taken_ns
                                         : 0;
    const bool waits = !np_ring_ready(feed->ring);
    if (waits && !blocks)
        return 0;
    struct np_batch *batch = np_ring_take(feed->ring, feed->block, &why);
    if (batch != NULL && waits)
        np_ring_late(feed->ring, batch, wait.did_ns);
    wait.end_ns = feed->taken_ns = np_now_ns();
    if (batch == NULL)
        return np_err_set(err, why.code ? why.code : -ESHUTDOWN, "%s",
            why.code ? why.text : "the loader was stopped");
    if (waits)
        count_stall(feed, &wait);
    *ret_batch = batch;
    return 1;
}

/* Waits until the next buffer is free (the device has enough to do), and, when the ring has no
 * batch, for all copies: the readers may be waiting for the slots of these copies. */
static void wait_for_room(struct np_feed *feed)
{
    const struct buffer *buffer = &feed->buffers[feed->nr_filled % NR_BUFFERS];
    const bool is_free = buffer->state == FREE;
    bool copies = !is_free && buffer->slot != NULL;

    if (!np_ring_ready(feed->ring))
        for (int i = 0; i < NR_BUFFERS; i++)
            copies |= feed->buffers[i].slot != NULL;
    if (is_free && !copies)
        return;
    assert(is_free ||
           buffer->state == DRAINING); /* otherwise the caller has not released its inputs */
    np_stat_about(feed->block, buffer->batch.seq, -1);
    np_stat_wait(
        feed->block, NP_STATE_BLOCKED, "np_feed_next", feed->device->name, buffer->batch.seq);
    collect(feed, copies, !is_free);
    if (buffer->state != FREE && feed->failed == 0)
        feed->failed = -EIO;
    np_stat_done(feed->block);
}

/* Starts all copies that need no waiting; blocks: waits for the first one, and fills err if it
 * fails. */
static int fill(struct np_feed *feed, bool blocks, struct np_err *err)
{
    struct np_batch *batch;

    while (feed->failed == 0 && feed->buffers[feed->nr_filled % NR_BUFFERS].state == FREE) {
        int result = take(feed, blocks, &batch, blocks ? err : NULL);

        if (result <= 0)
            return blocks ? result : 0; /* the next np_feed_next() returns it */
        start_copy(feed, batch);
        blocks = false;
    }
    return 0;
}

static int next_slot(struct np_feed *feed, struct np_input *ret_input, struct np_err *err)
{
    struct np_batch *batch;
    int result = take(feed, true, &batch, err);

    if (result < 0)
        return result;
    *ret_input = (struct np_input){.images = batch->images,
        .labels = batch->labels,
        .about = *batch,
        .slot = batch,
        .buffer = -1};
    return 0;
}

int np_feed_next(struct np_feed *feed, struct np_input *ret_input, struct np_err *err)
{
    struct buffer *buffer = &feed->buffers[feed->nr_handed % NR_BUFFERS];

    if (!feed->has_memory)
        return next_slot(feed, ret_input, err);
    const bool empty = feed->nr_handed == feed->nr_filled;
    collect(feed, false, false);
    if (empty && feed->failed == 0)
        wait_for_room(feed);
    int result = fill(feed, empty, err);
    if (result < 0)
        return result;
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
    return 0;
}

bool np_feed_starves(const struct np_feed *feed)
{
    return (!feed->has_memory || feed->nr_handed == feed->nr_filled) && !np_ring_ready(feed->ring);
}

void np_feed_expect(struct np_feed *feed, uint64_t until_ns)
{
    np_ring_expect(feed->ring, feed->block, until_ns);
}

void np_feed_release(struct np_feed *feed, struct np_input *input)
{
    if (!feed->has_memory) {
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
    fill(feed, false, NULL); /* np_feed_next() has just asked for what has passed */
}

size_t np_feed_row_bytes(const struct np_feed *feed, const struct np_input *input)
{
    return np_batch_row_bytes_of(&feed->shape, input->about.kind, input->about.step);
}

const struct np_account *np_feed_account(const struct np_feed *feed)
{
    return &feed->account;
}

void np_feed_free(struct np_feed *feed)
{
    if (feed == NULL)
        return;
    collect(feed, true, false);
    staging_free(feed->staging);
    for (int i = 0; i < NR_BUFFERS && feed->has_memory; i++) {
        struct buffer *buffer = &feed->buffers[i];

        feed->device->ops->free(feed->device, buffer->images);
        feed->device->ops->free(feed->device, buffer->labels);
        feed->device->ops->free(feed->device, buffer->rows);
        np_free(buffer->about);
        np_free(buffer->host_labels);
    }
    if (feed->has_memory)
        feed->device->ops->free(feed->device, feed->arena);
    np_free(feed);
}
