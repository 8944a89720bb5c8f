/* Reads through the table of backends: from the page cache, else from the backend. */
#include "loader/base/io.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

#include "loader/base/mem.h"

bool np_io_advance(struct np_io_read *read, int64_t returned)
{
    if (returned == -EINTR || returned == -EAGAIN)
        return false;
    if (returned < 0) {
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

/* Reads from the page cache, without waiting. True: the read is complete. */
static bool probe_cache(struct np_io_read *read)
{
    struct iovec part = {read->buffer, read->bytes};
    ssize_t got = preadv2(read->fd, &part, 1, (off_t)read->offset, RWF_NOWAIT);

    /* 0 may be the file's end, or a file system that does not know: the backend will find out, as
     * with an error (EAGAIN: not there; EOPNOTSUPP: not known). */
    return got > 0 && np_io_advance(read, got);
}

int np_io_submit(struct np_io *io, struct np_io_read *read)
{
    int status;

    assert(io->nr_in_flight < io->depth && read->bytes <= INT32_MAX);
    read->result = 0;
    read->done_bytes = 0;
    if (read->bytes == 0 || (!io->ops->no_cache_probe && probe_cache(read))) {
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
    if (!io->ops)
        return;
    while (np_io_reap(io, true))
        ;
    io->ops->close(io);
    np_free(io->complete);
    memset(io, 0, sizeof(*io));
}
