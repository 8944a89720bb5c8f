/* Whole files: replacing durably, what a full disk or a missing folder says, two writers of one
 * file, reading into memory, folders. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"

#include "tests/test.h"

/* A fresh folder; caller frees the text with remove_folder(). */
static char *make_folder(void)
{
    char *path = strdup("/tmp/np_test_file.XXXXXX");

    if (!mkdtemp(path))
        abort();
    return path;
}

static void remove_folder(char *path)
{
    char command[256];

    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    if (system(command))
        abort();
    free(path);
}

static bool holds(const char *path, const char *text)
{
    char *data = NULL;
    uint64_t bytes = 0;
    bool same = np_read_file(path, 1 << 20, &data, &bytes, NULL) == 0 && bytes == strlen(text) &&
                strcmp(data, text) == 0;

    np_free(data);
    return same;
}

Test(io_file, replace_makes_and_replaces_and_leaves_nothing_beside)
{
    char *folder = make_folder(), *path = np_format("%s/a", folder);
    char *beside = np_format("%s.new", path);
    struct np_err err = {0};

    cr_assert_eq(np_io_replace(NULL, path, "first", 5, &err), 0, "%s", err.text);
    cr_assert(holds(path, "first"));
    cr_assert_eq(np_io_replace(NULL, path, "2nd", 3, &err), 0, "%s", err.text);
    cr_assert(holds(path, "2nd"));
    cr_assert_neq(access(beside, F_OK), 0);

    /* What an interrupted one left is written over, also where it was longer. */
    FILE *left = fopen(beside, "w");
    fputs("a longer text from before", left);
    fclose(left);
    cr_assert_eq(np_io_replace(NULL, path, "", 0, &err), 0, "%s", err.text);
    cr_assert(holds(path, ""));
    np_free(path);
    np_free(beside);
    remove_folder(folder);
}

Test(io_file, a_written_file_is_whole_and_private_and_follows_no_link_that_lies_beside_it)
{
    char *folder = make_folder(), *path = np_format("%s/a", folder);
    char *beside = np_format("%s.new", path), *other = np_format("%s/other", folder);
    struct np_err err = {0};
    struct stat stat_;

    cr_assert_eq(np_write_file(other, "untouched", 9, NP_WRITE_DURABLE, &err), 0, "%s", err.text);
    cr_assert_eq(symlink(other, beside), 0);
    cr_assert_eq(np_write_file(path, "first", 5, NP_WRITE_PRIVATE, &err), 0, "%s", err.text);
    cr_assert(holds(path, "first") && holds(other, "untouched"));
    cr_assert_eq(lstat(path, &stat_), 0);
    cr_assert_eq(stat_.st_mode, S_IFREG | 0600);
    cr_assert_eq(mkdir(beside, 0700), 0); /* in the way */
    cr_assert_eq(np_write_file(path, "second", 6, 0, &err), -EEXIST);
    cr_assert_not_null(strstr(err.text, "cannot write "));
    cr_assert(holds(path, "first"));
    np_free(path);
    np_free(beside);
    np_free(other);
    remove_folder(folder);
}

static bool is_kind(const char *path, mode_t kind)
{
    struct stat info;

    return lstat(path, &info) == 0 && (info.st_mode & S_IFMT) == kind;
}

Test(io_file, an_output_goes_into_a_device_and_does_not_replace_it)
{
    char *folder = make_folder();
    char *fifo = np_format("%s/fifo", folder), *full = np_format("%s/full", folder);
    char got[8] = "";
    struct np_err err = {0};

    cr_assert_eq(mkfifo(fifo, 0600), 0);
    const int reader = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    cr_assert_eq(np_write_output(fifo, "page", 4, &err), 0, "%s", err.text);
    cr_assert_eq(read(reader, got, sizeof(got)), 4);
    cr_assert_str_eq(got, "page");
    cr_assert(is_kind(fifo, S_IFIFO));
    close(reader);

    cr_assert_eq(symlink("/dev/full", full), 0); /* not /dev/full itself: root might replace it */
    cr_assert_eq(np_write_output(full, "page", 4, &err), -ENOSPC);
    cr_assert_str_eq(strstr(err.text, "/full: "), "/full: No space left on device");
    cr_assert(is_kind(full, S_IFLNK));
    np_free(fifo);
    np_free(full);
    remove_folder(folder);
}

