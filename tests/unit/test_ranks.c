/* The slowest rank: named with its reason if it is slow all the time, and not if chance makes one so. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "daemon/analysis/ranks.h"
#include "tests/test.h"

#define NR    4
#define STEPS 10.0

static struct np_rank_seen seen[NR];
static struct np_rank_times times[NR];

/* Each rank's own time in a window is `own`; a step takes as long as that of the slowest, and the
 * exchange. */
static void make(double own[NP_RANK_WINDOWS][NR])
{
    memset(seen, 0, sizeof(seen));
    for (int w = 0; w < NP_RANK_WINDOWS; w++) {
        double most = 0;

        for (int r = 0; r < NR; r++)
            most = fmax(most, own[w][r]);
        for (int r = 0; r < NR; r++)
            seen[r].windows[w] = (struct np_rank_window){.seconds = STEPS * (most + 0.01),
                .steps = STEPS,
                .others_s = STEPS * (most + 0.01 - own[w][r]),
                .cpu_s = STEPS * own[w][r]};
    }
    for (int r = 0; r < NR; r++) {
        seen[r].rank = r;
        strcpy(seen[r].host, "box");
        strcpy(seen[r].device, "cpu");
    }
}

static void fill(double own[NP_RANK_WINDOWS][NR], double value)
{
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        for (int r = 0; r < NR; r++)
            own[w][r] = value;
}

static struct np_ranks judge(void)
{
    struct np_ranks ranks = {.nr = NR, .seen = seen, .times = times};

    np_ranks_judge(&ranks, 128);
    return ranks;
}

Test(ranks, a_rank_that_computes_longer_is_named_with_what_it_costs)
{
    double own[NP_RANK_WINDOWS][NR];

    fill(own, 0.04);
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        own[w][2] = 0.08;
    make(own);
    struct np_ranks ranks = judge();
    cr_assert(ranks.slowest == 2 && ranks.stage == NP_STAGE_STEP && ranks.nr_windows == 6);
    cr_assert_float_eq(ranks.excess_s, 0.04, 1e-9);
    cr_assert_float_eq(ranks.gain, 0.09 / 0.05, 1e-9);
    cr_assert_float_eq(ranks.exchange_s, 0.01, 1e-9);
    cr_assert_float_eq(ranks.images_per_second, 128 / 0.09, 1e-6);
    cr_assert(
        strstr(ranks.text, "rank 2, on cpu of box, by STEP") && strstr(ranks.text, "more CPU time"),
        "%s", ranks.text);
    for (int w = 0; w < NP_RANK_WINDOWS; w++) /* as much CPU time as the others */
        seen[2].windows[w].cpu_s = seen[0].windows[w].cpu_s;
    ranks = judge();
    cr_assert(strstr(ranks.text, "so it waits"), "%s", ranks.text);
}

Test(ranks, late_batches_and_checkpoints_are_told_apart)
{
    double own[NP_RANK_WINDOWS][NR];

    fill(own, 0.04);
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        own[w][0] = 0.07;
    make(own);
    for (int w = 0; w < NP_RANK_WINDOWS; w++) {
        seen[0].windows[w].late_s = STEPS * 0.02;
        seen[0].windows[w].late_of[NP_STAGE_READ] = STEPS * 0.015;
        seen[0].windows[w].late_of[NP_STAGE_DECODE] = STEPS * 0.005;
    }
    struct np_ranks ranks = judge();
    cr_assert(ranks.slowest == 0 && ranks.stage == NP_STAGE_READ, "%s", ranks.text);
    cr_assert_float_eq(ranks.times[0].compute_s, 0.05, 1e-9);
    cr_assert_eq(ranks.times[0].late_most, NP_STAGE_READ);
    for (int w = 0; w < NP_RANK_WINDOWS; w++) {
        seen[0].windows[w].late_s = 0;
        memset(seen[0].windows[w].late_of, 0, sizeof(seen[0].windows[w].late_of));
        seen[0].windows[w].checkpoint_s = STEPS * 0.03;
    }
    ranks = judge();
    cr_assert(ranks.slowest == 0 && ranks.stage == NP_STAGE_CHECKPOINT, "%s", ranks.text);
}

