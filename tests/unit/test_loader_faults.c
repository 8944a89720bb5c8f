/* The pipeline on bad samples, reads that fail and settings that cannot be. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"
#include "tests/unit/made_loader.h"

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

Test(loader, bad_samples_are_replaced_counted_and_named, .timeout = 120)
{
    struct outcome first, other;
    struct rig rig;
    uint64_t nr_bad;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    damage(&rig.set, &nr_bad);
    rig.config.sampler.nr_steps = 97; /* 16 epochs */
    first = rig_run(&rig, 0);
    cr_assert_eq(first.err.code, 0, "%s", first.err.text);
    cr_assert_eq(first.nr_batches, 97);
    cr_assert_eq(first.nr_masked, 0);
    cr_assert_eq(first.nr_replaced, 16 * nr_bad);
    cr_assert_geq(first.nr_bad, 16 * nr_bad); /* a replacement can be bad as well */
    cr_assert_not_null(strstr(first.reasons, "/shard:c2/0005.ppm at "));
    cr_assert_not_null(strstr(first.reasons, "is truncated"));
    cr_assert_not_null(strstr(first.reasons, "is empty"));
    cr_assert_not_null(strstr(first.reasons, "checksum"));
    for (int readers = 1; readers <= 8; readers *= 8) {
        rig.options.readers = readers;
        other = rig_run(&rig, 0);
        cr_assert_eq(other.digest, first.digest);
        cr_assert_eq(other.nr_bad, first.nr_bad);
    }
    rig_free(&rig);
}

Test(loader, a_bad_evaluation_sample_is_masked_and_counted, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 21), 0);
    made_damage(&rig.eval, 4, 0, "GIF8", 4);
    outcome = rig_run(&rig, 0);
    cr_assert_eq(outcome.err.code, 0, "%s", outcome.err.text);
    cr_assert_eq(outcome.nr_bad, 4);
    cr_assert_eq(outcome.nr_masked, 4 * (32 - 21 + 1));
    cr_assert_eq(outcome.nr_replaced, 0);
    rig_free(&rig);
}

Test(loader, past_the_budget_the_run_fails_with_the_count, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;
    uint64_t nr_bad;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    damage(&rig.set, &nr_bad);
    rig.options.bad_budget = 0.03; /* 3 of 97 */
    outcome = rig_run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    cr_assert_not_null(strstr(outcome.err.text, "over 3 of the 97 samples of epoch 0"));
    cr_assert_not_null(strstr(outcome.err.text, "bad_samples.jsonl"));
    cr_assert_geq(outcome.nr_bad, 4u);
    rig.options.bad_budget = 1;
    rig.config.nr_bad = 97 - 2; /* before a restart */
    rig.config.first_step = 1;
    outcome = rig_run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    rig_free(&rig);
}

Test(loader, policy_fail_ends_the_run_at_the_first_bad_sample, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    made_damage(&rig.set, 33, 0, "GIF8", 4);
    rig.options.bad_fail = true;
    outcome = rig_run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    cr_assert_not_null(strstr(outcome.err.text, "0033.ppm"));
    cr_assert_eq(outcome.nr_bad, 1);
    rig_free(&rig);
}

Test(loader, a_bad_sample_ends_the_run_at_its_own_batch, .timeout = 120)
{
    for (int readers = 1; readers <= 8; readers *= 2) {
        struct outcome outcome;
        struct rig rig;

        cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
        rig.config.sampler.shuffle = NP_SHUFFLE_NONE;
        rig.options.readers = readers;
        rig.options.prefetch = 16; /* the readers are far ahead */
        made_damage(&rig.set, 5 * BATCH + 3, 0, "GIF8", 4);
        made_damage(&rig.set, 5 * BATCH + 9, 0, "GIF8", 4);
        rig.options.bad_budget = 0; /* in batch 5 of the first epoch */
        outcome = rig_run(&rig, 0);
        cr_assert_eq(outcome.err.code, -EBADMSG);
        cr_assert_not_null(strstr(outcome.err.text, "0083.ppm"), "%s", outcome.err.text);
        cr_assert_eq(outcome.nr_batches, 5, "%d readers", readers);
        cr_assert_eq(outcome.nr_bad, 2);
        rig.options.bad_budget = 0.02; /* one more than two in an epoch: never in the first */
        outcome = rig_run(&rig, 0);
        cr_assert_eq(outcome.err.code, 0, "%s", outcome.err.text);
        rig_free(&rig);
    }
}

