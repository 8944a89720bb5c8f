/* The pipeline whole: what is in a batch depends on seed and step alone; bad samples; reads
 * that fail; stopping. */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "loader/base/clock.h"
#include "loader/base/crc32c.h"
#include "loader/loader.h"
#include "loader/source.h"

#include "tests/test.h"
#include "tests/unit/made_set.h"

enum { N = 97, BATCH = 16, STEPS = 24, SIDE = 12 };

/* A run's settings with what they borrow. */
struct rig {
    struct np_loader_options options;
    struct np_loader_config config;
    struct np_chain *augment, *test_augment;
    struct made_set set, eval;
    struct np_node *list;
};

static void rig_free(struct rig *rig)
{
    np_stat_free(rig->config.stat);
    np_chain_free(rig->augment);
    np_chain_free(rig->test_augment);
    np_node_free(rig->list);
    made_set_free(&rig->set);
    if (rig->eval.index)
        made_set_free(&rig->eval);
}

/* augment: [{random_crop: {size: SIDE, pad: 2}}, flip] */
static struct np_node *crop_and_flip(void)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 1, 1), *op = np_node_new(NP_NODE_MAP, 1, 1);
    struct np_node *args = np_node_new(NP_NODE_MAP, 1, 1);
    char side[8];

    snprintf(side, sizeof(side), "%d", SIDE);
    np_node_add(args, "size", np_node_scalar(side, 1, 1));
    np_node_add(args, "pad", np_node_scalar("2", 1, 1));
    np_node_add(op, "random_crop", args);
    np_node_add(list, NULL, op);
    np_node_add(list, NULL, np_node_scalar("flip", 1, 1));
    return list;
}

static int make_rig(struct rig *rig, enum made_kind kind, bool augment, int nr_eval)
{
    struct np_report report;
    int code;

    memset(rig, 0, sizeof(*rig));
    np_report_init(&report, "test");
    rig->list = augment ? crop_and_flip() : NULL;
    code = np_chain_parse(rig->list, "augment", &rig->augment, &report);
    code |= np_chain_parse(NULL, "test_augment", &rig->test_augment, &report);
    np_report_fini(&report);
    code |= made_set(kind, N, SIDE, SIDE, &rig->set);
    if (nr_eval)
        code |= made_set(kind, nr_eval, SIDE, SIDE, &rig->eval);
    rig->options = (struct np_loader_options){.batch = BATCH,
        .readers = 2,
        .depth = -1,
        .prefetch = -1,
        .io = "pread",
        .cache_bytes = -1,
        .bad_budget = 0.2,
        .channels = 3};
    rig->config = (struct np_loader_config){.options = &rig->options,
        .sampler = {.seed = 7,
            .nr_train = N,
            .nr_eval = (uint64_t)nr_eval,
            .batch = BATCH,
            .nr_steps = STEPS,
            .eval_epochs = 1},
        .train = rig->set.index,
        .eval = rig->eval.index,
        .augment = rig->augment,
        .test_augment = rig->test_augment,
        .shape = {BATCH, SIDE, SIDE, 3},
        .allocator = &np_page_allocator,
        .stat = np_stat_new()};
    return code;
}

struct outcome {
    uint64_t digest; /* of images, labels and what the batches say about themselves */
    uint64_t nr_batches, nr_bad, nr_masked, nr_replaced;
    struct np_err err;
    char reasons[4096];
};

static void add_batch(XXH3_state_t *hash, const struct rig *rig, const struct np_batch *batch,
    struct outcome *outcome)
{
    const struct np_batch_shape *shape = &rig->config.shape;
    uint64_t facts[4] = {batch->seq, batch->step, batch->kind, batch->part};

    XXH3_64bits_update(hash, batch->images,
        (size_t)(shape->rows * shape->height * shape->width * shape->channels));
    XXH3_64bits_update(hash, batch->labels, (size_t)shape->rows * sizeof(int32_t));
    XXH3_64bits_update(hash, facts, sizeof(facts));
    for (int row = 0; row < shape->rows; row++) {
        const struct np_row *about = &batch->about[row];
        uint64_t more[3] = {about->sample, about->position, about->epoch};

        XXH3_64bits_update(hash, more, sizeof(more));
        outcome->nr_masked += about->sample == UINT64_MAX;
        outcome->nr_replaced += about->attempts > 0;
    }
    outcome->nr_batches++;
}

