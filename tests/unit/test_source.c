/* Options of a split, folders, the cache of indexes, and drawn sets. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/synth.h"
#include "loader/source/files.h"
#include "tests/test.h"
#include "tests/unit/made_sets.h"

/* {key: value, ...}, pairs NULL-ended; the mistakes, joined. */
static const char *mistakes(const char *const *pairs, struct np_source_options *options)
{
    static char text[4096];
    struct np_node *node = np_node_new(NP_NODE_MAP, 1, 1);
    struct np_report report;

    for (; pairs[0]; pairs += 2)
        np_node_add(node, pairs[0], np_node_scalar(pairs[1], 1, 1));
    np_report_init(&report, "test.yaml");
    *text = '\0';
    if (np_source_parse(node, NULL, options, &report) == 0 && report.nr_errs)
        abort();
    for (int i = 0; i < report.nr_errs; i++) {
        strcat(text, report.errs[i].text);
        strcat(text, "\n");
    }
    np_report_fini(&report);
    np_node_free(node);
    return text;
}

Test(source, accepts_right_options)
{
    struct np_source_options options = {0};

    cr_assert_str_eq(mistakes((const char *const[]){"source", "tar", "path", "/a/b.tar", "match",
                                  "train/*", NULL},
                         &options),
        "");
    cr_assert_str_eq(options.source, "tar");
    cr_assert_str_eq(options.match, "train/*");
    np_source_options_fini(&options);
    cr_assert_str_eq(
        mistakes((const char *const[]){"source", "synth", "samples", "7", NULL}, &options), "");
    cr_assert_eq(options.samples, 7);
    cr_assert_eq(options.size, 32);
    np_source_options_fini(&options);
}

Test(source, names_each_mistake)
{
    struct np_source_options options;
    const char *text;

    text = mistakes((const char *const[]){"source", "tra", "path", "a", NULL}, &options);
    cr_assert_not_null(strstr(text, "did you mean 'tar'"));
    text = mistakes((const char *const[]){"source", "tar", NULL}, &options);
    cr_assert_not_null(strstr(text, "path: the key is missing"));
    text = mistakes((const char *const[]){"source", "tar", "path", "${NP_NO_SUCH_VARIABLE}/a",
                        "synsets", "b", NULL},
        &options);
    cr_assert_not_null(strstr(text, "NP_NO_SUCH_VARIABLE is not set"));
    cr_assert_not_null(strstr(text, "synsets: the source tar does not have this key"));
    text = mistakes((const char *const[]){"path", "a", NULL}, &options);
    cr_assert_not_null(strstr(text, "source"));
    text = mistakes((const char *const[]){"source", "synth", "size", "3", NULL}, &options);
    cr_assert_not_null(strstr(text, "size"));
}

