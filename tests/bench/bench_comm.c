/* np_comm_sum() of the gradients of AlexNet (61 M floats) by the processes that a launcher starts, beside
 * memcpy() of as many bytes: rank 0 prints the medians in ms, and the ratio of a round's pair.
 *   bench_comm NAME [ROUNDS]; tests/bench/bench_comm.sh builds it and runs it over each way */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/clock.h"
#include "trainer/comm.h"

#define FLOATS     61000000
#define MAX_ROUNDS 101

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), by_value);
    return x[n / 2];
}

int main(int argc, char **argv)
{
    const int wanted = argc > 2 ? atoi(argv[2]) : 11,
              rounds = wanted < MAX_ROUNDS ? wanted : MAX_ROUNDS;
    double sums[MAX_ROUNDS], copies[MAX_ROUNDS], ratios[MAX_ROUNDS];
    struct np_launch launch;
    struct np_comm *comm = NULL;
    struct np_err err = {0};
    float *x = malloc(FLOATS * sizeof(*x)), *y = malloc(FLOATS * sizeof(*y));

    if (argc < 2 || rounds < 1 || !x || !y || np_launch_find(&launch, &err) < 0 ||
        np_comm_open(&launch, &comm, &err) < 0) {
        fprintf(stderr, "bench_comm NAME [ROUNDS] under a launcher; %s\n", err.text);
        return 1;
    }
    for (int i = 0; i < FLOATS; i++)
        x[i] = y[i] = (float)i;
    for (int i = 0; i < rounds; i++) {
        uint32_t together = 0;
        const uint64_t start = np_now_ns();

        memcpy(y, x, FLOATS * sizeof(*x));
        const uint64_t copied = np_now_ns();
        if (np_comm_any(comm, &together, &err) < 0)
            break;
        const uint64_t met = np_now_ns();
        if (np_comm_sum(comm, x, FLOATS, &err) < 0)
            break;
        sums[i] = (double)(np_now_ns() - met) * 1e-6;
        copies[i] = (double)(copied - start) * 1e-6;
        ratios[i] = sums[i] / copies[i];
    }
    if (err.code)
        fprintf(stderr, "%s\n", err.text);
    else if (launch.rank == 0)
        printf("| %s | %d | %.0f | %.0f | %.1f |\n", argv[1], launch.world, median(sums, rounds),
            median(copies, rounds), median(ratios, rounds));
    np_comm_close(comm);
    return err.code ? 1 : 0;
}
