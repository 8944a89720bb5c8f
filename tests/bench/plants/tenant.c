/* tenant SHARE: another tenant of the box. Burns that share of one core, in pieces of 10 ms, until it is
 * killed or its parent is gone. */
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    const double share = argc > 1 ? atof(argv[1]) : 0.5;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        const double start = now();
        const struct timespec rest = {0, (long)(1e7 * (1 - share))};

        while (now() < start + 0.01 * share)
            ;
        nanosleep(&rest, NULL);
    }
}
