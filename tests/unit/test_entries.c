/* The entries' store: what was put comes back, also in the next run and in another process; stale,
 * damaged and foreign files give nothing; a writer that is killed loses nothing that was there. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "loader/source/entries.h"
#include "loader/source/entries_file.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_sets.h"

enum { MAX_TEXT = 2000 };

/* An index of n samples whose place in the cache is folder/i. */
static struct np_index *make_index(const char *folder, int n)
{
    struct np_index *index = np_index_new(NULL);

    for (int i = 0; i < n; i++) {
        const struct np_record record = {.bytes = 100000, .inner_bytes = 100000, .no_label = 1};
        char name[32];

        snprintf(name, sizeof(name), "p%07d.jpg", i);
        if (np_index_add(index, &record, name, NULL, NULL))
            abort();
    }
    if (np_index_finish(index, NULL))
        abort();
    index->cached = np_format("%s/i", folder);
    return index;
}

static struct np_entries *open_store(const struct np_index *index, int64_t max_bytes)
{
    struct np_entries *entries = NULL;

    if (np_entries_open(index, max_bytes, true, &entries, NULL))
        abort();
    return entries;
}

/* What a sample's version has; its bytes depend on both. */
static size_t text_of(uint64_t sample, uint64_t version, uint8_t text[MAX_TEXT])
{
    const size_t n = 1 + (sample * 7919 + version * 31) % (MAX_TEXT - 1);

    for (size_t i = 0; i < n; i++)
        text[i] = (uint8_t)(sample * 31 + version * 7 + i * i);
    return n;
}

static struct np_entries_of of_version(uint64_t version)
{
    return (struct np_entries_of){1000, 1700000000000000000ull + version};
}

static int put(struct np_entries *entries, uint64_t sample, uint64_t version)
{
    uint8_t text[MAX_TEXT];
    const size_t n = text_of(sample, version, text);

    return np_entries_put(entries, sample, of_version(version), text, n, NULL);
}

/* 1: it is there; 0: nothing is; fails the test if its bytes are wrong. */
static int has(struct np_entries *entries, uint64_t sample, uint64_t version)
{
    uint8_t text[MAX_TEXT], *buffer = NULL;
    size_t room = 0;
    const size_t n = text_of(sample, version, text);
    const int64_t got = np_entries_get(entries, sample, of_version(version), &buffer, &room, NULL);

    if (got > 0) {
        cr_assert_eq(got, (int64_t)n);
        cr_assert_arr_eq(buffer, text, n);
    }
    np_free(buffer);
    return got > 0;
}

static int count(struct np_entries *entries, int n, uint64_t version)
{
    int found = 0;

    for (int i = 0; i < n; i++)
        found += has(entries, (uint64_t)i, version);
    return found;
}

static int nr_segments(const char *folder)
{
    char path[4200];
    int n = 0;

    for (unsigned i = 1; i < 500; i++) {
        snprintf(path, sizeof(path), "%s/i.entries/%08x.segment", folder, i);
        n += access(path, F_OK) == 0;
    }
    return n;
}

