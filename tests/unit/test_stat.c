/* Counters: sums, histograms against an exact sort, waits, and readers beside writers. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/rng.h"
#include "loader/base/stat.h"

#include "tests/test.h"

Test(stat, sums_are_over_threads_of_a_prefix)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *one = np_stat_join(stat, "reader 0", NULL),
                    *two = np_stat_join(stat, "reader 1", NULL);
    struct np_block *trainer = np_stat_join(stat, "trainer", NULL);
    struct np_stat_sum sum;

    np_stat_item(one, NP_STAGE_DECODE, 100, 7);
    np_stat_item(two, NP_STAGE_DECODE, 11, 5);
    np_stat_item(two, NP_STAGE_READ, 1000, 1);
    np_stat_item(trainer, NP_STAGE_STEP, 0, 50);
    np_stat_blame(trainer, NP_STAGE_READ, 4);
    np_stat_blame(trainer, NP_STAGE_READ, 5);

    np_stat_read(stat, "reader", &sum);
    cr_assert_eq(sum.nr_threads, 2);
    cr_assert_eq(sum.stages[NP_STAGE_DECODE].items, 2u);
    cr_assert_eq(sum.stages[NP_STAGE_DECODE].bytes, 111u);
    cr_assert_eq(sum.stages[NP_STAGE_DECODE].work_ns, 12u);
    cr_assert_eq(sum.stages[NP_STAGE_STEP].items, 0u);
    cr_assert_eq(sum.blame_ns[NP_STAGE_READ], 0u);
    np_stat_read(stat, NULL, &sum);
    cr_assert_eq(sum.nr_threads, 3);
    cr_assert_eq(sum.stages[NP_STAGE_STEP].work_ns, 50u);
    cr_assert_eq(sum.blame_ns[NP_STAGE_READ], 9u);
    np_stat_free(stat);
}

#define MS 1000000u

static void pause_ms(unsigned ms)
{
    np_sleep_until_ns(np_now_ns() + (uint64_t)ms * MS);
}

static uint64_t state_sum(const struct np_stat_sum *sum)
{
    uint64_t all = 0;

    for (int i = 0; i < NP_NR_STATES; i++)
        all += sum->state_ns[i];
    return all;
}

/* A thread that works, waits and leaves: how much of its work is in no stage, ns. */
static uint64_t work_in_no_stage(void)
{
    struct np_stat *stat = np_stat_new(NULL);
    const uint64_t before = np_now_ns();
    struct np_block *block = np_stat_join(stat, "reader 0", NULL);
    struct np_stat_sum sum;
    uint64_t passed, stages = 0;

    pause_ms(2);
    passed = np_stat_pass(block, NP_STAGE_READ);
    cr_assert_geq(passed, 2 * MS);
    pause_ms(1);
    np_stat_wait(block, NP_STATE_IO_WAIT, "read", "here", 0);
    pause_ms(3);
    np_stat_read(stat, NULL, &sum); /* of a wait that lasts */
    cr_assert_geq(sum.state_ns[NP_STATE_IO_WAIT], 3 * MS);
    np_stat_done(block);
    np_stat_lap(block, NP_STAGE_READ, 77, passed);
    np_stat_wait(block, NP_STATE_BLOCKED, "claim", "here", 0);
    pause_ms(4);
    np_stat_done(block);
    pause_ms(1);
    np_stat_lap(block, NP_STAGE_BATCH, 5, 0);
    np_stat_leave(block);

    const uint64_t most = np_now_ns() - before;
    pause_ms(5); /* after it has left */
    np_stat_read(stat, NULL, &sum);
    for (int i = 0; i < NP_NR_STAGES; i++)
        stages += sum.stages[i].work_ns;
    cr_assert_leq(state_sum(&sum), most);
    cr_assert_geq(state_sum(&sum), 11 * MS);
    cr_assert_geq(sum.state_ns[NP_STATE_BLOCKED], 4 * MS);
    cr_assert_geq(sum.state_ns[NP_STATE_IO_WAIT], 3 * MS);
    cr_assert_eq(sum.stages[NP_STAGE_READ].items, 1u);
    cr_assert_eq(sum.stages[NP_STAGE_READ].bytes, 77u);
    cr_assert_geq(sum.stages[NP_STAGE_READ].work_ns, 3 * MS);
    cr_assert_geq(np_stat_quantile(stat, NP_STAGE_READ, 0.5), 2900000u); /* with what was passed */
    cr_assert_leq(stages, sum.state_ns[NP_STATE_WORK]);
    np_stat_free(stat);
    return sum.state_ns[NP_STATE_WORK] - stages;
}

