/* See staging.h. Several copies fill a piece, each queued at once; an event is recorded after
 * the last one, and the piece is filled again when the event has passed. */
#include "trainer/staging.h"

#include <errno.h>
#include <string.h>

struct np_staging {
    struct np_device *device; /* set once */
    size_t piece_bytes;
    uint8_t *memory; /* pinned: (NP_STAGING_PIECES, piece_bytes) */

    int at;      /* the piece that is being filled */
    size_t used; /* of it */
    struct {
        struct np_event sent;
        bool waits; /* for `sent` */
    } pieces[NP_STAGING_PIECES];
};

int np_staging_new(struct np_device *device, size_t piece_bytes, struct np_staging **ret_staging,
    struct np_err *err)
{
    struct np_staging *staging = np_alloc(sizeof(*staging));
    const struct np_allocator *pinned = &device->pinned;

    staging->device = device;
    staging->piece_bytes = piece_bytes;
    staging->memory = pinned->alloc(pinned->context, NP_STAGING_PIECES * piece_bytes);
    if (staging->memory == NULL) {
        np_free(staging);
        return np_err_set(err, -ENOMEM, "%s: no pinned memory of %zu KiB for pictures%s%s",
            device->name, NP_STAGING_PIECES * piece_bytes >> 10, *device->fault ? ": " : "",
            device->fault);
    }
    *ret_staging = staging;
    return 0;
}

static int wait_for(struct np_staging *staging, int piece)
{
    if (!staging->pieces[piece].waits)
        return 0;
    staging->pieces[piece].waits = false;
    int passed = staging->device->ops->done(staging->device, &staging->pieces[piece].sent, true);
    return passed < 0 ? passed : 0;
}

/* The next piece, empty. */
static int turn(struct np_staging *staging)
{
    staging->device->ops->record(
        staging->device, NP_STREAM_COPY, &staging->pieces[staging->at].sent);
    staging->pieces[staging->at].waits = true;
    staging->at = (staging->at + 1) % NP_STAGING_PIECES;
    staging->used = 0;
    return wait_for(staging, staging->at);
}

int np_staging_upload(struct np_staging *staging, void *dst, const void *src, size_t bytes)
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

void np_staging_free(struct np_staging *staging)
{
    if (staging == NULL)
        return;
    const struct np_allocator *pinned = &staging->device->pinned;

    turn(staging);
    for (int i = 0; i < NP_STAGING_PIECES; i++)
        wait_for(staging, i);
    pinned->free(pinned->context, staging->memory, NP_STAGING_PIECES * staging->piece_bytes);
    np_free(staging);
}
