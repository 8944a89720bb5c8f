/* A stage replaced by replay of what it put out: its work ends, that of the others continues, and rows
 * keep to be pictures of the set. */
#include <stdlib.h>
#include <string.h>

#include "loader/base/clock.h"
#include "tests/test.h"
#include "tests/unit/made_loader.h"
#include "trainer/feed.h"

enum {
    ROW_BYTES = SIDE * SIDE * 3,
    LEAST = 16 /* rows for a reader's store: two batches, two readers */
};

/* --- runs ------------------------------------------------------------------------------------- */

struct seen {
    int nr_rows, nr_foreign,
        nr_wrong;    /* rows; of them another sample's; of them of no sample at all */
    int nr_misnamed; /* about or label is not the ticket's */
    uint64_t nr_bad;
    struct np_stat_sum sum;
};

/* Which sample's pixels are these? N: of none. */
static uint64_t sample_of(const uint8_t *pixels)
{
    for (uint64_t sample = 0; sample < N; sample++) {
        int i = 0;

        while (i < ROW_BYTES && pixels[i] == made_byte(sample, i))
            i++;
        if (i == ROW_BYTES)
            return sample;
    }
    return N;
}

static void see_row(
    struct np_loader *loader, const struct np_batch *batch, int row, struct seen *seen)
{
    const uint64_t sample = sample_of(batch->images + row * ROW_BYTES);
    struct np_ticket ticket;

    np_sampler_ticket(loader->sampler, batch->seq, row, &ticket);
    seen->nr_rows++;
    seen->nr_wrong += sample == N;
    seen->nr_foreign += sample != ticket.sample;
    seen->nr_misnamed += batch->about[row].sample != ticket.sample ||
                         batch->labels[row] != (int32_t)(ticket.sample % MADE_CLASSES);
}

/* A run of two readers over pictures without augmentation; stubs: the replayed stages. */
static struct seen run(enum made_kind kind, int cache, unsigned stubs)
{
    struct seen seen = {0};
    struct np_loader *loader = NULL;
    struct np_bad_sample bad;
    struct rig rig;
    int failed = rig_make(&rig, kind, false, 0);

    rig.options.cache = cache;
    rig.options.stubs = stubs;
    struct np_block *block = np_stat_join(rig.config.stat, "trainer", NULL);
    failed |= np_loader_start(&rig.config, &loader, NULL);
    for (uint64_t seq = 0; !failed && seq < STEPS; seq++) {
        struct np_batch *batch = np_ring_take(loader->ring, block, NULL);

        failed |= batch == NULL;
        for (int row = 0; batch && row < BATCH; row++)
            see_row(loader, batch, row, &seen);
        if (batch)
            np_ring_release(loader->ring, batch);
    }
    seen.nr_wrong += failed;
    while (loader && np_loader_next_bad(loader, &bad))
        seen.nr_bad++;
    np_stat_read(rig.config.stat, "reader", &seen.sum);
    np_loader_stop(loader);
    rig_free(&rig);
    return seen;
}

Test(replay, rows_stay_pictures_of_the_set_under_their_own_names, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++)
        for (int cache = NP_CACHE_NONE; cache <= NP_CACHE_DECODED; cache++)
            for (int stage = NP_STAGE_READ; stage <= NP_STAGE_BATCH; stage++) {
                struct seen seen = run((enum made_kind)kind, cache, 1u << stage);

                cr_expect_eq(seen.nr_rows, STEPS * BATCH);
                cr_expect_eq(seen.nr_wrong + seen.nr_misnamed, 0, "kind %d, cache %d, %s: %d + %d",
                    kind, cache, np_stage_names[stage], seen.nr_wrong, seen.nr_misnamed);
                cr_expect_eq(seen.nr_bad, 0u);
                if (stage == NP_STAGE_BATCH || (stage == NP_STAGE_DECOMPRESS && kind != MADE_ZSTD))
                    cr_expect_eq(seen.nr_foreign, 0, "kind %d, cache %d, %s", kind, cache,
                        np_stage_names[stage]);
                else if (cache == NP_CACHE_NONE)
                    cr_expect_gt(seen.nr_foreign, STEPS * BATCH / 2, "kind %d, %s", kind,
                        np_stage_names[stage]);
            }
}

