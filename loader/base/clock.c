/* Monotonic time. Any thread. */
#include "loader/base/clock.h"

#include <errno.h>
#include <sys/resource.h>
#include <time.h>

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

double np_cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}
