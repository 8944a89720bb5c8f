/* Whole files: durable writing through the write table (new file, fsync, rename, fsync of the
 * folder), and reading into memory. Blocks; the thread that owns the np_io. */
#include "loader/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/text.h"

/* --- the POSIX write table --------------------------------------------------------------- */

/* True: path still names the open file; false after its owner has renamed it. */
static bool is_at(int fd, const char *path)
{
    struct stat opened, named;

    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* Truncates the file under its lock, so that two processes never write into one file. */
static int posix_create(struct np_io *io, const char *path)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666), status = 0;

        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0)
            return -errno;
        /* Some network file systems have no locks; then none is taken. */
        while (flock(fd, LOCK_EX) < 0 && errno == EINTR)
            ;
        if (is_at(fd, path)) {
            if (ftruncate(fd, 0) == 0 || errno == EINVAL) /* EINVAL: a device */
                return fd;
            status = -errno;
        }
        close(fd);
        if (status)
            return status;
    }
}

static int posix_append(struct np_io *io, int fd, const void *data, uint64_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t wrote = write(fd, at, bytes < 1 << 30 ? bytes : 1 << 30);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return wrote < 0 ? -errno : -EIO;
        at += wrote;
        bytes -= (uint64_t)wrote;
    }
    return 0;
}

static int posix_sync(struct np_io *io, int fd)
{
    /* EINVAL: a pipe or a device. */
    return fsync(fd) == 0 || errno == EINVAL ? 0 : -errno;
}

static int posix_close(struct np_io *io, int fd)
{
    return close(fd) == 0 || errno == EINTR ? 0 : -errno; /* Linux closes in either case */
}

static int posix_rename(struct np_io *io, const char *from, const char *to)
{
    return rename(from, to) == 0 ? 0 : -errno;
}

static int posix_sync_dir(struct np_io *io, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status;

    if (fd < 0)
        return -errno;
    status = posix_sync(io, fd);
    close(fd);
    return status;
}

const struct np_io_write_ops np_io_posix_write = {
    posix_create, posix_append, posix_sync, posix_close, posix_rename, posix_sync_dir};

static const struct np_io_write_ops *writer(const struct np_io *io)
{
    return io && io->ops->write ? io->ops->write : &np_io_posix_write;
}

/* "a/b" -> "a", "b" -> ".", "/b" -> "/". */
static void folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t length = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);

    snprintf(folder, PATH_MAX, "%.*s", slash ? (int)length : 1, slash ? path : ".");
}

/* Fills err: "DOING PATH: cause", and for a full disk its free space. bytes: of the write; 0: none.
 * Returns status. */
static int failed(
    struct np_err *err, int status, const char *doing, const char *path, uint64_t bytes)
{
    char folder[PATH_MAX];
    struct statvfs disk;

    if (status == -EDQUOT)
        return np_err_set(err, status, "%s %s: your disk quota is used up", doing, path);
    if (status != -ENOSPC)
        return np_err_set(err, status, "%s %s: %s", doing, path, strerror(-status));
    folder_of(path, folder);
    if (statvfs(path, &disk) < 0 && statvfs(folder, &disk) < 0)
        return np_err_set(err, status, "%s %s: the disk is full", doing, path);
    if (disk.f_files > 0 && disk.f_favail == 0)
        return np_err_set(err, status, "%s %s: this disk has no space for more files", doing, path);
    return np_err_set(err, status, "%s %s: the disk is full: %llu bytes to write, %llu free", doing,
        path, (unsigned long long)bytes, (unsigned long long)disk.f_bavail * disk.f_frsize);
}

static void path_of(int fd, char path[PATH_MAX])
{
    char link[40];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, PATH_MAX - 1);
    if (n < 0)
        n = snprintf(path, PATH_MAX, "file %d", fd);
    path[n] = '\0';
}

int np_io_create(struct np_io *io, const char *path, int *ret_fd, struct np_err *err)
{
    int fd = writer(io)->create(io, path);

    if (fd < 0)
        return failed(err, fd, "cannot create", path, 0);
    *ret_fd = fd;
    return 0;
}

int np_io_append(struct np_io *io, int fd, const void *data, uint64_t bytes, struct np_err *err)
{
    int status = writer(io)->append(io, fd, data, bytes);
    char path[PATH_MAX];

    if (status == 0)
        return 0;
    path_of(fd, path);
    return failed(err, status, "cannot write", path, bytes);
}

