/* Known answers of Philox; its draws and the permutation against chi-square bounds
 * that a sound generator passes for fixed seeds and a broken one misses by far. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/rng.h"

#include "tests/test.h"

/* Random123's kat_vectors, philox4x32 10. */
Test(rng, philox_gives_the_known_answers)
{
    static const uint32_t cases[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
            0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
            0x94fdcceb, 0x5001e420, 0x24126ea1},
    };

    for (int i = 0; i < 3; i++) {
        uint32_t words[4];

        np_philox(cases[i] + 4, cases[i], words);
        cr_assert_arr_eq(words, cases[i] + 6, sizeof(words));
    }
}

/* Weights and orders of every run there is hang on these: a change of them is a new format. */
Test(rng, draws_and_orders_never_change)
{
    struct np_draws draws;
    static const uint64_t order[10] = {7, 9, 2, 1, 3, 4, 0, 8, 6, 5};

    np_draws_init(&draws, 1, NP_STREAM_AUGMENT, 2, 3, 4);
    cr_assert_eq(np_draw_u32(&draws), 1909035860u);
    for (uint64_t i = 0; i < 10; i++)
        cr_assert_eq(np_permute(10, 1, NP_STREAM_ORDER, 0, 0, i), order[i]);
}

Test(rng, draws_depend_on_each_part_of_their_key_and_run_on)
{
    struct np_draws base, other;
    uint32_t first[9], words[9];
    static const uint64_t parts[6][5] = {{1, NP_STREAM_TEST, 2, 3, 4},
        {1 | 1ull << 40, NP_STREAM_TEST, 2, 3, 4}, {1, NP_STREAM_INIT, 2, 3, 4},
        {1, NP_STREAM_TEST, 3, 3, 4}, {1, NP_STREAM_TEST, 2, 4, 4}, {1, NP_STREAM_TEST, 2, 3, 5}};

    for (int i = 0; i < 6; i++) {
        np_draws_init(&other, parts[i][0], (enum np_stream)parts[i][1], (uint32_t)parts[i][2],
            (uint32_t)parts[i][3], (uint32_t)parts[i][4]);
        base = other; /* a copy goes the same way */
        for (int j = 0; j < 9; j++) {
            words[j] = np_draw_u32(&other);
            cr_assert_eq(np_draw_u32(&base), words[j]);
        }
        if (i == 0)
            memcpy(first, words, sizeof(first));
        else
            for (int j = 0; j < 9; j++)
                cr_assert_neq(words[j], first[j]);
    }
}

/* Chi-square of counts against an even spread, in standard deviations from its mean. */
static double unevenness(const uint32_t *counts, int n, double expected)
{
    double chi = 0;

    for (int i = 0; i < n; i++)
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    return (chi - (n - 1)) / sqrt(2.0 * (n - 1));
}

Test(rng, draws_below_n_are_even)
{
    static const uint32_t ns[] = {1, 2, 3, 7, 10, 100, 1000};

    for (size_t i = 0; i < sizeof(ns) / sizeof(*ns); i++) {
        uint32_t counts[1000] = {0}, n = ns[i];
        struct np_draws draws;

        np_draws_init(&draws, i, NP_STREAM_TEST, 0, 0, 0);
        for (uint32_t j = 0; j < 100 * n; j++) {
            uint32_t draw = np_draw_below(&draws, n);

            cr_assert_lt(draw, n);
            counts[draw]++;
        }
        cr_assert(n == 1 || fabs(unevenness(counts, (int)n, 100)) < 4);
    }
}

/* Multiplying down 32 bits to 3 * 2^30 values favours every third: rejection must even it out. */
Test(rng, draws_below_a_large_n_are_even)
{
    const uint32_t n = 3u << 30;
    uint32_t counts[3] = {0};
    struct np_draws draws;

    np_draws_init(&draws, 9, NP_STREAM_TEST, 0, 0, 0);
    for (int i = 0; i < 30000; i++)
        counts[np_draw_below(&draws, n) % 3]++;
    cr_assert_lt(fabs(unevenness(counts, 3, 10000)), 5);
}

Test(rng, uniform_draws_lie_in_0_to_1_and_are_even)
{
    uint32_t counts[64] = {0};
    struct np_draws draws;

    np_draws_init(&draws, 10, NP_STREAM_TEST, 0, 0, 0);
    for (int i = 0; i < 64000; i++) {
        double draw = np_draw_uniform(&draws);

        cr_assert(draw >= 0 && draw < 1);
        counts[(int)(draw * 64)]++;
    }
    cr_assert_lt(fabs(unevenness(counts, 64, 1000)), 4);
}