/* On a loaded machine another process may run between two calls: once of 50 times it did not. */
Test(stat, a_threads_time_is_in_one_state_and_its_work_in_one_stage)
{
    uint64_t min_ns = UINT64_MAX;

    for (int i = 0; i < 50 && min_ns >= 100000; i++) {
        const uint64_t ns = work_in_no_stage();

        min_ns = ns < min_ns ? ns : min_ns;
    }
    cr_assert_lt(min_ns, 100000u);
}

Test(stat, reads_in_flight_are_integrated_over_time)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *block = np_stat_join(stat, "reader 0", NULL);
    struct np_stat_sum sum;

    np_stat_pass(block, NP_STAGE_READ);
    np_stat_in_flight(block, 3);
    const uint64_t start = np_now_ns();
    pause_ms(4);
    np_stat_read(stat, NULL, &sum);
    cr_assert_geq(sum.in_flight_ns, 12 * MS);
    cr_assert_leq(sum.in_flight_ns, 3 * (np_now_ns() - start) + 100000);
    np_stat_pass(block, NP_STAGE_READ);
    np_stat_in_flight(block, 0);
    np_stat_read(stat, NULL, &sum);
    const uint64_t before = sum.in_flight_ns;
    pause_ms(2);
    np_stat_read(stat, NULL, &sum);
    cr_assert_eq(sum.in_flight_ns, before);
    np_stat_free(stat);
}

Test(stat, recent_states_are_cut_to_the_requested_time)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *block = np_stat_join(stat, "reader 0", NULL);
    uint64_t did[NP_NR_STAGES], all = 0;

    pause_ms(4);
    const uint64_t since = np_now_ns();
    pause_ms(2);
    np_stat_lap(block, NP_STAGE_DECODE, 0, 0); /* 4 ms of it before */
    np_stat_wait(block, NP_STATE_IO_WAIT, "read", "here", 0);
    pause_ms(3);
    np_stat_done(block);
    np_stat_lap(block, NP_STAGE_AUGMENT, 0, 0);
    pause_ms(1);
    const uint64_t now = np_now_ns();
    np_stat_recent(block, since, now, did);
    cr_assert_geq(did[NP_STAGE_DECODE], 2 * MS - 100000);
    cr_assert_geq(did[NP_STAGE_READ], 3 * MS);
    cr_assert_geq(did[NP_STAGE_BATCH], 1 * MS);
    for (int i = 0; i < NP_NR_STAGES; i++)
        all += did[i];
    cr_assert_leq(all, now - since + 50000); /* laps are not read from the clock itself */
    cr_assert_geq(all, now - since - 100000);
    for (int i = 0; i < 3 * NP_STAT_RECENT; i++) /* more than is kept */
        np_stat_lap(block, NP_STAGE_AUGMENT, 0, 0);
    np_stat_recent(block, since, np_now_ns(), did);
    cr_assert_eq(did[NP_STAGE_DECODE], 0u);
    np_stat_recent(NULL, since, now, did);
    cr_assert_eq(did[NP_STAGE_BATCH], 0u);
    np_stat_free(stat);
}

Test(stat, a_missing_block_counts_nothing)
{
    np_stat_item(NULL, NP_STAGE_READ, 1, 1);
    np_stat_lap(NULL, NP_STAGE_READ, 1, 1);
    cr_assert_eq(np_stat_pass(NULL, NP_STAGE_READ), 0u);
    np_stat_in_flight(NULL, 1);
    np_stat_blame(NULL, NP_STAGE_READ, 1);
    np_stat_wait(NULL, NP_STATE_BLOCKED, "a", "b", 1);
    np_stat_done(NULL);
    np_stat_leave(NULL);
    np_stat_free(NULL);
    cr_assert_str_eq(np_stage_names[NP_STAGE_CHECKPOINT], "checkpoint");
    cr_assert_str_eq(np_state_names[NP_STATE_IO_WAIT], "io_wait");
}