/* Runs to the end or an error. skip: batches that do not count. */
static struct outcome run(const struct rig *rig, uint64_t skip)
{
    struct outcome outcome = {0};
    struct np_loader *loader = NULL;
    struct np_block *block = np_stat_join(rig->config.stat, "trainer");
    XXH3_state_t *hash = XXH3_createState();
    struct np_bad_sample bad;

    XXH3_64bits_reset(hash);
    if (np_loader_start(&rig->config, &loader, &outcome.err)) {
        XXH3_freeState(hash);
        return outcome;
    }
    for (uint64_t seq = np_sampler_first_seq(np_loader_sampler(loader));
         seq < np_sampler_nr_batches(np_loader_sampler(loader)); seq++) {
        struct np_batch *batch = np_ring_take(np_loader_ring(loader), block, &outcome.err);

        if (!batch)
            break;
        if (seq >= skip)
            add_batch(hash, rig, batch, &outcome);
        np_ring_release(np_loader_ring(loader), batch);
    }
    while (np_loader_next_bad(loader, &bad)) {
        size_t used = strlen(outcome.reasons);

        outcome.nr_bad++;
        snprintf(outcome.reasons + used, sizeof(outcome.reasons) - used, "%s at %llu: %s\n",
            bad.path, (unsigned long long)bad.offset, bad.reason);
    }
    np_loader_stop(loader);
    outcome.digest = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return outcome;
}

Test(loader, rows_are_the_samples_of_their_tickets, .timeout = 60)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        struct rig rig;
        struct np_loader *loader = NULL;
        struct np_block *block;
        int wrong = 0, nr_eval = 0;

        cr_assert_eq(make_rig(&rig, (enum made_kind)kind, false, 21), 0);
        block = np_stat_join(rig.config.stat, "trainer");
        cr_assert_eq(np_loader_start(&rig.config, &loader, NULL), 0);
        for (uint64_t seq = 0; seq < np_sampler_nr_batches(np_loader_sampler(loader)); seq++) {
            struct np_batch *batch = np_ring_take(np_loader_ring(loader), block, NULL);

            cr_assert_not_null(batch);
            nr_eval += batch->kind == NP_BATCH_EVAL;
            for (int row = 0; row < BATCH; row++) {
                const uint8_t *pixels = batch->images + row * SIDE * SIDE * 3;
                struct np_ticket ticket;

                np_sampler_ticket(np_loader_sampler(loader), seq, row, &ticket);
                wrong += batch->kind != ticket.kind || batch->step != ticket.step;
                wrong += batch->about[row].sample != ticket.sample;
                wrong += batch->labels[row] !=
                         (ticket.masked ? -1 : (int32_t)(ticket.sample % MADE_CLASSES));
                for (int i = 0; i < SIDE * SIDE * 3; i++)
                    wrong += pixels[i] != (ticket.masked ? 0 : made_byte(ticket.sample, i));
            }
            np_ring_release(np_loader_ring(loader), batch);
        }
        np_loader_stop(loader);
        cr_assert_eq(wrong, 0, "kind %d", kind);
        cr_assert_eq(nr_eval, 2 * 4); /* 24 steps: after 7, 13, 19 and the last */
        rig_free(&rig);
    }
}

Test(loader, bytes_depend_on_neither_readers_nor_io_nor_depth, .timeout = 120)
{
    static const char *const ios[] = {"pread", "uring", "sim"};
    static const int readers[] = {1, 2, 8}, depths[] = {1, 3, 16}, prefetches[] = {2, 5};

    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        struct rig rig;
        struct outcome first;

        cr_assert_eq(make_rig(&rig, (enum made_kind)kind, true, 21), 0);
        first = run(&rig, 0);
        cr_assert_eq(first.err.code, 0, "%s", first.err.text);
        cr_assert_eq(first.nr_batches, STEPS + 8);
        for (int i = 0; i < 3 * 3 * 3 * 2; i++) {
            struct outcome other;

            rig.options.io = (char *)ios[i % 3];
            rig.options.readers = readers[i / 3 % 3];
            rig.options.depth = depths[i / 9 % 3];
            rig.options.prefetch = prefetches[i / 27];
            other = run(&rig, 0);
            if (other.err.code == -ENOSYS || other.err.code == -EPERM)
                continue; /* no io_uring here */
            cr_assert_eq(other.err.code, 0, "%s", other.err.text);
            cr_assert_eq(other.digest, first.digest, "%s, %d readers, depth %d, kind %d",
                ios[i % 3], readers[i / 3 % 3], depths[i / 9 % 3], kind);
        }
        rig.config.sampler.seed++;
        rig.options.io = "pread";
        cr_assert_neq(run(&rig, 0).digest, first.digest);
        rig_free(&rig);
    }
}

