/* A thousand random orders of copy, step, event and shutdown between a reader, the feed and the sim
 * device: slots, speeds, pauses and the moment of stopping are drawn. No batch may be lost, doubled,
 * or seen with another one's bytes, and everything ends. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "loader/base/clock.h"
#include "loader/base/rng.h"
#include "tests/test.h"
#include "trainer/feed.h"

enum { ROWS = 3, ROW_BYTES = 2 * 3 * 3, NR_ORDERS = 1000 };

static const struct np_batch_shape shape = {ROWS, 2, 3, 3, {0}, 0, 0, 0, NULL, 0};

struct order { /* one of them */
    uint32_t key;
    struct np_ring *ring;
    struct np_stat *stat;
    uint64_t nr_batches;
    uint64_t pause_ns; /* most between two batches of the reader */
};

/* A number below n for the draw'th question about thing `at`. */
static uint32_t draw(const struct order *order, uint32_t question, uint64_t at, uint32_t n)
{
    const uint32_t key[2] = {order->key, question},
                   counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
    uint32_t words[4];

    np_philox(key, counter, words);
    return words[0] % n;
}

static uint8_t pattern(uint64_t seq, int row)
{
    return (uint8_t)(seq * 31 + (uint64_t)row * 7 + 1);
}

static void *read_all(void *context)
{
    struct order *order = context;
    struct np_block *block = np_stat_join(order->stat, "reader", NULL);

    for (uint64_t seq = 0; seq < order->nr_batches; seq++) {
        struct np_batch *batch = np_ring_claim(order->ring, seq, block);

        if (!batch)
            return NULL;
        if (order->pause_ns && draw(order, 1, seq, 3) == 0)
            np_sleep_until_ns(np_now_ns() + draw(order, 2, seq, (uint32_t)order->pause_ns));
        for (int row = 0; row < ROWS; row++) {
            memset(np_ring_row(order->ring, batch, ROW_BYTES, row), pattern(seq, row), ROW_BYTES);
            batch->labels[row] = (int32_t)(seq * ROWS) + row;
            batch->step = seq;
            np_ring_commit(order->ring, batch, NULL);
        }
    }
    return NULL;
}

static bool whole(const struct np_input *input, uint64_t seq)
{
    const uint8_t *images = input->images;
    const int32_t *labels = input->labels;

    for (int row = 0; row < ROWS; row++) {
        if (labels[row] != (int32_t)(seq * ROWS) + row)
            return false;
        for (int i = 0; i < ROW_BYTES; i++)
            if (images[row * ROW_BYTES + i] != pattern(seq, row))
                return false;
    }
    return input->about.step == seq;
}

/* Waits for the device at some batches, not at others; true when the batch was right where it was
 * looked at. */
static bool train_one(const struct order *order, struct np_device *device, struct np_plan *plan,
    struct np_feed *feed, struct np_input *input, uint64_t seq)
{
    struct np_event event = {0};
    bool right = input->about.step == seq;

    device->plan_ops->step(plan, input->images, input->labels, seq, 1, false, NULL);
    if (draw(order, 3, seq, 2) == 0) {
        device->ops->record(device, NP_STREAM_COMPUTE, &event);
        device->ops->done(device, &event, true);
        right = right && whole(input, seq);
    }
    np_feed_release(feed, input);
    return right;
}

/* Trains until the set ends or the drawn moment of stopping; how many batches were right, -1: one was
 * not, or the feed ended as it should not. */
static int64_t train(struct order *order, struct np_device *device, struct np_plan *plan,
    struct np_feed *feed, uint64_t stop_at)
{
    uint64_t seq = 0;

    for (; seq < order->nr_batches; seq++) {
        struct np_input input;
        struct np_err err = {0};
        int code;

        if (seq == stop_at)
            np_ring_stop(order->ring, NULL);
        code = np_feed_next(feed, &input, &err);
        if (code == -ESHUTDOWN && seq >= stop_at)
            return (int64_t)seq;
        if (code < 0 || !train_one(order, device, plan, feed, &input, seq))
            return -1;
    }
    return (int64_t)seq;
}

static bool run_order(uint32_t key)
{
    struct order order = {.key = key, .stat = np_stat_new(NULL)};
    const struct np_device_options options = {
        .h2d_gbps = 0.0005 * (1 + draw(&order, 4, 0, 100)), /* a copy: 1 to 100 us */
        .step_ms = 0.002 * draw(&order, 5, 0, 60),
    };
    struct np_graph graph = {.batch = ROWS, .classes = 2};
    struct np_block *block = np_stat_join(order.stat, "trainer", NULL);
    struct np_device *device = NULL;
    struct np_plan *plan = NULL;
    struct np_feed *feed = NULL;
    pthread_t reader;

    order.nr_batches = 1 + draw(&order, 6, 0, 24);
    order.pause_ns = draw(&order, 7, 0, 2) ? 1 + draw(&order, 8, 0, 100000) : 0;
    uint64_t stop_at = draw(&order, 9, 0, 3) ? UINT64_MAX : draw(&order, 10, 0, 24);
    np_ring_new(&shape, 2 + (int)draw(&order, 11, 0, 4), &np_page_allocator, &order.ring, NULL);
    np_ring_start(order.ring, 0);
    np_device_open("sim", &options, &device, NULL);
    device->plan_ops->prepare(device, &graph, &graph, NULL, &plan, NULL);
    np_feed_new(device, order.ring, &shape, block, &feed, NULL);
    pthread_create(&reader, NULL, read_all, &order);
    int64_t done = train(&order, device, plan, feed, stop_at);
    np_ring_stop(order.ring, NULL);
    pthread_join(reader, NULL);
    np_feed_free(feed);
    np_ring_free(order.ring);
    device->plan_ops->free(plan);
    np_device_close(device);
    np_stat_free(order.stat);
    /* a stop may come after what was ready: never before it was asked for, never a batch too many */
    return stop_at >= order.nr_batches ? done == (int64_t)order.nr_batches
                                       : done >= (int64_t)stop_at;
}

Test(feed_orders, a_thousand_lose_and_double_nothing, .timeout = 120)
{
    for (uint32_t key = 0; key < NR_ORDERS; key++)
        cr_assert(run_order(key), "order %u", key);
}