Test(ranks, late_batches_of_all_ranks_accuse_none)
{
    double own[NP_RANK_WINDOWS][NR];

    fill(own, 0.04);
    make(own);
    for (int r = 0; r < NR; r++)
        for (int w = 0; w < NP_RANK_WINDOWS; w++) {
            seen[r].windows[w].late_s = STEPS * 0.03;
            seen[r].windows[w].late_of[NP_STAGE_DECODE] = STEPS * 0.03;
        }
    const struct np_ranks ranks = judge();
    cr_assert(ranks.slowest == -1 && ranks.gain == 1, "%s", ranks.text);
    cr_assert_eq(ranks.times[3].late_most, NP_STAGE_DECODE);
}

/* Of all: as long as a step without the exchange. */
static void keep_busy(size_t offset)
{
    for (int r = 0; r < NR; r++)
        for (int w = 0; w < NP_RANK_WINDOWS; w++) {
            const double s = STEPS * 0.08;

            memcpy((char *)&seen[r].windows[w] + offset, &s, sizeof(s));
        }
}

/* The last one of equal ranks: the readers or devices of the others do as much while these wait for it. */
Test(ranks, a_rank_is_not_slow_where_the_others_are_as_busy)
{
    double own[NP_RANK_WINDOWS][NR];

    fill(own, 0.04);
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        own[w][2] = 0.08;
    make(own);
    keep_busy(offsetof(struct np_rank_window, reader_s));
    struct np_ranks ranks = judge();
    cr_assert(ranks.slowest == -1 && ranks.gain == 1, "%s", ranks.text);
    make(own);
    keep_busy(offsetof(struct np_rank_window, device_s));
    ranks = judge();
    cr_assert(ranks.slowest == -1 && ranks.gain == 1, "%s", ranks.text);
}

Test(ranks, what_the_others_could_do_limits_the_gain)
{
    double own[NP_RANK_WINDOWS][NR];

    fill(own, 0.04);
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        own[w][2] = 0.12;
    make(own);
    keep_busy(offsetof(struct np_rank_window, reader_s));
    struct np_ranks ranks = judge();
    cr_assert_eq(ranks.slowest, 2);
    cr_assert_float_eq(ranks.gain, 0.13 / 0.09, 1e-9);
    make(own);
    keep_busy(offsetof(struct np_rank_window, device_s));
    for (int w = 0; w < NP_RANK_WINDOWS;
         w++) /* on GPUs: these do not wait for the sums of this one */
        seen[2].windows[w].device_s = STEPS * 0.03;
    ranks = judge();
    cr_assert_eq(ranks.slowest, 2);
    cr_assert_float_eq(ranks.gain, 0.13 / 0.05, 1e-9);
}

Test(ranks, what_is_slow_in_turn_accuses_none)
{
    double own[NP_RANK_WINDOWS][NR];

    fill(own, 0.04);
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        own[w][w % NR] = 0.09;
    make(own);
    const struct np_ranks ranks = judge();
    cr_assert_eq(ranks.slowest, -1);
    cr_assert(strstr(ranks.text, "all the time"), "%s", ranks.text);
}

Test(ranks, a_small_difference_accuses_none)
{
    double own[NP_RANK_WINDOWS][NR];

    fill(own, 0.1);
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        own[w][1] = 0.105;
    make(own);
    cr_assert_eq(judge().slowest, -1);
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        own[w][1] = 0.115;
    make(own);
    cr_assert_eq(judge().slowest, 1);
}

Test(ranks, a_rank_may_be_faster_in_one_window_but_not_in_two)
{
    double own[NP_RANK_WINDOWS][NR];

    fill(own, 0.1);
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        own[w][1] = w == 3 ? 0.09 : 0.2;
    make(own);
    cr_assert_eq(judge().slowest, 1);
    own[4][1] = 0.09;
    make(own);
    cr_assert_eq(judge().slowest, -1);
}

Test(ranks, windows_without_time_or_steps_give_finite_numbers)
{
    memset(seen, 0, sizeof(seen));
    const struct np_ranks ranks = judge();
    cr_assert(ranks.slowest == -1 && ranks.gain == 1 && ranks.images_per_second == 0);
}
