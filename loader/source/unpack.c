/* See unpack.h. One thread. Two processes may unpack the same file, each under its own temporary
 * name; the last rename wins. */
#include "loader/source/unpack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/source/source_scan.h"

#define IN_BYTES    (256u << 10)
#define OUT_BYTES   (1u << 20)
#define FLUSH_BYTES (2u << 20)

struct unpack {
    const char *path;
    const struct np_source_progress *progress;
    int in_fd, out_fd;
    uint64_t in_bytes, done_bytes, out_bytes, flushed_bytes;
    uint8_t *in, *out;
    struct np_io io;
    bool nameless; /* out_fd has no name yet */
};

int np_unpack_sniff(const char *path, enum np_wrapping *ret_wrapping, struct np_err *err)
{
    const int fd = np_file_open(path, err);
    uint8_t head[4] = {0};
    int64_t got;

    if (fd < 0 && !np_is_remote(fd))
        return np_err_set(err, fd, "%s: cannot open: %s", path, strerror(-fd));
    got = np_file_read(fd, 0, head, sizeof(head), err);
    np_file_close(fd);
    if (got < 0)
        return np_err_set(err, (int)got, "%s: cannot read: %s", path, strerror((int)-got));
    if (memcmp(head, "\x1f\x8b", 2) == 0)
        *ret_wrapping = NP_WRAPPING_GZIP;
    else if (memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0 ||
             ((head[0] & 0xf0) == 0x50 && memcmp(head + 1, "\x2a\x4d\x18", 3) == 0))
        *ret_wrapping = NP_WRAPPING_ZSTD; /* a frame, or a skippable one before it */
    else
        *ret_wrapping = NP_WRAPPING_NONE;
    return 0;
}

/* The content's size if the file has it, else 0. gzip stores it modulo 4 GiB. */
static uint64_t guess_bytes(struct unpack *unpack, enum np_wrapping wrapping)
{
    uint8_t bytes[18] = {0};

    if (wrapping == NP_WRAPPING_ZSTD) {
        const int64_t got = np_file_read(unpack->in_fd, 0, bytes, sizeof(bytes), NULL);
        const unsigned long long size =
            got > 0 ? ZSTD_getFrameContentSize(bytes, (size_t)got) : ZSTD_CONTENTSIZE_UNKNOWN;

        return size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR ? 0 : size;
    }
    if (unpack->in_bytes < 18 ||
        np_file_read(unpack->in_fd, unpack->in_bytes - 4, bytes, 4, NULL) != 4)
        return 0;
    return (uint64_t)bytes[0] | (uint64_t)bytes[1] << 8 | (uint64_t)bytes[2] << 16 |
           (uint64_t)bytes[3] << 24;
}

static int check_space(struct unpack *unpack, enum np_wrapping wrapping, const char *folder,
    uint64_t *ret_want, struct np_err *err)
{
    struct statvfs space;
    uint64_t want = guess_bytes(unpack, wrapping), free_bytes;

    want = want > unpack->in_bytes ? want : unpack->in_bytes;
    *ret_want = want;
    if (statvfs(folder, &space) < 0)
        return np_err_set(err, -errno, "%s: %s", folder, strerror(errno));
    free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    if (want > free_bytes)
        return np_err_set(err, -ENOSPC,
            "%s: unpacking it takes at least %llu MiB, and the cache folder %s has %llu MiB free; "
            "set cache_dir in the config or XDG_CACHE_HOME to a folder with more space",
            unpack->path, (unsigned long long)(want >> 20), folder,
            (unsigned long long)(free_bytes >> 20));
    return 0;
}

static int read_some(struct unpack *unpack, size_t *ret_bytes, struct np_err *err)
{
    const int64_t got = np_file_read(unpack->in_fd, unpack->done_bytes, unpack->in, IN_BYTES, err);

    if (got < 0)
        return np_err_set(err, (int)got, "%s: cannot read at offset %llu: %s", unpack->path,
            (unsigned long long)unpack->done_bytes, strerror((int)-got));
    unpack->done_bytes += (uint64_t)got;
    *ret_bytes = (size_t)got;
    if (unpack->progress && unpack->progress->unpack)
        unpack->progress->unpack(
            unpack->progress->context, unpack->path, unpack->done_bytes, unpack->in_bytes);
    return 0;
}

/* The disk writes while the next bytes are unpacked, so that little is left for the sync at the
 * end. Errors are ignored here: the sync reports them. */
static int write_some(struct unpack *unpack, size_t bytes, struct np_err *err)
{
    int code = bytes ? np_io_append(&unpack->io, unpack->out_fd, unpack->out, bytes, err) : 0;

    unpack->out_bytes += bytes;
    if (!code && unpack->out_bytes - unpack->flushed_bytes >= FLUSH_BYTES) {
        sync_file_range(unpack->out_fd, (off_t)unpack->flushed_bytes,
            (off_t)(unpack->out_bytes - unpack->flushed_bytes), SYNC_FILE_RANGE_WRITE);
        unpack->flushed_bytes = unpack->out_bytes;
    }
    return code;
}