Test(loader, a_set_without_a_good_sample_ends_the_run, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    for (uint64_t s = 0; s < N; s++)
        made_damage(&rig.set, s, 0, "GIF8", 4);
    rig.options.bad_budget = 1;
    outcome = rig_run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    cr_assert_eq(outcome.nr_batches, 0);
    rig_free(&rig);
}

/* The file of a sample in a folder set. */
static const char *file_of(const struct rig *rig, int sample)
{
    static char path[160];

    snprintf(path, sizeof(path), "%s/%04d.ppm", rig->set.dir, sample);
    return path;
}

Test(loader, a_missing_file_is_a_bad_sample, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_FOLDER, true, 0), 0);
    cr_assert_eq(unlink(file_of(&rig, 13)), 0);
    cr_assert_eq(unlink(file_of(&rig, 14)), 0);
    cr_assert_eq(symlink("nowhere", file_of(&rig, 14)), 0);
    cr_assert_eq(unlink(file_of(&rig, 15)), 0);
    cr_assert_eq(mkdir(file_of(&rig, 15), 0700), 0);
    cr_assert_eq(unlink(file_of(&rig, 16)), 0);
    cr_assert_eq(symlink("0016.ppm", file_of(&rig, 16)), 0);
    outcome = rig_run(&rig, 0);
    cr_assert_eq(outcome.err.code, 0, "%s", outcome.err.text);
    cr_expect_eq(outcome.nr_batches, STEPS);
    cr_expect_geq(outcome.nr_bad, 4u * 3);
    cr_expect(
        strstr(outcome.reasons, "0013.ppm at 0: cannot be opened: No such file or directory"));
    cr_expect(
        strstr(outcome.reasons, "0014.ppm at 0: cannot be opened: No such file or directory"));
    cr_expect(strstr(outcome.reasons, "0015.ppm at 0: cannot be opened: Is a directory"));
    cr_expect(strstr(outcome.reasons, "0016.ppm at 0: cannot be opened: Too many levels"));
    rig_free(&rig);
}

/* A disk that is not mounted, say: nothing is known of its files. */
Test(loader, a_lost_folder_stops_the_run_and_is_named, .timeout = 120)
{
    char command[256], moved[80];
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_FOLDER, true, 0), 0);
    snprintf(moved, sizeof(moved), "%s.gone", rig.set.dir);
    cr_assert_eq(rename(rig.set.dir, moved), 0);
    outcome = rig_run(&rig, 0);
    cr_expect_eq(outcome.err.code, -EIO);
    cr_expect(strstr(outcome.err.text, rig.set.dir), "%s", outcome.err.text);
    cr_expect(strstr(outcome.err.text, "tried 4 times"), "%s", outcome.err.text);
    cr_expect_eq(outcome.nr_bad, 0);
    snprintf(command, sizeof(command), "rm -rf '%s'", moved);
    cr_expect_eq(system(command), 0);
    rig_free(&rig);
}

/* Writes the picture of a sample into a file, with a comment of so many bytes in its header. */
static void write_as(const struct rig *rig, int sample, int comment_bytes, const char *path)
{
    char bytes[4096];
    FILE *file = fopen(file_of(rig, sample), "rb");
    const size_t n = fread(bytes, 1, sizeof(bytes), file);

    fclose(file);
    file = fopen(path, "wb");
    fprintf(file, "P6\n#%*s\n", comment_bytes, "");
    fwrite(bytes + 3, 1, n - 3, file);
    fclose(file);
}

static void write_anew(const struct rig *rig, int sample, int comment_bytes)
{
    write_as(rig, sample, comment_bytes, file_of(rig, sample));
}

Test(loader, a_rewritten_file_is_read_as_it_is_now, .timeout = 120)
{
    struct outcome before, after;
    struct rig rig;

    for (int cache = NP_CACHE_NONE; cache <= NP_CACHE_DECODED; cache++) {
        cr_assert_eq(rig_make(&rig, MADE_FOLDER, true, 0), 0);
        rig.options.cache = cache;
        before = rig_run(&rig, 0);
        cr_assert_eq(before.err.code, 0, "%s", before.err.text);
        write_anew(&rig, 5, 3);
        write_anew(&rig, 7, 100000);              /* larger than any buffer */
        np_index_set_crc(rig.set.index, 5, 1234); /* of `data verify`, before */
        after = rig_run(&rig, 0);
        cr_assert_eq(after.err.code, 0, "%s", after.err.text);
        cr_expect_eq(after.digest, before.digest);
        cr_expect_eq(after.nr_bad, 0, "%s", after.reasons);
        rig_free(&rig);
    }
}

