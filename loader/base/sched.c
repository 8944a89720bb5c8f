/* Reads /proc/self/task/TID/schedstat: nanoseconds on a core, on a run queue, and slices. Any thread. */
#include "loader/base/sched.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

bool np_sched_read(int tid, uint64_t *ret_cpu_ns, uint64_t *ret_delay_ns)
{
    unsigned long long cpu_ns, delay_ns;
    char text[128];
    ssize_t n;
    int fd;

    snprintf(text, sizeof(text), "/proc/self/task/%d/schedstat", tid);
    fd = open(text, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%llu %llu", &cpu_ns, &delay_ns) != 2)
        return false;
    *ret_cpu_ns = cpu_ns;
    *ret_delay_ns = delay_ns;
    return true;
}
