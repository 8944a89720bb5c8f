/* Reads from the page cache if it has the bytes, else through the backend. */
#include "loader/base/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "loader/base/mem.h"

bool np_io_advance(struct np_io_read *read, int64_t returned)
{
    if (returned == -EINTR || returned == -EAGAIN)
        return false;
    if (returned < 0 || read->path || read->direct) {
        read->result = (int32_t)returned;
        return true;
    }
    assert(returned <= read->bytes - read->done_bytes);
    read->done_bytes += (uint32_t)returned;
    if (returned > 0 && read->done_bytes < read->bytes)
        return false;
    read->result = (int32_t)read->done_bytes;
    return true;
}

/* True: the page cache completed the read. Does not wait. */
static bool probe_cache(struct np_io *io, struct np_io_read *read)
{
    struct iovec part = {read->buffer, read->bytes};
    ssize_t got = preadv2(read->fd, &part, 1, (off_t)read->offset, RWF_NOWAIT);

    /* EOPNOTSUPP: io_uring's own non-blocking attempt would block. */
    io->blocks = read->blocks = got < 0 && errno == EOPNOTSUPP;
    /* 0 may be the end of the file, or a file system that does not know. The backend decides, as
     * for an error (EAGAIN: not in the page cache). */
    return got > 0 && np_io_advance(read, got);
}

int np_io_submit(struct np_io *io, struct np_io_read *read)
{
    int status;

    assert(io->nr_in_flight < io->depth && read->bytes <= INT32_MAX && (!read->path || io->opens));
    read->result = 0;
    read->done_bytes = 0;
    read->blocks = (read->path || read->direct) && io->blocks;
    if (!read->path && !read->direct &&
        (read->bytes == 0 || (!io->ops->no_cache_probe && probe_cache(io, read)))) {
        io->complete[(io->first_complete + io->nr_complete++) % io->depth] = read;
        io->nr_cached++;
    } else {
        status = io->ops->submit(io, read);
        if (status)
            return status;
    }
    io->nr_reads++;
    io->nr_in_flight++;
    return 0;
}

uint32_t np_io_widen(struct np_io_read *read)
{
    const uint32_t before = (uint32_t)(read->offset % NP_IO_BLOCK);

    assert((uintptr_t)read->buffer % NP_IO_BLOCK == before);
    read->direct = true;
    read->offset -= before;
    read->buffer = (char *)read->buffer - before;
    read->bytes = (before + read->bytes + NP_IO_BLOCK - 1) / NP_IO_BLOCK * NP_IO_BLOCK;
    return before;
}

int np_io_open_now(const struct np_io *io, const char *path, bool direct)
{
    const int flags = O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0);
    int fd;

    if (io->opens && (io->blocks || io->ops->no_cache_probe))
        return -EINPROGRESS;
    if (io->opens) {
        struct open_how how = {.flags = (unsigned)flags, .resolve = RESOLVE_CACHED};

        /* An error may come from a filter, from a path that is only partly in the cache, or be
         * real. */
        fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
        return fd < 0 ? -EINPROGRESS : fd;
    }
    fd = open(path, flags);
    return fd < 0 ? -errno : fd;
}

struct np_io_read *np_io_reap(struct np_io *io, bool wait)
{
    struct np_io_read *read = NULL;

    if (io->nr_complete > 0) {
        read = io->complete[io->first_complete];
        io->first_complete = (io->first_complete + 1) % io->depth;
        io->nr_complete--;
    } else if (io->nr_in_flight > 0) {
        read = io->ops->reap(io, wait);
    }
    if (read)
        io->nr_in_flight--;
    return read;
}

void np_io_close(struct np_io *io)
{
    const struct np_io_read *read;

    if (!io->ops)
        return;
    while ((read = np_io_reap(io, true)) != NULL)
        if (read->path && read->result >= 0)
            close(read->result);
    io->ops->close(io);
    np_free(io->complete);
    memset(io, 0, sizeof(*io));
}