int np_io_sync_close(struct np_io *io, int fd, struct np_err *err)
{
    int status = writer(io)->sync(io, fd), closed;
    char path[PATH_MAX];

    path_of(fd, path);
    closed = writer(io)->close(io, fd);
    if (status == 0)
        status = closed;
    return status ? failed(err, status, "cannot write", path, 0) : 0;
}

int np_io_rename(struct np_io *io, const char *from, const char *to, struct np_err *err)
{
    int status = writer(io)->rename(io, from, to);
    char doing[PATH_MAX + 40];

    if (status == 0)
        return 0;
    snprintf(doing, sizeof(doing), "cannot rename %s to", from);
    return failed(err, status, doing, to, 0);
}

int np_io_sync_dir(struct np_io *io, const char *path, struct np_err *err)
{
    int status = writer(io)->sync_dir(io, path);

    return status ? failed(err, status, "cannot sync the folder", path, 0) : 0;
}

/* The new file stays locked until it has its name. A second writer that waited for the lock then
 * finds that `path.new` is gone, and creates its own. */
int np_io_replace(
    struct np_io *io, const char *path, const void *data, uint64_t bytes, struct np_err *err)
{
    const struct np_io_write_ops *ops = writer(io);
    char beside[PATH_MAX], folder[PATH_MAX];
    int fd = -1, status;

    if (snprintf(beside, sizeof(beside), "%s.new", path) >= (int)sizeof(beside))
        return failed(err, -ENAMETOOLONG, "cannot create", path, 0);
    folder_of(path, folder);
    status = np_io_create(io, beside, &fd, err);
    if (status)
        return status;
    status = np_io_append(io, fd, data, bytes, err);
    if (status)
        goto out;
    status = ops->sync(io, fd);
    if (status) {
        failed(err, status, "cannot write", beside, bytes);
        goto out;
    }
    status = np_io_rename(io, beside, path, err);
out:
    if (status)
        unlink(beside); /* while it is locked, so it is ours */
    ops->close(io, fd);
    return status ? status : np_io_sync_dir(io, folder, err);
}

int np_io_make_private(const char *path, struct np_err *err)
{
    char beside[PATH_MAX]; /* whose mode the file keeps */
    int fd, status = 0;

    if (snprintf(beside, sizeof(beside), "%s.new", path) >= (int)sizeof(beside))
        return failed(err, -ENAMETOOLONG, "cannot create", path, 0);
    fd = open(beside, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchmod(fd, 0600) < 0) /* it may be left of a killed process */
        status = -errno;
    if (fd >= 0)
        close(fd);
    return status ? failed(err, status, "cannot create", beside, 0) : 0;
}

int np_write_file(const char *path, const void *data, uint64_t bytes, int flags, struct np_err *err)
{
    char beside[PATH_MAX], folder[PATH_MAX];
    int fd, status;

    if (snprintf(beside, sizeof(beside), "%s.new", path) >= (int)sizeof(beside))
        return failed(err, -ENAMETOOLONG, "cannot write", path, 0);
    folder_of(path, folder);
    unlink(beside);
    fd = open(
        beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, flags & NP_WRITE_PRIVATE ? 0600 : 0666);
    status = fd < 0 ? -errno : posix_append(NULL, fd, data, bytes);
    if (status == 0 && flags & NP_WRITE_DURABLE)
        status = posix_sync(NULL, fd);
    if (fd >= 0 && close(fd) < 0 && status == 0)
        status = -errno;
    if (status == 0)
        status = posix_rename(NULL, beside, path);
    if (status < 0 && fd >= 0)
        unlink(beside);
    if (status == 0 && flags & NP_WRITE_DURABLE)
        status = posix_sync_dir(NULL, folder);
    return status ? failed(err, status, "cannot write", path, bytes) : 0;
}

/* The descriptor of this process that path names; -1: none. */
static int own_descriptor(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    int64_t number;

    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        const size_t length = strlen(folders[i]);

        if (strncmp(path, folders[i], length) == 0 &&
            np_text_int(path + length, 0, INT_MAX, &number))
            return (int)number;
    }
    return -1;
}

/* own: a descriptor of this process, or -1; is_new: path is a link to no file, which is made. */
static int write_into(const char *path, int own, bool is_new, const void *data, uint64_t bytes)
{
    const int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY | (is_new ? O_CREAT : 0);
    int fd, status;

    if (own >= 0)
        fflush(NULL); /* what was printed before comes before */
    while ((fd = own >= 0 ? dup(own) : open(path, flags, 0666)) < 0 && errno == EINTR)
        ;
    status = fd < 0 ? -errno : posix_append(NULL, fd, data, bytes);
    if (fd >= 0 && close(fd) < 0 && status == 0)
        status = -errno;
    return status;
}