/* More than a reader's buffers hold together, and more than it takes at the same time. */
Test(loader, large_files_get_memory_of_their_own, .timeout = 120)
{
    struct outcome before, after;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_FOLDER, true, 0), 0);
    rig.config.sampler.nr_steps = 7; /* one epoch */
    before = rig_run(&rig, 0);
    for (int s = 0; s < N; s += 10)
        write_anew(&rig, s, 40 << 20);
    after = rig_run(&rig, 0);
    cr_assert_eq(after.err.code, 0, "%s", after.err.text);
    cr_expect_eq(after.digest, before.digest);
    cr_expect_eq(after.nr_bad, 0, "%s", after.reasons);
    rig_free(&rig);
}

Test(loader, rewritten_files_are_counted_once, .timeout = 120)
{
    char first[256] = "";
    struct np_block *block;
    struct np_loader *loader;
    struct np_err err = {0};
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_FOLDER, true, 0), 0);
    write_anew(&rig, 5, 3);
    write_anew(&rig, 7, 3);
    block = np_stat_join(rig.config.stat, "trainer", NULL);
    cr_assert_eq(np_loader_start(&rig.config, &loader, &err), 0, "%s", err.text);
    for (int i = 0; i < STEPS; i++) {
        struct np_batch *batch = np_ring_take(loader->ring, block, &err);

        cr_assert_not_null(batch, "%s", err.text);
        np_ring_release(loader->ring, batch);
    }
    cr_expect_eq(np_loader_changed(loader, NP_BATCH_TRAIN, first, sizeof(first)), 2);
    cr_expect(strstr(first, "/000"), "%s", first);
    np_loader_stop(loader);
    rig_free(&rig);
}

/* A run whose set `change` modifies after its first batch. */
static struct outcome change_under_way(const struct rig *rig, void (*change)(const struct rig *rig))
{
    struct outcome outcome = {0};
    struct np_bad_sample bad;
    struct np_loader *loader;
    struct np_block *block = np_stat_join(rig->config.stat, "trainer", NULL);

    if (np_loader_start(&rig->config, &loader, &outcome.err))
        return outcome;
    for (int i = 0; i < STEPS; i++) {
        struct np_batch *batch = np_ring_take(loader->ring, block, &outcome.err);

        if (!batch)
            break;
        outcome.nr_batches++;
        np_ring_release(loader->ring, batch);
        if (i == 0)
            change(rig);
    }
    while (np_loader_next_bad(loader, &bad))
        outcome.nr_bad++;
    np_loader_stop(loader);
    return outcome;
}

static void turn_pixels(const struct rig *rig)
{
    for (int s = 0; s < N; s++) {
        int fd = open(file_of(rig, s), O_WRONLY);

        if (pwrite(fd, "xyz", 3, 40) != 3)
            abort();
        close(fd);
    }
}

Test(loader, pictures_edited_during_the_run_are_not_bad_samples, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_FOLDER, true, 0), 0);
    outcome = change_under_way(&rig, turn_pixels);
    cr_expect_eq(outcome.err.code, 0, "%s", outcome.err.text);
    cr_expect_eq(outcome.nr_batches, STEPS);
    cr_expect_eq(outcome.nr_bad, 0);
    rig_free(&rig);
}

/* The same pictures in other files, which are longer. */
static void replace_files(const struct rig *rig)
{
    char beside[160];

    snprintf(beside, sizeof(beside), "%s/beside", rig->set.dir);
    for (int s = 0; s < N; s++) {
        write_as(rig, s, 3, beside);
        if (rename(beside, file_of(rig, s)))
            abort();
    }
}

static void cut_files(const struct rig *rig)
{
    for (int s = 0; s < N; s += 8)
        if (truncate(file_of(rig, s), 7))
            abort();
}

static void remove_files(const struct rig *rig)
{
    for (int s = 0; s < N; s += 8)
        unlink(file_of(rig, s));
}