Test(loader, drawn_samples_need_no_files, .timeout = 60)
{
    struct np_source_options options = {.source = "synth", .samples = N, .size = SIDE, .seed = 3};
    struct np_index *index = NULL;
    struct outcome first, other;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_RAW, true, 0), 0);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    rig.config.train = index;
    first = run(&rig, 0);
    cr_assert_eq(first.err.code, 0, "%s", first.err.text);
    cr_assert_eq(first.nr_batches, STEPS);
    rig.options.readers = 5;
    rig.options.cache = NP_CACHE_DECODED;
    other = run(&rig, 0);
    cr_assert_eq(other.digest, first.digest);
    cr_assert_eq(other.nr_bad, 0);
    np_index_free(index);
    rig_free(&rig);
}

Test(loader, a_run_resumed_at_any_step_gives_the_same_batches, .timeout = 60)
{
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_ZSTD, true, 21), 0);
    for (uint64_t step = 0; step <= STEPS; step += 5)
        for (int due = 0; due <= 1; due++) {
            struct np_sampler *sampler = NULL;
            struct outcome whole, resumed;

            cr_assert_eq(np_sampler_new(&rig.config.sampler, &sampler, NULL), 0);
            np_sampler_start(sampler, step, due);
            rig.config.first_step = 0;
            rig.config.eval_due = false;
            whole = run(&rig, np_sampler_first_seq(sampler));
            np_sampler_free(sampler);
            rig.config.first_step = step;
            rig.config.eval_due = due;
            resumed = run(&rig, 0);
            cr_assert_eq(resumed.digest, whole.digest, "step %d", (int)step);
        }
    rig_free(&rig);
}

Test(loader, a_cache_changes_nothing_but_the_reading, .timeout = 60)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        struct rig rig;
        uint64_t digest;

        cr_assert_eq(make_rig(&rig, (enum made_kind)kind, true, 21), 0);
        digest = run(&rig, 0).digest;
        for (int cache = NP_CACHE_NONE; cache <= NP_CACHE_DEVICE; cache++)
            for (int64_t bytes = 20000; bytes <= 20000000; bytes *= 1000) {
                rig.options.cache = cache;
                rig.options.cache_bytes = bytes;
                rig.options.readers = 4;
                cr_assert_eq(run(&rig, 0).digest, digest, "cache %d, kind %d", cache, kind);
            }
        rig_free(&rig);
    }
}

Test(loader, a_cache_that_holds_all_reads_a_sample_once, .timeout = 60)
{
    for (int cache = NP_CACHE_ENCODED; cache <= NP_CACHE_DECODED; cache++) {
        struct np_stat_sum sum;
        struct rig rig;

        cr_assert_eq(make_rig(&rig, MADE_PPM, true, 0), 0);
        rig.options.readers = 1; /* two may both read a sample at an epoch's edge */
        rig.options.depth = 1;
        rig.options.cache = cache;
        run(&rig, 0);
        np_stat_read(rig.config.stat, "reader", &sum);
        cr_assert_eq(sum.stages[NP_STAGE_READ].items, N);
        cr_assert_eq(sum.stages[NP_STAGE_AUGMENT].items, STEPS * BATCH);
        cr_assert_eq(sum.stages[NP_STAGE_BATCH].items, STEPS * BATCH);
        cr_assert_eq(
            sum.stages[NP_STAGE_DECODE].items, cache == NP_CACHE_DECODED ? N : STEPS * BATCH);
        rig_free(&rig);
    }
}

/* One bad sample of each kind in a PPM set; *ret_nr says how many. */
static void damage(struct made_set *set, uint64_t *ret_nr)
{
    made_damage(set, 5, 0, "GIF8", 4);            /* of no kind we know */
    made_damage(set, 17, 3, "9999999 1\n", 10);   /* a size that cannot be */
    made_damage(set, 40, 3, "99 99", 5);          /* larger than its bytes */
    np_index_set_crc(set->index, 61, 0xdeadbeef); /* not the index's checksum */
    made_cut(set, N - 1);                         /* the archive is torn */
    ((struct np_record *)(uintptr_t)np_index_record(set->index, 70))->bytes = 0; /* empty */
    *ret_nr = 6;
}

