/* Rows of JPEGs with entries (loader/row_entries.h): the same as without, in every kind of set, in
 * the run that notes them and in later ones; also where the bytes have changed since. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/source/entries.h"
#include "tests/test.h"
#include "tests/unit/made_loader.h"
#include "tests/unit/made_memory.h"

enum { PICTURES = BATCH * STEPS };

static void make(struct rig *rig, enum made_kind kind)
{
    cr_assert_eq(rig_make(rig, kind, true, 0), 0);
    rig->set.index->cached = np_format("%s/index", rig->set.dir);
    rig->options.cache = NP_CACHE_NONE;
}

static struct outcome run(struct rig *rig, int64_t entries_bytes, uint64_t *ret_read)
{
    struct np_stat_sum before, after;
    struct outcome outcome;

    rig->options.entries_bytes = entries_bytes;
    np_stat_read(rig->config.stat, "reader", &before);
    outcome = rig_run(rig, 0);
    np_stat_read(rig->config.stat, "reader", &after);
    *ret_read = after.stages[NP_STAGE_READ].bytes - before.stages[NP_STAGE_READ].bytes;
    cr_expect_eq(outcome.err.code, 0, "%s", outcome.err.text);
    return outcome;
}

static void rows_are_the_same(enum made_kind kind, enum np_cache_kind cache)
{
    uint64_t all, noting, with;
    struct outcome off, first, second;
    struct rig rig;

    make(&rig, kind);
    rig.options.cache = (int)cache;
    off = run(&rig, 0, &all);
    first = run(&rig, NP_ENTRIES_AUTO, &noting);
    second = run(&rig, NP_ENTRIES_AUTO, &with);
    cr_expect_eq(off.nr_entered + off.nr_missed, 0);
    cr_expect_geq(first.nr_missed, N);
    cr_expect_eq(first.nr_entered + first.nr_missed, PICTURES);
    cr_expect_eq(first.digest, off.digest, "kind %d, cache %d", kind, cache);
    cr_expect_eq(second.digest, off.digest, "kind %d, cache %d", kind, cache);
    cr_expect_eq(second.nr_batches, STEPS);
    cr_expect_eq(off.nr_bad + first.nr_bad + second.nr_bad, 0, "%s", first.reasons);
    cr_expect_gt(second.nr_entered, first.nr_entered);
    cr_expect_eq(second.nr_entered, PICTURES);
    if (cache == NP_CACHE_NONE && kind != MADE_JPEG_ZSTD)
        cr_expect(4 * with < 3 * all, "%llu of %llu bytes", (unsigned long long)with,
            (unsigned long long)all);
    rig_free(&rig);
}

Test(row_entries, parts_read_past_the_page_cache_give_the_same_rows)
{
    static const enum made_kind kinds[] = {MADE_JPEG, MADE_JPEG_FOLDER};

    for (int k = 0; k < 2; k++) {
        uint64_t all, with, direct;
        struct outcome off, cached, past;
        struct rig rig;

        make(&rig, kinds[k]);
        rig.options.io = "uring";
        off = run(&rig, 0, &all);
        run(&rig, NP_ENTRIES_AUTO, &with);
        cached = run(&rig, NP_ENTRIES_AUTO, &with);
        rig.options.page_cache = 0;
        past = run(&rig, NP_ENTRIES_AUTO, &direct);
        cr_expect_eq(cached.digest, off.digest);
        cr_expect_eq(past.digest, off.digest);
        cr_expect_eq(past.nr_entered, cached.nr_entered);
        cr_expect_eq(direct, with);
        rig_free(&rig);
    }
}

Test(row_entries, rows_of_an_archive_are_the_same_from_entries)
{
    rows_are_the_same(MADE_JPEG, NP_CACHE_NONE);
    rows_are_the_same(MADE_JPEG, NP_CACHE_ENCODED);
}

Test(row_entries, rows_of_zstd_frames_are_the_same_from_entries)
{
    rows_are_the_same(MADE_JPEG_ZSTD, NP_CACHE_NONE);
    rows_are_the_same(MADE_JPEG_ZSTD, NP_CACHE_ENCODED);
}

Test(row_entries, rows_of_files_are_the_same_from_entries)
{
    rows_are_the_same(MADE_JPEG_FOLDER, NP_CACHE_NONE);
    rows_are_the_same(MADE_JPEG_FOLDER, NP_CACHE_ENCODED);
}

Test(row_entries, a_cache_of_pictures_and_grey_rows_read_whole_records)
{
    uint64_t all, with;
    struct outcome off, second;
    struct rig rig;

    make(&rig, MADE_JPEG);
    rig.options.channels = rig.config.shape.channels = 1;
    off = run(&rig, 0, &all);
    run(&rig, NP_ENTRIES_AUTO, &with);
    second = run(&rig, NP_ENTRIES_AUTO, &with);
    cr_expect_eq(second.digest, off.digest);
    cr_expect_eq(second.nr_entered, PICTURES);
    cr_expect_eq(with, all);
    rig.options.cache = NP_CACHE_DECODED;
    cr_expect_eq(run(&rig, NP_ENTRIES_AUTO, &with).digest, off.digest);
    rig_free(&rig);
}

/* --- bytes that have changed ------------------------------------------------------------------ */