Test(rng, normal_draws_have_the_moments_of_the_bell)
{
    double sums[4] = {0};
    int nr_within = 0;
    const int n = 100000;
    struct np_draws draws;

    np_draws_init(&draws, 11, NP_STREAM_TEST, 0, 0, 0);
    for (int i = 0; i < n; i++) {
        double x = np_draw_normal(&draws);

        cr_assert(isfinite(x));
        for (int k = 0; k < 4; k++)
            sums[k] += pow(x, k + 1) / n;
        nr_within += fabs(x) < 1;
    }
    cr_assert_float_eq(sums[0], 0, 4 / sqrt(n));
    cr_assert_float_eq(sums[1], 1, 4 * sqrt(2.0 / n));
    cr_assert_float_eq(sums[2], 0, 4 * sqrt(15.0 / n));
    cr_assert_float_eq(sums[3], 3, 4 * sqrt(96.0 / n));
    cr_assert_float_eq(nr_within / (double)n, 0.682689, 0.006);
}

/* --- the permutation ---------------------------------------------------------------------- */

static bool is_bijection(uint64_t n, uint64_t seed)
{
    unsigned char *seen = calloc(n, 1);
    uint64_t nr_seen = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t value = np_permute(n, seed, NP_STREAM_ORDER, 5, 6, i);

        if (value < n && !seen[value]++)
            nr_seen++;
    }
    free(seen);
    return nr_seen == n;
}

Test(rng, permute_is_a_bijection)
{
    for (uint64_t n = 1; n < 300; n++)
        cr_assert(is_bijection(n, n), "%d", (int)n);
    for (uint64_t n = 1 << 10; n <= 1 << 17; n *= 2)
        cr_assert(is_bijection(n - 1, 1) && is_bijection(n, 2) && is_bijection(n + 1, 3));
    cr_assert(is_bijection(50000, 4) && is_bijection(60000, 5));
}

Test(rng, permute_takes_the_largest_n)
{
    const uint64_t ns[] = {1ull << 32, (1ull << 32) - 1, (1ull << 31) + 1};

    for (int i = 0; i < 3; i++)
        for (uint64_t j = 0; j < 1000; j++)
            cr_assert_lt(np_permute(ns[i], 1, NP_STREAM_ORDER, 0, 0, ns[i] - 1 - j), ns[i]);
}

/* Of n <= 5 things every order comes equally often, over keys that differ in one number only. */
Test(rng, permute_gives_every_order_of_few_equally_often)
{
    for (int part = 0; part < 3; part++)
        for (uint64_t n = 2; n <= 5; n++) {
            int nr_orders = n == 2 ? 2 : n == 3 ? 6 : n == 4 ? 24 : 120;
            uint32_t counts[120] = {0};

            for (uint32_t k = 0; k < 200u * (uint32_t)nr_orders; k++) {
                uint64_t values[5];
                int index = 0;

                for (uint64_t i = 0; i < n; i++)
                    values[i] = np_permute(n, part == 0 ? k : 3, NP_STREAM_ORDER, part == 1 ? k : 0,
                        part == 2 ? k : 0, i);
                for (uint64_t i = 0; i < n; i++) { /* the order's rank (Lehmer code) */
                    int smaller = 0;

                    for (uint64_t j = i + 1; j < n; j++)
                        smaller += values[j] < values[i];
                    index = index * (int)(n - i) + smaller;
                }
                counts[index]++;
            }
            cr_assert_lt(
                fabs(unevenness(counts, nr_orders, 200)), 4.5, "part %d, n %d", part, (int)n);
        }
}

/* Where position i goes, and where its neighbour goes relative to it, over many epochs. */
Test(rng, permute_sends_positions_everywhere_evenly)
{
    const uint64_t n = 101;

    for (uint64_t i = 0; i < n; i += 25) {
        uint32_t counts[101] = {0}, steps[101] = {0};

        for (uint32_t epoch = 0; epoch < 101 * 100; epoch++) {
            uint64_t a = np_permute(n, 7, NP_STREAM_ORDER, epoch, 0, i);
            uint64_t b = np_permute(n, 7, NP_STREAM_ORDER, epoch, 0, (i + 1) % n);

            counts[a]++;
            steps[(b + n - a) % n]++;
        }
        cr_assert_lt(fabs(unevenness(counts, 101, 100)), 4.5);
        cr_assert_eq(steps[0], 0u);
        cr_assert_lt(fabs(unevenness(steps + 1, 100, 101)), 4.5);
    }
}

/* Batches of an epoch hold the classes of a sorted data set as a draw without replacement does. */
Test(rng, permute_mixes_a_sorted_set)
{
    enum { CLASSES = 10, PER_CLASS = 5000, BATCH = 100 };
    const double share = 1.0 / CLASSES;
    const double variance = BATCH * share * (1 - share) * (CLASSES * PER_CLASS - BATCH) /
                            (CLASSES * PER_CLASS - 1); /* hypergeometric */
    double sum = 0;
    int nr_batches = 0;

    for (uint64_t at = 0; at < CLASSES * PER_CLASS; at += BATCH, nr_batches++) {
        int counts[CLASSES] = {0};

        for (uint64_t i = at; i < at + BATCH; i++)
            counts[np_permute(CLASSES * PER_CLASS, 1, NP_STREAM_ORDER, 0, 0, i) / PER_CLASS]++;
        for (int c = 0; c < CLASSES; c++)
            sum += (counts[c] - 10) * (counts[c] - 10);
    }
    cr_assert_float_eq(sum / (nr_batches * CLASSES) / variance, 1, 0.1);
}