Test(loader, bad_samples_are_replaced_counted_and_named, .timeout = 60)
{
    struct outcome first, other;
    struct rig rig;
    uint64_t nr_bad;

    cr_assert_eq(make_rig(&rig, MADE_PPM, true, 0), 0);
    damage(&rig.set, &nr_bad);
    rig.config.sampler.nr_steps = 97; /* 16 epochs */
    first = run(&rig, 0);
    cr_assert_eq(first.err.code, 0, "%s", first.err.text);
    cr_assert_eq(first.nr_batches, 97);
    cr_assert_eq(first.nr_masked, 0);
    cr_assert_eq(first.nr_replaced, 16 * nr_bad);
    cr_assert_geq(first.nr_bad, 16 * nr_bad); /* a replacement can be bad as well */
    cr_assert_not_null(strstr(first.reasons, "/shard:c2/0005.ppm at "));
    cr_assert_not_null(strstr(first.reasons, "is torn"));
    cr_assert_not_null(strstr(first.reasons, "is empty"));
    cr_assert_not_null(strstr(first.reasons, "checksum"));
    for (int readers = 1; readers <= 8; readers *= 8) {
        rig.options.readers = readers;
        other = run(&rig, 0);
        cr_assert_eq(other.digest, first.digest);
        cr_assert_eq(other.nr_bad, first.nr_bad);
    }
    rig_free(&rig);
}

Test(loader, a_bad_evaluation_sample_is_masked_and_counted, .timeout = 60)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_PPM, true, 21), 0);
    made_damage(&rig.eval, 4, 0, "GIF8", 4);
    outcome = run(&rig, 0);
    cr_assert_eq(outcome.err.code, 0, "%s", outcome.err.text);
    cr_assert_eq(outcome.nr_bad, 4);
    cr_assert_eq(outcome.nr_masked, 4 * (32 - 21 + 1));
    cr_assert_eq(outcome.nr_replaced, 0);
    rig_free(&rig);
}

Test(loader, past_the_budget_the_run_fails_and_says_how_many, .timeout = 60)
{
    struct outcome outcome;
    struct rig rig;
    uint64_t nr_bad;

    cr_assert_eq(make_rig(&rig, MADE_PPM, true, 0), 0);
    damage(&rig.set, &nr_bad);
    rig.options.bad_budget = 0.03; /* 3 of 97 */
    outcome = run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    cr_assert_not_null(strstr(outcome.err.text, "over 3 of the 97 samples of epoch 0"));
    cr_assert_not_null(strstr(outcome.err.text, "bad_samples.jsonl"));
    cr_assert_geq(outcome.nr_bad, 4u);
    rig.options.bad_budget = 1;
    rig.config.nr_bad = 97 - 2; /* before a restart */
    rig.config.first_step = 1;
    outcome = run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    rig_free(&rig);
}

Test(loader, policy_fail_ends_the_run_at_the_first_one, .timeout = 60)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_PPM, true, 0), 0);
    made_damage(&rig.set, 33, 0, "GIF8", 4);
    rig.options.bad_fail = true;
    outcome = run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    cr_assert_not_null(strstr(outcome.err.text, "0033.ppm"));
    cr_assert_eq(outcome.nr_bad, 1);
    rig_free(&rig);
}

Test(loader, a_set_with_nothing_good_ends, .timeout = 60)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_PPM, true, 0), 0);
    for (uint64_t s = 0; s < N; s++)
        made_damage(&rig.set, s, 0, "GIF8", 4);
    rig.options.bad_budget = 1;
    outcome = run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    cr_assert_eq(outcome.nr_batches, 0);
    rig_free(&rig);
}

Test(loader, a_file_that_cannot_be_read_stops_the_run_and_is_named, .timeout = 60)
{
    struct outcome outcome;
    char path[160];
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_FOLDER, true, 0), 0);
    snprintf(path, sizeof(path), "%s/0013.ppm", rig.set.dir);
    cr_assert_eq(unlink(path), 0);
    outcome = run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EIO);
    cr_assert_not_null(strstr(outcome.err.text, path), "%s", outcome.err.text);
    cr_assert_not_null(strstr(outcome.err.text, "tried 4 times"));
    cr_assert_eq(outcome.nr_bad, 0);
    rig_free(&rig);
}