/* The copy stays: listing it finds the truncated sample. */
static void note_truncated(const struct unpack *unpack)
{
    np_source_note(unpack->progress, "%s is truncated; its %llu unpacked bytes are used",
        unpack->path, (unsigned long long)unpack->out_bytes);
}

static int no_memory(const struct unpack *unpack, struct np_err *err)
{
    return np_err_set(err, -ENOMEM, "%s: out of memory", unpack->path);
}

static int zstd_failed(
    const struct unpack *unpack, size_t status, size_t unread, struct np_err *err)
{
    if (ZSTD_getErrorCode(status) == ZSTD_error_memory_allocation)
        return no_memory(unpack, err);
    return np_err_set(err, -EBADMSG, "%s: damaged zstd data near offset %llu: %s", unpack->path,
        (unsigned long long)(unpack->done_bytes - unread), ZSTD_getErrorName(status));
}

static int unpack_zstd(struct unpack *unpack, struct np_err *err)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    ZSTD_inBuffer in = {unpack->in, 0, 0};
    size_t left = 0;
    int code = stream ? 0 : no_memory(unpack, err);

    while (!code) {
        ZSTD_outBuffer out = {unpack->out, OUT_BYTES, 0};

        if (in.pos == in.size) {
            in.pos = 0;
            code = read_some(unpack, &in.size, err);
            if (code || in.size == 0)
                break;
        }
        left = ZSTD_decompressStream(stream, &out, &in);
        if (ZSTD_isError(left)) {
            code = zstd_failed(unpack, left, in.size - in.pos, err);
            break;
        }
        code = write_some(unpack, out.pos, err);
        while (!code && out.pos == OUT_BYTES) { /* zstd may hold more output */
            out.pos = 0;
            left = ZSTD_decompressStream(stream, &out, &in);
            code = ZSTD_isError(left) ? zstd_failed(unpack, left, in.size - in.pos, err)
                                      : write_some(unpack, out.pos, err);
        }
    }
    ZSTD_freeDStream(stream);
    if (!code && left != 0)
        note_truncated(unpack);
    return code;
}

/* A file may have several gzip members. */
static int unpack_gzip(struct unpack *unpack, struct np_err *err)
{
    z_stream stream = {0};
    size_t got = 0;
    bool inside = true;
    int code = inflateInit2(&stream, 15 + 16) == Z_OK ? 0 : no_memory(unpack, err);

    while (!code) {
        int status;

        if (stream.avail_in == 0) {
            code = read_some(unpack, &got, err);
            if (code || got == 0)
                break;
            stream.next_in = unpack->in;
            stream.avail_in = (unsigned)got;
        }
        if (!inside) {
            if (*stream.next_in != 0x1f) /* gzip ignores bytes after the last member */
                break;
            inflateReset(&stream);
            inside = true;
        }
        stream.next_out = unpack->out;
        stream.avail_out = OUT_BYTES;
        status = inflate(&stream, Z_NO_FLUSH);
        if (status == Z_MEM_ERROR) {
            code = no_memory(unpack, err);
            break;
        }
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
            code = np_err_set(err, -EBADMSG, "%s: damaged gzip data near offset %llu: %s",
                unpack->path, (unsigned long long)(unpack->done_bytes - stream.avail_in),
                stream.msg ? stream.msg : "not gzip");
            break;
        }
        inside = status != Z_STREAM_END;
        code = write_some(unpack, OUT_BYTES - stream.avail_out, err);
    }
    inflateEnd(&stream);
    if (!code && inside)
        note_truncated(unpack);
    return code;
}

static bool is_part(const char *name)
{
    const size_t bytes = strlen(name);

    return bytes > 5 && strcmp(name + bytes - 5, ".part") == 0;
}

/* True if a process still writes the file: it holds a lock. */
static bool is_in_work(int folder_fd, const char *name)
{
    const int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;

    if (fd >= 0)
        close(fd);
    return locked;
}

/* Removes partial copies left by killed processes; and if name is given, other copies of the same
 * path, whose names have the same first `same` bytes. */
static void remove_older(const char *folder, const char *name, size_t same)
{
    DIR *dir = opendir(folder);

    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        const bool older = name && !is_part(entry->d_name) &&
                           strncmp(entry->d_name, name, same) == 0 &&
                           strcmp(entry->d_name, name) != 0;

        if (older || (is_part(entry->d_name) && !is_in_work(dirfd(dir), entry->d_name)))
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir)
        closedir(dir);
}

/* Name of the copy: HASH(path)-HASH(size, mtime)-BASE, without the ending .gz or .zst. The first
 * *ret_same bytes depend on the path alone. */