Test(source, each_folder_is_a_class_in_byte_order)
{
    char *folder = make_set();
    struct np_index *index;
    struct made_notes notes;
    struct np_extent extent;

    put_file(folder, "set/dog/2.jpg", "abc", 3);
    put_file(folder, "set/dog/10.JPG", "abcd", 4);
    put_file(folder, "set/cat/deep/er/1.png", "", 0);
    put_file(folder, "set/dog/read.me", "x", 1);
    put_file(folder, "set/dog/._2.jpg", "x", 1);
    put_file(folder, "set/loose.jpg", "x", 1);
    cr_assert_eq(open_set(folder, "folder", "set", NULL, &notes, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 4);
    cr_assert_str_eq(sample_text(index, 0), "cat/deep/er/1.png cat 0");
    cr_assert_str_eq(sample_text(index, 1), "dog/10.JPG dog 1");
    cr_assert_str_eq(sample_text(index, 2), "dog/2.jpg dog 1");
    cr_assert_str_eq(sample_text(index, 3), "loose.jpg - -1");
    cr_assert_eq(np_index_record(index, 1)->bytes, 4);
    np_source_locate(index, 2, &extent);
    cr_assert_not_null(strstr(extent.path, "/set/dog/2.jpg"));
    cr_assert_eq(access(extent.path, R_OK), 0);
    cr_assert_not_null(
        strstr(notes.text, "1 files do not have the names of images")); /* hidden: not reported */
    np_index_free(index);
    remove_set(folder);
}

Test(source, match_chooses_a_split_of_a_folder)
{
    char *folder = make_set();
    struct np_index *index;

    put_file(folder, "set/train/dog/1.jpg", "a", 1);
    put_file(folder, "set/train/cat/1.jpg", "a", 1);
    put_file(folder, "set/test/eel/1.jpg", "a", 1);
    cr_assert_eq(open_set(folder, "folder", "set", "train/*", NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 2);
    cr_assert_eq(index->nr_classes, 2);
    cr_assert_str_eq(sample_text(index, 1), "train/dog/1.jpg dog 1");
    np_index_free(index);
    remove_set(folder);
}

Test(source, a_new_or_lost_file_makes_a_folders_index_stale)
{
    char *folder = make_set(), path[1024];
    struct np_index *index;
    struct timespec past[2] = {{1000000000, 0}, {1000000000, 0}};

    put_file(folder, "set/a/1.jpg", "a", 1);
    snprintf(path, sizeof(path), "%s/set/a", folder);
    utimensat(
        AT_FDCWD, path, past, 0); /* so that the next change shows, however coarse the clock */
    cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, NULL), 0);
    np_index_free(index);
    put_file(folder, "set/a/2.jpg", "a", 1);
    cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 2);
    np_index_free(index);
    remove_set(folder);
}

static void remember_count(void *context, const char *path, uint64_t samples)
{
    uint64_t *most = context;

    cr_expect(strstr(path, "/set"), "%s", path);
    cr_expect(samples == 0 || samples > *most);
    *most = samples;
}

/* More folders than are read ahead, and than threads read them; in their order all the same. */
Test(source, many_folders_are_listed_in_their_order)
{
    char *folder = make_set(), name[64], path[1024], word[] = "folder", none[] = "", want[128];
    struct np_source_options options = {
        .source = word, .path = path, .match = none, .labels = none, .cache_dir = none};
    uint64_t most = 0;
    const struct np_source_progress progress = {.count = remember_count, .context = &most};
    struct np_index *index;

    for (int i = 0; i < 100; i++)
        for (int k = 0; k < 6; k++) {
            snprintf(name, sizeof(name), "set/%02d/%s%d.jpg", i, k % 2 ? "b/" : "a/c/", k);
            put_file(folder, name, "x", 1);
        }
    snprintf(path, sizeof(path), "%s/set", folder);
    cr_assert_eq(np_source_open(&options, &progress, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 600);
    cr_assert_eq(index->nr_files, 1 + 100 * 4);
    cr_expect_eq(most, 512);
    for (int i = 0; i < 600; i++) {
        const int k = i % 6;

        snprintf(want, sizeof(want), "%02d/%s%d.jpg %02d %d", i / 6, k < 3 ? "a/c/" : "b/",
            k < 3 ? 2 * k : 2 * (k - 3) + 1, i / 6, i / 6);
        cr_assert_str_eq(sample_text(index, (uint64_t)i), want);
    }
    np_index_free(index);
    remove_set(folder);
}

/* A waiting user sees progress before there is a first sample. */
Test(source, a_large_folder_is_counted_while_it_is_read)
{
    char *folder = make_set(), name[64], path[1024], word[] = "folder", none[] = "";
    struct np_source_options options = {
        .source = word, .path = path, .match = none, .labels = none, .cache_dir = none};
    uint64_t most = 0;
    const struct np_source_progress progress = {.count = remember_count, .context = &most};
    struct np_index *index;

    put_file(folder, "set/a/1.jpg", "x", 1);
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "set/a/%d.txt", i);
        put_file(folder, name, "", 0);
    }
    snprintf(path, sizeof(path), "%s/set", folder);
    cr_assert_eq(np_source_open(&options, &progress, &index, NULL), 0);
    cr_expect_eq(np_index_samples(index), 1);
    cr_expect_eq(most, 512);
    np_index_free(index);
    remove_set(folder);
}

