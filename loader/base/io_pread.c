/* The backend for machines that refuse io_uring. submit() announces the read to the kernel, so that
 * the disk works on all reads in flight, and never blocks; reap() calls pread() for the oldest
 * read. */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"

struct queue {
    int first, n;
    struct np_io_read *reads[]; /* (depth) ring, oldest first */
};

static int open_queue(struct np_io *io, int depth, struct np_err *err)
{
    io->state = np_try_alloc(
        sizeof(struct queue) + (size_t)depth * sizeof(((struct queue *)0)->reads[0]), err);
    return io->state ? 0 : -ENOMEM;
}

static int submit(struct np_io *io, struct np_io_read *read)
{
    struct queue *queue = io->state;

    /* Without an effect of the hint (a pipe, some file systems) reap() waits longer. */
    posix_fadvise(read->fd, (off_t)(read->offset + read->done_bytes),
        (off_t)(read->bytes - read->done_bytes), POSIX_FADV_WILLNEED);
    queue->reads[(queue->first + queue->n++) % io->depth] = read;
    return 0;
}

static struct np_io_read *reap(struct np_io *io, bool wait)
{
    struct queue *queue = io->state;
    struct np_io_read *read;
    ssize_t got;

    if (queue->n == 0)
        return NULL;
    read = queue->reads[queue->first];
    do {
        struct iovec rest = {
            (char *)read->buffer + read->done_bytes, read->bytes - read->done_bytes};
        off_t offset = (off_t)(read->offset + read->done_bytes);

        got = preadv2(read->fd, &rest, 1, offset, wait ? 0 : RWF_NOWAIT);
        got = got < 0 ? -errno : got;
        /* Only a blocking read finds out whether this is the end of the file. */
        if (!wait && (got == 0 || got == -EAGAIN || got == -EOPNOTSUPP))
            return NULL;
    } while (!np_io_advance(read, got));
    queue->first = (queue->first + 1) % io->depth;
    queue->n--;
    return read;
}

static void close_queue(struct np_io *io)
{
    np_free(io->state);
}

const struct np_io_ops np_io_pread = {
    .name = "pread",
    .open = open_queue,
    .submit = submit,
    .reap = reap,
    .close = close_queue,
};