Test(entries, what_was_put_is_there_before_and_after_it_is_written, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 100);
    struct np_entries *entries = open_store(index, NP_ENTRIES_AUTO);

    cr_assert(np_entries_takes(entries));
    for (uint64_t i = 0; i < 100; i += 2)
        cr_assert_eq(put(entries, i, 1), 0);
    cr_expect_eq(count(entries, 100, 1), 50);
    cr_expect_eq(nr_segments(folder), 0);
    cr_assert_eq(np_entries_flush(entries, NULL), 0);
    cr_expect_eq(nr_segments(folder), 1);
    cr_expect_eq(count(entries, 100, 1), 50);
    cr_assert_eq(np_entries_flush(entries, NULL), 0); /* nothing is new */
    cr_expect_eq(nr_segments(folder), 1);
    cr_assert_eq(put(entries, 1, 1), 0);
    np_entries_close(entries);
    cr_expect_eq(nr_segments(folder), 2);
    entries = open_store(index, NP_ENTRIES_AUTO);
    cr_expect_eq(count(entries, 100, 1), 51);
    cr_expect_str_eq(np_entries_note(entries), "");
    np_entries_close(entries);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, entries_of_other_bytes_are_not_returned, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 10);
    uint8_t *buffer = NULL;
    size_t room = 0;

    for (int written = 0; written < 2; written++) {
        struct np_entries *entries = open_store(index, NP_ENTRIES_AUTO);
        struct np_entries_of shorter = of_version(1);

        put(entries, 3, 1);
        put(entries, 4, 1);
        if (written)
            np_entries_flush(entries, NULL);
        shorter.bytes--;
        cr_expect_eq(np_entries_get(entries, 3, shorter, &buffer, &room, NULL), 0);
        cr_expect_eq(has(entries, 3, 2), 0);
        put(entries, 3, 2); /* the file has been written to */
        cr_expect_eq(has(entries, 3, 1), 0);
        cr_expect_eq(has(entries, 3, 2), 1);
        np_entries_close(entries);
        entries = open_store(index, NP_ENTRIES_AUTO);
        cr_expect_eq(has(entries, 3, 1), 0);
        cr_expect_eq(has(entries, 3, 2), 1);
        cr_expect_eq(has(entries, 4, 1), 1);
        np_entries_close(entries);
        np_entries_remove(index->cached);
        cr_expect_eq(nr_segments(folder), 0);
    }
    np_free(buffer);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, a_view_of_the_index_finds_its_samples, .timeout = 120)
{
    static const uint32_t kept[] = {5, 7, 30};
    char *folder = make_set();
    struct np_index *index = make_index(folder, 40), *view = make_index(folder, 40);
    struct np_entries *entries = open_store(index, NP_ENTRIES_AUTO);
    uint8_t *buffer = NULL, text[MAX_TEXT];
    size_t room = 0;

    put(entries, 30, 1);
    np_entries_close(entries);
    cr_assert_eq(np_index_keep(view, kept, 3, NULL), 0);
    entries = open_store(view, NP_ENTRIES_AUTO);
    cr_expect_eq(np_entries_get(entries, 1, of_version(1), &buffer, &room, NULL), 0);
    cr_expect_eq(np_entries_get(entries, 2, of_version(1), &buffer, &room, NULL),
        (int64_t)text_of(30, 1, text));
    np_entries_close(entries);
    np_free(buffer);
    np_index_free(view);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, off_and_a_set_without_a_place_keep_nothing)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 5);

    cr_expect_null(open_store(index, 0));
    np_free(index->cached);
    index->cached = NULL;
    cr_expect_null(open_store(index, NP_ENTRIES_AUTO));
    cr_expect_eq(has(NULL, 1, 1), 0);
    cr_expect_eq(put(NULL, 1, 1), 0);
    cr_expect_eq(np_entries_flush(NULL, NULL), 0);
    cr_expect_not(np_entries_takes(NULL));
    cr_expect_str_eq(np_entries_note(NULL), "");
    np_entries_close(NULL);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, a_full_store_takes_no_more_and_says_so, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 200);
    struct np_entries *entries = open_store(index, 50000);
    int found;

    for (uint64_t i = 0; i < 200; i++)
        cr_assert_eq(put(entries, i, 1), 0);
    found = count(entries, 200, 1);
    cr_expect(found > 20 && found < 100, "%d", found);
    cr_expect_not_null(strstr(np_entries_note(entries), "full"));
    np_entries_close(entries);
    entries = open_store(index, 10000); /* a lower limit loses nothing */
    cr_expect_eq(count(entries, 200, 1), found);
    cr_expect_not(np_entries_takes(entries));
    np_entries_close(entries);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, segments_are_merged_and_nothing_is_lost, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 3000);
    struct np_entries *entries = open_store(index, NP_ENTRIES_AUTO);

    for (int i = 0; i < 100; i++) { /* some samples again, with other bytes */
        for (uint64_t s = 0; s < 20; s++)
            put(entries, (uint64_t)i * 20 + s, 1);
        put(entries, (uint64_t)i * 7, 2);
        cr_assert_eq(np_entries_flush(entries, NULL), 0);
        cr_assert_leq(nr_segments(folder), 8);
    }
    cr_expect_str_eq(np_entries_note(entries), "");
    for (int opened = 0; opened < 2; opened++) {
        for (uint64_t s = 0; s < 2000; s++) {
            /* Version 2 was put after version 1 if its turn came later. */
            const bool newer = s % 7 == 0 && s / 7 < 100 && s / 7 >= s / 20;

            cr_assert_eq(has(entries, s, 2), newer);
            cr_assert_eq(has(entries, s, 1), !newer);
        }
        np_entries_close(entries);
        entries = open_store(index, NP_ENTRIES_AUTO);
    }
    np_entries_close(entries);
    np_index_free(index);
    remove_set(folder);
}