Test(source, a_mistake_among_many_folders_is_the_first_one)
{
    char *folder = make_set(), name[64], command[1024];
    struct np_index *index;
    struct np_err err = {0};

    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "set/%02d/1.jpg", i);
        put_file(folder, name, "x", 1);
    }
    snprintf(
        command, sizeof(command), "cd '%s/set' && ln -s .. 20/loop && ln -s .. 50/loop", folder);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, &err), -ELOOP);
    cr_expect(strstr(err.text, "20/loop"), "%s", err.text);
    remove_set(folder);
}

/* It may be there when it is asked for; if not it is one bad sample, and no reason to list nothing. */
Test(source, a_dangling_link_is_listed)
{
    char *folder = make_set(), command[1024];
    struct np_index *index;

    put_file(folder, "set/a/1.jpg", "a", 1);
    snprintf(command, sizeof(command),
        "cd '%s/set/a' && ln -s nowhere.jpg 2.jpg && ln -s 3.jpg 3.jpg && ln -s nowhere other",
        folder);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 3);
    cr_expect_str_eq(sample_text(index, 1), "a/2.jpg a 0");
    cr_expect_eq(np_index_record(index, 1)->bytes, 0);
    np_index_free(index);
    remove_set(folder);
}

Test(source, a_set_without_its_index_is_listed_again)
{
    char *folder = make_set(), path[1024], folder_word[] = "folder", none[] = "";
    struct np_source_options options = {
        .source = folder_word, .path = path, .match = none, .labels = none, .cache_dir = none};
    struct np_index *index;

    put_file(folder, "set/a/1.jpg", "a", 1);
    snprintf(path, sizeof(path), "%s/set", folder);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    np_index_free(index);
    put_file(folder, "set/a/1.jpg", "abc", 3); /* in place: the folder's mtime does not change */
    np_source_forget(&options);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    cr_expect_eq(np_index_record(index, 0)->bytes, 3);
    np_index_free(index);
    remove_set(folder);
}

/* Names of all files below folder, in one line. */
static const char *tree(const char *folder)
{
    static char text[4096];
    char command[2048];
    FILE *pipe;
    size_t n;

    snprintf(command, sizeof(command), "cd '%s' && find . -name '*.npidx' | sort | tr '\\n' ' '",
        folder);
    pipe = popen(command, "r");
    n = fread(text, 1, sizeof(text) - 1, pipe);
    text[n] = '\0';
    pclose(pipe);
    return text;
}

/* Is the set listed again? Then a size that changed without the folder's mtime is seen. */
static bool is_listed_anew(const char *folder, const char *set, uint32_t bytes)
{
    struct np_index *index;

    cr_assert_eq(open_set(folder, "folder", set, NULL, NULL, &index, NULL), 0);
    const bool relisted = np_index_record(index, 0)->bytes == bytes;
    np_index_free(index);
    return relisted;
}

Test(source, nothing_is_written_beside_the_data)
{
    char *folder = make_set();
    char path[1024], word[] = "folder", none[] = "";
    struct np_source_options options = {
        .source = word, .path = path, .match = none, .labels = none, .cache_dir = none};
    struct np_index *index;

    put_file(folder, "set/a/1.jpg", "a", 1);
    snprintf(path, sizeof(path), "%s/set", folder);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    cr_expect_eq(strncmp(tree(folder), "./cache/nnpipe/index/set.", 25), 0, "%s", tree(folder));
    cr_assert_eq(np_source_save(&options, index, NULL), 0);
    np_index_free(index);
    cr_expect_eq(strchr(tree(folder), ' ')[1], '\0', "%s", tree(folder));
    put_file(folder, "set/a/1.jpg", "abc", 3); /* in place: the folder's mtime does not change */
    cr_expect(!is_listed_anew(folder, "set", 3));
    remove_set(folder);
}

Test(source, a_moved_set_is_listed_again)
{
    char *folder = make_set(), command[2048];

    put_file(folder, "set/a/1.jpg", "a", 1);
    cr_expect(is_listed_anew(folder, "set", 1));
    /* The same names and times at the same place, but another folder */
    snprintf(command, sizeof(command),
        "cd '%s' && cp -a set other && mv set old && printf abc >other/a/1.jpg && "
        "touch -r old/a other/a && touch -r old other && mv other set",
        folder);
    cr_assert_eq(system(command), 0);
    cr_expect(is_listed_anew(folder, "set", 3));
    remove_set(folder);
}