static void *work_and_leave(void *context)
{
    struct np_block *block = np_stat_join(context, "reader 0", NULL);

    for (volatile int i = 0; i < 30000000; i++)
        ;
    np_stat_leave(block);
    return NULL;
}

Test(stat, the_cpu_time_of_a_thread_outlives_it)
{
    struct np_stat *stat = np_stat_new(NULL);
    uint64_t cpu_ns, again_ns, delay_ns;
    pthread_t thread;

    np_stat_join(stat, "trainer", NULL); /* not asked for */
    pthread_create(&thread, NULL, work_and_leave, stat);
    pthread_join(thread, NULL);
    np_stat_sched(stat, "reader", &cpu_ns, &delay_ns);
    np_stat_sched(stat, "reader", &again_ns, &delay_ns);
    cr_assert_eq(cpu_ns, again_ns);
    if (access("/proc/self/schedstat", R_OK) == 0)
        cr_assert(cpu_ns > MS && cpu_ns < 60000ull * MS);
    np_stat_free(stat);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

Test(stat, quantiles_lie_within_half_a_bucket_of_an_exact_sort)
{
    enum { N = 20000 };
    uint64_t *values = malloc(N * sizeof(*values));
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *blocks[2] = {np_stat_join(stat, "a", NULL), np_stat_join(stat, "b", NULL)};
    struct np_draws draws;
    int wrong = 0;

    np_draws_init(&draws, 5, NP_STREAM_TEST, 0, 0, 0);
    for (int i = 0; i < N; i++) { /* 1 ns to 1100 s, evenly in its logarithm */
        int octave = (int)np_draw_below(&draws, 40);

        values[i] = (1ull << octave) + np_draw_u32(&draws) % (1ull << octave);
        np_stat_item(blocks[i % 2], NP_STAGE_DECODE, 0, values[i]);
    }
    qsort(values, N, sizeof(*values), compare);
    for (int percent = 0; percent <= 100; percent++) {
        int rank = (N * percent + 99) / 100;
        double exact = (double)values[rank ? rank - 1 : 0];
        double got = (double)np_stat_quantile(stat, NP_STAGE_DECODE, percent / 100.0);

        wrong += got < exact * (1 - 0.032) || got > exact * (1 + 0.032);
    }
    cr_assert_eq(wrong, 0);
    cr_assert_eq(np_stat_quantile(stat, NP_STAGE_READ, 0.5), 0u);
    np_stat_free(stat);
    free(values);
}

Test(stat, small_times_are_exact_and_huge_ones_are_kept)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *block = np_stat_join(stat, "a", NULL);

    for (uint64_t ns = 0; ns < 32; ns++) {
        struct np_stat *one = np_stat_new(NULL);

        np_stat_item(np_stat_join(one, "x", NULL), NP_STAGE_STEP, 0, ns);
        cr_assert_eq(np_stat_quantile(one, NP_STAGE_STEP, 1), ns);
        np_stat_free(one);
    }
    np_stat_item(block, NP_STAGE_STEP, 0, UINT64_MAX);
    cr_assert_gt(np_stat_quantile(stat, NP_STAGE_STEP, 0.5), 1ull << 42);
    np_stat_free(stat);
}

struct lines {
    int n;
    char last[512];
};

static void keep(void *context, const char *text)
{
    struct lines *lines = context;

    lines->n++;
    snprintf(lines->last, sizeof(lines->last), "%s", text);
}