Test(replay, reads_end_once_the_stores_are_full_and_the_rest_continues, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        const struct seen all = run((enum made_kind)kind, NP_CACHE_NONE, 0);
        const struct seen seen = run((enum made_kind)kind, NP_CACHE_NONE, 1u << NP_STAGE_READ);

        cr_expect_eq(all.nr_foreign, 0);
        /* Beside the stores' own: reads that were under way. */
        cr_expect_leq(seen.sum.stages[NP_STAGE_READ].items, 2u * (2 * LEAST + 16));
        for (int s = NP_STAGE_DECOMPRESS; s <= NP_STAGE_AUGMENT; s++)
            cr_expect_eq(
                seen.sum.stages[s].items, all.sum.stages[s].items, "%s", np_stage_names[s]);
    }
}

Test(replay, stages_without_a_bit_do_their_work_and_nothing_changes, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        struct rig rig;
        uint64_t digest;

        cr_assert_eq(rig_make(&rig, (enum made_kind)kind, true, 21), 0);
        digest = rig_run(&rig, 0).digest;
        cr_assert_eq(rig_run(&rig, 0).digest, digest);
        rig.options.stubs = 1u << NP_STAGE_COPY | 1u << NP_STAGE_STEP | 1u << NP_STAGE_CHECKPOINT;
        cr_assert_eq(rig_run(&rig, 0).digest, digest, "the loader has no such stage");
        rig.options.stubs = 1u << NP_STAGE_BATCH;
        cr_assert_eq(rig_run(&rig, 0).digest, digest, "a longer ring holds the same");
        rig.options.stubs = 1u << NP_STAGE_DECODE;
        cr_assert_neq(rig_run(&rig, 0).digest, digest);
        rig_free(&rig);
    }
}

/* --- times ------------------------------------------------------------------------------------ */

enum { LARGE = 160, CUT = 96 };

/* augment: [{random_resized_crop: {size: CUT}}] */
static struct np_node *resized_crop(void)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 1, 1), *op = np_node_new(NP_NODE_MAP, 1, 1);
    struct np_node *args = np_node_new(NP_NODE_MAP, 1, 1);

    np_node_add(args, "size", np_node_scalar("96", 1, 1));
    np_node_add(op, "random_resized_crop", args);
    np_node_add(list, NULL, op);
    return list;
}

/* As rig_make(), one reader, with pictures of side x side. resized: they are cropped and scaled to CUT x CUT. */
static int make_large(struct rig *rig, enum made_kind kind, int side, bool resized)
{
    struct np_report report;
    int failed = rig_make(rig, kind, false, 0);

    np_report_init(&report, "test");
    made_set_free(&rig->set);
    failed |= made_set(kind, N, side, side, &rig->set);
    rig->config.train = rig->set.index;
    rig->config.shape.height = rig->config.shape.width = resized ? CUT : side;
    rig->options.readers = 1;
    if (resized) {
        np_node_free(rig->list);
        np_chain_free(rig->augment);
        rig->list = resized_crop();
        failed |= np_chain_parse(rig->list, "augment", &rig->augment, &report);
        rig->config.augment = rig->augment;
    }
    np_report_fini(&report);
    return failed;
}

/* What a row takes in each stage, the median, of larger pictures that are resized; -1: failed. */
static int row_times(enum made_kind kind, unsigned stubs, uint64_t ret_ns[NP_NR_STAGES])
{
    struct rig rig;
    int failed = make_large(&rig, kind, LARGE, true);

    rig.options.stubs = stubs;
    failed |= rig_run(&rig, 0).nr_batches != STEPS;
    for (int s = 0; s < NP_NR_STAGES; s++)
        ret_ns[s] = np_stat_quantile(rig.config.stat, (enum np_stage)s, 0.5);
    rig_free(&rig);
    return failed ? -1 : 0;
}

/* Does the stage take less than half of its time when it is replayed, and no other one less than half
 * or more than twice its own? A stage that takes almost no time is not tested. */
static bool takes_its_time_alone(enum made_kind kind, enum np_stage stage)
{
    uint64_t all[NP_NR_STAGES], left[NP_NR_STAGES];

    if (row_times(kind, 0, all) < 0 || row_times(kind, 1u << stage, left) < 0)
        return false;
    for (int s = NP_STAGE_DECOMPRESS; s <= NP_STAGE_AUGMENT; s++) {
        const bool half = left[s]<all[s] / 2, twice = left[s]> all[s] * 2;

        if (s == (int)stage ? !half : all[s] > 5000 && (half || twice))
            return false;
    }
    return true;
}