Test(loader, files_cut_or_removed_between_open_and_read_are_bad_samples, .timeout = 120)
{
    static void (*const changes[])(const struct rig *rig) = {cut_files, remove_files};

    for (int i = 0; i < 4; i++) {
        struct outcome outcome;
        struct rig rig;

        cr_assert_eq(rig_make(&rig, MADE_FOLDER, true, 0), 0);
        rig.options.io = i < 2 ? "sim" : "uring";
        rig.options.bad_budget = 1;
        setenv("NNPIPE_IO_SIM", "seed=1,shuffle=true,latency_us=2000", 1);
        outcome = change_under_way(&rig, changes[i % 2]);
        unsetenv("NNPIPE_IO_SIM");
        cr_expect_eq(outcome.err.code, 0, "%s", outcome.err.text);
        cr_expect_eq(outcome.nr_batches, STEPS);
        cr_expect_gt(outcome.nr_bad, 0u);
        rig_free(&rig);
    }
}

Test(loader, files_replaced_during_the_run_change_nothing, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_FOLDER, true, 0), 0);
    rig.options.io = "sim";
    setenv("NNPIPE_IO_SIM", "seed=2,shuffle=true,latency_us=2000", 1);
    outcome = change_under_way(&rig, replace_files);
    unsetenv("NNPIPE_IO_SIM");
    cr_expect_eq(outcome.err.code, 0, "%s", outcome.err.text);
    cr_expect_eq(outcome.nr_bad, 0);
    rig_free(&rig);
}

static void cut_shard(const struct rig *rig)
{
    if (truncate(rig->set.path, 100))
        abort();
}

Test(loader, a_shard_overwritten_during_the_run_ends_it, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    outcome = change_under_way(&rig, cut_shard);
    cr_expect_eq(outcome.err.code, -ESTALE, "%s", outcome.err.text);
    cr_expect(strstr(outcome.err.text, "has changed since the run began"), "%s", outcome.err.text);
    rig_free(&rig);
}

Test(loader, temporary_disk_errors_change_nothing, .timeout = 120)
{
    static const char *const weathers[] = {"seed=1,short=40%", "seed=2,shuffle=true,latency_us=300",
        "seed=3,fail_read=10",
        "seed=4,short=20%,shuffle=true,latency_us=200,fail_read=30,fail_reads=3"};
    struct outcome fine, other;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_ZSTD, true, 21), 0);
    fine = rig_run(&rig, 0);
    rig.options.io = "sim";
    for (size_t i = 0; i < sizeof(weathers) / sizeof(*weathers); i++) {
        setenv("NNPIPE_IO_SIM", weathers[i], 1);
        other = rig_run(&rig, 0);
        unsetenv("NNPIPE_IO_SIM");
        cr_assert_eq(other.err.code, 0, "%s", other.err.text);
        cr_assert_eq(other.digest, fine.digest, "%s", weathers[i]);
        cr_assert_eq(other.nr_bad, 0);
    }
    rig_free(&rig);
}

Test(loader, files_opened_late_and_with_errors_give_the_same_rows, .timeout = 120)
{
    static const char *const weathers[] = {NULL, "seed=1,shuffle=true,latency_us=300",
        "seed=2,fail_read=10", "seed=3,fail_read=31,fail_reads=3"}; /* an open, and a read */
    struct outcome fine, other;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_FOLDER, true, 0), 0);
    fine = rig_run(&rig, 0);
    cr_assert_eq(fine.err.code, 0, "%s", fine.err.text);
    for (size_t i = 0; i < sizeof(weathers) / sizeof(*weathers); i++) {
        rig.options.io = weathers[i] ? "sim" : "uring";
        if (weathers[i])
            setenv("NNPIPE_IO_SIM", weathers[i], 1);
        other = rig_run(&rig, 0);
        unsetenv("NNPIPE_IO_SIM");
        cr_assert_eq(other.err.code, 0, "%s", other.err.text);
        cr_assert_eq(other.digest, fine.digest, "%zu", i);
        cr_assert_eq(other.nr_bad, 0);
    }
    rig_free(&rig);
}

/* A run with 64 files open at once, if each read takes so long, under these limits of descriptors: in a child,
 * since nobody may be allowed to raise them again. */
static struct outcome run_with_few(rlim_t soft, rlim_t hard, const char *latency)
{
    const struct rlimit few = {soft, hard};
    struct outcome *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct outcome outcome;
    struct rig rig;
    pid_t child;

