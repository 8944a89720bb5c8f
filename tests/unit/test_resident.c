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

enum { MOST_BATCHES = 64, ROW_BYTES = SIDE * SIDE * 3 };

struct run {
    uint64_t digests[MOST_BATCHES]; /* of images and labels on the device */
    uint64_t last_bytes;            /* copied for the last training batch */
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
    struct np_block *block = np_stat_join(rig->config.stat, "trainer");
    struct np_err err = {0};

    memset(run, 0, sizeof(*run));
    cr_assert_eq(np_device_open("sim", &sim, &device, NULL), 0);
    rig->config.device_room = resident ? device->ops->room(device) : 0;
    cr_assert_eq(np_loader_start(&rig->config, &loader, &err), 0, "%s", err.text);
    strcpy(run->cache, np_loader_cache(loader));
    cr_assert_eq(
        np_feed_new(device, np_loader_ring(loader), &rig->config.shape, block, &feed, &err), 0);
    cr_assert_eq(np_loader_resident(loader) != NULL, resident);
    if (resident)
        cr_assert_eq(np_feed_keep(feed, np_loader_resident(loader), &err), 0, "%s", err.text);
    for (;;) {
        struct np_sim_times before, after;
        struct np_input input;

        run->nr_batches++;
        np_sim_read(device, &before);
        if (np_feed_upload(feed, &input, &err) < 0)
            break;
        run->digests[run->nr_batches - 1] = digest_of(device, &input);
        np_feed_release(feed, &input);
        np_sim_read(device, &after);
        if (after.copy_bytes > before.copy_bytes && input.about.kind == NP_BATCH_TRAIN)
            run->last_bytes =
                (after.copy_bytes - before.copy_bytes) / (after.nr_copies - before.nr_copies);
        if ((uint64_t)run->nr_batches == np_sampler_nr_batches(np_loader_sampler(loader)))
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

Test(resident, rows_are_the_bytes_that_the_readers_would_have_made, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        static struct run run;

        cr_assert_eq(differing((enum made_kind)kind, 1 << 20, FAST, &run), 0, "kind %d", kind);
        cr_assert_str_eq(run.cache, "device");
    }
}

Test(resident, pictures_beyond_the_cap_come_with_their_pixels, .timeout = 120)
{
    static struct run run;

    cr_assert_eq(differing(MADE_RAW, 40 * (ROW_BYTES + 16), FAST, &run), 0);
    cr_assert_eq(differing(MADE_FOLDER, 1, FAST, &run), 0); /* none fits */
}

/* The ring holds 11 of a batch's 16 pictures, and the bus is so slow that a piece filled too early is
 * seen. */
Test(resident, pictures_pass_a_pinned_ring_smaller_than_they_are, .timeout = 120)
{
    static struct run run;

    cr_assert_eq(differing(MADE_RAW, 20 * (ROW_BYTES + 32), 0.005, &run), 0);
    cr_assert_str_eq(run.cache, "device");
}

Test(resident, later_epochs_copy_only_what_was_drawn, .timeout = 120)
{
    static struct run run;

    cr_assert_eq(differing(MADE_RAW, 1 << 20, FAST, &run), 0);
    cr_assert_lt(run.last_bytes, BATCH * (sizeof(struct np_row) + sizeof(int32_t)));
}

Test(resident, more_than_the_device_has_is_refused_with_both_numbers)
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

Test(resident, without_a_device_that_keeps_them_pictures_are_kept_by_the_host, .timeout = 60)
{
    static struct run run;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_RAW, true, 0), 0);
    rig.options.cache = NP_CACHE_DEVICE;
    go(&rig, false, FAST, &run);
    cr_assert_str_eq(run.cache, "decoded");
    rig_free(&rig);
}
