/* The seek table and reads through it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "loader/source/seekable.h"
#include "tests/test.h"
#include "tests/unit/made_sets.h"

#define CONTENT 5000

/* A file of frames of the given sizes (0-ended; they add up to CONTENT) and content i * 7. */
static size_t make_file(const char *folder, const size_t *sizes, uint8_t content[CONTENT])
{
    struct np_seek_writer *writer;
    uint8_t *whole = malloc(100000), *table;
    size_t used = 0, at = 0, bytes;
    const void *frame;

    for (int i = 0; i < CONTENT; i++)
        content[i] = (uint8_t)(i * 7 + i / 256);
    if (np_seek_writer_new(1, &writer, NULL))
        abort();
    for (; *sizes; at += *sizes++) {
        if (np_seek_writer_frame(writer, content + at, *sizes, &frame, &bytes, NULL))
            abort();
        memcpy(whole + used, frame, bytes);
        used += bytes;
    }
    table = np_seek_writer_finish(writer, &bytes, NULL);
    memcpy(whole + used, table, bytes);
    put_file(folder, "f.zst", whole, used + bytes);
    np_free(table);
    free(whole);
    np_seek_writer_free(writer);
    return used + bytes;
}

static int open_file(const char *folder)
{
    char path[1024];

    snprintf(path, sizeof(path), "%s/f.zst", folder);
    return open(path, O_RDONLY);
}

static const size_t three[] = {1000, 3999, 1, 0};

Test(seekable, any_part_can_be_read)
{
    char *folder = make_set();
    uint8_t content[CONTENT], got[CONTENT];
    struct np_seek_table *table;
    struct np_seek_reader *reader;
    int fd;

    make_file(folder, three, content);
    fd = open_file(folder);
    cr_assert_eq(np_seek_table_read(fd, "f", &table, NULL), 0);
    cr_assert_eq(table->nr_frames, 3);
    cr_assert_eq(table->content_bytes, CONTENT);
    cr_assert_eq(table->max_content, 3999);
    cr_assert_eq(np_seek_table_find(table, 0), 0);
    cr_assert_eq(np_seek_table_find(table, 999), 0);
    cr_assert_eq(np_seek_table_find(table, 1000), 1);
    cr_assert_eq(np_seek_table_find(table, 4999), 2);
    cr_assert_eq(np_seek_table_find(table, 5000), 3);
    cr_assert_eq(np_seek_reader_open(fd, "f", table, &reader, NULL), 0);
    for (size_t at = 0; at <= CONTENT + 10; at += 11)
        for (size_t n = 1; n <= CONTENT; n += 701) {
            const size_t want = at >= CONTENT ? 0 : n < CONTENT - at ? n : CONTENT - at;

            cr_assert_eq(np_seek_reader_read(reader, at, got, n, NULL), (int64_t)want);
            cr_assert(want == 0 || memcmp(got, content + at, want) == 0);
        }
    np_seek_reader_free(reader);
    np_seek_table_free(table);
    close(fd);
    remove_set(folder);
}

Test(seekable, an_ordinary_file_has_no_table)
{
    char *folder = make_set();
    struct np_seek_table *table;
    struct np_err err = {0};
    int fd;

    put_file(folder, "f.zst", "no table here at all", 20);
    fd = open_file(folder);
    cr_assert_eq(np_seek_table_read(fd, "f", &table, &err), -ENOENT);
    cr_assert_eq(err.code, 0);
    close(fd);
    put_file(folder, "f.zst", "", 0);
    fd = open_file(folder);
    cr_assert_eq(np_seek_table_read(fd, "f", &table, &err), -ENOENT);
    close(fd);
    remove_set(folder);
}

static void put_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, 4);
}

