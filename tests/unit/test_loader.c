/* The whole pipeline: a batch depends on seed and step only; caches; stopping. */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>

#include "loader/base/clock.h"
#include "loader/base/crc32c.h"
#include "loader/cache.h"
#include "loader/loader_parts.h"
#include "loader/source/source.h"
#include "tests/test.h"
#include "tests/unit/made_loader.h"

Test(loader, rows_hold_the_samples_of_their_tickets, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        struct rig rig;
        struct np_loader *loader = NULL;
        struct np_block *block;
        int wrong = 0, nr_eval = 0;

        cr_assert_eq(rig_make(&rig, (enum made_kind)kind, false, 21), 0);
        block = np_stat_join(rig.config.stat, "trainer", NULL);
        cr_assert_eq(np_loader_start(&rig.config, &loader, NULL), 0);
        for (uint64_t seq = 0; seq < loader->sampler->nr_batches; seq++) {
            struct np_batch *batch = np_ring_take(loader->ring, block, NULL);

            cr_assert_not_null(batch);
            nr_eval += batch->kind == NP_BATCH_EVAL;
            for (int row = 0; row < BATCH; row++) {
                const uint8_t *pixels = batch->images + row * SIDE * SIDE * 3;
                struct np_ticket ticket;

                np_sampler_ticket(loader->sampler, seq, row, &ticket);
                wrong += batch->kind != ticket.kind || batch->step != ticket.step;
                wrong += batch->about[row].sample != ticket.sample;
                wrong += batch->labels[row] !=
                         (ticket.masked ? -1 : (int32_t)(ticket.sample % MADE_CLASSES));
                for (int i = 0; i < SIDE * SIDE * 3; i++)
                    wrong += pixels[i] != (ticket.masked ? 0 : made_byte(ticket.sample, i));
            }
            np_ring_release(loader->ring, batch);
        }
        np_loader_stop(loader);
        cr_assert_eq(wrong, 0, "kind %d", kind);
        cr_assert_eq(nr_eval, 2 * 4); /* 24 steps: after 7, 13, 19 and the last */
        rig_free(&rig);
    }
}

/* depth: auto for a set of n samples of so many bytes and one of `outlier` (0: none). */
static int auto_depth(int n, uint32_t bytes, uint32_t outlier)
{
    const struct np_loader_options options = {.depth = -1};
    struct np_index *index = np_index_new(NULL);
    int depth;

    for (int i = 0; i < n + (outlier > 0); i++) {
        const uint32_t size = i < n ? bytes : outlier;
        const struct np_record record = {.bytes = size, .inner_bytes = size, .no_label = 1};

        cr_assert_eq(np_index_add(index, &record, "a", NULL, NULL), 0);
    }
    cr_assert_eq(np_index_finish(index, NULL), 0);
    depth = np_loader_auto_depth(&options, index, NULL);
    cr_expect_eq(np_loader_auto_depth(&options, NULL, index), depth);
    np_index_free(index);
    return depth;
}

Test(loader, one_large_file_does_not_reduce_the_reads_in_flight)
{
    cr_expect_eq(auto_depth(1000, 4 << 10, 0), 16);
    cr_expect_eq(auto_depth(1000, 4 << 10, 8 << 20), 16);
    cr_expect_eq(auto_depth(1000, 1 << 20, 0), 8);
    cr_expect_eq(auto_depth(1000, 1 << 20, 8 << 20), 7); /* a mean just above 1 MiB */
    cr_expect_eq(auto_depth(1000, 4 << 10, 200 << 20), 16);
    cr_expect_eq(auto_depth(1000, 16 << 20, 0), 2); /* the least */
    cr_expect_eq(auto_depth(0, 0, 0), 16);
}

Test(loader, bytes_depend_on_neither_readers_nor_io_nor_depth, .timeout = 120)
{
    static const char *const ios[] = {"pread", "uring", "sim"};
    static const int readers[] = {1, 2, 8}, depths[] = {1, 3, 16}, prefetches[] = {2, 5};

    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        struct rig rig;
        struct outcome first;

        cr_assert_eq(rig_make(&rig, (enum made_kind)kind, true, 21), 0);
        first = rig_run(&rig, 0);
        cr_assert_eq(first.err.code, 0, "%s", first.err.text);
        cr_assert_eq(first.nr_batches, STEPS + 8);
        for (int i = 0; i < 3 * 3 * 3 * 2; i++) {
            struct outcome other;

            rig.options.io = (char *)ios[i % 3];
            rig.options.readers = readers[i / 3 % 3];
            rig.options.depth = depths[i / 9 % 3];
            rig.options.prefetch = prefetches[i / 27];
            other = rig_run(&rig, 0);
            if (other.err.code == -ENOSYS || other.err.code == -EPERM)
                continue; /* no io_uring here */
            cr_assert_eq(other.err.code, 0, "%s", other.err.text);
            cr_assert_eq(other.digest, first.digest, "%s, %d readers, depth %d, kind %d",
                ios[i % 3], readers[i / 3 % 3], depths[i / 9 % 3], kind);
        }
        rig.config.sampler.seed++;
        rig.options.io = "pread";
        cr_assert_neq(rig_run(&rig, 0).digest, first.digest);
        rig_free(&rig);
    }
}