static void path_of(const struct rig *rig, int s, char path[160])
{
    snprintf(path, 160, "%s/%04d.ppm", rig->set.dir, s);
}

/* Gives file `to` the picture of file `from`, at its own size and with its own mtime, so that
 * nothing but its bytes shows it. False: it is too large. */
static bool put_another(const struct rig *rig, int from, int to)
{
    char path[160];
    struct timespec times[2];
    struct stat st;
    uint64_t nr_bytes;
    char *bytes, *grown;
    int fd;

    path_of(rig, from, path);
    cr_assert_eq(np_read_file(path, 1 << 20, &bytes, &nr_bytes, NULL), 0);
    path_of(rig, to, path);
    cr_assert_eq(stat(path, &st), 0);
    if ((uint64_t)st.st_size < nr_bytes) {
        np_free(bytes);
        return false;
    }
    grown = calloc(1, (size_t)st.st_size);
    memcpy(grown, bytes, nr_bytes);
    fd = open(path, O_WRONLY);
    cr_assert_eq(pwrite(fd, grown, (size_t)st.st_size, 0), st.st_size);
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    cr_assert_eq(futimens(fd, times), 0);
    close(fd);
    free(grown);
    np_free(bytes);
    return true;
}

Test(row_entries, entries_of_other_bytes_are_not_used)
{
    uint64_t bytes;
    int nr_changed = 0;
    struct outcome old, off, with;
    struct rig rig;

    make(&rig, MADE_JPEG_FOLDER);
    old = run(&rig, NP_ENTRIES_AUTO, &bytes);
    for (int s = 1; s < N; s += 2)
        nr_changed += put_another(&rig, s - 1, s);
    off = run(&rig, 0, &bytes);
    with = run(&rig, NP_ENTRIES_AUTO, &bytes);
    cr_expect_gt(nr_changed, 5);
    cr_expect_neq(off.digest, old.digest);
    cr_expect_eq(with.digest, off.digest);
    cr_expect(with.nr_entered < PICTURES);
    rig_free(&rig);
}

Test(row_entries, damage_where_a_crop_needs_it_is_found_as_without_entries)
{
    uint8_t ones[100];
    uint64_t bytes;
    struct outcome off, with;
    struct rig rig;

    memset(ones, 0xff, sizeof(ones));
    make(&rig, MADE_JPEG);
    run(&rig, NP_ENTRIES_AUTO, &bytes); /* the index has checksums now */
    for (uint64_t s = 0; s < 5; s++)
        for (uint32_t at = 800; at + 200 < np_index_record(rig.set.index, s)->bytes; at += 200)
            made_damage(&rig.set, s, (int)at, ones, sizeof(ones));
    off = run(&rig, 0, &bytes);
    with = run(&rig, NP_ENTRIES_AUTO, &bytes);
    cr_expect_gt(off.nr_bad, 5);
    cr_expect_eq(with.nr_bad, off.nr_bad);
    cr_expect_eq(with.digest, off.digest);
    cr_expect_str_eq(with.reasons, off.reasons);
    rig_free(&rig);
}

/* --- memory ------------------------------------------------------------------------------------ */

Test(row_entries, a_run_reports_each_failed_allocation, .timeout = 120)
{
    for (enum made_kind kind = MADE_JPEG; kind <= MADE_JPEG_FOLDER; kind++) {
        uint64_t nr_bytes;
        struct rig rig;
        int nr_told = 0, nr_whole = 0; /* whole: runs that make fewer calls than n */

        make(&rig, kind);
        rig.options.readers = 1;
        rig.config.sampler.nr_steps = 3;
        rig.options.entries_bytes = NP_ENTRIES_AUTO;
        for (int n = 1; nr_whole < 10; n++) {
            struct outcome outcome;

            made_memory_fail(n);
            outcome = rig_run(&rig, 0);
            nr_whole += !made_memory_failed();
            nr_told += outcome.err.code == -ENOMEM;
            cr_expect(outcome.err.code == 0 || outcome.err.code == -ENOMEM, "%s", outcome.err.text);
        }
        made_memory_fail(0);
        cr_expect_gt(nr_told, 50);
        cr_expect_eq(run(&rig, NP_ENTRIES_AUTO, &nr_bytes).nr_batches, 3);
        rig_free(&rig);
    }
}
