/* A rank's own time is that of a step less its time in exchanges. */
#include "daemon/analysis/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/analysis/words.h"
#include "loader/base/mem.h"

static double own_of_window(const struct np_rank_window *window)
{
    return (window->seconds - window->others_s) / fmax(window->steps, 1);
}

static void find_times(const struct np_rank_seen *seen, struct np_rank_times *ret_times)
{
    struct np_rank_times sum = {0};
    double steps = 0;

    for (int w = 0; w < NP_RANK_WINDOWS; w++) {
        const struct np_rank_window *window = &seen->windows[w];

        steps += window->steps;
        sum.step_s += window->seconds;
        sum.others_s += window->others_s;
        sum.late_s += window->late_s;
        sum.checkpoint_s += window->checkpoint_s;
        sum.cpu_s += window->cpu_s;
        sum.reader_s += window->reader_s;
        sum.device_s += window->device_s;
        for (int s = 0; s < NP_NR_STAGES; s++)
            sum.late_of[s] += window->late_of[s];
    }
    double *const all[] = {&sum.step_s, &sum.others_s, &sum.late_s, &sum.checkpoint_s, &sum.cpu_s,
        &sum.reader_s, &sum.device_s};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        *all[i] /= fmax(steps, 1);
    for (int s = 0; s < NP_NR_STAGES; s++) {
        sum.late_of[s] /= fmax(steps, 1);
        if (sum.late_of[s] > sum.late_of[sum.late_most])
            sum.late_most = (enum np_stage)s;
    }
    sum.compute_s = fmax(sum.step_s - sum.others_s - sum.late_s - sum.checkpoint_s, 0);
    *ret_times = sum;
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* The median of a number of all ranks but one. offset: in struct np_rank_times. */
static double median_of_others(const struct np_ranks *ranks, int but, size_t offset)
{
    double *values = np_alloc((size_t)ranks->nr * sizeof(*values)), median;
    int n = 0;

    for (int r = 0; r < ranks->nr; r++)
        if (r != but)
            memcpy(&values[n++], (const char *)&ranks->times[r] + offset, sizeof(*values));
    qsort(values, (size_t)n, sizeof(*values), compare);
    median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    np_free(values);
    return median;
}
#define OTHERS(ranks, but, member)                                                                 \
    median_of_others(ranks, but, offsetof(struct np_rank_times, member))

/* What a step of the others would take without this rank. Their own time is not all of it: while they wait, their
 * readers fill the ring, and their devices compute. Where all decode as slowly, one of them is the last all the
 * time, and the others seem to be much faster. */
static double without(const struct np_ranks *ranks, int rank)
{
    const double own_s = OTHERS(ranks, rank, step_s) - OTHERS(ranks, rank, others_s);
    double device_s = INFINITY; /* a GPU that does not wait for the sums of others has the least */

    for (int r = 0; r < ranks->nr; r++)
        device_s = fmin(device_s, ranks->times[r].device_s);
    return fmax(fmax(own_s, OTHERS(ranks, rank, reader_s)), device_s);
}

/* The rank with most time of its own, by most windows; *ret_nr: how many. */
static int slowest_of_windows(const struct np_ranks *ranks, int *ret_nr)
{
    int *wins = np_alloc((size_t)ranks->nr * sizeof(*wins)), best = 0;

    for (int w = 0; w < NP_RANK_WINDOWS; w++) {
        int most = 0;

        for (int r = 1; r < ranks->nr; r++)
            if (own_of_window(&ranks->seen[r].windows[w]) >
                own_of_window(&ranks->seen[most].windows[w]))
                most = r;
        wins[most]++;
    }
    for (int r = 1; r < ranks->nr; r++)
        if (wins[r] > wins[best])
            best = r;
    *ret_nr = wins[best];
    np_free(wins);
    return best;
}

/* The part of a rank's own time that exceeds that of the others most. */
static enum np_stage blame(const struct np_ranks *ranks, int rank)
{
    const struct np_rank_times *times = &ranks->times[rank];
    double most = times->compute_s - OTHERS(ranks, rank, compute_s);
    enum np_stage stage = NP_STAGE_STEP;

    for (int s = 0; s < NP_NR_STAGES; s++) {
        const size_t offset =
            offsetof(struct np_rank_times, late_of) + (size_t)s * sizeof(times->late_of[0]);
        const double more = times->late_of[s] - median_of_others(ranks, rank, offset);

        if (s != NP_STAGE_STEP && more > most) {
            most = more;
            stage = (enum np_stage)s;
        }
    }
    return times->checkpoint_s - OTHERS(ranks, rank, checkpoint_s) > most ? NP_STAGE_CHECKPOINT
                                                                          : stage;
}

/* --- words ---------------------------------------------------------------------------------- */

static void explain_step(const struct np_ranks *ranks, char *text, size_t room)
{
    const struct np_rank_times *times = &ranks->times[ranks->slowest];
    const double compute_s = OTHERS(ranks, ranks->slowest, compute_s);
    const double more_cpu_s = times->cpu_s - OTHERS(ranks, ranks->slowest, cpu_s);

    snprintf(text, room, "its step takes %s, that of the others %s; %s",
        np_words_time(times->compute_s).text, np_words_time(compute_s).text,
        more_cpu_s < 0.5 * (times->compute_s - compute_s)
            ? "that is not CPU time, so it waits: for cores that other programs or a CPU limit "
              "take, or for its device"
            : "it uses more CPU time, too: a slower CPU or clock, or fewer threads");
}

static void explain(const struct np_ranks *ranks, char *text, size_t room)
{
    const struct np_rank_seen *seen = &ranks->seen[ranks->slowest];
    const struct np_rank_times *times = &ranks->times[ranks->slowest];
    const enum np_stage stage = ranks->stage;

    if (stage == NP_STAGE_STEP)
        explain_step(ranks, text, room);
    else if (stage == NP_STAGE_CHECKPOINT)
        snprintf(text, room, "it writes checkpoints for %s of each step while the others wait",
            np_words_time(times->checkpoint_s).text);
    else
        snprintf(text, room,
            "it waits %s of each step for its batches, because of %s (1 in 100 takes over %s); the "
            "others wait %s for theirs",
            np_words_time(times->late_s).text, np_stage_names[stage],
            np_words_time(seen->p99_s[stage]).text,
            np_words_time(OTHERS(ranks, ranks->slowest, late_s)).text);
}

static void say_slowest(struct np_ranks *ranks)
{
    const struct np_rank_seen *seen = &ranks->seen[ranks->slowest];
    char why[300];

    explain(ranks, why, sizeof(why));
    snprintf(ranks->text, sizeof(ranks->text), "rank %d, on %s of %s, by %s: %s", ranks->slowest,
        seen->device, seen->host, np_words_loud(ranks->stage).text, why);
}

static void say_even(struct np_ranks *ranks, int most, double share)
{
    const double step_s = ranks->times[0].step_s;

    if (share < NP_RANK_EXCESS)
        snprintf(ranks->text, sizeof(ranks->text),
            "no rank is slower than the others: %s of a step is the most that one would save. "
            "Exchanges take %s of each step of %s",
            np_words_share(fmax(share, 0)).text, np_words_time(ranks->exchange_s).text,
            np_words_time(step_s).text);
    else
        snprintf(ranks->text, sizeof(ranks->text),
            "no rank is slower than the others all the time: rank %d was the slowest in %d of %d "
            "windows. Exchanges, and waiting in turn, take %s of each step of %s",
            most, ranks->nr_windows, NP_RANK_WINDOWS, np_words_time(ranks->exchange_s).text,
            np_words_time(step_s).text);
}

void np_ranks_judge(struct np_ranks *ranks, double batch)
{
    int nr = 0;

    ranks->exchange_s = INFINITY;
    for (int r = 0; r < ranks->nr; r++) {
        find_times(&ranks->seen[r], &ranks->times[r]);
        ranks->exchange_s = fmin(ranks->exchange_s, ranks->times[r].others_s);
    }
    const double step_s = ranks->times[0].step_s;
    const int most = slowest_of_windows(ranks, &nr);
    const struct np_rank_times *times = &ranks->times[most];
    const double own = times->step_s - times->others_s;
    const double theirs = without(ranks, most);

    ranks->images_per_second = step_s > 0 ? batch / step_s : 0;
    ranks->nr_windows = nr;
    ranks->slowest = -1;
    ranks->excess_s = fmax(own - theirs, 0);
    ranks->gain = 1;
    const double share = step_s > 0 ? ranks->excess_s / step_s : 0;
    if (nr < NP_RANK_WINDOWS - 1 || share < NP_RANK_EXCESS) {
        say_even(ranks, most, share);
        return;
    }
    ranks->slowest = most;
    ranks->gain = step_s / (step_s - ranks->excess_s);
    ranks->stage = blame(ranks, most);
    say_slowest(ranks);
}