/* --- damage ------------------------------------------------------------------------------------- */

static char *segment_path(const char *folder, unsigned number)
{
    return np_format("%s/i.entries/%08x.segment", folder, number);
}

static void flip(const char *path, off_t at)
{
    const int fd = open(path, O_RDWR);
    uint8_t byte;

    if (pread(fd, &byte, 1, at) != 1)
        abort();
    byte ^= 16;
    if (pwrite(fd, &byte, 1, at) != 1)
        abort();
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* Two segments, samples 0 to 9 and 10 to 19. */
static void make_two(const struct np_index *index)
{
    struct np_entries *entries = open_store(index, NP_ENTRIES_AUTO);

    np_entries_remove(index->cached);
    np_entries_close(entries);
    entries = open_store(index, NP_ENTRIES_AUTO);
    for (uint64_t i = 0; i < 20; i++) {
        put(entries, i, 1);
        if (i == 9)
            np_entries_flush(entries, NULL);
    }
    np_entries_close(entries);
}

Test(entries, a_damaged_segment_is_ignored_named_and_made_anew, .timeout = 120)
{
    char *folder = make_set(), *path = segment_path(folder, 1);
    struct np_index *index = make_index(folder, 20);
    off_t size;

    make_two(index);
    size = size_of(path);
    cr_assert_gt(size, 1000);
    for (off_t at = 0; at < size; at += at < 48 || at > size - 88 ? 1 : 97) {
        struct np_entries *entries;
        const bool in_record = at >= 48 && at < size - 88;
        int found;

        make_two(index);
        flip(path, at);
        entries = open_store(index, NP_ENTRIES_AUTO);
        found = count(entries, 20, 1);
        if (in_record) /* in one record, or in its padding */
            cr_assert(found >= 19, "byte %lld: %d", (long long)at, found);
        else
            cr_assert_eq(found, 10, "byte %lld: %d", (long long)at, found);
        cr_assert((found == 20) == !*np_entries_note(entries));
        cr_assert(found == 20 || strstr(np_entries_note(entries), path));
        for (uint64_t i = 0; i < 20; i++)
            put(entries, i, 1);
        cr_assert_eq(count(entries, 20, 1), 20);
        np_entries_close(entries);
        entries = open_store(index, NP_ENTRIES_AUTO);
        cr_assert_eq(count(entries, 20, 1), 20);
        np_entries_close(entries);
    }
    np_free(path);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, a_truncated_segment_is_ignored, .timeout = 120)
{
    char *folder = make_set(), *path = segment_path(folder, 2);
    struct np_index *index = make_index(folder, 20);

    make_two(index);
    for (off_t size = size_of(path) - 1; size >= 0; size -= 1 + size / 8) {
        struct np_entries *entries;

        make_two(index);
        cr_assert_eq(truncate(path, size), 0);
        entries = open_store(index, NP_ENTRIES_AUTO);
        cr_assert_eq(count(entries, 20, 1), 10);
        cr_assert_not_null(strstr(np_entries_note(entries), path));
        np_entries_close(entries);
        cr_assert_neq(access(path, F_OK), 0);
    }
    np_free(path);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, a_segment_cut_while_it_is_open_gives_nothing_wrong, .timeout = 120)
{
    char *folder = make_set(), *path = segment_path(folder, 1);
    struct np_index *index = make_index(folder, 20);
    struct np_entries *entries;

    make_two(index);
    entries = open_store(index, NP_ENTRIES_AUTO);
    cr_assert_eq(truncate(path, 1000), 0);
    cr_expect_leq(count(entries, 20, 1), 12);
    np_entries_close(entries);
    np_free(path);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, another_list_of_samples_has_none_of_them, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 20), *longer = make_index(folder, 21);
    struct np_entries *entries;

    make_two(index);
    entries = open_store(longer, NP_ENTRIES_AUTO);
    cr_expect_eq(count(entries, 21, 1), 0);
    cr_expect_not_null(strstr(np_entries_note(entries), "another list"));
    put(entries, 20, 1);
    np_entries_close(entries);
    entries = open_store(longer, NP_ENTRIES_AUTO);
    cr_expect_eq(count(entries, 21, 1), 1);
    np_entries_close(entries);
    np_index_free(longer);
    np_index_free(index);
    remove_set(folder);
}

