/* The backend `http`: reads of objects beside those of a local backend, which it wraps. Reads wait in a
 * queue until the reader has nothing else to do; then neighbours in one object become one request.
 * One thread, which sleeps in one place for both: curl's sockets and the local ring together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/remote/part.h"
#include "loader/remote/remote_http.h"

#define GAP_BYTES   (64u << 10) /* between neighbours: cheaper to receive than another request */
#define MERGE_BYTES (8u << 20)  /* of a request for several reads */

/* Reads that one request serves. */
struct group {
    struct np_part part;
    struct np_io_read **reads; /* (depth) by offset */
    int nr_reads;
};

struct http_io {
    struct np_io local;
    struct np_parts *parts;
    const struct np_remote_session *session;
    int depth;
    struct group *groups, **spare; /* (depth) */
    int nr_spare;
    struct np_io_read **reads;             /* (depth, depth), of the groups */
    struct np_io_read **queue, **complete; /* (depth) not started; ready for reap(), a ring */
    int nr_queued, first_complete, nr_complete;
    char why[768]; /* the last failure */
};

static void close_http(struct np_io *io)
{
    struct http_io *http = io->state;

    np_parts_free(http->parts);
    np_io_close(&http->local);
    np_free(http->groups);
    np_free(http->spare);
    np_free(http->reads);
    np_free(http->queue);
    np_free(http->complete);
    np_free(http);
}

static void put_complete(struct http_io *http, struct np_io_read *read, int32_t result)
{
    read->result = result;
    http->complete[(http->first_complete + http->nr_complete++) % http->depth] = read;
}

static int submit(struct np_io *io, struct np_io_read *read)
{
    struct http_io *http = io->state;
    const struct np_object *object;
    int code;

    if (read->path || !np_is_remote(read->fd)) {
        code = np_io_submit(&http->local, read);
        io->blocks = http->local.blocks;
        return code;
    }
    object = np_object_of(read->fd);
    read->why = NULL;
    if (read->offset >= object->bytes) {
        put_complete(http, read, 0);
        return 0;
    }
    http->queue[http->nr_queued++] = read;
    return 0;
}

/* --- groups ---------------------------------------------------------------------------------- */

static uint64_t end_of(const struct np_io_read *read)
{
    const uint64_t end = read->offset + read->bytes, bytes = np_object_of(read->fd)->bytes;

    return end < bytes ? end : bytes;
}

