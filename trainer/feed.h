/* Copies batches from the ring's slots to the device and releases the slots. Trainer thread. */
#ifndef NP_FEED_H
#define NP_FEED_H

#include "loader/cache.h"
#include "loader/ring.h"
#include "trainer/device.h"
#include "trainer/feed_account.h"

/* Batches on a device with memory of its own: those of the steps that are queued, and one that is filled. */
#define NP_FEED_BUFFERS (NP_MAX_LATER + 2)

struct np_input {                /* a batch in the device's memory */
    const void *images, *labels; /* device pointers */
    /* The batch's facts, valid until np_feed_release(). On a device with its own memory the slot
     * may be refilled meanwhile: images is NULL here, labels and about are copies. */
    struct np_batch about;
    struct np_batch *slot; /* private: the slot of a device that reads the host's memory */
    int buffer;            /* private */
};

struct np_feed;
/* Allocates the buffers on the device. */
int np_feed_new(struct np_device *device, struct np_ring *ring, const struct np_batch_shape *shape,
    struct np_block *block, struct np_feed **ret_feed, struct np_err *err);
/* Keeps a copy of the cache's pictures on the device, each copied with the first batch that
 * needs it; the device makes the rows of resident pictures. Call before the first upload; the
 * device must have make_rows. The cache is borrowed as long as the feed lives. */
int np_feed_keep(struct np_feed *feed, struct np_cache *cache, struct np_err *err);
/* With 1 << NP_STAGE_COPY in stubs (see daemon/run/run.h) only the first batches' pixels are
 * copied: after that each buffer keeps its contents. Call before the first upload. */
void np_feed_stub(struct np_feed *feed, unsigned stubs);
void np_feed_free(struct np_feed *feed);
/* Takes the ring's next batch and starts its copy, and that of the batch after it if it is
 * ready; the compute stream follows the copy. Blocks while the ring has no batch; that time is
 * the stall. -ESHUTDOWN: the ring was stopped. */
int np_feed_next(struct np_feed *feed, struct np_input *ret_input, struct np_err *err);
/* True: np_feed_next() would wait for a batch. */
bool np_feed_starves(const struct np_feed *feed);
/* Waits until it would not, or until until_ns (np_now_ns()). */
void np_feed_expect(struct np_feed *feed, uint64_t until_ns);
/* Call when the compute calls that read the input are queued: its buffer, or the slot on a
 * device that reads the host's memory, is free once they have passed. */
void np_feed_release(struct np_feed *feed, struct np_input *input);
/* Bytes of a row of an input's images. */
size_t np_feed_row_bytes(const struct np_feed *feed, const struct np_input *input);
/* Returns the account of the device's waits, which is valid as long as the feed; its other
 * functions update it. Trainer thread; other threads read np_stat_sum.blame_ns. */
const struct np_account *np_feed_account(const struct np_feed *feed);

#endif