    cr_assert_neq(shared, MAP_FAILED);
    if (rig_make(&rig, MADE_FOLDER, true, 0))
        abort();
    rig.options.io = "sim";
    rig.options.depth = 32;
    child = fork();
    if (child == 0) {
        setenv("NNPIPE_IO_SIM", latency, 1);
        setrlimit(RLIMIT_NOFILE, &few);
        *shared = rig_run(&rig, 0);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    outcome = *shared;
    munmap(shared, sizeof(*shared));
    rig_free(&rig);
    return outcome;
}

Test(loader, a_low_limit_of_descriptors_is_raised, .timeout = 120)
{
    struct outcome outcome;
    struct rlimit before;

    getrlimit(RLIMIT_NOFILE, &before);
    outcome = run_with_few(24, before.rlim_max, "latency_us=1000");
    cr_expect_eq(outcome.err.code, 0, "%s", outcome.err.text);
}

Test(loader, too_few_descriptors_stop_the_run_and_are_named, .timeout = 120)
{
    struct outcome outcome = run_with_few(24, 24, "latency_us=500000");

    cr_expect_eq(outcome.err.code, -EIO);
    cr_expect(strstr(outcome.err.text, "Too many open files"), "%s", outcome.err.text);
    cr_expect_eq(outcome.nr_bad, 0);
}

/* Reads past the page cache come short at a file's end, and are repeated through it if they fail. */
Test(loader, rows_read_past_the_page_cache_are_equal, .timeout = 120)
{
    static const enum made_kind kinds[] = {MADE_FOLDER, MADE_PPM, MADE_RAW, MADE_ZSTD};
    static const char *const weathers[] = {NULL, "seed=1,shuffle=true,latency_us=300",
        "seed=2,short=60%", "seed=3,fail_read=11,fail_reads=2"};
    struct outcome fine, other;
    struct rig rig;

    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        cr_assert_eq(rig_make(&rig, kinds[k], kinds[k] != MADE_RAW, 21), 0);
        fine = rig_run(&rig, 0);
        cr_assert_eq(fine.err.code, 0, "%s", fine.err.text);
        for (size_t i = 0; i < 2 * sizeof(weathers) / sizeof(*weathers); i++) {
            const char *weather = weathers[i / 2];

            rig.options.io = weather ? "sim" : "uring";
            rig.options.page_cache = i % 2 ? 0 : 20000; /* all, and some, are read past it */
            if (weather)
                setenv("NNPIPE_IO_SIM", weather, 1);
            other = rig_run(&rig, 0);
            unsetenv("NNPIPE_IO_SIM");
            cr_assert_eq(other.err.code, 0, "%s", other.err.text);
            cr_expect_eq(other.digest, fine.digest, "%d %s", (int)kinds[k], weather);
            cr_expect_eq(other.nr_bad, 0u);
        }
        rig_free(&rig);
    }
}

Test(loader, a_permanent_disk_error_stops_the_run_and_is_named, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    rig.options.io = "sim";
    setenv("NNPIPE_IO_SIM", "fail_read=100,fail_reads=1000000", 1);
    outcome = rig_run(&rig, 0);
    unsetenv("NNPIPE_IO_SIM");
    cr_assert_eq(outcome.err.code, -EIO);
    cr_assert_not_null(strstr(outcome.err.text, rig.set.path));
    cr_assert_not_null(strstr(outcome.err.text, " at offset "));
    cr_assert_not_null(strstr(outcome.err.text, "Input/output error"));
    cr_assert_eq(outcome.nr_bad, 0);
    cr_assert_lt(outcome.nr_batches, STEPS);
    rig_free(&rig);
}

Test(loader, a_missing_shard_is_reported_at_the_start)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    unlink(rig.set.path);
    outcome = rig_run(&rig, 0);
    cr_assert_eq(outcome.err.code, -ENOENT);
    cr_assert_not_null(strstr(outcome.err.text, rig.set.path));
    rig_free(&rig);
}

Test(loader, a_missing_backend_is_reported_at_the_start)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_RAW, false, 0), 0);
    rig.options.io = "tape";
    outcome = rig_run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EINVAL);
    rig_free(&rig);
}

Test(loader, pictures_of_another_size_are_bad_samples_with_advice, .timeout = 120)
{
    struct outcome outcome;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_RAW, false, 0), 0);
    rig.config.shape.width = SIDE + 1;
    outcome = rig_run(&rig, 0);
    cr_assert_eq(outcome.err.code, -EBADMSG);
    cr_assert_not_null(strstr(outcome.err.text, "resize"));
    rig_free(&rig);
}
