/* cache: device. A run whose pictures the device keeps has the same bytes in each batch as one
 * whose rows the readers make, and copies only what was drawn from the second epoch on. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/test.h"
#include "tests/unit/made_loader.h"
#include "trainer/feed.h"

#define FAST 50.0 /* 10^9 bytes a second */

enum { MAX_BATCHES = 64, ROW_BYTES = SIDE * SIDE * 3 };

struct run {
    uint64_t digests[MAX_BATCHES]; /* of images and labels on the device */
    uint64_t last_bytes;           /* copied for the last training batch */
    int nr_batches;
    char cache[16];
};

static uint64_t digest_of(struct np_device *device, const struct np_input *input)
{
    struct np_event read = {0};

    device->ops->record(device, NP_STREAM_COMPUTE, &read);
    device->ops->done(device, &read, true);
    return XXH3_64bits(input->images, BATCH * ROW_BYTES) ^
           XXH3_64bits(input->labels, BATCH * sizeof(int32_t));
}

static void go(struct rig *rig, bool resident, double h2d_gbps, struct run *run)
{
    const struct np_device_options sim = {.h2d_gbps = h2d_gbps, .makes_rows = true};
    struct np_device *device = NULL;
    struct np_loader *loader = NULL;
    struct np_feed *feed = NULL;
    struct np_block *block = np_stat_join(rig->config.stat, "trainer", NULL);
    struct np_err err = {0};

    memset(run, 0, sizeof(*run));
    cr_assert_eq(np_device_open("sim", &sim, &device, NULL), 0);
    rig->config.device_room = resident ? device->ops->room(device) : 0;
    cr_assert_eq(np_loader_start(&rig->config, &loader, &err), 0, "%s", err.text);
    strcpy(run->cache, loader->cache);
    cr_assert_eq(np_feed_new(device, loader->ring, &rig->config.shape, block, &feed, &err), 0);
    cr_assert_eq(loader->resident != NULL, resident);
    if (resident)
        cr_assert_eq(np_feed_keep(feed, loader->resident, &err), 0, "%s", err.text);
    for (;;) {
        struct np_sim_times before, after;
        struct np_input input;

        run->nr_batches++;
        np_sim_read(device, &before);
        if (np_feed_next(feed, &input, &err) < 0)
            break;
        run->digests[run->nr_batches - 1] = digest_of(device, &input);
        np_feed_release(feed, &input);
        np_sim_read(device, &after);
        if (after.copy_bytes > before.copy_bytes && input.about.kind == NP_BATCH_TRAIN)
            run->last_bytes =
                (after.copy_bytes - before.copy_bytes) / (after.nr_copies - before.nr_copies);
        if ((uint64_t)run->nr_batches == loader->sampler->nr_batches)
            break;
    }
    np_feed_free(feed);
    np_loader_stop(loader);
    np_device_close(device);
}

/* Batches that differ between a run of resident pictures and a plain one. */
static int differing(
    enum made_kind kind, int64_t cache_bytes, double h2d_gbps, struct run *resident)
{
    static struct run plain;
    struct rig rig;
    int wrong = rig_make(&rig, kind, true, 21) != 0;

    rig.options.cache = NP_CACHE_NONE;
    go(&rig, false, h2d_gbps, &plain);
    rig.options.cache = NP_CACHE_DEVICE;
    rig.options.cache_bytes = cache_bytes;
    go(&rig, true, h2d_gbps, resident);
    rig_free(&rig);
    wrong += plain.nr_batches != resident->nr_batches || plain.nr_batches != STEPS + 2 * 4;
    for (int i = 0; i < plain.nr_batches; i++)
        wrong += plain.digests[i] != resident->digests[i];
    return wrong;
}

Test(resident, rows_have_the_same_bytes_as_those_of_readers, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        static struct run run;

        cr_assert_eq(differing((enum made_kind)kind, 1 << 20, FAST, &run), 0, "kind %d", kind);
        cr_assert_str_eq(run.cache, "device");
    }
}

Test(resident, pictures_beyond_the_cap_come_as_pixels, .timeout = 120)
{
    static struct run run;

    cr_assert_eq(differing(MADE_RAW, 40 * (ROW_BYTES + 16), FAST, &run), 0);
    cr_assert_eq(differing(MADE_FOLDER, 1, FAST, &run), 0); /* none fits */
}