static char *copy_name(
    const char *path, const struct stat *st, size_t *ret_same, struct np_err *err)
{
    const uint64_t stamp[3] = {
        (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec};
    char *shown = np_try_format(err, "%.*s", (int)np_path_bytes(path), path), *name;

    if (!shown)
        return NULL;
    const char *slash = strrchr(shown, '/'), *base = slash ? slash + 1 : shown;
    const char *dot = strrchr(base, '.'), *end = dot ? dot : base + strlen(base);
    const char *ending = dot && strcmp(dot, ".tgz") == 0 ? ".tar" : "";

    if (dot && !*ending && strcmp(dot, ".gz") != 0 && strcmp(dot, ".zst") != 0)
        end = base + strlen(base);
    *ret_same = 17;
    name = np_try_format(err, "%016llx-%016llx-%.*s%s",
        (unsigned long long)XXH64(path, strlen(path), 0),
        (unsigned long long)XXH64(stamp, sizeof(stamp), 0), (int)(end - base), base, ending);
    np_free(shown);
    return name;
}

/* Opens a file without a name, so that a killed process leaves nothing, or `part` if the file
 * system does not support that. Locks it. */
static int open_part(
    struct unpack *unpack, const char *folder, const char *part, struct np_err *err)
{
    unpack->out_fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    unpack->nameless = unpack->out_fd >= 0;
    if (!unpack->nameless)
        return np_io_create(&unpack->io, part, &unpack->out_fd, err);
    flock(unpack->out_fd, LOCK_EX);
    return 0;
}

static int name_part(struct unpack *unpack, const char *part, struct np_err *err)
{
    char link[40];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", unpack->out_fd);
    if (unpack->nameless && linkat(AT_FDCWD, link, AT_FDCWD, part, AT_SYMLINK_FOLLOW) < 0)
        return np_err_set(err, -errno, "%s: cannot be created: %s", part, strerror(errno));
    return 0;
}

static int write_copy(struct unpack *unpack, enum np_wrapping wrapping, const char *folder,
    const char *part, const char *copy, struct np_err *err)
{
    int code = open_part(unpack, folder, part, err);

    if (code)
        return code;
    code = wrapping == NP_WRAPPING_ZSTD ? unpack_zstd(unpack, err) : unpack_gzip(unpack, err);
    if (!code)
        code = name_part(unpack, part, err);
    if (code)
        close(unpack->out_fd);
    else
        code = np_io_sync_close(&unpack->io, unpack->out_fd, err);
    if (!code)
        code = np_io_rename(&unpack->io, part, copy, err);
    if (!code)
        code = np_io_sync_dir(&unpack->io, folder, err);
    if (code)
        unlink(part);
    if (code == -ENOSPC || code == -EDQUOT)
        np_err_context(err, "%s: unpacking it into %s", unpack->path, folder);
    return code;
}

static int unpack_into(
    struct unpack *unpack, const char *folder, const char *copy, struct np_err *err)
{
    enum np_wrapping wrapping;
    char *part = np_try_format(err, "%s.%ld.part", copy, (long)getpid());
    uint64_t want;
    int code = np_unpack_sniff(unpack->path, &wrapping, err);

    unpack->in = np_try_alloc(IN_BYTES, err);
    unpack->out = np_try_alloc(OUT_BYTES, err);
    if (!code && (!part || !unpack->in || !unpack->out))
        code = -ENOMEM;
    if (!code)
        code = check_space(unpack, wrapping, folder, &want, err);
    if (!code)
        code = np_io_open(&unpack->io, "pread", 1, err);
    if (!code) {
        np_source_note(unpack->progress, "unpacking %s into %s (%llu MiB or more), once",
            unpack->path, folder, (unsigned long long)(want >> 20));
        code = write_copy(unpack, wrapping, folder, part, copy, err);
    }
    np_io_close(&unpack->io);
    np_free(unpack->in);
    np_free(unpack->out);
    np_free(part);
    return code;
}

int np_unpack(const char *path, const char *cache_dir, const struct np_source_progress *progress,
    char **ret_path, struct np_err *err)
{
    struct unpack unpack = {.path = path, .progress = progress, .in_fd = -1, .out_fd = -1};
    char *folder = np_try_format(err, "%s/unpacked", cache_dir), *name = NULL, *copy = NULL;
    struct stat st;
    size_t same;
    int code = 0;

    unpack.in_fd = np_file_open(path, err);
    code = unpack.in_fd < 0 && !np_is_remote(unpack.in_fd) ? unpack.in_fd
                                                           : np_file_fstat(unpack.in_fd, &st);
    if (code < 0) {
        np_err_set(err, code, "%s: cannot open: %s", path, strerror(-code));
        goto out;
    }
    unpack.in_bytes = (uint64_t)st.st_size;
    name = copy_name(path, &st, &same, err);
    copy = folder && name ? np_try_format(err, "%s/%s", folder, name) : NULL;
    if (!copy) {
        code = -ENOMEM;
        goto out;
    }
    if (access(copy, R_OK) != 0) {
        if (progress && progress->no_unpack) {
            code = np_err_set(err, -EAGAIN, "%s: it must be unpacked before it can be read", path);
            goto out;
        }
        code = np_make_dirs(folder, err);
        remove_older(folder, NULL, 0);
        if (!code)
            code = unpack_into(&unpack, folder, copy, err);
        if (!code)
            remove_older(folder, name, same);
    }
    if (!code) {
        *ret_path = copy;
        copy = NULL;
    }
out:
    np_file_close(unpack.in_fd);
    np_free(folder);
    np_free(name);
    np_free(copy);
    return code;
}
