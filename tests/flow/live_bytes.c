/* LD_PRELOADed into a daemon: what it has allocated and not freed, by the allocator's own account, as text
 * in the file that LIVE_BYTES names, each time before it waits for events. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

int epoll_wait(int epoll_fd, struct epoll_event *events, int max_events, int timeout_ms)
{
    static int (*real)(int, struct epoll_event *, int, int);
    static int fd = -1;
    char line[32];

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    if (fd < 0 && getenv("LIVE_BYTES"))
        fd = open(getenv("LIVE_BYTES"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        const struct mallinfo2 info = mallinfo2();
        const int n = snprintf(line, sizeof(line), "%20zu\n", info.uordblks + info.hblkhd);

        if (pwrite(fd, line, (size_t)n, 0) != n)
            close(fd), fd = -1;
    }
    return real(epoll_fd, events, max_events, timeout_ms);
}
