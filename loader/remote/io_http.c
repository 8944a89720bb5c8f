/* The backend `http`: reads of objects beside those of a local backend, which it wraps. A read whose
 * bytes are in the cache on local disk becomes a read of that (a detour). Others wait in a queue until
 * the reader has nothing else to do; then neighbours in one object become one request (a group), of
 * whole blocks if the cache takes them. One thread, which sleeps in one place for both: curl's sockets
 * and the local ring together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/remote/part.h"
#include "loader/remote/remote_http.h"
#include "loader/remote/store.h"

#define GAP_BYTES   (64u << 10) /* between neighbours: cheaper to receive than another request */
#define MERGE_BYTES (8u << 20)  /* of a request for several reads ... */
#define BLOCK_BYTES (2u << 20)  /* ... that is stored in the cache */
#define NR_RECENT   16          /* requests whose blocks stay in memory until the disk has them */

/* Reads that one request serves. */
struct group {
    struct np_part part;       /* its object, offset and bytes stay valid in `recent` groups */
    struct np_io_read **reads; /* (depth) */
    int nr_reads;
    struct np_range_object
        *stored;     /* the cache takes its blocks; NULL: bytes go to the reads at once */
    uint8_t *waste;  /* (GAP_BYTES) of all groups */
    uint8_t *blocks; /* (room) of a stored group; owned */
    size_t room;
    enum { FREE, FLYING, RECENT } state;
    uint64_t used; /* RECENT: the oldest is reused first */
};

/* A read of an object on its way through the local backend. */
struct detour {
    struct np_io_read read;
    struct np_io_read *origin; /* NULL: free */
    struct np_range_object *stored;
    bool blocks; /* reads whole blocks, which were not compared with their checksums yet */
    uint64_t offset, bytes;
    uint8_t *memory; /* (room) for them; owned */
    size_t room;
};

struct http_io {
    struct np_io local;
    struct np_parts *parts;
    const struct np_remote_session *session;
    int depth, nr_groups;
    struct group *groups;                  /* (nr_groups) */
    struct detour *detours;                /* (depth); NULL: there is no cache */
    struct np_io_read **reads;             /* (nr_groups, depth), of the groups */
    uint8_t *waste;                        /* (GAP_BYTES) */
    struct np_io_read **queue, **complete; /* (depth) not started; ready for reap(), a ring */
    int nr_queued, first_complete, nr_complete;
    uint64_t uses;
    char why[768]; /* the last failure */
};

static void put_complete(struct http_io *http, struct np_io_read *read, int32_t result)
{
    read->result = result;
    http->complete[(http->first_complete + http->nr_complete++) % http->depth] = read;
}

/* Where a read ends: at the object's end at the latest. */
static uint64_t end_of(const struct np_io_read *read)
{
    const uint64_t end = read->offset + read->bytes, bytes = np_object_of(read->fd)->bytes;

    return end < bytes ? end : bytes;
}

/* Copies what a range of an object has of a read's bytes. */
static void copy_bytes(struct np_io_read *read, uint64_t from, const void *bytes, uint64_t nr)
{
    const uint64_t end = end_of(read), to = from + nr;
    const uint64_t first = from > read->offset ? from : read->offset;
    const uint64_t last = to < end ? to : end;
    const uint8_t *source = (const uint8_t *)bytes + (first - from);
    uint8_t *place = (uint8_t *)read->buffer + (first - read->offset);

    if (first < last && place != source)
        memcpy(place, source, last - first);
}

/* --- detours through the cache --------------------------------------------------------------- */

static struct detour *free_detour(struct http_io *http)
{
    for (int i = 0; i < http->depth; i++)
        if (!http->detours[i].origin)
            return &http->detours[i];
    return NULL; /* not so: each read has one at most */
}