Test(source, a_cache_folder_of_another_user_is_not_written_to)
{
    char *folder = make_set(), path[1024], want[64];
    struct np_index *index;

    put_file(folder, "cache/nnpipe/x", "", 0);
    put_file(folder, "set/a/1.jpg", "a", 1);
    snprintf(path, sizeof(path), "%s/cache/nnpipe", folder);
    if (chown(path, 12345, (gid_t)-1) == 0) { /* root alone can */
        cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, NULL), 0);
        np_index_free(index);
        snprintf(want, sizeof(want), "./cache/nnpipe/index-%ld/set.", (long)geteuid());
        cr_expect_eq(strncmp(tree(folder), want, strlen(want)), 0, "%s", tree(folder));
    }
    remove_set(folder);
}

Test(source, an_index_beside_the_data_is_used_if_made_on_purpose)
{
    char *folder = make_set(), path[1024], word[] = "folder", none[] = "", *at = NULL;
    struct np_source_options options = {
        .source = word, .path = path, .match = none, .labels = none, .cache_dir = none};
    struct np_index *index;
    char cache[1024];

    put_file(folder, "set/a/1.jpg", "a", 1);
    snprintf(path, sizeof(path), "%s/set", folder);
    snprintf(cache, sizeof(cache), "%s/cache2", folder);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    cr_assert_eq(np_source_save_beside(&options, index, &at, NULL), 0);
    cr_expect(strstr(at, "/set.npidx") && access(at, R_OK) == 0, "%s", at);
    np_index_free(index);
    cr_expect_eq(open_set(folder, "tar", "*.npidx", NULL, NULL, &index, NULL), -ENOENT);
    setenv("XDG_CACHE_HOME", cache, 1);
    put_file(folder, "set/a/1.jpg", "abc", 3);
    cr_expect(!is_listed_anew(folder, "set", 3)); /* it is believed, and no other one is made */
    cr_expect_neq(access(cache, F_OK), 0);
    if (chown(at, 12345, (gid_t)-1) == 0) /* root alone can */
        cr_expect(is_listed_anew(folder, "set", 3));
    np_free(at);
    remove_set(folder);
}

/* As earlier releases wrote them, and as a stranger might bring them. */
Test(source, a_hidden_index_beside_the_data_is_not_read)
{
    char *folder = make_set(), command[2048];

    put_file(folder, "set/a/1.jpg", "a", 1);
    cr_expect(is_listed_anew(folder, "set", 1));
    snprintf(command, sizeof(command),
        "cd '%s' && mv cache/nnpipe/index/* .set.48835f8a096ec40c.npidx", folder);
    cr_assert_eq(system(command), 0);
    put_file(folder, "set/a/1.jpg", "abc", 3);
    cr_expect(is_listed_anew(folder, "set", 3));
    remove_set(folder);
}

Test(source, indexes_unused_for_90_days_are_removed)
{
    char *folder = make_set(), path[1024];
    const time_t now = time(NULL);
    const struct timespec old[2] = {{now - 91 * 86400, 0}, {now - 91 * 86400, 0}},
                          recent[2] = {{now - 89 * 86400, 0}, {now - 89 * 86400, 0}};

    put_file(folder, "set/a/1.jpg", "a", 1);
    put_file(folder, "cache/nnpipe/index/x.0123.npidx", "x", 1);
    put_file(folder, "cache/nnpipe/index/y.0123.npidx", "y", 1);
    snprintf(path, sizeof(path), "%s/cache/nnpipe/index/x.0123.npidx", folder);
    cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    snprintf(path, sizeof(path), "%s/cache/nnpipe/index/y.0123.npidx", folder);
    cr_assert_eq(utimensat(AT_FDCWD, path, recent, 0), 0);
    cr_expect(is_listed_anew(folder, "set", 1));
    cr_expect(!strstr(tree(folder), "/x.") && strstr(tree(folder), "/y."), "%s", tree(folder));
    remove_set(folder);
}

