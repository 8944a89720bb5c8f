/* See files.h. The thread that starts the loader opens and closes shards; readers share the
 * descriptors, since each read has its own offset. */
#include "loader/source/files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/remote.h"

#define SPARE_FDS 512 /* for rings, logs, checkpoints */

struct np_files {
    int *fds, *direct;             /* (nr_files), -1: not open; direct: O_DIRECT, or NULL */
    uint32_t kept;                 /* share of the samples for the page cache, in 2^-32 */
    struct np_index_stamp *stamps; /* (nr_files), as they were when opened */
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

static int open_file(
    const char *path, int *ret_fd, struct np_index_stamp *ret_stamp, struct np_err *err)
{
    const int fd = np_file_open(path, err);
    struct stat st;
    int code;

    if (fd == -EMFILE)
        return np_err_set(err, fd,
            "%s: too many open files; raise `ulimit -n`, or pack into fewer, larger shards", path);
    if (fd < 0 && !np_is_remote(fd))
        return np_err_set(err, fd, "%s: cannot open: %s", path, strerror(-fd));
    *ret_fd = fd;
    if ((code = np_file_fstat(fd, &st)) < 0)
        return np_err_set(err, code, "%s: cannot read its size: %s", path, strerror(-code));
    *ret_stamp = np_index_stamp_of(&st);
    return 0;
}

int np_files_open(
    const struct np_index *index, bool parts, struct np_files **ret_files, struct np_err *err)
{
    struct np_files *files = np_try_alloc(sizeof(*files), err);
    int code = 0;

    if (!files)
        return -ENOMEM;
    files->kept = UINT32_MAX;
    files->nr_files = index->root ? 0 : index->nr_files;
    files->fds = np_try_array((size_t)files->nr_files, sizeof(int), err);
    files->stamps = np_try_array((size_t)files->nr_files, sizeof(*files->stamps), err);
    if (!files->fds || !files->stamps)
        code = -ENOMEM;
    for (int i = 0; files->fds && i < files->nr_files; i++)
        files->fds[i] = -1;
    if (!code)
        np_files_allow(files->nr_files);
    for (int i = 0; !code && i < files->nr_files; i++)
        code = open_file(index->paths[i], &files->fds[i], &files->stamps[i], err);
    for (int i = 0; !code && parts && i < files->nr_files; i++)
        if (!np_is_remote(files->fds[i]))
            posix_fadvise(files->fds[i], 0, 0, POSIX_FADV_RANDOM);
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
        np_file_close(files->fds[i]);
    for (int i = 0; files->direct && i < files->nr_files; i++)
        if (files->direct[i] >= 0)
            close(files->direct[i]);
    np_free(files->fds);
    np_free(files->direct);
    np_free(files->stamps);
    np_free(files);
}

int np_files_fd(const struct np_files *files, uint32_t file)
{
    return file < (uint32_t)files->nr_files ? files->fds[file] : -1;
}

uint64_t np_files_bytes(const struct np_files *files)
{
    uint64_t bytes = 0;

    for (int i = 0; i < files->nr_files; i++)
        if (!np_is_remote(files->fds[i]))
            bytes += files->stamps[i].bytes;
    return bytes;
}

int np_files_nr_remote(const struct np_files *files)
{
    int nr = 0;

    for (int i = 0; i < files->nr_files; i++)
        nr += np_is_remote(files->fds[i]);
    return nr;
}

/* -1 if the file system does not know RWF_NOWAIT: it would block the reader. */
static int open_direct(const char *path, int fd)
{
    char byte;
    const struct iovec part = {&byte, 1};

    if (np_is_remote(fd))
        return -1;

    if (preadv2(fd, &part, 1, 0, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP)
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
}

void np_files_share(struct np_files *files, const struct np_index *index, double share)
{
    if (share >= 1)
        return;
    files->kept = (uint32_t)(share * UINT32_MAX);
    np_files_allow(2 * files->nr_files);
    files->direct = np_try_array((size_t)files->nr_files, sizeof(int), NULL); /* NULL: none */
    for (int i = 0; files->direct && i < files->nr_files; i++) {
        files->direct[i] = open_direct(index->paths[i], files->fds[i]);
        if (files->direct[i] >= 0) /* read-ahead would read other samples, too */
            posix_fadvise(files->fds[i], 0, 0, POSIX_FADV_RANDOM);
    }
}

int np_files_direct(const struct np_files *files, uint32_t file)
{
    return files->direct ? files->direct[file] : -1;
}

bool np_files_is_direct(const struct np_files *files, const struct np_index *index, uint64_t sample)
{
    const struct np_record *record;
    uint64_t which;

    if (files->kept == UINT32_MAX)
        return false;
    record = np_index_record(index, sample);
    if (!index->root && np_files_direct(files, record->file) < 0)
        return false;
    /* Samples of one packed frame share its offset. */
    which = index->root ? np_index_number(index, sample)
                        : record->offset + ((uint64_t)record->file << 44);
    return (which + 1) * 0x9E3779B97F4A7C15u >> 32 > files->kept;
}

bool np_files_changed(const struct np_files *files, uint32_t file)
{
    struct stat st;

    /* of an object each read asks for the version that was opened */
    if (file >= (uint32_t)files->nr_files || np_is_remote(files->fds[file]) ||
        fstat(files->fds[file], &st) < 0)
        return false;
    const struct np_index_stamp now = np_index_stamp_of(&st);
    return memcmp(&now, &files->stamps[file], sizeof(now)) != 0;
}

void np_source_locate(const struct np_index *index, uint64_t sample, struct np_extent *ret_extent)
{
    const char *root = index->root;

    ret_extent->record = np_index_record(index, sample);
    ret_extent->path_buffer[0] = '\0';
    if (root) {
        const int room = (int)sizeof(ret_extent->path_buffer);
        int used = snprintf(ret_extent->path_buffer, (size_t)room, "%s/", root);

        /* A scan refuses so long a root, but an index file may have one. */
        used = used < room ? used : room - 1;
        np_index_name(index, sample, ret_extent->path_buffer + used, room - used);
        ret_extent->path = ret_extent->path_buffer;
    } else if (index->raw.kind == NP_RAW_SYNTH)
        ret_extent->path = "synth";
    else
        ret_extent->path = index->paths[ret_extent->record->file];
}

int np_extent_opened(int fd, struct np_record *record, uint64_t *ret_mtime_ns)
{
    struct stat st;
    uint32_t bytes;

    if (fd < 0)
        return fd;
    const int code = fstat(fd, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? -EISDIR : 0;
    if (code) {
        close(fd);
        return code;
    }
    if (!S_ISREG(st.st_mode))
        return fd;
    bytes = st.st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)st.st_size;
    if (bytes != record->bytes)
        record->has_crc = 0;
    record->bytes = record->inner_bytes = bytes;
    *ret_mtime_ns = np_index_stamp_of(&st).mtime_ns;
    return fd;
}

int np_extent_open(const char *path, struct np_record *record, uint64_t *ret_mtime_ns)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    return np_extent_opened(fd < 0 ? -errno : fd, record, ret_mtime_ns);
}

bool np_extent_is_bad(const struct np_index *index, int code)
{
    struct stat st;

    switch (-code) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case EISDIR:
    case ENAMETOOLONG: return stat(index->root, &st) == 0 && S_ISDIR(st.st_mode);
    default: return false;
    }
}