Test(stat, a_long_wait_is_found_with_its_name_until_it_ends)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *block = np_stat_join(stat, "reader 3", NULL);
    struct lines lines = {0};

    np_stat_waits(stat, 0, keep, &lines);
    cr_assert_eq(lines.n, 0);
    np_stat_wait(block, NP_STATE_IO_WAIT, "np_io_reap", "/data/x.tar at byte", 5632);
    np_stat_waits(stat, 3600ull * 1000000000, keep, &lines);
    cr_assert_eq(lines.n, 0);
    np_sleep_until_ns(np_now_ns() + 2000000);
    np_stat_waits(stat, 1000000, keep, &lines);
    np_stat_waits(stat, 1000000, keep, &lines); /* found again: it still lasts */
    cr_assert_eq(lines.n, 2);
    cr_assert_not_null(
        strstr(lines.last, "reader 3: np_io_reap: /data/x.tar at byte 5632, for 0.0 s"));
    np_stat_done(block);
    np_stat_waits(stat, 0, keep, &lines);
    cr_assert_eq(lines.n, 2);
    np_stat_wait(block, NP_STATE_IO_WAIT, "read", "http://h/x.tar?signature", 5632);
    np_sleep_until_ns(np_now_ns() + 2000000);
    np_stat_waits(stat, 1000000, keep, &lines);
    cr_assert_not_null(strstr(lines.last, "read: http://h/x.tar?... 5632, for 0.0 s"));
    np_stat_done(block);
    np_stat_free(stat);
}

struct party {
    struct np_stat *stat;
    uint64_t start_ns;
    int stop; /* atomic */
};

enum { ROUNDS = 20000 };

/* Every wait's words are freed as soon as it has ended. */
static void *waiter(void *context)
{
    struct party *party = context;
    struct np_block *block = np_stat_join(party->stat, "waiter", NULL);

    for (int i = 0; i < ROUNDS; i++) {
        char *what = strdup("call"), *where = strdup("a file at byte");

        np_stat_wait(block, NP_STATE_IO_WAIT, what, where, (uint64_t)i);
        np_stat_done(block);
        free(what);
        free(where);
        np_stat_item(block, NP_STAGE_READ, 3, 2);
    }
    return NULL;
}

static void check_line(void *context, const char *text)
{
    int *wrong = context;

    *wrong += strncmp(text, "waiter: call: a file at byte ", 29) != 0;
}

static void *watcher(void *context)
{
    struct party *party = context;
    int wrong = 0;
    uint64_t last = 0, last_ns = 0;

    while (!__atomic_load_n(&party->stop, __ATOMIC_RELAXED)) {
        struct np_stat_sum sum;

        np_stat_waits(party->stat, 0, check_line, &wrong);
        np_stat_read(party->stat, NULL, &sum);
        wrong += sum.stages[NP_STAGE_READ].items < last;
        last = sum.stages[NP_STAGE_READ].items;
        /* Never a time that was counted twice, or not yet. */
        wrong += state_sum(&sum) < last_ns;
        wrong += state_sum(&sum) > (uint64_t)sum.nr_threads * (np_now_ns() - party->start_ns);
        last_ns = state_sum(&sum);
    }
    return wrong ? context : NULL;
}

Test(stat, watchers_never_read_a_wait_that_has_ended, .timeout = 120)
{
    struct party party = {.stat = np_stat_new(NULL), .start_ns = np_now_ns()};
    pthread_t waiters[3], watchers[2];
    struct np_stat_sum sum;
    int wrong = 0;

    for (int i = 0; i < 2; i++)
        pthread_create(&watchers[i], NULL, watcher, &party);
    for (int i = 0; i < 3; i++)
        pthread_create(&waiters[i], NULL, waiter, &party);
    for (int i = 0; i < 3; i++)
        pthread_join(waiters[i], NULL);
    __atomic_store_n(&party.stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) {
        void *result;

        pthread_join(watchers[i], &result);
        wrong += result != NULL;
    }
    cr_assert_eq(wrong, 0);
    np_stat_read(party.stat, "waiter", &sum);
    cr_assert_eq(sum.nr_threads, 3);
    cr_assert_eq(sum.stages[NP_STAGE_READ].items, 3u * ROUNDS);
    cr_assert_eq(sum.stages[NP_STAGE_READ].bytes, 9u * ROUNDS);
    np_stat_free(party.stat);
}