Test(seekable, impossible_tables_are_refused)
{
    char *folder = make_set();
    uint8_t content[CONTENT], *bytes, *work;
    struct np_seek_table *table;
    size_t n = make_file(folder, three, content), table_bytes = 8 + 3 * 12 + 9;

    bytes = get_file(folder, "f.zst", &n);
    work = malloc(n);
    for (int what = 0; what < 7; what++) {
        uint8_t *start = work + n - table_bytes, *footer = work + n - 9;
        int fd;

        memcpy(work, bytes, n);
        if (what == 0)
            put_u32(footer, 4); /* frames */
        if (what == 1)
            put_u32(footer, 0xffffffff);
        if (what == 2)
            footer[4] |= 4; /* reserved */
        if (what == 3)
            put_u32(start, 0x184D2A5F);
        if (what == 4)
            put_u32(start + 4, 12);
        if (what == 5)
            put_u32(start + 8, 0xfffffff0); /* a frame past the end */
        if (what == 6)
            start[8]--; /* bytes that no frame covers */
        put_file(folder, "f.zst", work, n);
        fd = open_file(folder);
        cr_assert_eq(np_seek_table_read(fd, "f", &table, NULL), -EBADMSG);
        close(fd);
    }
    free(bytes);
    free(work);
    remove_set(folder);
}

/* Reads all of it; 0 or an error. */
static int read_all(const char *folder)
{
    static uint8_t got[CONTENT];
    struct np_seek_table *table;
    struct np_seek_reader *reader;
    int fd = open_file(folder), code = np_seek_table_read(fd, "f", &table, NULL);
    int64_t n = code;

    if (code == 0) {
        n = np_seek_reader_open(fd, "f", table, &reader, NULL);
        if (n == 0) {
            n = np_seek_reader_read(reader, 0, got, sizeof(got), NULL);
            np_seek_reader_free(reader);
        }
        np_seek_table_free(table);
    }
    close(fd);
    return n < 0 ? (int)n : 0;
}

Test(seekable, damaged_frames_are_found)
{
    char *folder = make_set();
    uint8_t content[CONTENT], *bytes;
    size_t n = make_file(folder, three, content);

    cr_assert_eq(read_all(folder), 0);
    bytes = get_file(folder, "f.zst", &n);
    for (size_t i = 12; i < n - 60; i += 17) { /* some flips are no change to a lax header */
        bytes[i] ^= 0x20;
        put_file(folder, "f.zst", bytes, n);
        cr_assert_neq(read_all(folder), 0);
        bytes[i] ^= 0x20;
    }
    bytes[n - 9 - 36 + 8] ^= 1; /* the first frame's checksum */
    put_file(folder, "f.zst", bytes, n);
    cr_assert_eq(read_all(folder), -EBADMSG);
    bytes[n - 9 - 36 + 8] ^= 1;
    bytes[n - 9 - 36 + 5] ^= 1; /* its content's size */
    put_file(folder, "f.zst", bytes, n);
    cr_assert_eq(read_all(folder), -EBADMSG);
    free(bytes);
    remove_set(folder);
}

Test(seekable, frames_too_large_to_seek_in_are_refused)
{
    char *folder = make_set();
    uint8_t content[CONTENT], *bytes;
    size_t n = make_file(folder, three, content);

    bytes = get_file(folder, "f.zst", &n);
    put_u32(bytes + n - 9 - 36 + 4, NP_SEEK_MAX_CONTENT + 1);
    put_file(folder, "f.zst", bytes, n);
    cr_assert_eq(read_all(folder), -EFBIG);
    free(bytes);
    remove_set(folder);
}

Test(seekable, survives_any_bytes)
{
    char *folder = make_set();
    uint8_t content[CONTENT], *bytes, *work;
    struct np_draws draws;
    size_t n = make_file(folder, three, content);

    bytes = get_file(folder, "f.zst", &n);
    work = malloc(n);
    np_draws_init(&draws, 3, NP_STREAM_TEST, 0, 0, 0);
    for (int round = 0; round < 3000; round++) {
        memcpy(work, bytes, n);
        for (uint32_t k = np_draw_below(&draws, 3) + 1; k; k--)
            work[n - 1 - np_draw_below(&draws, (uint32_t)(round & 1 ? n : 60))] =
                (uint8_t)np_draw_u32(&draws);
        put_file(folder, "f.zst", work, n);
        read_all(folder);
    }
    free(bytes);
    free(work);
    remove_set(folder);
}