Test(io_file, an_output_replaces_a_file_and_the_target_of_a_link)
{
    char *folder = make_folder();
    char *path = np_format("%s/a", folder), *link = np_format("%s/link", folder);
    char *beside = np_format("%s.new", path);
    struct np_err err = {0};
    struct stat before, after;

    cr_assert_eq(np_write_output(path, "a longer first", 14, &err), 0, "%s", err.text);
    cr_assert(holds(path, "a longer first") && stat(path, &before) == 0);
    cr_assert_eq(symlink(path, link), 0);
    const int old = open(path, O_RDONLY | O_CLOEXEC); /* keeps the inode's number in use */
    cr_assert_eq(np_write_output(link, "2nd", 3, &err), 0, "%s", err.text);
    cr_assert(holds(path, "2nd") && is_kind(link, S_IFLNK) && is_kind(path, S_IFREG));
    cr_assert(stat(path, &after) == 0 && after.st_ino != before.st_ino);
    cr_assert_neq(access(beside, F_OK), 0);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(np_write_output(link, "3rd", 3, &err), 0, "%s", err.text);
    cr_assert(holds(path, "3rd") && is_kind(link, S_IFLNK));
    cr_assert(unlink(link) == 0 && symlink(link, link) == 0);
    cr_assert_eq(np_write_output(link, "4th", 3, &err), -ELOOP);
    cr_assert(is_kind(link, S_IFLNK));
    close(old);
    np_free(path);
    np_free(link);
    np_free(beside);
    remove_folder(folder);
}

Test(io_file, an_output_into_a_descriptor_of_ours_truncates_nothing)
{
    char *folder = make_folder(), *path = np_format("%s/a", folder);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char *name = np_format("/dev/fd/%d", fd), *closed = np_format("/proc/self/fd/%d", 1000000);
    struct np_err err = {0};

    cr_assert_eq(write(fd, "before ", 7), 7);
    cr_assert_eq(np_write_output(name, "page", 4, &err), 0, "%s", err.text);
    cr_assert_eq(write(fd, " after", 6), 6);
    cr_assert(holds(path, "before page after"));
    cr_assert_eq(np_write_output(closed, "page", 4, &err), -EBADF);
    close(fd);
    np_free(name);
    np_free(closed);
    np_free(path);
    remove_folder(folder);
}

Test(io_file, replace_through_an_open_io_works_in_the_current_folder)
{
    char *folder = make_folder(), *was = getcwd(NULL, 0);
    struct np_io io;

    cr_assert_eq(chdir(folder), 0);
    cr_assert_eq(np_io_open(&io, "pread", 1, NULL), 0);
    cr_assert_eq(np_io_replace(&io, "here", "x", 1, NULL), 0);
    cr_assert(holds("here", "x"));
    np_io_close(&io);
    cr_assert_eq(chdir(was), 0);
    free(was);
    remove_folder(folder);
}

Test(io_file, the_steps_of_a_checkpoint_work_one_by_one)
{
    char *folder = make_folder();
    char *from = np_format("%s/new", folder), *to = np_format("%s/done", folder);
    char *file = np_format("%s/new/weights", folder), *moved = np_format("%s/done/weights", folder);
    struct np_err err = {0};
    int fd = -1;

    cr_assert_eq(np_make_dirs(from, &err), 0);
    cr_assert_eq(np_io_create(NULL, file, &fd, &err), 0);
    cr_assert_eq(np_io_append(NULL, fd, "abc", 3, &err), 0);
    cr_assert_eq(np_io_append(NULL, fd, "", 0, &err), 0);
    cr_assert_eq(np_io_append(NULL, fd, "def", 3, &err), 0);
    cr_assert_eq(np_io_sync_close(NULL, fd, &err), 0);
    cr_assert_eq(np_io_sync_dir(NULL, from, &err), 0);
    cr_assert_eq(np_io_rename(NULL, from, to, &err), 0);
    cr_assert_eq(np_io_sync_dir(NULL, folder, &err), 0);
    cr_assert(holds(moved, "abcdef"));
    cr_assert_eq(err.code, 0);
    np_free(from);
    np_free(to);
    np_free(file);
    np_free(moved);
    remove_folder(folder);
}

