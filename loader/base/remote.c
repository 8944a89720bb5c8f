#include "loader/base/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/io.h"

static const struct np_remote_table *installed; /* set before threads start */

void np_remote_use(const struct np_remote_table *table)
{
    installed = table;
}

const struct np_remote_table *np_remote(void)
{
    return installed;
}

bool np_is_url(const char *path)
{
    const size_t scheme =
        strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");

    return scheme > 1 && strncmp(path + scheme, "://", 3) == 0;
}

size_t np_path_bytes(const char *path)
{
    const bool has_query = strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0;

    return has_query ? strcspn(path, "?") : strlen(path);
}

int np_remote_check(const char *url, struct np_err *err)
{
    if (installed)
        return 0;
    return np_err_set(err, -ENOTSUP,
        "%s: the library reads no URLs: copy the data to this machine, or let `nnpipe` read them",
        url);
}

/* The number that stands for the version takes the place of the mtime. */
static void fake_stat(int file, struct stat *ret_stat)
{
    uint64_t bytes, number;
    const char *version;

    installed->facts(file, &bytes, &number, &version);
    memset(ret_stat, 0, sizeof(*ret_stat));
    ret_stat->st_mode = S_IFREG | 0444;
    ret_stat->st_uid = geteuid();
    ret_stat->st_size = (off_t)bytes;
    ret_stat->st_mtim.tv_sec = (time_t)(number / 1000000000);
    ret_stat->st_mtim.tv_nsec = (long)(number % 1000000000);
}

int np_file_open(const char *path, struct np_err *err)
{
    int fd, code;

    if (np_is_url(path)) {
        code = np_remote_check(path, err);
        if (!code)
            code = installed->open(path, &fd, err);
        return code ? code : fd;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int np_file_stat(const char *path, struct stat *ret_stat, struct np_err *err)
{
    int file;

    if (!np_is_url(path))
        return stat(path, ret_stat) < 0 ? -errno : 0;
    file = np_file_open(path, err);
    if (!np_is_remote(file))
        return file;
    fake_stat(file, ret_stat);
    return 0;
}

int np_file_fstat(int file, struct stat *ret_stat)
{
    if (np_is_remote(file))
        fake_stat(file, ret_stat);
    else if (fstat(file, ret_stat) < 0)
        return -errno;
    return 0;
}

void np_file_close(int file)
{
    if (file >= 0)
        close(file);
}

int64_t np_file_read(int file, uint64_t offset, void *buffer, size_t bytes, struct np_err *err)
{
    if (np_is_remote(file))
        return installed->read(file, offset, buffer, bytes, err);
    return np_read_at(file, offset, buffer, bytes);
}