Test(loader, a_disk_that_misbehaves_changes_nothing, .timeout = 120)
{
    static const char *const weathers[] = {"seed=1,short=40%", "seed=2,shuffle=true,latency_us=300",
        "seed=3,fail_read=10",
        "seed=4,short=20%,shuffle=true,latency_us=200,fail_read=30,fail_reads=3"};
    struct outcome fine, other;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_ZSTD, true, 21), 0);
    fine = run(&rig, 0);
    rig.options.io = "sim";
    for (size_t i = 0; i < sizeof(weathers) / sizeof(*weathers); i++) {
        setenv("NNPIPE_IO_SIM", weathers[i], 1);
        other = run(&rig, 0);
        unsetenv("NNPIPE_IO_SIM");
        cr_assert_eq(other.err.code, 0, "%s", other.err.text);
        cr_assert_eq(other.digest, fine.digest, "%s", weathers[i]);
        cr_assert_eq(other.nr_bad, 0);
    }
    rig_free(&rig);
}

Test(loader, a_disk_that_fails_for_good_stops_the_run_and_is_named, .timeout = 60)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_PPM, true, 0), 0);
    rig.options.io = "sim";
    setenv("NNPIPE_IO_SIM", "fail_read=100,fail_reads=1000000", 1);
    outcome = run(&rig, 0);
    unsetenv("NNPIPE_IO_SIM");
    cr_assert_eq(outcome.err.code, -EIO);
    cr_assert_not_null(strstr(outcome.err.text, rig.set.path));
    cr_assert_not_null(strstr(outcome.err.text, " at offset "));
    cr_assert_not_null(strstr(outcome.err.text, "Input/output error"));
    cr_assert_eq(outcome.nr_bad, 0);
    cr_assert_lt(outcome.nr_batches, STEPS);
    rig_free(&rig);
}

Test(loader, a_shard_that_is_gone_is_said_at_the_start)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_PPM, true, 0), 0);
    unlink(rig.set.path);
    outcome = run(&rig, 0);
    cr_assert_eq(outcome.err.code, -ENOENT);
    cr_assert_not_null(strstr(outcome.err.text, rig.set.path));
    rig_free(&rig);
}

Test(loader, checksums_are_filled_in_by_the_first_epoch, .timeout = 60)
{
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_ZSTD, true, 0), 0);
    cr_assert_eq(np_index_record(rig.set.index, 3)->has_crc, 0);
    run(&rig, 0);
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

    cr_assert_eq(make_rig(&rig, MADE_ZSTD, true, 21), 0);
    for (int i = 0; i < 60; i++) {
        struct np_block *block = np_stat_join(rig.config.stat, "trainer");
        struct np_loader *loader = NULL;

        rig.options.readers = 1 + i % 5;
        rig.options.io = i % 2 ? "auto" : "sim";
        cr_assert_eq(np_loader_start(&rig.config, &loader, NULL), 0);
        for (int batch = 0; batch < i % 7; batch++)
            np_ring_release(
                np_loader_ring(loader), np_ring_take(np_loader_ring(loader), block, NULL));
        np_sleep_until_ns(np_now_ns() + (uint64_t)(i % 4) * 300000);
        np_loader_stop(loader);
    }
    rig_free(&rig);
}

#ifndef NP_SAN
Test(loader, the_steady_state_allocates_nothing, .timeout = 60)
{
    struct np_loader *loader = NULL;
    struct np_block *block;
    size_t before = 0;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_ZSTD, true, 0), 0);
    rig.config.sampler.nr_steps = 2000; /* the readers are still there at step 1000 */
    block = np_stat_join(rig.config.stat, "trainer");
    cr_assert_eq(np_loader_start(&rig.config, &loader, NULL), 0);
    for (int step = 0; step < 1000; step++) {
        struct np_batch *batch = np_ring_take(np_loader_ring(loader), block, NULL);

        np_ring_release(np_loader_ring(loader), batch);
        if (step == 100)
            before = mallinfo2().uordblks;
    }
    cr_assert_eq(mallinfo2().uordblks, before);
    np_loader_stop(loader);
    rig_free(&rig);
}
#endif

Test(loader, a_backend_that_does_not_exist_is_said_at_the_start)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_RAW, false, 0), 0);
    rig.options.io = "tape";
    outcome = run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EINVAL);
    rig_free(&rig);
}

Test(loader, pictures_of_another_size_are_bad_samples_with_advice, .timeout = 60)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(make_rig(&rig, MADE_RAW, false, 0), 0);
    rig.config.shape.width = SIDE + 1;
    outcome = run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    cr_assert_not_null(strstr(outcome.err.text, "resize"));
    rig_free(&rig);
}
