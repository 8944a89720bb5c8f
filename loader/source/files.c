/* Shard files of a set. Opened and closed by the thread that starts the loader; readers
 * share the descriptors, since reads name their offset. */
#include "loader/source/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"

/* Descriptors others need: rings, logs, checkpoints. */
#define SPARE_FDS 512

/* A shard as it was when it was opened. */
struct stamp {
    off_t bytes;
    struct timespec mtime;
};

struct np_files {
    int *fds;             /* (nr_files), -1: not open */
    struct stamp *stamps; /* (nr_files) */
    int nr_files;
};

void np_files_allow(int nr_files)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= (rlim_t)nr_files + SPARE_FDS)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int open_file(const char *path, int *ret_fd, struct stamp *ret_stamp, struct np_err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == EMFILE)
        return np_err_set(err, -errno,
            "%s: too many open files; raise `ulimit -n`, or pack into fewer, larger shards", path);
    if (fd < 0)
        return np_err_set(err, -errno, "%s: cannot open: %s", path, strerror(errno));
    *ret_fd = fd;
    if (fstat(fd, &st) < 0)
        return np_err_set(err, -errno, "%s: cannot look at it: %s", path, strerror(errno));
    *ret_stamp = (struct stamp){st.st_size, st.st_mtim};
    return 0;
}

int np_files_open(const struct np_index *index, struct np_files **ret_files, struct np_err *err)
{
    struct np_files *files = np_try_alloc(sizeof(*files), err);
    int code = 0;

    if (!files)
        return -ENOMEM;
    files->nr_files = np_index_root(index) ? 0 : np_index_files(index);
    files->fds = np_try_array((size_t)files->nr_files, sizeof(int), err);
    files->stamps = np_try_array((size_t)files->nr_files, sizeof(*files->stamps), err);
    if (!files->fds || !files->stamps)
        code = -ENOMEM;
    for (int i = 0; !code && i < files->nr_files; i++)
        files->fds[i] = -1;
    if (!code)
        np_files_allow(files->nr_files);
    for (int i = 0; !code && i < files->nr_files; i++)
        code = open_file(np_index_file(index, i), &files->fds[i], &files->stamps[i], err);
    if (code) {
        np_files_close(files);
        return code;
    }
    *ret_files = files;
    return 0;
}

void np_files_close(struct np_files *files)
{
    if (!files)
        return;
    for (int i = 0; files->fds && i < files->nr_files; i++)
        if (files->fds[i] >= 0)
            close(files->fds[i]);
    np_free(files->fds);
    np_free(files->stamps);
    np_free(files);
}

int np_files_fd(const struct np_files *files, uint32_t file)
{
    return file < (uint32_t)files->nr_files ? files->fds[file] : -1;
}

bool np_files_changed(const struct np_files *files, uint32_t file)
{
    struct stat st;

    if (file >= (uint32_t)files->nr_files || fstat(files->fds[file], &st) < 0)
        return false;
    return st.st_size != files->stamps[file].bytes ||
           st.st_mtim.tv_sec != files->stamps[file].mtime.tv_sec ||
           st.st_mtim.tv_nsec != files->stamps[file].mtime.tv_nsec;
}
