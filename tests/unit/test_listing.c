/* A listing with several threads: the index file has the same bytes, and an error is the same error, however many
 * there are; files and folders that go away or may not be read meanwhile. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "tests/test.h"
#include "tests/unit/made_sets.h"

/* Before the file is examined, the path is removed: another process may do that at any time. */
static const char *examined, *removed;

int fstatat(int dir, const char *name, struct stat *st, int flags)
{
    static int (*real)(int, const char *, struct stat *, int);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fstatat");
    if (examined && strcmp(name, examined) == 0) {
        examined = NULL;
        cr_expect_eq(remove(removed), 0);
    }
    return real(dir, name, st, flags);
}

/* The bytes of the index file are the same for 1, 2 and 8 threads, and so are the notes. */
static void expect_same(const char *folder, const char *source, const char *path)
{
    static const int nr_listers[] = {1, 2, 8, 8};
    struct made_notes first_notes, notes;
    uint8_t *first = NULL, *bytes;
    size_t nr_first = 0, n;

    for (int i = 0; i < 4; i++) {
        bytes = list_set(folder, source, path, nr_listers[i], &notes, &n, NULL);
        cr_assert_not_null(bytes);
        if (i == 0) {
            first = bytes;
            nr_first = n;
            first_notes = notes;
            continue;
        }
        cr_expect(n == nr_first && memcmp(bytes, first, n) == 0, "%d threads: another index",
            nr_listers[i]);
        cr_expect_str_eq(notes.text, first_notes.text);
        free(bytes);
    }
    free(first);
}

static void expect_error(
    const char *folder, const char *source, const char *path, int code, const char *text)
{
    static const int nr_listers[] = {1, 2, 8};

    for (int i = 0; i < 3; i++) {
        struct np_err err = {0};
        size_t n;

        cr_expect_null(list_set(folder, source, path, nr_listers[i], NULL, &n, &err));
        cr_expect_eq(err.code, code, "%d threads: %s", nr_listers[i], err.text);
        cr_expect(strstr(err.text, text), "%d threads: %s", nr_listers[i], err.text);
    }
}

static void put_names(const char *folder, const char *format, int n)
{
    char name[64], bytes[64] = "";

    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), format, i * 7919 % n);
        put_file(folder, name, bytes, (size_t)(i % 64));
    }
}

static void run_shell(const char *folder, const char *text)
{
    char command[1024];

    snprintf(command, sizeof(command), "cd '%s' && %s", folder, text);
    cr_assert_eq(system(command), 0);
}

/* A folder of several batches between small ones, with links and files that are not images. */
Test(listing, a_trees_index_does_not_depend_on_the_number_of_threads, .timeout = 120)
{
    char *folder = make_set();
    struct np_index *index;
    char name[64];

    put_names(folder, "set/dog/deep/%d.jpg", 2500);
    put_names(folder, "set/cat/%d/1.jpg", 40);
    put_names(folder, "set/eel/%d.txt", 1500);
    put_names(folder, "set/loose%d.png", 1100);
    run_shell(folder, "ln -s ../dog/deep/1.jpg set/eel/1.jpg && ln -s nowhere.jpg set/eel/2.jpg && "
                      "ln -s dog set/fox");
    expect_same(folder, "folder", "set");
    cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 2500 * 2 + 40 + 2 + 1100);
    for (uint64_t i = 1; i < 40; i++) { /* "0", "1", "10", "11": byte order */
        np_index_name(index, i - 1, name, sizeof(name));
        cr_expect(strcmp(name, sample_text(index, i)) < 0, "%s", name);
    }
    cr_expect_str_eq(sample_text(index, 40), "dog/deep/0.jpg dog 1");
    cr_expect_str_eq(sample_text(index, 43), "dog/deep/100.jpg dog 1");
    np_index_free(index);
    remove_set(folder);
}

static void put_shards(const char *folder, int nr_shards, bool webdataset)
{
    for (int s = 0; s < nr_shards; s++) {
        struct made_tar tar = {0};
        char name[64], text[16];

        for (int i = 0; i < 300; i++) {
            snprintf(text, sizeof(text), "%d", (s * 7 + i) % 23);
            if (webdataset)
                snprintf(name, sizeof(name), "%03d-%03d.jpg", s, i);
            else
                snprintf(name, sizeof(name), "set/%03d/%03d-%03d.jpg", i % (9 + s % 3), s, i);
            tar_text(&tar, name, "a picture");
            snprintf(name, sizeof(name), "%03d-%03d.%s", s, i, webdataset ? "cls" : "txt");
            tar_text(&tar, name, text);
        }
        tar_member(&tar, "link.jpg", '1', "", 0);
        tar_end(&tar);
        if (s % 5 ==
            3) /* after one picture: the class of the one before is unknown in this archive */
            tar.n = 512 * (s % 2 ? 3 : 1);
        snprintf(name, sizeof(name), "s-%03d.tar", s);
        put_file(folder, name, tar.bytes, tar.n);
        tar_free(&tar);
    }
}

