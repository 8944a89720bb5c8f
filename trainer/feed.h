/* Ring slot -> device, then the slot back. Trainer thread. */
#ifndef NP_FEED_H
#define NP_FEED_H

#include "loader/cache.h"
#include "loader/ring.h"
#include "trainer/device.h"
#include "trainer/feed_account.h"

#define NP_FEED_BUFFERS 3 /* batches on a device with memory of its own */

struct np_input {                /* a batch on the device */
    const void *images, *labels; /* device pointers */
    /* The batch's facts, valid until np_feed_release(). On a device with memory of its own the
     * slot may be refilled meanwhile: images is NULL here, labels and about are copies. */
    struct np_batch about;
    struct np_batch *slot; /* the feed's: a device that reads the host's memory holds it */
    int buffer;            /* the feed's */
};

struct np_feed;
/* Buffers on the device are taken here, once. */
int np_feed_new(struct np_device *device, struct np_ring *ring, const struct np_batch_shape *shape,
    struct np_block *block, struct np_feed **ret_feed, struct np_err *err);
/* From now on the device has a copy of the cache's pictures, each brought there with the first batch
 * that asks for it, and makes the rows that are resident. Before the first upload; the device has
 * make_rows. The cache is borrowed, as long as the feed lives. */
int np_feed_keep(struct np_feed *feed, struct np_cache *cache, struct np_err *err);
/* With 1 << NP_STAGE_COPY in stubs (see daemon/run/run.h) only the first batches' pixels are copied: after
 * that each buffer keeps what it has. Before the first upload. */
void np_feed_stub(struct np_feed *feed, unsigned stubs);
void np_feed_free(struct np_feed *feed);
/* Takes the next batch of the ring and starts its copy, the one after it too if it is ready; the
 * compute stream follows the copy. Blocks while the ring has none; that time is the stall.
 * -ESHUTDOWN: the ring was stopped. */
int np_feed_next(struct np_feed *feed, struct np_input *ret_input, struct np_err *err);
/* The compute calls that read the input are queued: its buffer, and the slot of a device that
 * reads the host's memory, go back once they have passed. */
void np_feed_release(struct np_feed *feed, struct np_input *input);
void np_feed_times(const struct np_feed *feed, struct np_feed_times *ret_times);
/* So far: the time in which the device had nothing to do for want of a batch: of the waits in
 * np_feed_next(), and of what was queued behind a copy, told once it has passed. */
uint64_t np_feed_stall_ns(const struct np_feed *feed);
/* The same by cause, adding up to it to the nanosecond: what the reader of the late batch's last row did
 * while the trainer waited for it (np_ring_late()), or its copy. Trainer thread; others read
 * np_stat_sum.blame_ns. */
void np_feed_blame(const struct np_feed *feed, uint64_t ret_ns[NP_NR_STAGES]);
/* What of the stall a longer ring would have bridged: with 1, 2, 4, 8, 16 more slots, had they been
 * full at each wait for readers. */
void np_feed_bridged(const struct np_feed *feed, uint64_t ret_ns[NP_FEED_BRIDGES]);

#endif
