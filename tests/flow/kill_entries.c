/* For a second link of the program that kills itself while it writes entries: at call number
 * $NNPIPE_KILL_ENTRIES (1: the first) of write(), pwrite(), rename() and unlink() on a file in a
 * folder *.entries. A write is half done then, the others not yet. Linked with -Wl,--wrap. */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t at);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);

/* Is this the call? */
static bool is_due(const char *path)
{
    static atomic_int nr_calls;
    const char *number = getenv("NNPIPE_KILL_ENTRIES");

    return number && strstr(path, ".entries/") &&
           atomic_fetch_add(&nr_calls, 1) + 1 == atoi(number);
}

static bool is_due_of(int fd)
{
    char link[64], path[4096];
    ssize_t n;

    if (!getenv("NNPIPE_KILL_ENTRIES"))
        return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = '\0';
    return is_due(path);
}

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    if (is_due_of(fd)) {
        (void)!__real_write(fd, data, n / 2);
        raise(SIGKILL);
    }
    return __real_write(fd, data, n);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at)
{
    if (is_due_of(fd)) {
        (void)!__real_pwrite(fd, data, n / 2, at);
        raise(SIGKILL);
    }
    return __real_pwrite(fd, data, n, at);
}

int __wrap_rename(const char *from, const char *to)
{
    if (is_due(from))
        raise(SIGKILL);
    return __real_rename(from, to);
}

int __wrap_unlink(const char *path)
{
    if (is_due(path))
        raise(SIGKILL);
    return __real_unlink(path);
}
