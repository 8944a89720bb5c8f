/* Unpacking into the cache. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>
#include <zstd.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "loader/source/unpack.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_sets.h"

#define N 3000000 /* more than the buffers, and than is written before the disk is told to write */

static uint8_t *make_content(void)
{
    uint8_t *bytes = malloc(N);
    struct np_draws draws;

    np_draws_init(&draws, 1, NP_STREAM_TEST, 0, 0, 0);
    for (int i = 0; i < N; i++) /* packs a little */
        bytes[i] = (uint8_t)(np_draw_u32(&draws) & 31);
    return bytes;
}

static void put_zstd(const char *folder, const char *name, const uint8_t *bytes, size_t first)
{
    const size_t room = 2 * ZSTD_compressBound(N);
    uint8_t *packed = malloc(room);
    size_t n = ZSTD_compress(packed, room, bytes, first, 1);

    if (first < N) /* a second frame */
        n += ZSTD_compress(packed + n, room - n, bytes + first, N - first, 1);
    put_file(folder, name, packed, n);
    free(packed);
}

static void put_gzip(const char *folder, const char *name, const uint8_t *bytes, size_t first)
{
    char path[1024];
    gzFile file;

    put_file(folder, name, "", 0);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = gzopen(path, "wb1");
    if (gzwrite(file, bytes, (unsigned)first) != (int)first || gzclose(file) != Z_OK)
        abort();
    if (first == N)
        return;
    file = gzopen(path, "ab1"); /* a second member */
    if (gzwrite(file, bytes + first, (unsigned)(N - first)) != (int)(N - first) ||
        gzclose(file) != Z_OK)
        abort();
}

static void note(void *context, const char *text)
{
    snprintf(context, 1000, "%s", text);
}

static int unpack(
    const char *folder, const char *name, char *notes, char **ret_path, struct np_err *err)
{
    const struct np_source_progress progress = {.note = note, .context = notes};
    char path[1024], cache[1024];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(cache, sizeof(cache), "%s/cache", folder);
    *notes = '\0';
    return np_unpack(path, cache, &progress, ret_path, err);
}

/* Is the copy the first n bytes of content? */
static bool holds(const char *path, const uint8_t *content, size_t n)
{
    char *bytes = NULL;
    uint64_t got;
    const bool same = np_read_file(path, 1 << 30, &bytes, &got, NULL) == 0 && got == n &&
                      memcmp(bytes, content, n) == 0;

    np_free(bytes);
    return same;
}

Test(unpack, zstd_and_gzip_of_one_or_more_parts)
{
    char *folder = make_set(), notes[1000], *path;
    uint8_t *content = make_content();

    for (int kind = 0; kind < 4; kind++) {
        (kind & 1 ? put_gzip : put_zstd)(folder, "f", content, kind & 2 ? 1000001 : N);
        cr_assert_eq(unpack(folder, "f", notes, &path, NULL), 0);
        cr_assert(holds(path, content, N));
        cr_assert_not_null(strstr(notes, "unpacking"));
        np_free(path);
    }
    free(content);
    remove_set(folder);
}

static int nr_copies(const char *folder)
{
    char command[1100];
    FILE *pipe;
    int n = -1;

    snprintf(command, sizeof(command), "ls '%s/cache/unpacked' | wc -l", folder);
    pipe = popen(command, "r");
    if (fscanf(pipe, "%d", &n) != 1)
        n = -1;
    pclose(pipe);
    return n;
}

Test(unpack, once_and_again_when_the_file_changes)
{
    char *folder = make_set(), notes[1000], *path, *again;
    uint8_t *content = make_content();

    put_zstd(folder, "a.tar.zst", content, N);
    cr_assert_eq(unpack(folder, "a.tar.zst", notes, &path, NULL), 0);
    cr_assert_eq(strcmp(strrchr(path, '-'), "-a.tar"), 0);
    cr_assert_eq(unpack(folder, "a.tar.zst", notes, &again, NULL), 0);
    cr_assert_str_eq(notes, "");
    cr_assert_str_eq(path, again);
    np_free(again);
    content[0] ^= 1;
    put_zstd(folder, "a.tar.zst", content, 77);
    cr_assert_eq(unpack(folder, "a.tar.zst", notes, &again, NULL), 0);
    cr_assert(strcmp(path, again) != 0);
    cr_assert(holds(again, content, N));
    cr_assert_eq(nr_copies(folder), 1); /* the old copy is gone */
    np_free(path);
    np_free(again);
    free(content);
    remove_set(folder);
}

Test(unpack, the_present_part_of_a_truncated_file)
{
    char *folder = make_set(), notes[1000], *path;
    uint8_t *content = make_content();

    for (int kind = 0; kind < 2; kind++) {
        size_t n;
        uint8_t *packed;
        struct stat st;

        (kind ? put_gzip : put_zstd)(folder, "f", content, N);
        packed = get_file(folder, "f", &n);
        put_file(folder, "f", packed, n / 2);
        cr_assert_eq(unpack(folder, "f", notes, &path, NULL), 0);
        cr_assert_not_null(strstr(notes, "f is truncated"));
        cr_assert_eq(stat(path, &st), 0);
        cr_assert(st.st_size > 1000000 && st.st_size < N);
        cr_assert(holds(path, content, (size_t)st.st_size));
        np_free(path);
        free(packed);
    }
    free(content);
    remove_set(folder);
}

