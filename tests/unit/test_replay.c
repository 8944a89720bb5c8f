/* A stage replaced by replay of what it put out: its work ends, that of the others goes on, and rows
 * keep to be pictures of the set. */
#include <stdlib.h>
#include <string.h>

#include "loader/base/clock.h"
#include "loader/replay.h"
#include "tests/test.h"
#include "tests/unit/made_loader.h"
#include "trainer/feed.h"

enum {
    ROW_BYTES = SIDE * SIDE * 3,
    LEAST = 16 /* rows for a reader's store: two batches, two readers */
};

Test(replay, a_store_gives_back_what_it_was_given_once_it_is_full)
{
    struct np_replay *replay = np_replay_new(3, 1000);

    for (uint64_t i = 0; i < 3; i++) {
        struct np_replayed *output = np_replay_add(replay, 10 + i, 100);

        cr_assert_not_null(output);
        memset(output->data, (int)i + 1, 100);
        cr_assert_eq(np_replay_find(replay, 10) != NULL, i == 2);
    }
    cr_assert_null(np_replay_add(replay, 13, 100));
    for (uint64_t sample = 0; sample < 9; sample++) {
        const struct np_replayed *output = np_replay_find(replay, sample);

        cr_assert_eq(output->sample, 10 + sample % 3);
        cr_assert_eq(output->bytes, 100u);
        cr_assert_eq(output->data[99], sample % 3 + 1);
        cr_assert_eq(output->data[100], 0);
    }
    np_replay_free(replay);
}

Test(replay, a_store_is_full_at_its_cap_or_when_it_is_closed)
{
    struct np_replay *replay = np_replay_new(3, 150);

    np_replay_close(replay);
    cr_assert_null(np_replay_find(replay, 1), "an empty store replays nothing");
    cr_assert_not_null(np_replay_add(replay, 1, 100));
    cr_assert_not_null(np_replay_add(replay, 2, 100));
    cr_assert_null(np_replay_add(replay, 3, 1));
    cr_assert_not_null(np_replay_find(replay, 1));
    np_replay_free(replay);
    replay = np_replay_new(3, 150);
    cr_assert_not_null(np_replay_add(replay, 1, 100));
    np_replay_close(replay);
    cr_assert_eq(np_replay_find(replay, 77)->sample, 1u);
    cr_assert_null(np_replay_add(replay, 2, 1));
    np_replay_free(replay);
    cr_assert_null(np_replay_find(NULL, 1));
    cr_assert_null(np_replay_add(NULL, 1, 1));
    np_replay_close(NULL);
}

/* --- runs ------------------------------------------------------------------------------------- */

struct seen {
    int nr_rows, nr_foreign,
        nr_wrong;    /* rows; of them another sample's; of them of no sample at all */
    int nr_misnamed; /* about or label is not the ticket's */
    uint64_t nr_bad;
    struct np_stat_sum sum;
};

/* Which sample's pixels are these? N: nobody's. */
static uint64_t whose(const uint8_t *pixels)
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
    const uint64_t sample = whose(batch->images + row * ROW_BYTES);
    struct np_ticket ticket;

    np_sampler_ticket(np_loader_sampler(loader), batch->seq, row, &ticket);
    seen->nr_rows++;
    seen->nr_wrong += sample == N;
    seen->nr_foreign += sample != ticket.sample;
    seen->nr_misnamed += batch->about[row].sample != ticket.sample ||
                         batch->labels[row] != (int32_t)(ticket.sample % MADE_CLASSES);
}

/* A run of two readers over pictures without augmentation; stubs: what is replayed. */
static struct seen run(enum made_kind kind, int cache, unsigned stubs)
{
    struct seen seen = {0};
    struct np_loader *loader = NULL;
    struct np_bad_sample bad;
    struct rig rig;
    int failed = rig_make(&rig, kind, false, 0);

    rig.options.cache = cache;
    rig.options.stubs = stubs;
    struct np_block *block = np_stat_join(rig.config.stat, "trainer");
    failed |= np_loader_start(&rig.config, &loader, NULL);
    for (uint64_t seq = 0; !failed && seq < STEPS; seq++) {
        struct np_batch *batch = np_ring_take(np_loader_ring(loader), block, NULL);

        failed |= batch == NULL;
        for (int row = 0; batch && row < BATCH; row++)
            see_row(loader, batch, row, &seen);
        if (batch)
            np_ring_release(np_loader_ring(loader), batch);
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

Test(replay, reads_end_once_the_stores_are_full_and_all_else_goes_on, .timeout = 60)
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

Test(replay, stages_without_a_bit_do_their_work_and_nothing_changes, .timeout = 60)
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
