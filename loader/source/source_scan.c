#include "loader/source/source_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/remote.h"

void np_source_note(const struct np_source_progress *progress, const char *format, ...)
{
    char text[1024];
    va_list args;

    if (!progress || !progress->note)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    np_text_clean(text);
    np_text_hide(text);
    progress->note(progress->context, text);
}

void np_source_count(const struct np_source_progress *progress, const struct np_index *index)
{
    if (progress && progress->count && np_index_samples(index) % 256 == 0)
        progress->count(progress->context, progress->path, np_index_samples(index));
}

int np_listers(const struct np_source_options *options)
{
    const int nr = options->nr_listers;

    return nr > 0 && nr < NP_MAX_LISTERS ? nr : NP_MAX_LISTERS;
}

bool np_is_image_name(const char *name)
{
    static const char *const ends[] = {
        "jpg", "jpeg", "jpe", "jfif", "png", "ppm", "pgm", "pnm", "webp", "bmp", "tif", "tiff"};
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    const char *dot = strrchr(base, '.');

    if (*base == '.') /* hidden: "._photo.jpg" is not an image */
        return false;
    for (size_t i = 0; dot && i < sizeof(ends) / sizeof(ends[0]); i++)
        if (strcasecmp(dot + 1, ends[i]) == 0)
            return true;
    return false;
}

bool np_is_index_name(const char *name)
{
    const size_t bytes = strlen(name);

    return bytes > 6 && strcmp(name + bytes - 6, ".npidx") == 0;
}

size_t np_scan_literal_folders(const char *match)
{
    const size_t plain = match ? strcspn(match, "*?[") : 0;
    size_t used = plain;

    while (used && match[used - 1] != '/')
        used--;
    return used;
}

int np_scan_open(
    struct np_index *index, const char *path, struct np_scan_file *ret_file, struct np_err *err)
{
    /* Non-blocking, since opening a pipe would wait for a writer. */
    const int fd =
        np_is_url(path) ? np_file_open(path, err) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    int number;

    if (fd < 0 && np_is_url(path) && !np_is_remote(fd))
        return fd;
    if (fd < 0 && !np_is_remote(fd))
        return np_err_set(err, -errno, "%s: cannot open: %s", path, strerror(errno));
    if (np_file_fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        const bool folder = !fstat(fd, &st) && S_ISDIR(st.st_mode);

        close(fd);
        return np_err_set(err, -EINVAL, "%s: %s", path,
            folder ? "a folder, not a file; for pictures in class folders use `source: folder`"
                   : "not a file");
    }
    number = np_index_add_file(index, path, &st, err);
    if (number < 0) {
        np_file_close(fd);
        return number;
    }
    *ret_file = (struct np_scan_file){fd, number, (uint64_t)st.st_size};
    return 0;
}

int64_t np_scan_read_some(const struct np_scan_file *file, const char *path, uint64_t offset,
    void *buffer, size_t bytes, struct np_err *err)
{
    const int64_t got = np_file_read(file->fd, offset, buffer, bytes, err);

    if (got < 0)
        np_err_set(err, (int)got, "%s: cannot read %zu bytes at offset %llu: %s", path, bytes,
            (unsigned long long)offset, strerror((int)-got));
    return got;
}

int np_scan_read(const struct np_scan_file *file, const char *path, uint64_t offset, void *buffer,
    size_t bytes, struct np_err *err)
{
    const int64_t got = np_scan_read_some(file, path, offset, buffer, bytes, err);

    if (got >= 0 && (size_t)got < bytes)
        return np_err_set(err, -EBADMSG, "%s: ends at offset %llu, %zu bytes early", path,
            (unsigned long long)(offset + (uint64_t)got), bytes - (size_t)got);
    return got < 0 ? (int)got : 0;
}