Test(source, an_index_that_cannot_be_stored_is_not_an_error)
{
    char *folder = make_set();
    struct np_index *index;
    struct made_notes notes;

    put_file(folder, "ro/set/a/1.jpg", "a", 1);
    put_file(folder, "cache", "a file where a folder should be", 5);
    cr_assert_eq(open_set(folder, "folder", "ro/set", NULL, &notes, &index, NULL), 0);
    cr_assert_not_null(strstr(notes.text, "the index is not saved"));
    np_index_free(index);
    remove_set(folder);
}

/* mode of the folder in $TMPDIR that is the cache without a home; 0: a link to one. */
static int cache_with(const char *folder, mode_t mode, char **ret_dir, struct np_err *err)
{
    char path[1024];

    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    setenv("TMPDIR", folder, 1);
    snprintf(path, sizeof(path), "%s/nnpipe-%ld", folder, (long)geteuid());
    rmdir(path);
    unlink(path);
    if (mode ? mkdir(path, mode) || chmod(path, mode) : symlink(folder, path))
        abort();
    return np_cache_dir(NULL, ret_dir, err);
}

Test(source, a_cache_without_a_home_is_private)
{
    char *folder = make_set(), *dir = NULL, path[1024];
    struct np_err err = {0};
    struct np_index *index;
    struct made_notes notes;
    struct stat st;

    cr_assert_eq(cache_with(folder, 0700, &dir, &err), 0, "%s", err.text);
    np_free(dir);
    snprintf(path, sizeof(path), "%s/nnpipe-%ld", folder, (long)geteuid());
    rmdir(path);
    cr_assert_eq(np_cache_dir(NULL, &dir, &err), 0, "%s", err.text); /* it is made */
    cr_expect(stat(path, &st) == 0 && (st.st_mode & 07777) == 0700);
    np_free(dir);
    cr_expect_eq(cache_with(folder, 0, &dir, &err), -EPERM);
    cr_expect_eq(cache_with(folder, 0770, &dir, NULL), -EPERM);
    cr_expect(strstr(err.text, "not used as a cache"), "%s", err.text);
    put_file(folder, "ro/set/a/1.jpg", "a", 1); /* listed all the same */
    snprintf(path, sizeof(path), "%s/ro", folder);
    cr_assert_eq(chmod(path, 0555), 0);
    err.code = 0;
    cr_assert_eq(open_set(folder, "folder", "ro/set", NULL, &notes, &index, &err), 0);
    cr_expect(strstr(notes.text, "the index is not saved: "), "%s", notes.text);
    cr_expect(strstr(notes.text, "not used as a cache"), "%s", notes.text);
    np_index_free(index);
    remove_set(folder);
}

Test(source, filled_in_crcs_read_back)
{
    char *folder = make_set(), path[1024], folder_word[] = "folder", none[] = "";
    struct np_source_options options = {
        .source = folder_word, .path = path, .match = none, .labels = none, .cache_dir = none};
    struct np_index *index;

    put_file(folder, "set/a/1.jpg", "a", 1);
    snprintf(path, sizeof(path), "%s/set", folder);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    np_index_set_crc(index, 0, 77);
    cr_assert_eq(np_source_save(&options, index, NULL), 0);
    np_index_free(index);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_record(index, 0)->crc32c, 77);
    np_index_free(index);
    remove_set(folder);
}