/* True: the read's bytes, or the blocks around them, are being read from the local disk. */
static bool begin_detour(
    struct http_io *http, struct np_io_read *read, struct np_range_object *stored)
{
    struct np_range_place place;
    const uint64_t bytes = end_of(read) - read->offset;
    const enum np_range_state state = np_range_find(stored, read->offset, bytes, &place);
    struct detour *detour = state == NP_RANGE_MISS ? NULL : free_detour(http);

    if (!detour || place.bytes > INT32_MAX)
        return false;
    detour->blocks = state == NP_RANGE_BLOCKS;
    if (detour->blocks && np_hold(&detour->memory, &detour->room, place.bytes, NULL))
        return false;
    detour->origin = read;
    detour->stored = stored;
    detour->offset = place.offset;
    detour->bytes = place.bytes;
    detour->read = (struct np_io_read){.fd = place.fd,
        .offset = place.file_offset,
        .bytes = (uint32_t)place.bytes,
        .buffer = detour->blocks ? detour->memory : read->buffer,
        .owner = detour};
    if (np_io_submit(&http->local, &detour->read) == 0)
        return true;
    detour->origin = NULL;
    return false;
}

/* A detour has ended: its read is complete, or it is fetched after all. */
static void end_detour(struct http_io *http, struct detour *detour)
{
    struct np_io_read *read = detour->origin;
    const bool whole = detour->read.result == (int32_t)detour->bytes;

    detour->origin = NULL;
    if (!whole)
        np_range_drop(detour->stored, detour->offset, detour->bytes);
    if (whole && detour->blocks) {
        if (!np_range_check(detour->stored, detour->offset, detour->memory, detour->bytes)) {
            http->queue[http->nr_queued++] = read;
            return;
        }
        copy_bytes(read, detour->offset, detour->memory, detour->bytes);
    }
    if (whole)
        put_complete(http, read, (int32_t)(end_of(read) - read->offset));
    else
        http->queue[http->nr_queued++] = read;
}

/* NULL: the read is the caller's own. */
static struct detour *detour_of(const struct http_io *http, const struct np_io_read *read)
{
    for (int i = 0; http->detours && i < http->depth; i++)
        if (read == &http->detours[i].read)
            return &http->detours[i];
    return NULL;
}

/* --- groups ---------------------------------------------------------------------------------- */

/* True: blocks that are on their way, or came lately, have the read's bytes: the disk may not have
 * them yet. */
static bool join_group(struct http_io *http, struct np_io_read *read)
{
    const struct np_object *object = np_object_of(read->fd);

    for (int i = 0; i < http->nr_groups; i++) {
        struct group *group = &http->groups[i];
        const struct np_part *part = &group->part;

        if (group->state == FREE || !group->stored || part->object != object ||
            read->offset < part->offset || end_of(read) > part->offset + part->bytes)
            continue;
        if (group->state == FLYING) {
            group->reads[group->nr_reads++] = read;
        } else {
            group->used = ++http->uses;
            copy_bytes(read, part->offset, group->blocks, part->bytes);
            put_complete(http, read, (int32_t)(end_of(read) - read->offset));
        }
        return true;
    }
    return false;
}

/* A free one, or the one that was needed longest ago. At most `depth` fly at once. */
static struct group *take_group(struct http_io *http)
{
    struct group *oldest = NULL;

    for (int i = 0; i < http->nr_groups; i++) {
        struct group *group = &http->groups[i];

        if (group->state == FREE)
            return group;
        if (group->state == RECENT && (!oldest || group->used < oldest->used))
            oldest = group;
    }
    return oldest;
}

/* In the blocks, or in the first read that wants the byte; else what lies between reads, which is
 * thrown away. */