Test(loader, drawn_samples_need_no_files, .timeout = 120)
{
    struct np_source_options options = {.source = "synth", .samples = N, .size = SIDE, .seed = 3};
    struct np_index *index = NULL;
    struct outcome first, other;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_RAW, true, 0), 0);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    rig.config.train = index;
    first = rig_run(&rig, 0);
    cr_assert_eq(first.err.code, 0, "%s", first.err.text);
    cr_assert_eq(first.nr_batches, STEPS);
    rig.options.readers = 5;
    rig.options.cache = NP_CACHE_DECODED;
    other = rig_run(&rig, 0);
    cr_assert_eq(other.digest, first.digest);
    cr_assert_eq(other.nr_bad, 0);
    np_index_free(index);
    rig_free(&rig);
}

Test(loader, a_run_resumed_at_any_step_gives_the_same_batches, .timeout = 120)
{
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_ZSTD, true, 21), 0);
    for (uint64_t step = 0; step <= STEPS; step += 5)
        for (int due = 0; due <= 1; due++) {
            struct np_sampler *sampler = NULL;
            struct outcome whole, resumed;

            cr_assert_eq(np_sampler_new(&rig.config.sampler, &sampler, NULL), 0);
            np_sampler_start(sampler, step, due);
            rig.config.first_step = 0;
            rig.config.eval_due = false;
            whole = rig_run(&rig, sampler->first_seq);
            np_sampler_free(sampler);
            rig.config.first_step = step;
            rig.config.eval_due = due;
            resumed = rig_run(&rig, 0);
            cr_assert_eq(resumed.digest, whole.digest, "step %d", (int)step);
        }
    rig_free(&rig);
}

Test(loader, a_cache_changes_only_the_number_of_reads, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        struct rig rig;
        uint64_t digest;

        cr_assert_eq(rig_make(&rig, (enum made_kind)kind, true, 21), 0);
        digest = rig_run(&rig, 0).digest;
        for (int cache = NP_CACHE_NONE; cache <= NP_CACHE_DEVICE; cache++)
            for (int64_t bytes = 20000; bytes <= 20000000; bytes *= 1000) {
                rig.options.cache = cache;
                rig.options.cache_bytes = bytes;
                rig.options.readers = 4;
                cr_assert_eq(rig_run(&rig, 0).digest, digest, "cache %d, kind %d", cache, kind);
            }
        rig_free(&rig);
    }
}

Test(loader, processes_of_a_run_share_the_cpus_and_memory_of_a_machine)
{
    struct np_loader_options options = {.readers = -1};
    struct np_box box, own;

    np_box_read(&box);
    cr_expect_eq(np_loader_auto_readers(&options), box.nr_cpus);
    for (int nr = 1; nr <= 3 * box.nr_cpus; nr++) {
        options.nr_sharing = nr;
        np_loader_own_box(&options, &own);
        cr_expect_eq(np_loader_auto_readers(&options), own.nr_cpus);
        cr_expect(own.nr_cpus * nr >= box.nr_cpus && (own.nr_cpus - 1) * nr < box.nr_cpus);
        cr_expect_eq(own.memory_bytes, box.memory_bytes / (uint64_t)nr);
    }
    options.readers = 7;
    cr_expect_eq(np_loader_auto_readers(&options), 7);
}

