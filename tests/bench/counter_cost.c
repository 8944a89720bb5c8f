/* What one count takes on this machine, in ns: the best of some rounds, so that a busy box spoils it
 * little. For bench_counters.sh. */
#include <stdio.h>

#include "loader/base/clock.h"
#include "loader/base/stat.h"

enum { ROUNDS = 40, N = 20000 };

static struct np_block *block;

static void look(void)
{
    np_now_ns();
}
static void lap(void)
{
    np_stat_lap(block, NP_STAGE_DECODE, 3072, 0);
}
static void pass(void)
{
    np_stat_pass(block, NP_STAGE_READ);
}
static void in_flight(void)
{
    np_stat_in_flight(block, 3);
}
static void wait_and_done(void)
{
    np_stat_wait(block, NP_STATE_IO_WAIT, "read", "a file", 0);
    np_stat_done(block);
}

static double best_of(void (*call)(void))
{
    double best = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t start = np_now_ns();

        for (int i = 0; i < N; i++)
            call();
        const double each = (double)(np_now_ns() - start) / N;
        best = each < best ? each : best;
    }
    return best;
}

int main(void)
{
    struct np_stat *stat = np_stat_new(NULL);

    block = np_stat_join(stat, "reader 0", NULL);
    printf("ns: the clock %.1f, a lap %.1f, a pass %.1f, reads in flight %.1f, a wait %.1f\n",
        best_of(look), best_of(lap), best_of(pass), best_of(in_flight), best_of(wait_and_done));
    np_stat_free(stat);
    return 0;
}