/* The ring holds 11 of a batch's 16 pictures, and the bus is so slow that a piece filled too early is
 * seen. */
Test(resident, pictures_pass_through_a_smaller_pinned_ring, .timeout = 120)
{
    static struct run run;

    cr_assert_eq(differing(MADE_RAW, 20 * (ROW_BYTES + 32), 0.005, &run), 0);
    cr_assert_str_eq(run.cache, "device");
}

/* Pictures four times as high as wide, resized to SIDE x SIDE: the order of the passes shows. */
static void make_tall(struct rig *rig)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 1, 1), *op = np_node_new(NP_NODE_MAP, 1, 1);
    struct np_node *size = np_node_new(NP_NODE_LIST, 1, 1), *args = np_node_new(NP_NODE_MAP, 1, 1);
    struct np_report report;
    int code = rig_make(rig, MADE_RAW, false, 0);

    made_set_free(&rig->set);
    code |= made_set(MADE_RAW, N, 4 * SIDE, SIDE + 3, &rig->set);
    rig->config.train = rig->set.index;
    np_node_add(size, NULL, np_node_scalar("12", 1, 1)); /* SIDE */
    np_node_add(size, NULL, np_node_scalar("12", 1, 1));
    np_node_add(args, "size", size);
    np_node_add(op, "resize", args);
    np_node_add(list, NULL, op);
    np_report_init(&report, "test");
    np_chain_free(rig->augment);
    code |= np_chain_parse(list, "augment", &rig->augment, &report);
    np_report_fini(&report);
    rig->config.augment = rig->augment;
    rig->list = list;
    cr_assert_eq(code, 0);
}

static int differing_batches(const struct run *a, const struct run *b)
{
    int n = a->nr_batches != b->nr_batches;

    for (int i = 0; i < a->nr_batches && i < MAX_BATCHES; i++)
        n += a->digests[i] != b->digests[i];
    return n;
}

Test(resident, tall_pictures_are_resized_vertically_first_on_host_and_device, .timeout = 120)
{
    static struct run runs[2][3]; /* of Pillow 12 and 13: none, decoded, device */
    static const int caches[3] = {NP_CACHE_NONE, NP_CACHE_DECODED, NP_CACHE_DEVICE};
    struct rig rig;

    make_tall(&rig);
    for (int rule = NP_RULE_PILLOW_12; rule <= NP_RULE_PILLOW_13; rule++)
        for (int c = 0; c < 3; c++) {
            rig.options.pixels = rule;
            rig.options.cache = caches[c];
            rig.options.cache_bytes = 1 << 20;
            go(&rig, caches[c] == NP_CACHE_DEVICE, FAST, &runs[rule][c]);
            cr_expect_eq(differing_batches(&runs[rule][0], &runs[rule][c]), 0);
        }
    cr_expect_str_eq(runs[1][2].cache, "device");
    cr_expect_eq(differing_batches(&runs[0][0], &runs[1][0]), runs[0][0].nr_batches);
    rig_free(&rig);
}

Test(resident, later_epochs_copy_only_the_drawn_geometry, .timeout = 120)
{
    static struct run run;

    cr_assert_eq(differing(MADE_RAW, 1 << 20, FAST, &run), 0);
    cr_assert_lt(run.last_bytes, BATCH * (sizeof(struct np_row) + sizeof(int32_t)));
}

Test(resident, a_set_larger_than_the_device_is_refused_with_both_sizes)
{
    struct np_loader *loader = NULL;
    struct np_err err = {0};
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_RAW, true, 0), 0);
    rig.options.cache = NP_CACHE_DEVICE;
    rig.options.cache_bytes = 3 << 20;
    rig.config.device_room = 2 << 20;
    cr_assert_eq(np_loader_start(&rig.config, &loader, &err), -ENOMEM);
    cr_assert(strstr(err.text, "3 MiB") && strstr(err.text, "2 MiB"), "%s", err.text);
    rig_free(&rig);
}

Test(resident, without_a_device_cache_pictures_are_cached_on_the_host, .timeout = 120)
{
    static struct run run;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_RAW, true, 0), 0);
    rig.options.cache = NP_CACHE_DEVICE;
    go(&rig, false, FAST, &run);
    cr_assert_str_eq(run.cache, "decoded");
    rig_free(&rig);
}