Test(io_file, errors_name_the_file_and_the_cause)
{
    struct np_err err = {0};
    int fd = 7;

    cr_assert_eq(np_io_create(NULL, "/nowhere/at/all", &fd, &err), -ENOENT);
    cr_assert_str_eq(err.text, "cannot create /nowhere/at/all: No such file or directory");
    cr_assert_eq(fd, 7);
    memset(&err, 0, sizeof(err));
    cr_assert_eq(np_io_rename(NULL, "/nowhere/a", "/nowhere/b", &err), -ENOENT);
    cr_assert_str_eq(err.text, "cannot rename /nowhere/a to /nowhere/b: No such file or directory");
    memset(&err, 0, sizeof(err));
    cr_assert_eq(np_io_sync_dir(NULL, "/nowhere", &err), -ENOENT);
    cr_assert_str_eq(err.text, "cannot sync the folder /nowhere: No such file or directory");
    memset(&err, 0, sizeof(err));
    cr_assert_eq(np_io_replace(NULL, "/proc/version/x", "a", 1, &err), -ENOTDIR);
    cr_assert_not_null(strstr(err.text, "/proc/version/x.new"));
    memset(&err, 0, sizeof(err));
    cr_assert_eq(np_io_append(NULL, -1, "a", 1, &err), -EBADF);
    cr_assert_not_null(strstr(err.text, "file -1"));
    memset(&err, 0, sizeof(err));
    cr_assert_eq(np_io_sync_close(NULL, -1, &err), -EBADF);
}

Test(io_file, a_full_disk_is_reported_with_bytes_needed_and_free)
{
    struct np_err err = {0};
    char data[5000] = "";
    int fd;

    cr_assert_eq(np_io_create(NULL, "/dev/full", &fd, &err), 0, "%s", err.text);
    cr_assert_eq(np_io_append(NULL, fd, data, sizeof(data), &err), -ENOSPC);
    cr_assert_not_null(strstr(err.text, "cannot write /dev/full: the disk is full"));
    cr_assert_not_null(strstr(err.text, "5000 bytes to write"));
    cr_assert_not_null(strstr(err.text, " free"));
    cr_assert_eq(np_io_sync_close(NULL, fd, NULL), 0);
}

/* In a process of its own: files may have 1000 bytes, so that writing stops in the middle. */
static int short_of_room(const char *path, bool durable)
{
    struct rlimit limit = {1000, 1000};
    struct np_err err = {0};
    char data[5000];

    memset(data, 'x', sizeof(data));
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    const int code = durable ? np_io_replace(NULL, path, data, sizeof(data), &err)
                             : np_write_file(path, data, sizeof(data), 0, &err);
    return code == -EFBIG && strstr(err.text, path) ? 0 : 1;
}

Test(io_file, a_replace_that_fails_leaves_the_old_file_and_nothing_beside)
{
    char *folder = make_folder(), *path = np_format("%s/a", folder);
    char *beside = np_format("%s.new", path);
    int status = -1;
    pid_t child;

    cr_assert_eq(np_io_replace(NULL, path, "old", 3, NULL), 0);
    for (int durable = 0; durable < 2; durable++) {
        child = fork();
        if (child == 0)
            _exit(short_of_room(path, durable));
        waitpid(child, &status, 0);
        cr_assert_eq(status, 0);
        cr_assert(holds(path, "old"));
        cr_assert_neq(access(beside, F_OK), 0);
    }
    np_free(path);
    np_free(beside);
    remove_folder(folder);
}

enum { WRITERS = 4, TIMES = 60, LONG = 100000 };

struct writer {
    const char *path;
    char letter;
};

static void *replace_often(void *context)
{
    const struct writer *writer = context;
    char *data = malloc(LONG);
    uint64_t failures = 0;

    memset(data, writer->letter, LONG);
    for (int i = 0; i < TIMES; i++)
        failures += np_io_replace(NULL, writer->path, data, LONG, NULL) != 0;
    free(data);
    return (void *)failures;
}