Test(unpack, damaged_bytes_are_an_error_and_leave_nothing)
{
    char *folder = make_set(), notes[1000], *path;
    uint8_t *content = make_content();

    for (int kind = 0; kind < 2; kind++) {
        struct np_err err = {0};
        size_t n;
        uint8_t *packed;

        (kind ? put_gzip : put_zstd)(folder, "f", content, N);
        packed = get_file(folder, "f", &n);
        memset(packed + n / 2, 0xff, 200000); /* over the head of a block */
        put_file(folder, "f", packed, n);
        cr_assert_eq(unpack(folder, "f", notes, &path, &err), -EBADMSG);
        cr_assert_not_null(strstr(err.text, "/f: damaged"));
        cr_assert_eq(nr_copies(folder), 0);
        free(packed);
    }
    free(content);
    remove_set(folder);
}

Test(unpack, too_little_space_is_reported_before_anything_is_written)
{
    char *folder = make_set(), notes[1000], *path;
    /* A zstd frame that says it holds 1 EiB: magic, descriptor (8-byte size, single segment). */
    static const uint8_t frame[] = {
        0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x10, 1, 0, 0};
    struct np_err err = {0};

    put_file(folder, "f", frame, sizeof(frame));
    cr_assert_eq(unpack(folder, "f", notes, &path, &err), -ENOSPC);
    cr_assert_not_null(strstr(err.text, "cache_dir"));
    cr_assert_eq(nr_copies(folder), 0);
    remove_set(folder);
}

/* Whatever the number in its name: it may be that of a process of another machine, or of a later one. */
Test(unpack, files_of_killed_processes_are_removed_also_for_a_damaged_file)
{
    char *folder = make_set(), notes[1000], *path, part[1100], held[1100];
    int fd;

    put_file(folder, "f", "\x1f\x8b damaged", 10);
    snprintf(part, sizeof(part), "cache/unpacked/0123-a.tar.%ld.part", (long)getpid());
    put_file(folder, part, "x", 1);
    put_file(folder, "cache/unpacked/0124-b.tar.1.part", "x", 1);
    snprintf(held, sizeof(held), "%s/cache/unpacked/0124-b.tar.1.part", folder);
    fd = open(held, O_RDONLY);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    cr_assert_eq(unpack(folder, "f", notes, &path, NULL), -EBADMSG);
    cr_expect_eq(nr_copies(folder), 1); /* its writer has a lock */
    cr_expect_eq(access(held, F_OK), 0);
    close(fd);
    cr_assert_eq(unpack(folder, "f", notes, &path, NULL), -EBADMSG);
    cr_expect_eq(nr_copies(folder), 0);
    remove_set(folder);
}

struct watched {
    const char *folder;
    uint64_t done_bytes, calls;
    int max_copies;
};

static void watch_unpack(void *context, const char *path, uint64_t done_bytes, uint64_t bytes)
{
    struct watched *watched = context;
    const int copies = nr_copies(watched->folder);

    cr_expect(strstr(path, "/f.gz") && done_bytes >= watched->done_bytes && done_bytes <= bytes);
    watched->done_bytes = done_bytes;
    watched->calls++;
    watched->max_copies = copies > watched->max_copies ? copies : watched->max_copies;
}

static bool has_nameless_files(const char *folder)
{
    const int fd = open(folder, O_TMPFILE | O_RDWR, 0600);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

Test(unpack, it_reports_progress_and_has_no_name_until_it_is_whole)
{
    char *folder = make_set(), *path, file[1024], cache[1024];
    struct watched watched = {.folder = folder};
    const struct np_source_progress progress = {.unpack = watch_unpack, .context = &watched};
    uint8_t *content = make_content();

    put_gzip(folder, "f.gz", content, N);
    snprintf(file, sizeof(file), "%s/f.gz", folder);
    snprintf(cache, sizeof(cache), "%s/cache", folder);
    cr_assert_eq(np_unpack(file, cache, &progress, &path, NULL), 0);
    cr_expect(holds(path, content, N));
    cr_expect_gt(watched.calls, 4);
    if (has_nameless_files(folder))
        cr_expect_eq(watched.max_copies, 0);
    np_free(path);
    free(content);
    remove_set(folder);
}

Test(unpack, without_permission_nothing_is_written)
{
    char *folder = make_set(), *path = NULL, file[1024], cache[1024];
    const struct np_source_progress progress = {.no_unpack = true};
    uint8_t *content = make_content();
    struct np_err err = {0};

    put_gzip(folder, "f.gz", content, N);
    snprintf(file, sizeof(file), "%s/f.gz", folder);
    snprintf(cache, sizeof(cache), "%s/cache", folder);
    cr_assert_eq(np_unpack(file, cache, &progress, &path, &err), -EAGAIN);
    cr_expect(strstr(err.text, "must be unpacked"), "%s", err.text);
    cr_expect_neq(access(cache, F_OK), 0);
    free(content);
    remove_set(folder);
}

#ifndef NP_SAN /* they have an allocator of their own */
Test(unpack, want_of_memory_is_not_damage, .timeout = 120)
{
    char *folder = make_set();
    uint8_t *content = make_content();
    int nr_failed = 0;

    put_zstd(folder, "a.tar.zst", content, N);
    put_gzip(folder, "b.tar.gz", content, N);
    free(content);
    for (int i = 0; i < 2; i++)
        for (int k = 1; k < 200; k++) {
            struct np_err err = {0};
            char notes[1000], *path = NULL;
            int code;

            made_memory_fail_libc(k);
            code = unpack(folder, i ? "b.tar.gz" : "a.tar.zst", notes, &path, &err);
            nr_failed += made_memory_failed_libc();
            made_memory_fail_libc(0);
            np_free(path);
            cr_assert(code == 0 || code == -ENOMEM, "allocation %d: %s", k, err.text);
            if (code == 0)
                break;
        }
    remove_set(folder);
    cr_assert_gt(nr_failed, 6);
}
#endif
