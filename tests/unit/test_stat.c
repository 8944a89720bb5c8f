/* Counters: sums, histograms against an exact sort, waits, and readers beside writers. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/clock.h"
#include "loader/base/rng.h"
#include "loader/base/stat.h"

#include "tests/test.h"

Test(stat, sums_are_over_threads_of_a_prefix)
{
    struct np_stat *stat = np_stat_new();
    struct np_block *one = np_stat_join(stat, "reader 0"), *two = np_stat_join(stat, "reader 1");
    struct np_block *trainer = np_stat_join(stat, "trainer");
    struct np_stat_sum sum;

    np_stat_item(one, NP_STAGE_DECODE, 100, 7);
    np_stat_item(two, NP_STAGE_DECODE, 11, 5);
    np_stat_item(two, NP_STAGE_READ, 1000, 1);
    np_stat_item(trainer, NP_STAGE_STEP, 0, 50);
    np_stat_state(one, NP_STATE_BLOCKED, 30);
    np_stat_state(trainer, NP_STATE_STARVED, 4);
    np_stat_state(trainer, NP_STATE_STARVED, 5);

    np_stat_read(stat, "reader", &sum);
    cr_assert_eq(sum.nr_threads, 2);
    cr_assert_eq(sum.stages[NP_STAGE_DECODE].items, 2u);
    cr_assert_eq(sum.stages[NP_STAGE_DECODE].bytes, 111u);
    cr_assert_eq(sum.stages[NP_STAGE_DECODE].work_ns, 12u);
    cr_assert_eq(sum.stages[NP_STAGE_STEP].items, 0u);
    cr_assert_eq(sum.state_ns[NP_STATE_WORK], 13u);
    cr_assert_eq(sum.state_ns[NP_STATE_BLOCKED], 30u);
    np_stat_read(stat, NULL, &sum);
    cr_assert_eq(sum.nr_threads, 3);
    cr_assert_eq(sum.state_ns[NP_STATE_STARVED], 9u);
    cr_assert_eq(sum.state_ns[NP_STATE_WORK], 63u);
    np_stat_free(stat);
}

Test(stat, a_missing_block_counts_nothing)
{
    np_stat_item(NULL, NP_STAGE_READ, 1, 1);
    np_stat_state(NULL, NP_STATE_BLOCKED, 1);
    np_stat_wait(NULL, "a", "b", 1);
    np_stat_done(NULL);
    np_stat_free(NULL);
    cr_assert_str_eq(np_stage_names[NP_STAGE_CHECKPOINT], "checkpoint");
    cr_assert_str_eq(np_state_names[NP_STATE_IO_WAIT], "io_wait");
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
    struct np_stat *stat = np_stat_new();
    struct np_block *blocks[2] = {np_stat_join(stat, "a"), np_stat_join(stat, "b")};
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

Test(stat, small_times_are_exact_and_endless_ones_are_kept)
{
    struct np_stat *stat = np_stat_new();
    struct np_block *block = np_stat_join(stat, "a");

    for (uint64_t ns = 0; ns < 32; ns++) {
        struct np_stat *one = np_stat_new();

        np_stat_item(np_stat_join(one, "x"), NP_STAGE_STEP, 0, ns);
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
    struct np_stat *stat = np_stat_new();
    struct np_block *block = np_stat_join(stat, "reader 3");
    struct lines lines = {0};

    np_stat_waits(stat, 0, keep, &lines);
    cr_assert_eq(lines.n, 0);
    np_stat_wait(block, "np_io_reap", "/data/x.tar at byte", 5632);
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
    np_stat_free(stat);
}

struct party {
    struct np_stat *stat;
    int stop; /* atomic */
};

enum { ROUNDS = 20000 };

/* Every wait's words are freed as soon as it has ended. */
static void *waiter(void *context)
{
    struct party *party = context;
    struct np_block *block = np_stat_join(party->stat, "waiter");

    for (int i = 0; i < ROUNDS; i++) {
        char *what = strdup("call"), *where = strdup("a file at byte");

        np_stat_wait(block, what, where, (uint64_t)i);
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
    uint64_t last = 0;

    while (!__atomic_load_n(&party->stop, __ATOMIC_RELAXED)) {
        struct np_stat_sum sum;

        np_stat_waits(party->stat, 0, check_line, &wrong);
        np_stat_read(party->stat, NULL, &sum);
        wrong += sum.stages[NP_STAGE_READ].items < last;
        last = sum.stages[NP_STAGE_READ].items;
    }
    return wrong ? context : NULL;
}

Test(stat, watchers_never_read_a_wait_that_has_ended, .timeout = 60)
{
    struct party party = {.stat = np_stat_new()};
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