Test(loader, auto_keeps_small_pictures_that_fit_for_epochs_to_come)
{
    struct np_loader_config *config;
    struct rig rig;
    uint64_t all, gib = 1ull << 30;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    config = &rig.config;
    config->picture_bytes = 32 * 32 * 3;
    config->sampler.nr_steps = 3 * config->sampler.nr_train / (uint64_t)config->sampler.batch + 1;
    config->first_step = 0;
    all =
        (np_index_samples(config->train) +
            (config->eval && config->eval != config->train ? np_index_samples(config->eval) : 0)) *
        np_cache_entry_bytes(config->picture_bytes);
    cr_expect_eq(np_loader_auto_cache(config, gib, gib), NP_CACHE_DECODED);
    cr_expect_eq(np_loader_auto_cache(config, 8 * all, gib), NP_CACHE_DECODED);
    cr_expect_eq(np_loader_auto_cache(config, 8 * all - 8, gib), NP_CACHE_NONE);
    cr_expect_eq(np_loader_auto_cache(config, gib, 4 * all - 4), NP_CACHE_NONE);
    config->picture_bytes = 64 * 1024 + 1;
    cr_expect_eq(np_loader_auto_cache(config, gib, gib), NP_CACHE_NONE);
    config->picture_bytes = 0;
    cr_expect_eq(np_loader_auto_cache(config, gib, gib), NP_CACHE_NONE);
    config->picture_bytes = 32 * 32 * 3;
    config->first_step = 2; /* too few epochs left to pay for the first */
    cr_expect_eq(np_loader_auto_cache(config, gib, gib), NP_CACHE_NONE);
    rig_free(&rig);
}

Test(loader, a_cache_that_holds_all_reads_a_sample_once, .timeout = 120)
{
    for (int cache = NP_CACHE_ENCODED; cache <= NP_CACHE_DECODED; cache++) {
        struct np_stat_sum sum;
        struct rig rig;

        cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
        rig.options.readers = 1; /* two may both read a sample at an epoch's edge */
        rig.options.depth = 1;
        rig.options.cache = cache;
        rig_run(&rig, 0);
        np_stat_read(rig.config.stat, "reader", &sum);
        cr_assert_eq(sum.stages[NP_STAGE_READ].items, N);
        cr_assert_eq(sum.stages[NP_STAGE_AUGMENT].items, STEPS * BATCH);
        cr_assert_eq(sum.stages[NP_STAGE_BATCH].items, STEPS * BATCH);
        cr_assert_eq(
            sum.stages[NP_STAGE_DECODE].items, cache == NP_CACHE_DECODED ? N : STEPS * BATCH);
        rig_free(&rig);
    }
}

Test(loader, checksums_are_filled_in_by_the_first_epoch, .timeout = 120)
{
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_ZSTD, true, 0), 0);
    cr_assert_eq(np_index_record(rig.set.index, 3)->has_crc, 0);
    rig_run(&rig, 0);
    for (uint64_t s = 0; s < N; s++) {
        const struct np_record *record = np_index_record(rig.set.index, s);
        uint8_t bytes[SIDE * SIDE * 3 + 32];
        int head = snprintf((char *)bytes, 32, "P6\n%d %d\n255\n", SIDE, SIDE);

        for (int i = 0; i < SIDE * SIDE * 3; i++)
            bytes[head + i] = made_byte(s, i);
        cr_assert(record->has_crc);
        cr_assert_eq(record->crc32c, np_crc32c(0, bytes, (size_t)head + SIDE * SIDE * 3));
    }
    rig_free(&rig);
}

Test(loader, stops_at_any_moment, .timeout = 120)
{
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_ZSTD, true, 21), 0);
    for (int i = 0; i < 60; i++) {
        struct np_block *block = np_stat_join(rig.config.stat, "trainer", NULL);
        struct np_loader *loader = NULL;

        rig.options.readers = 1 + i % 5;
        rig.options.io = i % 2 ? "auto" : "sim";
        cr_assert_eq(np_loader_start(&rig.config, &loader, NULL), 0);
        for (int batch = 0; batch < i % 7; batch++)
            np_ring_release(loader->ring, np_ring_take(loader->ring, block, NULL));
        np_sleep_until_ns(np_now_ns() + (uint64_t)(i % 4) * 300000);
        np_loader_stop(loader);
    }
    rig_free(&rig);
}

#ifndef NP_SAN
Test(loader, the_steady_state_allocates_nothing, .timeout = 120)
{
    struct np_loader *loader = NULL;
    struct np_block *block;
    bool steady = false;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_ZSTD, true, 0), 0);
    rig.config.sampler.nr_steps = 12000; /* the readers are still there at step 10000 */
    block = np_stat_join(rig.config.stat, "trainer", NULL);
    cr_assert_eq(np_loader_start(&rig.config, &loader, NULL), 0);
    /* On a busy machine a reader may meet its first samples late, and take its buffers then: some
     * thousand steps must pass without. */
    for (int tries = 0; tries < 10 && !steady; tries++) {
        const size_t before = mallinfo2().uordblks;

        for (int step = 0; step < 1000; step++)
            np_ring_release(loader->ring, np_ring_take(loader->ring, block, NULL));
        steady = mallinfo2().uordblks == before;
    }
    cr_assert(steady);
    np_loader_stop(loader);
    rig_free(&rig);
}
#endif