/* Names that are a segment's, and are none; the writer survives a folder that is taken away. */
Test(entries, what_is_no_segment_and_a_folder_that_is_gone_do_no_harm, .timeout = 120)
{
    char *folder = make_set(), *path = segment_path(folder, 3);
    struct np_index *index = make_index(folder, 20);
    struct np_entries *entries;

    make_two(index);
    cr_assert_eq(mkdir(path, 0700), 0);
    put_file(folder, "i.entries/00000004.segmentx", "a", 1);
    put_file(folder, "i.entries/0000000A.segment", "a", 1);
    entries = open_store(index, NP_ENTRIES_AUTO);
    cr_expect_eq(count(entries, 20, 1), 20);
    np_entries_close(entries);
    rmdir(path);
    entries = open_store(index, NP_ENTRIES_AUTO);
    np_entries_remove(index->cached);
    put(entries, 1, 9);
    cr_expect_eq(np_entries_flush(entries, NULL), 0);
    cr_expect_eq(count(entries, 20, 1), 19); /* its files are open */
    cr_expect_not_null(strstr(np_entries_note(entries), "removed"));
    cr_expect_not(np_entries_takes(entries));
    np_entries_close(entries);
    np_free(path);
    np_index_free(index);
    remove_set(folder);
}

/* --- threads and processes ---------------------------------------------------------------------- */

struct putter {
    struct np_entries *entries;
    int from, found;
};

static void *put_and_get(void *context)
{
    struct putter *putter = context;

    for (int i = putter->from; i < 4000; i += 3) {
        put(putter->entries, (uint64_t)i, 1);
        putter->found += has(putter->entries, (uint64_t)i, 1);
        has(putter->entries, (uint64_t)(i * 7 % 4000), 1);
        if (i % 300 < 3)
            np_entries_flush(putter->entries, NULL);
    }
    return NULL;
}