Test(io_file, many_writers_leave_a_whole_file, .timeout = 120)
{
    char *folder = make_folder(), *path = np_format("%s/a", folder);
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    int torn = 0;

    cr_assert_eq(np_io_replace(NULL, path, "", 0, NULL), 0);
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){path, (char)('a' + i)};
        pthread_create(&threads[i], NULL, replace_often, &writers[i]);
    }
    for (int i = 0; i < TIMES; i++) {
        char *data = NULL;
        uint64_t bytes = 0;

        torn += np_read_file(path, LONG, &data, &bytes, NULL) != 0 || (bytes && bytes != LONG) ||
                (bytes && memcmp(data, data + 1, LONG - 1) != 0);
        np_free(data);
    }
    for (int i = 0; i < WRITERS; i++) {
        void *failures;

        pthread_join(threads[i], &failures);
        torn += failures != NULL;
    }
    cr_assert_eq(torn, 0);
    np_free(path);
    remove_folder(folder);
}

Test(io_file, read_file_reads_files_without_a_size_and_adds_a_NUL)
{
    char *data = NULL;
    uint64_t bytes = 0;
    int ends[2];

    cr_assert_eq(np_read_file("/proc/self/status", 1 << 20, &data, &bytes, NULL), 0);
    cr_assert_gt(bytes, 100u);
    cr_assert_eq(strlen(data), bytes);
    np_free(data);

    cr_assert_eq(pipe(ends), 0); /* longer than the first room */
    char *text = np_alloc(10001), *path = np_format("/proc/self/fd/%d", ends[0]);
    memset(text, 'y', 10000);
    cr_assert_eq(write(ends[1], text, 10000), 10000);
    close(ends[1]);
    cr_assert_eq(np_read_file(path, 10000, &data, &bytes, NULL), 0);
    cr_assert_eq(bytes, 10000u);
    cr_assert_str_eq(data, text);
    np_free(data);
    np_free(text);
    np_free(path);
    close(ends[0]);
}

Test(io_file, read_file_refuses_large_and_missing_files_and_folders)
{
    char *folder = make_folder(), *path = np_format("%s/a", folder);
    char *data = (char *)1;
    uint64_t bytes = 9;
    struct np_err err = {0};

    cr_assert_eq(np_io_replace(NULL, path, "12345", 5, NULL), 0);
    cr_assert_eq(np_read_file(path, 4, &data, &bytes, &err), -EFBIG);
    cr_assert_not_null(strstr(err.text, "larger than the 4 bytes"));
    cr_assert(data == (char *)1 && bytes == 9);
    cr_assert_eq(np_read_file("/proc/self/status", 50, &data, &bytes, NULL), -EFBIG);
    cr_assert_eq(np_read_file("/nowhere", 4, &data, &bytes, NULL), -ENOENT);
    memset(&err, 0, sizeof(err));
    cr_assert_eq(np_read_file(folder, 1 << 20, &data, &bytes, &err), -EISDIR);
    cr_assert_not_null(strstr(err.text, folder));
    cr_assert_eq(np_read_file(path, 5, &data, &bytes, NULL), 0);
    cr_assert_str_eq(data, "12345");
    np_free(data);
    np_free(path);
    remove_folder(folder);
}

Test(io_file, make_dirs_makes_a_whole_path_and_names_an_obstacle)
{
    char *folder = make_folder();
    char *path = np_format("%s/a//b/c/", folder), *file = np_format("%s/a/file", folder);
    char *under = np_format("%s/a/file/x", folder);
    struct stat info;
    struct np_err err = {0};

    cr_assert_eq(np_make_dirs(path, &err), 0, "%s", err.text);
    cr_assert(stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    cr_assert_eq(np_make_dirs(path, &err), 0);
    cr_assert_eq(np_make_dirs("/", &err), 0);
    cr_assert_eq(np_io_replace(NULL, file, "", 0, NULL), 0);
    cr_assert_eq(np_make_dirs(file, &err), -ENOTDIR);
    cr_assert_not_null(strstr(err.text, "/a/file: Not a directory"));
    cr_assert_eq(np_make_dirs(under, NULL), -ENOTDIR);
    cr_assert_eq(np_make_dirs("", NULL), -ENOENT);
    cr_assert_eq(np_make_dirs("/proc/none/such", NULL), -ENOENT);
    np_free(path);
    np_free(file);
    np_free(under);
    remove_folder(folder);
}
