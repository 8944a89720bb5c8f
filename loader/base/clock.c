#include "loader/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull

uint64_t np_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void np_sleep_until_ns(uint64_t time_ns)
{
    struct timespec then = {(time_t)(time_ns / NS_PER_S), (long)(time_ns % NS_PER_S)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) == EINTR)
        ;
}

int np_until_ms(uint64_t time_ns, int most_ms)
{
    const uint64_t now_ns = np_now_ns();
    const uint64_t ms = time_ns > now_ns ? (time_ns - now_ns - 1) / 1000000 + 1 : 0;

    return ms < (uint64_t)most_ms ? (int)ms : most_ms;
}

double np_cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* schedstat has three numbers: ns on a core, ns on a run queue, and slices. */
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