static bool is_link(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

int np_write_output(const char *path, const void *data, uint64_t bytes, struct np_err *err)
{
    const int own = own_descriptor(path);
    char target[PATH_MAX];
    struct stat info;
    const bool exists = own >= 0 || stat(path, &info) == 0;

    if (own < 0 && (exists ? S_ISREG(info.st_mode) : !is_link(path)))
        return np_write_file(realpath(path, target) ? target : path, data, bytes, 0, err);
    const int status = write_into(path, own, !exists, data, bytes);
    return status ? np_err_set(err, status, "cannot write %s: %s", path, strerror(-status)) : 0;
}

/* --- reading and folders ----------------------------------------------------------------- */

/* Reads fd to its end. The file's size is only a hint: files in /proc and pipes have none, and
 * others may grow. */
static int read_all(int fd, uint64_t max_bytes, char **data, uint64_t *ret_bytes)
{
    struct stat info;
    size_t room = 4096, used = 0;
    ssize_t got;

    if (fstat(fd, &info) < 0)
        return -errno;
    if (S_ISREG(info.st_mode) && (uint64_t)info.st_size > max_bytes)
        return -EFBIG;
    if (S_ISREG(info.st_mode) && info.st_size > 0)
        room = (size_t)info.st_size + 2; /* one byte for the NUL, one to find the end */
    if (!(*data = np_try_alloc(room, NULL)))
        return -ENOMEM;
    for (;;) {
        if (used + 1 == room && np_try_grow(data, &room, room + 1, 1, NULL) < 0)
            return -ENOMEM;
        got = read(fd, *data + used, room - 1 - used);
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got == 0)
            break;
        used += got > 0 ? (size_t)got : 0;
        if (used > max_bytes)
            return -EFBIG;
    }
    (*data)[used] = '\0';
    *ret_bytes = used;
    return 0;
}

int np_read_file(
    const char *path, uint64_t max_bytes, char **ret_data, uint64_t *ret_bytes, struct np_err *err)
{
    const bool input = strcmp(path, "/dev/stdin") == 0;
    int fd = input ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC), status;
    char *data = NULL;
    uint64_t bytes = 0;

    status = fd < 0 ? -errno : read_all(fd, max_bytes, &data, &bytes);
    if (status == -EFBIG)
        np_err_set(err, status, "%s: larger than the %llu bytes that it may have", path,
            (unsigned long long)max_bytes);
    else if (status)
        np_err_set(err, status, "cannot read %s: %s", path, strerror(-status));
    if (fd >= 0)
        close(fd);
    if (status) {
        np_free(data);
        return status;
    }
    *ret_data = data;
    *ret_bytes = bytes;
    return 0;
}

int64_t np_read_at(int fd, uint64_t offset, void *buffer, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        const ssize_t got = pread(fd, (char *)buffer + done, bytes - done, (off_t)(offset + done));

        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -errno;
        done += got > 0 ? (size_t)got : 0;
    }
    return (int64_t)done;
}

int np_make_dirs(const char *path, struct np_err *err)
{
    char part[PATH_MAX];
    struct stat info;
    int status = 0;

    if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
        return failed(err, -ENAMETOOLONG, "cannot create the folder", path, 0);
    for (char *at = part + 1; *part; at++) {
        char was = *at;

        if (was != '/' && was != '\0')
            continue;
        *at = '\0';
        /* Only the last error counts: an upper folder may exist where we may not create one. */
        status = mkdir(part, 0777) == 0 ? 0 : -errno;
        *at = was;
        if (was == '\0')
            break;
    }
    if (stat(path, &info) == 0)
        status = S_ISDIR(info.st_mode) ? 0 : -ENOTDIR;
    else if (status == 0 || status == -EEXIST)
        status = -errno;
    return status ? failed(err, status, "cannot create the folder", path, 0) : 0;
}

int np_make_parent(const char *path, struct np_err *err)
{
    const char *slash = strrchr(path, '/');
    char *dir;
    int code;

    if (!slash || slash == path)
        return 0;
    dir = np_try_format(err, "%.*s", (int)(slash - path), path);
    code = dir ? np_make_dirs(dir, err) : -ENOMEM;
    np_free(dir);
    return code;
}