Test(entries, threads_put_get_and_flush_at_once, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 4000);
    struct np_entries *entries = open_store(index, NP_ENTRIES_AUTO);
    struct putter putters[3];
    pthread_t threads[3];
    int found = 0;

    for (int t = 0; t < 3; t++) {
        putters[t] = (struct putter){.entries = entries, .from = t};
        pthread_create(&threads[t], NULL, put_and_get, &putters[t]);
    }
    for (int t = 0; t < 3; t++) {
        pthread_join(threads[t], NULL);
        found += putters[t].found;
    }
    cr_expect_eq(found, 4000);
    np_entries_close(entries);
    entries = open_store(index, NP_ENTRIES_AUTO);
    cr_expect_eq(count(entries, 4000, 1), 4000);
    np_entries_close(entries);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, large_puts_are_written_without_a_flush, .timeout = 120)
{
    enum { N = 200, BYTES = NP_MAX_ENTRIES_BYTES };
    char *folder = make_set();
    struct np_index *index = make_index(folder, N);
    struct np_entries *entries = open_store(index, NP_ENTRIES_AUTO);
    uint8_t *bytes = calloc(1, BYTES + 1), *buffer = NULL;
    size_t room = 0;
    int found = 0;

    cr_assert_eq(np_entries_put(entries, 0, of_version(1), bytes, BYTES + 1, NULL), 0);
    cr_expect_eq(has(entries, 0, 1), 0);
    for (uint64_t i = 0; i < N; i++) {
        bytes[5] = (uint8_t)i;
        cr_assert_eq(np_entries_put(entries, i, of_version(1), bytes, BYTES, NULL), 0);
    }
    while (nr_segments(folder) == 0) /* the thread writes, though nobody asks it to */
        usleep(1000);
    np_entries_close(entries);
    entries = open_store(index, NP_ENTRIES_AUTO);
    for (uint64_t i = 0; i < N; i++)
        if (np_entries_get(entries, i, of_version(1), &buffer, &room, NULL) == BYTES) {
            cr_assert_eq(buffer[5], (uint8_t)i);
            found++;
        }
    cr_expect_geq(found, 48); /* 12 MiB and more; while the thread is behind, puts are left out */
    np_entries_close(entries);
    np_free(buffer);
    free(bytes);
    np_index_free(index);
    remove_set(folder);
}

Test(entries, one_process_writes_and_another_reads, .timeout = 120)
{
    char *folder = make_set(), byte;
    struct np_index *index = make_index(folder, 200);
    int to[2], from[2], status;
    struct np_entries *entries;
    pid_t child;

    cr_assert_eq(pipe(to) | pipe(from), 0);
    child = fork();
    if (child == 0) {
        entries = open_store(index, NP_ENTRIES_AUTO);
        for (int i = 0; i < 20; i++) { /* more than are kept apart */
            for (uint64_t s = 0; s < 10; s++)
                put(entries, (uint64_t)i * 10 + s, 1);
            np_entries_flush(entries, NULL);
            if (i != 0 && i != 19)
                continue;
            if (write(from[1], "x", 1) != 1 || read(to[0], &byte, 1) != 1)
                _exit(1);
        }
        np_entries_close(entries);
        _exit(0);
    }
    cr_assert_eq(read(from[0], &byte, 1), 1);
    entries = open_store(index, NP_ENTRIES_AUTO);
    cr_expect_not(np_entries_takes(entries));
    cr_expect_eq(count(entries, 200, 1), 10);
    put(entries, 199, 1); /* left out */
    cr_expect_eq(has(entries, 199, 1), 0);
    cr_assert_eq(write(to[1], "x", 1), 1);
    cr_assert_eq(read(from[0], &byte, 1), 1);
    cr_expect_eq(count(entries, 200, 1), 10); /* its files are open, though they have been merged */
    cr_assert_eq(np_entries_flush(entries, NULL), 0);
    cr_expect_eq(count(entries, 200, 1), 200);
    cr_expect_not(np_entries_takes(entries));
    cr_assert_eq(write(to[1], "x", 1), 1);
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0);
    cr_assert_eq(np_entries_flush(entries, NULL), 0);
    cr_expect(np_entries_takes(entries)); /* the writer has ended */
    cr_expect_str_eq(np_entries_note(entries), "");
    np_entries_close(entries);
    np_index_free(index);
    remove_set(folder);
}

