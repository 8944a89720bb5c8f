/* Preloaded into one rank of a run: makes its reads, its computation, or its checkpoints slower.
 * SLOW_READ_US, SLOW_STEP_US, SLOW_SYNC_US: added to each read of a file, to each primitive of oneDNN, to each
 * fsync(). */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>

static void pause_for(const char *name)
{
    const char *text = getenv(name);
    const long us = text ? atol(text) : 0;

    if (us > 0)
        nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

ssize_t preadv2(int fd, const struct iovec *parts, int nr, off_t at, int flags)
{
    ssize_t (*const real)(int, const struct iovec *, int, off_t, int) = dlsym(RTLD_NEXT, "preadv2");

    pause_for("SLOW_READ_US");
    return real(fd, parts, nr, at, flags);
}

int dnnl_primitive_execute(const void *primitive, void *stream, int nr, const void *arguments)
{
    int (*const real)(const void *, void *, int, const void *) =
        dlsym(RTLD_NEXT, "dnnl_primitive_execute");

    pause_for("SLOW_STEP_US");
    return real(primitive, stream, nr, arguments);
}

int fsync(int fd)
{
    int (*const real)(int) = dlsym(RTLD_NEXT, "fsync");

    pause_for("SLOW_SYNC_US");
    return real(fd);
}