static int by_place(const void *a, const void *b)
{
    const struct np_io_read *x = *(struct np_io_read *const *)a,
                            *y = *(struct np_io_read *const *)b;

    if (x->fd != y->fd)
        return x->fd < y->fd ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Bytes at `at` of the part: copies them into each read that has a place for some. */
static void take_bytes(struct np_part *part, uint64_t at, const void *bytes, size_t nr)
{
    const struct group *group = part->owner;
    const uint64_t from = part->offset + at, to = from + nr;

    for (int i = 0; i < group->nr_reads; i++) {
        struct np_io_read *read = group->reads[i];
        const uint64_t end = end_of(read);
        const uint64_t first = from > read->offset ? from : read->offset;
        const uint64_t last = to < end ? to : end;

        if (read->offset >= to)
            break;
        if (first < last)
            memcpy((uint8_t *)read->buffer + (first - read->offset),
                (const uint8_t *)bytes + (first - from), last - first);
    }
}

static void begin_group(struct http_io *http, struct np_io_read **reads, int nr, uint64_t end)
{
    struct group *group = http->spare[--http->nr_spare];

    memcpy(group->reads, reads, (size_t)nr * sizeof(*reads));
    group->nr_reads = nr;
    group->part.object = np_object_of(reads[0]->fd);
    group->part.offset = reads[0]->offset;
    group->part.bytes = end - reads[0]->offset;
    group->part.limit_ns = http->session->limit_ns;
    group->part.data = take_bytes;
    group->part.owner = group;
    np_parts_add(http->parts, &group->part);
}

/* Starts what is queued: the reads of one object that lie close together as one request. */
static void flush(struct http_io *http)
{
    struct np_io_read **queue = http->queue;
    const int nr = http->nr_queued;

    http->nr_queued = 0;
    if (nr > 1)
        qsort(queue, (size_t)nr, sizeof(*queue), by_place);
    for (int from = 0, to; from < nr; from = to) {
        uint64_t end = end_of(queue[from]);

        for (to = from + 1; to < nr; to++) {
            const uint64_t next_end = end_of(queue[to]);

            if (queue[to]->fd != queue[from]->fd || queue[to]->offset > end + GAP_BYTES ||
                next_end - queue[from]->offset > MERGE_BYTES)
                break;
            end = next_end > end ? next_end : end;
        }
        begin_group(http, queue + from, to - from, end);
    }
}

static void finish_group(struct http_io *http, struct group *group)
{
    const int code = group->part.code;

    if (code)
        memcpy(http->why, group->part.err.text, sizeof(http->why));
    for (int i = 0; i < group->nr_reads; i++) {
        struct np_io_read *read = group->reads[i];

        read->why = code ? http->why : NULL;
        put_complete(http, read, code ? code : (int32_t)(end_of(read) - read->offset));
    }
    http->spare[http->nr_spare++] = group;
}

/* --- the wait -------------------------------------------------------------------------------- */

static struct np_io_read *take_complete(struct http_io *http)
{
    struct np_io_read *read;

    if (http->nr_complete == 0)
        return NULL;
    read = http->complete[http->first_complete];
    http->first_complete = (http->first_complete + 1) % http->depth;
    http->nr_complete--;
    return read;
}

static int wake_fd(const struct np_io *io)
{
    return io->ops->wake_fd ? io->ops->wake_fd(io) : -1;
}

static struct np_io_read *reap(struct np_io *io, bool wait)
{
    struct http_io *http = io->state;
    struct np_io *local = &http->local;

    for (;;) {
        struct np_io_read *read = take_complete(http);
        struct np_part *part;

        if (read)
            return read;
        flush(http);
        while ((part = np_parts_turn(http->parts)) != NULL)
            finish_group(http, part->owner);
        if (http->nr_complete > 0)
            continue;
        read = np_io_reap(local, false);
        if (read || !wait)
            return read;
        if (np_parts_in_flight(http->parts) == 0 ||
            (local->nr_in_flight > 0 && wake_fd(local) < 0)) /* a disk does not take long */
            return np_io_reap(local, true);
        np_parts_wait(http->parts, local->nr_in_flight > 0 ? wake_fd(local) : -1);
    }
}

static int open_nothing(struct np_io *io, int depth, struct np_err *err)
{
    return np_err_set(err, -EINVAL, "np_io_http_open() opens this backend");
}

static const struct np_io_ops ops = {
    .name = "http",
    .no_cache_probe = true,
    .open = open_nothing,
    .submit = submit,
    .reap = reap,
    .close = close_http,
};

static int new_groups(struct http_io *http, struct np_err *err)
{
    const size_t depth = (size_t)http->depth;

    http->groups = np_try_array(depth, sizeof(*http->groups), err);
    http->spare = np_try_array(depth, sizeof(*http->spare), err);
    http->reads = np_try_array(depth * depth, sizeof(*http->reads), err);
    http->queue = np_try_array(depth, sizeof(*http->queue), err);
    http->complete = np_try_array(depth, sizeof(*http->complete), err);
    if (!http->groups || !http->spare || !http->reads || !http->queue || !http->complete)
        return -ENOMEM;
    for (size_t i = 0; i < depth; i++) {
        http->groups[i].reads = http->reads + i * depth;
        http->spare[http->nr_spare++] = &http->groups[i];
    }
    return 0;
}

int np_io_http_open(struct np_io *io, const char *local, int depth,
    const struct np_remote_session *session, struct np_err *err)
{
    struct http_io *http = np_try_alloc(sizeof(*http), err);
    struct np_io own = {.ops = &ops, .state = http, .depth = depth};
    int code = http ? np_io_open(&http->local, local, depth, err) : -ENOMEM;

    if (code) {
        np_free(http);
        return code;
    }
    http->session = session;
    http->depth = depth;
    http->parts = np_parts_new(depth, &session->stopped, err);
    own.complete = np_try_array((size_t)depth, sizeof(*own.complete), err);
    code = http->parts && own.complete ? new_groups(http, err) : -ENOMEM;
    if (code) {
        close_http(&own);
        np_free(own.complete);
        return code;
    }
    own.opens = http->local.opens;
    *io = own;
    return 0;
}
