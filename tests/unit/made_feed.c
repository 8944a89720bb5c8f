/* See made_feed.h. */
#include "tests/unit/made_feed.h"

#include <string.h>

#include "loader/base/clock.h"

const struct np_batch_shape made_feed_shape = {MADE_FEED_ROWS, 3, 5, 3, {0}, 0, 0, 0, NULL, 0};

static const struct np_device_ops host_ops = {.name = "host"};
static struct np_device host_device = {.ops = &host_ops, .name = "host"};

struct made_feed *made_feed_new(int nr_slots, const struct np_device_options *sim)
{
    static struct made_feed bench;
    struct np_graph graph = {.batch = MADE_FEED_ROWS, .classes = 2};

    bench = (struct made_feed){.stat = np_stat_new(NULL)};
    bench.block = np_stat_join(bench.stat, "trainer", NULL);
    np_ring_new(&made_feed_shape, nr_slots, &np_page_allocator, &bench.ring, NULL);
    np_ring_start(bench.ring, 0);
    if (sim == NULL) {
        bench.device = &host_device;
    } else {
        np_device_open("sim", sim, &bench.device, NULL);
        bench.device->plan_ops->prepare(bench.device, &graph, &graph, NULL, &bench.plan, NULL);
    }
    np_feed_new(bench.device, bench.ring, &made_feed_shape, bench.block, &bench.feed, NULL);
    return &bench;
}

void made_feed_write(
    struct np_ring *ring, struct np_batch *batch, uint64_t seq, const struct np_block *block)
{
    for (int row = 0; row < MADE_FEED_ROWS; row++) {
        memset(np_ring_row(ring, batch, MADE_FEED_ROW_BYTES, row),
            (int)(seq * MADE_FEED_ROWS + (uint64_t)row) & 255, MADE_FEED_ROW_BYTES);
        batch->labels[row] = (int32_t)seq * 100 + row;
        batch->about[row].sample = seq * MADE_FEED_ROWS + (uint64_t)row;
        batch->step = seq;
        np_ring_commit(ring, batch, block);
    }
}

static void *reader(void *context)
{
    struct made_feed *bench = context;
    struct np_block *block = np_stat_join(bench->stat, "reader", NULL);

    for (uint64_t seq = 0; seq < bench->nr_batches; seq++) {
        if (bench->batch_ns > 0)
            np_sleep_until_ns(np_now_ns() + bench->batch_ns);
        struct np_batch *batch = np_ring_claim(bench->ring, seq, block);
        if (batch == NULL)
            return NULL;
        made_feed_write(bench->ring, batch, seq, NULL);
    }
    return NULL;
}

void made_feed_start(struct made_feed *bench, uint64_t nr_batches, uint64_t batch_ns)
{
    bench->nr_batches = nr_batches;
    bench->batch_ns = batch_ns;
    pthread_create(&bench->reader, NULL, reader, bench);
}

void made_feed_free(struct made_feed *bench)
{
    np_ring_stop(bench->ring, NULL);
    if (bench->nr_batches > 0)
        pthread_join(bench->reader, NULL);
    np_feed_free(bench->feed);
    np_ring_free(bench->ring);
    if (bench->device != &host_device) {
        bench->device->plan_ops->free(bench->plan);
        np_device_close(bench->device);
    }
    np_stat_free(bench->stat);
}

bool made_feed_measures(bool (*measure)(void))
{
    for (int i = 0; i < 20; i++) /* other programs may spoil one */
        if (measure())
            return true;
    return false;
}

bool made_feed_holds(const struct np_input *input, uint64_t seq)
{
    const uint8_t *images = input->images;
    const int32_t *labels = input->labels;

    for (int row = 0; row < MADE_FEED_ROWS; row++) {
        uint8_t want = (uint8_t)(seq * MADE_FEED_ROWS + (uint64_t)row);
        if (images[row * MADE_FEED_ROW_BYTES] != want ||
            images[(row + 1) * MADE_FEED_ROW_BYTES - 1] != want)
            return false;
        if (labels[row] != (int32_t)seq * 100 + row || input->about.labels[row] != labels[row])
            return false;
        if (input->about.about[row].sample != seq * MADE_FEED_ROWS + (uint64_t)row)
            return false;
    }
    return input->about.step == seq && input->about.seq == seq;
}

void made_feed_step(struct made_feed *bench, const struct np_input *input)
{
    bench->device->plan_ops->step(bench->plan, input->images, input->labels, 0, 1, false, NULL);
}

void made_feed_run(struct made_feed *bench, int nr_batches)
{
    for (int i = 0; i < nr_batches; i++) {
        struct np_input input;

        np_feed_next(bench->feed, &input, NULL);
        made_feed_step(bench, &input);
        np_feed_release(bench->feed, &input);
    }
}

void made_feed_drain(struct made_feed *bench)
{
    struct np_event event = {0};
    bench->device->ops->record(bench->device, NP_STREAM_COMPUTE, &event);
    bench->device->ops->done(bench->device, &event, true);
}
