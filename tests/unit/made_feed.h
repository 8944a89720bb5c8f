/* A ring, a device and a feed between them, for the feed's tests. */
#ifndef NP_MADE_FEED_H
#define NP_MADE_FEED_H

#include <pthread.h>
#include <stdbool.h>

#include "trainer/feed.h"

enum { MADE_FEED_ROWS = 4, MADE_FEED_ROW_BYTES = 3 * 5 * 3 };
extern const struct np_batch_shape made_feed_shape;

struct made_feed {
    struct np_ring *ring;
    struct np_stat *stat;
    struct np_block *block;
    struct np_device *device;
    struct np_plan *plan;
    struct np_feed *feed;
    pthread_t reader;              /* where made_feed_start() is called, or a test starts its own */
    uint64_t nr_batches, batch_ns; /* reader: how many, and the time it takes for one */
};

/* On a sim device, or (NULL) on a device that reads the host's memory. One at a time. */
struct made_feed *made_feed_new(int nr_slots, const struct np_device_options *sim);
void made_feed_free(struct made_feed *bench);
/* Batch seq's bytes, labels and facts, handed in row by row. */
void made_feed_write(
    struct np_ring *ring, struct np_batch *batch, uint64_t seq, const struct np_block *block);
/* Starts a reader thread that makes so many batches. */
void made_feed_start(struct made_feed *bench, uint64_t nr_batches, uint64_t batch_ns);
/* Are these the bytes, labels and facts of batch seq? */
bool made_feed_holds(const struct np_input *input, uint64_t seq);
void made_feed_step(struct made_feed *bench, const struct np_input *input);
/* The next batches, one after the other: uploaded, computed with, released. */
void made_feed_run(struct made_feed *bench, int nr_batches);
/* Waits until the compute stream is empty: then the copies are done too. */
void made_feed_drain(struct made_feed *bench);
/* Measures up to five times: a busy machine spoils some measurements, wrong code all. */
bool made_feed_measures(bool (*measure)(void));

#endif