/* A run saves its set's checksums when it ends: under the files it has listed, not those of then. */
Test(source, a_shard_added_while_an_index_is_in_use_is_not_lost)
{
    char *folder = make_set(), path[1024], tar_word[] = "tar", none[] = "";
    struct np_source_options options = {
        .source = tar_word, .path = path, .match = none, .labels = none, .cache_dir = none};
    struct np_err err = {0};
    struct made_tar tar = {0};
    struct np_index *index;

    tar_text(&tar, "a/1.jpg", "x");
    tar_end(&tar);
    put_file(folder, "s-0.tar", tar.bytes, tar.n);
    snprintf(path, sizeof(path), "%s/s-*.tar", folder);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    put_file(folder, "s-1.tar", tar.bytes, tar.n);
    np_index_set_crc(index, 0, 77);
    cr_expect_eq(np_source_save(&options, index, &err), -ESTALE);
    cr_expect(strstr(err.text, "have changed since they were listed"), "%s", err.text);
    np_index_free(index);
    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    cr_expect_eq(np_index_samples(index), 2);
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

Test(source, a_pipe_is_refused_and_not_waited_for, .timeout = 120)
{
    char *folder = make_set(), path[1024];
    struct np_err err = {0};
    struct np_index *index;

    snprintf(path, sizeof(path), "%s/cats", folder);
    cr_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof(path), "%s/pipe.tar", folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_lt(open_set(folder, "tar", "pipe.tar", NULL, NULL, &index, &err), 0);
    cr_assert(strstr(err.text, "pipe.tar: not a file"), "%s", err.text);
    err = (struct np_err){0};
    cr_assert_lt(open_set(folder, "tar", "cats", NULL, NULL, &index, &err), 0);
    cr_assert(strstr(err.text, "cats: a folder, not a file; for pictures in class folders use "
                               "`source: folder`"),
        "%s", err.text);
    remove_set(folder);
}

Test(source, names_what_is_wrong_with_a_folder)
{
    char *folder = make_set(), command[2048];
    struct np_index *index;
    struct np_err err = {0};

    cr_assert_eq(open_set(folder, "folder", "none", NULL, NULL, &index, &err), -ENOENT);
    cr_assert_not_null(strstr(err.text, "none: no such file or folder"));
    put_file(folder, "file", "a", 1);
    err.code = 0;
    cr_assert_eq(open_set(folder, "folder", "file", NULL, NULL, &index, &err), -ENOTDIR);
    cr_assert_not_null(strstr(err.text, "source: tar"));
    put_file(folder, "set/a/b.txt", "a", 1);
    err.code = 0;
    cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, &err), -ENODATA);
    cr_assert_not_null(strstr(err.text, "b.txt"));
    put_file(folder, "set/a/b.jpg", "a", 1);
    err.code = 0;
    cr_assert_eq(open_set(folder, "folder", "set", "train/*", NULL, &index, &err), -ENODATA);
    snprintf(command, sizeof(command), "ln -s .. '%s/set/a/loop'", folder);
    cr_assert_eq(system(command), 0);
    err.code = 0;
    cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, &err), -ELOOP);
    cr_assert_not_null(strstr(err.text, "loop"));
    remove_set(folder);
}

Test(source, drawn_sets_have_labels_and_no_files)
{
    char word[] = "synth", none[] = "";
    struct np_source_options options = {.source = word,
        .path = none,
        .match = none,
        .labels = none,
        .cache_dir = none,
        .samples = 800,
        .size = 32,
        .seed = 3};
    struct np_index *index;
    int of_class[NP_SYNTH_CLASSES] = {0};

    cr_assert_eq(np_source_open(&options, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 800);
    cr_assert_eq(index->raw.seed, 3);
    for (uint64_t i = 0; i < 800; i++) {
        cr_assert_eq(np_index_record(index, i)->label, (uint32_t)np_synth_label(3, i));
        of_class[np_index_record(index, i)->label]++;
    }
    for (int c = 0; c < NP_SYNTH_CLASSES; c++)
        cr_assert(of_class[c] > 60 && of_class[c] < 140);
    np_index_free(index);
}

Test(source, a_drawn_picture_depends_on_seed_and_number_alone)
{
    static uint8_t a[40 * 40 * 3], b[40 * 40 * 3];
    int label;

    np_synth_draw(5, 12345678901ull, 40, a, &label);
    np_synth_draw(5, 12345678901ull, 40, b, NULL);
    cr_assert_arr_eq(a, b, sizeof(a));
    cr_assert_eq(label, np_synth_label(5, 12345678901ull));
    np_synth_draw(6, 12345678901ull, 40, b, NULL);
    cr_assert(memcmp(a, b, sizeof(a)) != 0);
    np_synth_draw(5, 12345678901ull + (1ull << 32), 40, b, NULL);
    cr_assert(memcmp(a, b, sizeof(a)) != 0);
}
