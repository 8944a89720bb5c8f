#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"

static const struct np_io_ops *const backends[] = {&np_io_uring, &np_io_pread};

/* RESOLVE_CACHED needs Linux 5.12, io_uring's opens 5.6; a filter may refuse the call. */
static bool kernel_opens(void)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED};
    const int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int open_backend(
    struct np_io *io, const struct np_io_ops *ops, int depth, struct np_err *err)
{
    int status;

    memset(io, 0, sizeof(*io));
    io->ops = ops;
    io->depth = depth;
    io->complete = np_try_array((size_t)depth, sizeof(struct np_io_read *), err);
    io->opens = ops->opens && kernel_opens();
    status = io->complete ? ops->open(io, depth, err) : -ENOMEM;
    if (status) {
        np_free(io->complete);
        memset(io, 0, sizeof(*io));
    }
    return status;
}

int np_io_open(struct np_io *io, const char *name, int depth, struct np_err *err)
{
    assert(depth >= 1);
    if (strcmp(name, "auto") == 0) {
        /* An old or emulated kernel, a seccomp profile, a sysctl, a small RLIMIT_MEMLOCK or a lack
         * of descriptors may refuse io_uring; pread() works in all these cases. */
        if (open_backend(io, &np_io_uring, depth, NULL) == 0)
            return 0;
        return open_backend(io, &np_io_pread, depth, err);
    }
    for (size_t i = 0; i < sizeof(backends) / sizeof(*backends); i++)
        if (strcmp(name, backends[i]->name) == 0)
            return open_backend(io, backends[i], depth, err);
    return np_err_set(
        err, -EINVAL, "'%.40s' is not an I/O backend; expected auto, uring or pread", name);
}