Test(replay, an_omitted_stage_removes_only_its_own_time, .timeout = 120)
{
    static const struct {
        enum made_kind kind;
        enum np_stage stage;
    } cases[] = {{MADE_ZSTD, NP_STAGE_DECOMPRESS}, {MADE_FOLDER, NP_STAGE_DECODE},
        {MADE_ZSTD, NP_STAGE_AUGMENT}, {MADE_FOLDER, NP_STAGE_AUGMENT}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        bool right = false;

        for (int n = 0; n < 5 && !right; n++) /* a busy machine spoils some */
            right = takes_its_time_alone(cases[i].kind, cases[i].stage);
        cr_expect(right, "kind %d, %s", cases[i].kind, np_stage_names[cases[i].stage]);
    }
}

/* The reads of a reader whose reads are replayed; 0: failed. */
static uint64_t nr_reads(int side)
{
    struct np_stat_sum sum = {0};
    struct rig rig;
    int failed = make_large(&rig, MADE_RAW, side, false);

    rig.options.stubs = 1u << NP_STAGE_READ;
    rig.options.depth = 1;
    rig.config.sampler.nr_steps = 5;
    failed |= rig_run(&rig, 0).nr_batches != 5;
    np_stat_read(rig.config.stat, "reader", &sum);
    rig_free(&rig);
    return failed ? 0 : sum.stages[NP_STAGE_READ].items;
}

Test(replay, a_store_closes_at_its_bytes_where_pictures_are_large, .timeout = 120)
{
    const int wide = 400, bytes = 400 * 400 * 3;

    cr_expect_eq(nr_reads(SIDE), 2u * LEAST);
    cr_expect_eq(nr_reads(wide), (2u * LEAST * (256u << 10) + bytes - 1) / bytes,
        "an output has 256 KiB on average");
}

/* --- the device's stages ---------------------------------------------------------------------- */

enum { NR_FED = 9 };

/* Batches of one byte each through a feed on the sim device: what the steps saw. */
static int feed_bytes(unsigned stubs, uint8_t ret_seen[NR_FED], int32_t ret_labels[NR_FED])
{
    const struct np_device_options sim = {.h2d_gbps = 50};
    const struct np_batch_shape shape = {1, 4, 4, 1, {0}, 0, 0, 0, NULL, 0};
    struct np_graph graph = {.batch = 1, .classes = 2};
    struct np_device *device = NULL;
    struct np_plan *plan = NULL;
    struct np_ring *ring = NULL;
    struct np_feed *feed = NULL;
    int nr = 0, failed = np_ring_new(&shape, NR_FED, &np_page_allocator, &ring, NULL);

    failed |= np_device_open("sim", &sim, &device, NULL);
    failed |= device->plan_ops->prepare(device, &graph, &graph, NULL, &plan, NULL);
    failed |= np_feed_new(device, ring, &shape, NULL, &feed, NULL);
    np_ring_start(ring, 0);
    np_feed_stub(feed, stubs);
    for (int seq = 0; seq < NR_FED; seq++) {
        struct np_batch *batch = np_ring_claim(ring, (uint64_t)seq, NULL);

        memset(batch->images, seq + 1, 16);
        batch->labels[0] = seq;
        np_ring_commit(ring, batch, NULL);
    }
    for (; nr < NR_FED && !failed; nr++) {
        struct np_event event = {0};
        struct np_input input;

        failed |= np_feed_next(feed, &input, NULL) < 0;
        device->ops->record(device, NP_STREAM_COMPUTE, &event);
        device->ops->done(device, &event, true);
        ret_seen[nr] = ((const uint8_t *)input.images)[15];
        ret_labels[nr] = *(const int32_t *)input.labels;
        np_feed_release(feed, &input);
    }
    np_feed_free(feed);
    np_ring_free(ring);
    device->plan_ops->free(plan);
    np_device_close(device);
    return failed ? -1 : nr;
}

Test(replay, an_omitted_copy_leaves_each_buffer_its_first_pixels, .timeout = 120)
{
    uint8_t seen[NR_FED];
    int32_t labels[NR_FED];

    cr_assert_eq(feed_bytes(0, seen, labels), NR_FED);
    for (int i = 0; i < NR_FED; i++)
        cr_expect(seen[i] == i + 1 && labels[i] == i);
    cr_assert_eq(feed_bytes(1u << NP_STAGE_COPY, seen, labels), NR_FED);
    for (int i = 0; i < NR_FED; i++)
        cr_expect(seen[i] == i % NP_FEED_BUFFERS + 1 && labels[i] == i, "%d: %d", i, seen[i]);
    cr_assert_eq(feed_bytes(~(1u << NP_STAGE_COPY), seen, labels), NR_FED);
    for (int i = 0; i < NR_FED; i++)
        cr_expect(seen[i] == i + 1 && labels[i] == i);
}
