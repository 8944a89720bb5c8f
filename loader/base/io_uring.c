/* The io_uring backend: one ring per thread, with an entry for each read in flight. Each read is
 * submitted at once, so that the disk works while the thread decodes; short reads continue until
 * they are complete. Threads of the kernel wait for opens, and for reads of file systems that only
 * block (NFS, FUSE). The ring allows only reads and opens (IORING_RESTRICTION): an attacker in this
 * process cannot use it to write or to connect. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"

#define BUSY_NS 200000 /* pause while the kernel has no memory for requests */

/* liburing 2.3 declares these two but does not export them. */
static int register_ring(struct io_uring *ring, unsigned op, void *arg, unsigned n)
{
    return syscall(__NR_io_uring_register, ring->ring_fd, op, arg, n) < 0 ? -errno : 0;
}

static int restrict_ring(struct io_uring *ring)
{
    struct io_uring_restriction allowed[] = {
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_OPENAT},
        {.opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = IOSQE_ASYNC},
        {.opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_ENABLE_RINGS},
    };
    int status = register_ring(
        ring, IORING_REGISTER_RESTRICTIONS, allowed, sizeof(allowed) / sizeof(*allowed));

    return status ? status : register_ring(ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

/* Opens the best ring that this kernel has: it does not interrupt a thread that decodes (5.19), is
 * for one thread only (6.0), is restricted (5.10); or a plain ring. */
static int open_ring(struct io_uring *ring, unsigned nr_entries)
{
    static const unsigned flags[] = {
        IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER,
        IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN,
        IORING_SETUP_R_DISABLED,
        0,
    };
    int status = -EINVAL;

    for (size_t i = 0; status == -EINVAL && i < sizeof(flags) / sizeof(*flags); i++) {
        struct io_uring_params params = {.flags = flags[i] | IORING_SETUP_CLAMP};

        status = io_uring_queue_init_params(nr_entries, ring, &params);
        if (status == 0 && flags[i] & IORING_SETUP_R_DISABLED) {
            status = restrict_ring(ring);
            if (status)
                io_uring_queue_exit(ring);
        }
    }
    return status;
}

/* An empty call: a filter may refuse io_uring_enter() alone. */
static int try_enter(const struct io_uring *ring)
{
    return syscall(__NR_io_uring_enter, ring->ring_fd, 0, 0, 0, NULL, 0) < 0 ? -errno : 0;
}

static int open_state(struct np_io *io, int depth, struct np_err *err)
{
    struct io_uring *ring = np_try_alloc(sizeof(*ring), NULL);
    int status = ring ? open_ring(ring, (unsigned)depth) : -ENOMEM;

    if (status == 0 && (status = try_enter(ring)) < 0)
        io_uring_queue_exit(ring);
    if (status) {
        np_free(ring);
        return np_err_set(err, status,
            "io_uring cannot be used here: %s; set io: pread, or allow it "
            "(sysctl kernel.io_uring_disabled, the container's seccomp profile, ulimit -l)",
            strerror(-status));
    }
    io->state = ring;
    return 0;
}

/* Submits the queued reads. Reads for which the kernel has no memory stay queued for the next call;
 * the wait for them names the file. */
static void flush(struct io_uring *ring)
{
    while (io_uring_submit(ring) == -EINTR)
        ;
}

static int submit(struct np_io *io, struct np_io_read *read)
{
    struct io_uring *ring = io->state;
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    /* The ring is full only if the kernel could not take earlier reads; a flush makes space. */
    while (!sqe) {
        const struct timespec pause = {0, BUSY_NS};

        nanosleep(&pause, NULL);
        flush(ring);
        sqe = io_uring_get_sqe(ring);
    }
    if (read->path)
        io_uring_prep_openat(
            sqe, AT_FDCWD, read->path, O_RDONLY | O_CLOEXEC | (read->direct ? O_DIRECT : 0), 0);
    else
        io_uring_prep_read(sqe, read->fd, (char *)read->buffer + read->done_bytes,
            read->bytes - read->done_bytes, read->offset + read->done_bytes);
    if (read->blocks)
        sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data(sqe, read);
    flush(ring);
    return 0;
}

static void wait_for_one(struct io_uring *ring)
{
    const int status = io_uring_submit_and_wait(ring, 1);

    if (status < 0 && status != -EINTR) {
        const struct timespec pause = {0, BUSY_NS};

        nanosleep(&pause, NULL);
    }
}

static struct np_io_read *reap(struct np_io *io, bool wait)
{
    struct io_uring *ring = io->state;
    struct io_uring_cqe *cqe;

    for (;;) {
        struct np_io_read *read;
        int returned;

        if (io_uring_peek_cqe(ring, &cqe) != 0) {
            if (io_uring_sq_ready(ring) > 0)
                flush(ring);
            if (!wait)
                return NULL;
            wait_for_one(ring);
            continue;
        }
        read = io_uring_cqe_get_data(cqe);
        returned = cqe->res;
        io_uring_cqe_seen(ring, cqe);
        if (np_io_advance(read, returned))
            return read;
        submit(io, read);
    }
}

/* The ring's own descriptor polls as readable when there is a completion. */
static int wake_fd(const struct np_io *io)
{
    return ((const struct io_uring *)io->state)->ring_fd;
}

static void close_ring(struct np_io *io)
{
    io_uring_queue_exit(io->state);
    np_free(io->state);
}

const struct np_io_ops np_io_uring = {
    .name = "uring",
    .opens = true,
    .open = open_state,
    .submit = submit,
    .reap = reap,
    .close = close_ring,
    .wake_fd = wake_fd,
};