static uint8_t *find_room(struct np_part *part, uint64_t at, size_t *ret_bytes)
{
    const struct group *group = part->owner;
    const uint64_t offset = part->offset + at;
    uint64_t next = part->offset + part->bytes;

    if (group->stored) {
        *ret_bytes = part->bytes - at;
        return group->blocks + at;
    }
    for (int i = 0; i < group->nr_reads; i++) {
        const struct np_io_read *read = group->reads[i];

        if (read->offset <= offset && offset < end_of(read)) {
            *ret_bytes = end_of(read) - offset;
            return (uint8_t *)read->buffer + (offset - read->offset);
        }
        if (read->offset > offset && read->offset < next)
            next = read->offset;
    }
    *ret_bytes = next - offset < GAP_BYTES ? next - offset : GAP_BYTES;
    return group->waste;
}

static void take_bytes(struct np_part *part, uint64_t at, const void *bytes, size_t nr)
{
    const struct group *group = part->owner;

    if (group->stored && bytes != group->blocks + at)
        memcpy(group->blocks + at, bytes, nr);
    for (int i = 0; !group->stored && i < group->nr_reads; i++)
        copy_bytes(group->reads[i], part->offset + at, bytes, nr);
}

/* A range of one object that reads need. */
struct need {
    uint64_t from, end;
    struct np_range_object *stored; /* as in struct group */
};

static struct need need_of(const struct http_io *http, const struct np_io_read *read)
{
    struct need need = {read->offset, end_of(read), NULL};
    struct np_range_object *stored =
        http->detours ? np_remote_store_find(http->session->store, read->fd) : NULL;
    uint64_t from = need.from, bytes = need.end - need.from;

    if (stored && np_range_wants(stored, &from, &bytes))
        need = (struct need){from, from + bytes, stored};
    return need;
}

static void begin_group(
    struct http_io *http, struct np_io_read **reads, int nr, const struct need *need)
{
    struct group *group = take_group(http);

    group->state = FLYING;
    group->stored = need->stored;
    memcpy(group->reads, reads, (size_t)nr * sizeof(*reads));
    group->nr_reads = nr;
    group->part.object = np_object_of(reads[0]->fd);
    group->part.offset = need->from;
    group->part.bytes = need->end - need->from;
    group->part.limit_ns = http->session->limit_ns;
    group->part.room = find_room;
    group->part.data = take_bytes;
    group->part.owner = group;
    if (group->stored && np_hold(&group->blocks, &group->room, group->part.bytes, NULL)) {
        /* without memory for whole blocks: just what the reads need */
        group->stored = NULL;
        group->part.offset = reads[0]->offset;
        group->part.bytes = need->end - reads[0]->offset;
    }
    np_parts_add(http->parts, &group->part);
}

static int by_place(const void *a, const void *b)
{
    const struct np_io_read *x = *(struct np_io_read *const *)a;
    const struct np_io_read *y = *(struct np_io_read *const *)b;

    if (x->fd != y->fd)
        return x->fd < y->fd ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
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
        struct need need = need_of(http, queue[from]);

        for (to = from + 1; to < nr && queue[to]->fd == queue[from]->fd; to++) {
            const struct need next = need_of(http, queue[to]);
            const uint64_t limit = need.stored ? BLOCK_BYTES : MERGE_BYTES;

            if (next.stored != need.stored || next.from > need.end + GAP_BYTES ||
                next.end > need.from + limit)
                break;
            need.end = next.end > need.end ? next.end : need.end;
        }
        begin_group(http, queue + from, to - from, &need);
    }
}

static void end_group(struct http_io *http, struct group *group)
{
    const struct np_part *part = &group->part;
    const int code = part->code;

    if (code)
        memcpy(http->why, part->err.text, sizeof(http->why));
    for (int i = 0; i < group->nr_reads; i++) {
        struct np_io_read *read = group->reads[i];

        read->why = code ? http->why : NULL;
        if (!code && group->stored)
            copy_bytes(read, part->offset, group->blocks, part->bytes);
        put_complete(http, read, code ? code : (int32_t)(end_of(read) - read->offset));
    }
    if (!code && group->stored)
        np_range_put(group->stored, part->offset, group->blocks, part->bytes);
    group->state = !code && group->stored ? RECENT : FREE;
    group->used = ++http->uses;
}