/* Writes until it is killed; *nr_safe: samples below it are in segments. */
static void write_forever(const struct np_index *index, volatile int *nr_safe, int from)
{
    struct np_entries *entries = open_store(index, NP_ENTRIES_AUTO);

    for (int n = from; n < 19000; n += 37) {
        for (int i = n; i < n + 37; i++)
            put(entries, (uint64_t)i, 1);
        np_entries_flush(entries, NULL);
        *nr_safe = n + 37;
    }
    _exit(0);
}

Test(entries, a_writer_killed_at_any_moment_loses_nothing_that_was_there, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 20000);
    volatile int *nr_safe =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct np_draws draws;
    int nr_wrote = 0;

    np_draws_init(&draws, 5, NP_STREAM_TEST, 0, 0, 0);
    for (int kill_number = 0; kill_number < NP_TIMES(50, 8); kill_number++) {
        const int from = *nr_safe;
        struct np_entries *entries;
        const pid_t child = fork();
        int status;

        if (child == 0)
            write_forever(index, nr_safe, from);
        usleep(1000 + np_draw_below(&draws, 20000));
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        nr_wrote += *nr_safe > from;
        entries = open_store(index, NP_ENTRIES_AUTO);
        cr_assert_str_eq(np_entries_note(entries), "");
        for (int i = 0; i < 20000; i++)
            cr_assert(has(entries, (uint64_t)i, 1) || i >= *nr_safe, "%d of %d", i, *nr_safe);
        cr_assert_leq(nr_segments(folder), 20);
        np_entries_close(entries);
    }
    printf("%d of 50 children wrote, %d samples are there\n", nr_wrote, *nr_safe);
    np_index_free(index);
    remove_set(folder);
}

#ifndef NP_SAN
/* The n-th allocation fails: the caller learns of it, and no entries are wrong. */
Test(entries, every_allocation_fails_once_and_nothing_is_wrong, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 200);

    for (int n = 1, failed = 1; failed; n++) {
        struct np_entries *entries = NULL;
        int code, puts = 0;

        np_entries_remove(index->cached);
        made_memory_fail(n);
        code = np_entries_open(index, NP_ENTRIES_AUTO, true, &entries, NULL);
        for (int i = 0; i < 10 && entries; i++) { /* with a merge */
            for (uint64_t s = 0; s < 3; s++)
                puts += put(entries, (uint64_t)i * 3 + s, 1);
            code = code ? code : np_entries_flush(entries, NULL);
        }
        failed = made_memory_failed();
        made_memory_fail(0);
        cr_assert(code == 0 || code == -ENOMEM);
        cr_assert(entries || code);
        if (entries && failed && !code && !puts)
            cr_assert_not_null(strstr(np_entries_note(entries), "out of memory"), "%d: %s by %s", n,
                np_entries_note(entries), made_memory_caller());
        if (entries && !failed)
            cr_assert_eq(count(entries, 200, 1), 30);
        count(entries, 200, 1);
        np_entries_close(entries);
        entries = open_store(index, NP_ENTRIES_AUTO);
        count(entries, 200, 1);
        np_entries_close(entries);
    }
    np_index_free(index);
    remove_set(folder);
}

Test(entries, reopening_without_memory_fails, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 20);
    uint8_t *buffer = NULL;
    size_t room = 0;

    make_two(index);
    for (int n = 1, failed = 1; failed; n++) {
        struct np_entries *entries = NULL;
        struct np_err err = {0};
        int64_t code;

        made_memory_fail(n);
        code = np_entries_open(index, NP_ENTRIES_AUTO, true, &entries, &err);
        if (!code)
            code = np_entries_get(entries, 3, of_version(1), &buffer, &room, &err);
        failed = made_memory_failed();
        made_memory_fail(0);
        cr_assert(failed ? code == -ENOMEM || *np_entries_note(entries) : code > 0, "%d", n);
        cr_assert(code != -ENOMEM || *err.text);
        np_entries_close(entries);
        np_free(buffer);
        buffer = NULL;
        room = 0;
    }
    np_index_free(index);
    remove_set(folder);
}
#endif