/* More archives than are listed ahead, some of them truncated. */
Test(listing, the_index_of_shards_does_not_depend_on_the_number_of_threads, .timeout = 120)
{
    for (int webdataset = 0; webdataset < 2; webdataset++) {
        char *folder = make_set();
        struct made_notes notes;
        struct np_index *index;
        uint64_t first;
        size_t n;

        put_shards(folder, 80, webdataset);
        expect_same(folder, "tar", "s-*.tar");
        free(list_set(folder, "tar", "s-*.tar", 8, &notes, &n, NULL));
        cr_expect(strstr(notes.text, "s-003.tar is truncated"), "%s", notes.text);
        cr_expect(strstr(notes.text, "64 images are links"), "%s", notes.text);
        cr_assert_eq(open_set(folder, "tar", "s-*.tar", NULL, NULL, &index, NULL), 0);
        cr_expect(np_index_samples(index) >= 64 * 300);
        cr_expect_eq(index->nr_files, 80);
        cr_expect_eq(np_index_record(index, 300)->file, 1);
        if (webdataset) { /* the truncated ones have the class of the sample before */
            cr_expect_eq(np_index_unlabelled(index, &first), 0);
            cr_expect_eq(np_index_record(index, 900)->label, np_index_record(index, 899)->label);
        }
        np_index_free(index);
        remove_set(folder);
    }
}

/* The caller's thread unpacks it, in its place among the others. */
Test(listing, a_shard_that_must_be_unpacked_is_listed_in_its_place, .timeout = 120)
{
    char *folder = make_set(), path[1024];
    struct np_index *index;
    struct made_notes notes;
    uint8_t *bytes;
    size_t n;
    gzFile out;

    put_shards(folder, 12, false);
    bytes = get_file(folder, "s-006.tar", &n);
    snprintf(path, sizeof(path), "%s/s-006.tar", folder);
    out = gzopen(path, "w");
    cr_assert_eq(gzwrite(out, bytes, (unsigned)n), (int)n);
    gzclose(out);
    free(bytes);
    cr_assert_not_null(bytes = list_set(folder, "tar", "s-*.tar", 8, &notes, &n, NULL));
    free(bytes);
    cr_expect(strstr(notes.text, "unpacking"), "%s", notes.text);
    cr_assert_eq(open_set(folder, "tar", "s-*.tar", NULL, NULL, &index, NULL), 0);
    cr_expect_eq(index->nr_files, 13);
    cr_expect(strstr(index->paths[7], "/unpacked/"), "%s", index->paths[7]);
    np_index_free(index);
    expect_same(folder, "tar", "s-*.tar");
    remove_set(folder);
}

Test(listing, the_first_error_is_reported_whatever_the_threads, .timeout = 120)
{
    char *folder = make_set();

    put_shards(folder, 30, false);
    put_file(folder, "s-011.tar", "not an archive, but text of some length", 39);
    put_file(folder, "s-017.tar", "nor is this one", 15);
    for (int s = 11; s < 18; s += 6) {
        char name[16], junk[1024];

        memset(junk, 'x', sizeof(junk));
        snprintf(name, sizeof(name), "s-%03d.tar", s);
        put_file(folder, name, junk, sizeof(junk));
    }
    expect_error(folder, "tar", "s-*.tar", -EBADMSG, "s-011.tar");
    put_names(folder, "set/%d/1.jpg", 60);
    run_shell(folder, "ln -s .. set/20/loop && ln -s .. set/50/loop");
    expect_error(folder, "folder", "set", -ELOOP, "20/loop");
    remove_set(folder);
}

Test(listing, a_file_that_vanishes_is_a_bad_sample)
{
    static const int nr_listers[] = {1, 8};

    for (int i = 0; i < 2; i++) {
        char *folder = make_set(), path[1024];
        struct np_index *index;
        size_t n;

        put_names(folder, "set/a/%d.jpg", 3000);
        snprintf(path, sizeof(path), "%s/set/a/77.jpg", folder);
        removed = path;
        examined = "77.jpg";
        free(list_set(folder, "folder", "set", nr_listers[i], NULL, &n, NULL));
        cr_expect_null(examined);
        cr_expect_neq(access(path, F_OK), 0);
        /* Its folder has changed since: the next run lists again, and does not find it. */
        cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, NULL), 0);
        cr_expect_eq(np_index_samples(index), 2999);
        np_index_free(index);
        remove_set(folder);
    }
}

Test(listing, a_folder_that_vanishes_is_named)
{
    char *folder = make_set(), path[1024];
    struct np_err err = {0};
    size_t n;

    put_file(folder, "set/a/1.jpg", "x", 1);
    snprintf(path, sizeof(path), "%s/set/b", folder);
    cr_assert_eq(mkdir(path, 0777), 0);
    removed = path;
    examined = "1.jpg";
    cr_expect_null(list_set(folder, "folder", "set", 1, NULL, &n, &err));
    cr_expect_eq(err.code, -ENOENT);
    cr_expect(
        strstr(err.text, "set/b") && strstr(err.text, "cannot open the folder"), "%s", err.text);
    remove_set(folder);
}

Test(listing, a_folder_that_may_not_be_read_is_named)
{
    char *folder = make_set(), path[1024];
    const uid_t user = geteuid();

    put_names(folder, "set/%02d/1.jpg", 30);
    snprintf(path, sizeof(path), "%s/set/13", folder);
    cr_assert_eq(chmod(path, 0), 0);
    cr_assert_eq(chmod(folder, 0755), 0);
    if (user == 0) /* root may read it */
        cr_assert_eq(seteuid(65534), 0);
    if (access(folder, R_OK | X_OK) == 0 || user != 0)
        expect_error(folder, "folder", "set", -EACCES, "set/13");
    if (user == 0)
        cr_assert_eq(seteuid(0), 0);
    cr_assert_eq(chmod(path, 0755), 0);
    remove_set(folder);
}