struct np_changed {
    pthread_mutex_t lock;
    uint8_t *seen; /* under lock: a bit a sample */
    uint64_t nr;   /* under lock */
    char first[1024];
};

struct np_changed *np_changed_new(uint64_t nr_samples, struct np_err *err)
{
    struct np_changed *changed = np_try_alloc(sizeof(*changed), err);

    if (changed && !(changed->seen = np_try_alloc(nr_samples / 8 + 1, err))) {
        np_free(changed);
        changed = NULL;
    }
    if (changed)
        pthread_mutex_init(&changed->lock, NULL);
    return changed;
}

void np_changed_free(struct np_changed *changed)
{
    if (!changed)
        return;
    pthread_mutex_destroy(&changed->lock);
    np_free(changed->seen);
    np_free(changed);
}

void np_changed_add(struct np_changed *changed, uint64_t sample, const char *path)
{
    const uint8_t bit = (uint8_t)(1u << sample % 8);

    pthread_mutex_lock(&changed->lock);
    if (!(changed->seen[sample / 8] & bit) && changed->nr++ == 0)
        snprintf(changed->first, sizeof(changed->first), "%s", path);
    changed->seen[sample / 8] |= bit;
    pthread_mutex_unlock(&changed->lock);
}

uint64_t np_changed_read(struct np_changed *changed, char *first, size_t first_bytes)
{
    uint64_t nr;

    pthread_mutex_lock(&changed->lock);
    nr = changed->nr;
    if (nr)
        snprintf(first, first_bytes, "%s", changed->first);
    pthread_mutex_unlock(&changed->lock);
    return nr;
}