/* --- the table ------------------------------------------------------------------------------- */

static int submit(struct np_io *io, struct np_io_read *read)
{
    struct http_io *http = io->state;
    struct np_range_object *stored;
    int code;

    if (read->path || !np_is_remote(read->fd)) {
        code = np_io_submit(&http->local, read);
        io->blocks = http->local.blocks;
        return code;
    }
    read->why = NULL;
    if (read->offset >= np_object_of(read->fd)->bytes) {
        put_complete(http, read, 0);
        return 0;
    }
    stored = http->detours ? np_remote_store_find(http->session->store, read->fd) : NULL;
    if (!stored || (!join_group(http, read) && !begin_detour(http, read, stored)))
        http->queue[http->nr_queued++] = read;
    return 0;
}

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

/* The next complete read of the local backend that is the caller's own; ends detours. */
static struct np_io_read *reap_local(struct http_io *http, bool wait)
{
    struct np_io_read *read = np_io_reap(&http->local, wait);

    for (; read; read = np_io_reap(&http->local, false)) {
        struct detour *detour = detour_of(http, read);

        if (!detour)
            return read;
        end_detour(http, detour);
    }
    return NULL;
}

static int wake_fd(const struct np_io *io)
{
    return io->ops->wake_fd ? io->ops->wake_fd(io) : -1;
}

/* Waits for either. Returns a read of the local backend, or NULL: look again. */
static struct np_io_read *wait_for_any(struct http_io *http)
{
    const int nr_local = http->local.nr_in_flight, nr_parts = np_parts_in_flight(http->parts);

    if (nr_local > 0 && (nr_parts == 0 || wake_fd(&http->local) < 0))
        return reap_local(http, true); /* a disk does not take long */
    np_parts_wait(http->parts, nr_local > 0 ? wake_fd(&http->local) : -1);
    return NULL;
}

static struct np_io_read *reap(struct np_io *io, bool wait)
{
    struct http_io *http = io->state;
    struct np_io_read *read = NULL;

    for (;;) {
        struct np_part *part;

        if ((read = take_complete(http)) != NULL || (read = reap_local(http, false)) != NULL)
            return read;
        flush(http);
        while ((part = np_parts_turn(http->parts)) != NULL)
            end_group(http, part->owner);
        if (http->nr_complete > 0)
            continue;
        if (!wait || (read = wait_for_any(http)) != NULL)
            return read;
    }
}

static void close_http(struct np_io *io)
{
    struct http_io *http = io->state;

    np_parts_free(http->parts);
    np_io_close(&http->local);
    for (int i = 0; http->groups && i < http->nr_groups; i++)
        np_free(http->groups[i].blocks);
    for (int i = 0; http->detours && i < http->depth; i++)
        np_free(http->detours[i].memory);
    np_free(http->groups);
    np_free(http->detours);
    np_free(http->reads);
    np_free(http->waste);
    np_free(http->queue);
    np_free(http->complete);
    np_free(http);
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
    const bool stores = http->session->store != NULL;
    const size_t nr_groups = depth + (stores ? NR_RECENT : 0);

    http->nr_groups = (int)nr_groups;
    http->groups = np_try_array(nr_groups, sizeof(*http->groups), err);
    http->reads = np_try_array(nr_groups * depth, sizeof(*http->reads), err);
    http->queue = np_try_array(depth, sizeof(*http->queue), err);
    http->complete = np_try_array(depth, sizeof(*http->complete), err);
    if (stores && !(http->detours = np_try_array(depth, sizeof(*http->detours), err)))
        return -ENOMEM;
    http->waste = np_try_alloc(GAP_BYTES, err);
    if (!http->groups || !http->reads || !http->queue || !http->complete || !http->waste)
        return -ENOMEM;
    for (size_t i = 0; i < nr_groups; i++) {
        http->groups[i].reads = http->reads + i * depth;
        http->groups[i].waste = http->waste;
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
