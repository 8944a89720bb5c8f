/* The sampler: every sample once an epoch, evaluations at their points, any position at once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/sampler.h"

#include "tests/test.h"

static struct np_sampler *make(const struct np_sampler_options *options)
{
    struct np_sampler *sampler = NULL;
    struct np_err err = {0};

    if (np_sampler_new(options, &sampler, &err))
        fprintf(stderr, "%s\n", err.text);
    return sampler;
}

/* Every epoch of the run whole: each sample the same number of times; 0 when it is so. */
static int count_epochs(const struct np_sampler_options *options, int nr_epochs)
{
    struct np_sampler *sampler = make(options);
    uint64_t total = options->nr_train;
    unsigned *seen = calloc(total, sizeof *seen);
    int wrong = 0;
    struct np_ticket ticket;

    np_sampler_start(sampler, 0, false);
    while (np_sampler_next(sampler, &ticket, 1)) {
        if (ticket.kind != NP_BATCH_TRAIN || ticket.epoch >= (unsigned)nr_epochs)
            continue;
        wrong += ticket.sample >= total;
        wrong += seen[ticket.sample] != ticket.epoch; /* once in each epoch before */
        seen[ticket.sample]++;
    }
    for (uint64_t i = 0; i < total; i++)
        wrong += seen[i] != 0 && seen[i] != (unsigned)nr_epochs;
    for (uint64_t i = 0; i < total; i++)
        wrong += seen[i] == 0;
    free(seen);
    np_sampler_free(sampler);
    return wrong;
}

Test(sampler, every_sample_comes_once_an_epoch_for_odd_sizes)
{
    static const uint64_t sizes[] = {1, 2, 7, 64, 97, 1000, 4099};
    static const int batches[] = {1, 3, 32, 130};

    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            for (int shuffle = NP_SHUFFLE_FULL; shuffle <= NP_SHUFFLE_NONE; shuffle++) {
                struct np_sampler_options options = {.seed = 5,
                    .nr_train = sizes[n],
                    .nr_eval = 11,
                    .batch = batches[b],
                    .eval_epochs = 1,
                    .shuffle = (enum np_shuffle)shuffle,
                    .window = 10};

                options.nr_steps = (3 * sizes[n] + (uint64_t)batches[b] - 1) / (uint64_t)batches[b];
                cr_assert_eq(count_epochs(&options, 3), 0, "n %d batch %d shuffle %d",
                    (int)sizes[n], batches[b], shuffle);
            }
}

/* All samples once, in an order that is not theirs. */
static const uint32_t *make_split(uint32_t *split, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        split[i] = (i * 37 + 5) % n;
    return split;
}

Test(sampler, parts_of_a_split_set_are_disjoint_and_whole)
{
    uint32_t split[103];
    const struct np_sampler_options options = {.seed = 9,
        .nr_train = 90,
        .nr_eval = 13,
        .batch = 8,
        .nr_steps = 34,
        .split = make_split(split, 103),
        .eval_steps = 17};
    struct np_sampler *sampler = make(&options);
    int train[103] = {0}, eval[103] = {0};
    struct np_ticket ticket;

    np_sampler_start(sampler, 0, false);
    while (np_sampler_next(sampler, &ticket, 1)) {
        if (ticket.masked) {
            cr_assert_eq(ticket.sample, UINT64_MAX);
            continue;
        }
        if (ticket.kind == NP_BATCH_EVAL)
            eval[ticket.sample]++;
        else if (ticket.epoch < 3)
            train[ticket.sample]++;
    }
    for (int i = 0; i < 103; i++)
        cr_assert(train[i] == 3 ? eval[i] == 0 : train[i] == 0 && eval[i] == 2, "sample %d: %d %d",
            i, train[i], eval[i]);
    np_sampler_free(sampler);
}

Test(sampler, evaluation_has_the_split_in_its_order_whatever_the_seed)
{
    uint32_t split[100];

    for (uint64_t seed = 1; seed < 3; seed++) {
        const struct np_sampler_options options = {.seed = seed,
            .nr_train = 90,
            .nr_eval = 10,
            .batch = 1,
            .split = make_split(split, 100)};
        struct np_sampler *sampler = make(&options);
        struct np_ticket ticket;

        for (uint64_t i = 0; i < 10; i++) {
            np_sampler_ticket(sampler, i, 0, &ticket);
            cr_expect_eq(ticket.sample, split[i]);
        }
        np_sampler_free(sampler);
    }
}

Test(sampler, a_window_shuffles_only_blocks_and_within_blocks)
{
    struct np_sampler_options options = {.seed = 3,
        .nr_train = 1003,
        .batch = 1,
        .nr_steps = 1003,
        .shuffle = NP_SHUFFLE_WINDOW,
        .window = 100};
    struct np_sampler *sampler = make(&options);
    int moved = 0;

    for (uint64_t place = 0; place < 10; place++) {
        uint64_t least = UINT64_MAX, most = 0, last = 0;

        for (uint64_t i = 0; i < 100; i++) {
            struct np_ticket ticket;

            np_sampler_ticket(sampler, place * 100 + i, 0, &ticket);
            least = ticket.sample < least ? ticket.sample : least;
            most = ticket.sample > most ? ticket.sample : most;
            moved += i && ticket.sample != last + 1;
            last = ticket.sample;
        }
        cr_assert(most - least == 99 || most - least > 899, "one block, or one that wraps");
    }
    cr_assert_gt(moved, 500);
    np_sampler_free(sampler);
}

Test(sampler, a_repeated_sample_comes_in_a_row_and_fewer_of_them_an_epoch)
{
    for (int shuffle = NP_SHUFFLE_FULL; shuffle <= NP_SHUFFLE_WINDOW; shuffle++) {
        const struct np_sampler_options options = {.seed = 5,
            .nr_train = 100,
            .batch = 8,
            .nr_steps = 50,
            .repeat = 3,
            .shuffle = (enum np_shuffle)shuffle,
            .window = 10};
        struct np_sampler *sampler = make(&options);
        struct np_ticket ticket, last = {0};
        int seen[4][100] = {0}, other = 0;

        for (uint64_t p = 0; p < 400; p++) {
            np_sampler_ticket(sampler, p / 8, (int)(p % 8), &ticket);
            cr_assert_eq(ticket.epoch, p / 100);
            cr_assert_eq(ticket.position, p % 100, "the key of its draws");
            cr_assert_eq(ticket.position % 3 && ticket.sample != last.sample, 0, "%d", (int)p);
            seen[ticket.epoch][ticket.sample] += 1;
            last = ticket;
        }
        for (int epoch = 0; epoch < 4; epoch++) {
            int times[4] = {0};

            for (int i = 0; i < 100; i++) {
                cr_assert_leq(seen[epoch][i], 3);
                times[seen[epoch][i]]++;
                other += epoch > 0 && (seen[epoch][i] > 0) != (seen[epoch - 1][i] > 0);
            }
            cr_expect(times[3] == 33 && times[1] == 1 && times[0] == 66, "%d %d %d", times[3],
                times[1], times[0]);
        }
        cr_expect_gt(other, 60, "epochs have other samples");
        np_sampler_free(sampler);
    }
}

/* Evaluations where the definition puts them: by a walk over all steps. */
static int walk(const struct np_sampler_options *options)
{
    struct np_sampler *sampler = make(options);
    const uint64_t parts =
        (options->nr_eval + (uint64_t)options->batch - 1) / (uint64_t)options->batch;
    const double period = options->eval_steps
                              ? (double)options->eval_steps
                              : options->eval_epochs * (double)options->nr_train / options->batch;
    uint64_t seq = 0;
    int wrong = 0;
    struct np_ticket ticket;

    for (uint64_t step = 0; step < options->nr_steps; step++) {
        bool due = step + 1 == options->nr_steps;

        np_sampler_start(sampler, step, false);
        wrong += sampler->first_seq != seq;
        np_sampler_ticket(sampler, seq++, 0, &ticket);
        wrong += ticket.kind != NP_BATCH_TRAIN || ticket.step != step;
        for (uint64_t e = 1; period > 0 && (double)(e - 1) * period <= (double)step + 1; e++) {
            double x = (double)e * period;
            uint64_t ceiled = (uint64_t)x + ((double)(uint64_t)x < x - 1e-6);

            due |= ceiled == step + 1;
        }
        wrong += np_sampler_eval_after(sampler, step + 1) != due;
        for (uint64_t part = 0; due && part < parts; part++) {
            np_sampler_ticket(sampler, seq++, options->batch - 1, &ticket);
            wrong += ticket.kind != NP_BATCH_EVAL || ticket.step != step + 1;
            wrong += ticket.part != part || ticket.nr_parts != parts;
            wrong += ticket.masked != ((part + 1) * (uint64_t)options->batch > options->nr_eval);
        }
    }
    wrong += seq != sampler->nr_batches;
    np_sampler_start(sampler, options->nr_steps, false);
    wrong += sampler->first_seq != seq;
    np_sampler_free(sampler);
    return wrong;
}

Test(sampler, evaluations_come_at_their_points_and_after_the_last_step)
{
    static const double epochs[] = {0, 0.1, 0.25, 1, 1.5, 3, 100};
    static const uint64_t steps[] = {1, 2, 7, 50, 1000};

    for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++)
        for (uint64_t n = 5; n < 200; n += 48) {
            struct np_sampler_options options = {.nr_train = n,
                .nr_eval = 45,
                .batch = 16,
                .nr_steps = 101,
                .eval_epochs = epochs[i]};

            cr_assert_eq(walk(&options), 0, "%g epochs of %d", epochs[i], (int)n);
        }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct np_sampler_options options = {
            .nr_train = 64, .nr_eval = 32, .batch = 16, .nr_steps = 100, .eval_steps = steps[i]};

        cr_assert_eq(walk(&options), 0, "every %d steps", (int)steps[i]);
    }
}

Test(sampler, resuming_at_any_step_gives_the_same_tickets)
{
    struct np_sampler_options options = {
        .seed = 11, .nr_train = 50, .nr_eval = 20, .batch = 8, .nr_steps = 40, .eval_epochs = 1};
    struct np_sampler *whole = make(&options), *resumed = make(&options);

    for (uint64_t step = 0; step <= 40; step++)
        for (int due = 0; due <= 1; due++) {
            struct np_ticket a, b;
            uint64_t seq;
            int row = 0;

            np_sampler_start(resumed, step, due);
            seq = resumed->first_seq;
            if (step < 40 && !(due && np_sampler_eval_after(whole, step))) {
                np_sampler_ticket(whole, seq, 0, &a);
                cr_assert(a.kind == NP_BATCH_TRAIN && a.step == step);
            }
            while (np_sampler_next(resumed, &b, 1)) {
                np_sampler_ticket(whole, seq, row, &a);
                cr_assert(a.seq == b.seq && a.row == b.row && a.sample == b.sample &&
                          a.kind == b.kind && a.step == b.step && a.position == b.position &&
                          a.epoch == b.epoch && a.masked == b.masked);
                row = (row + 1) % 8;
                seq += row == 0;
            }
            cr_assert_eq(seq, whole->nr_batches);
        }
    np_sampler_free(whole);
    np_sampler_free(resumed);
}

Test(sampler, an_evaluation_that_is_due_comes_first)
{
    struct np_sampler_options options = {
        .nr_train = 50, .nr_eval = 20, .batch = 10, .nr_steps = 10, .eval_epochs = 1};
    struct np_sampler *sampler = make(&options);
    struct np_ticket ticket;

    np_sampler_start(sampler, 5, true);
    cr_assert(np_sampler_next(sampler, &ticket, 1));
    cr_assert(ticket.kind == NP_BATCH_EVAL && ticket.step == 5 && ticket.part == 0);
    np_sampler_start(sampler, 5, false);
    cr_assert(np_sampler_next(sampler, &ticket, 1));
    cr_assert(ticket.kind == NP_BATCH_TRAIN && ticket.step == 5);
    np_sampler_start(sampler, 10, true);
    cr_assert(np_sampler_next(sampler, &ticket, 1));
    cr_assert(ticket.kind == NP_BATCH_EVAL && ticket.step == 10);
    np_sampler_free(sampler);
}

Test(sampler, a_run_without_steps_is_one_evaluation)
{
    struct np_sampler_options options = {.nr_eval = 21, .batch = 8};
    struct np_sampler *sampler = make(&options);
    struct np_ticket ticket;
    int masked = 0, rows = 0;

    np_sampler_start(sampler, 0, true);
    for (; np_sampler_next(sampler, &ticket, 1); rows++)
        masked += ticket.masked;
    cr_assert_eq(rows, 24);
    cr_assert_eq(masked, 3);
    np_sampler_free(sampler);
}

Test(sampler, replacements_are_other_samples_of_the_training_part)
{
    uint32_t split[1100];
    const struct np_sampler_options options = {.seed = 1,
        .nr_train = 1000,
        .nr_eval = 100,
        .batch = 10,
        .nr_steps = 100,
        .split = make_split(split, 1100)};
    struct np_sampler *sampler = make(&options);
    bool is_train[1100] = {false};
    int equal = 0;
    struct np_ticket ticket;

    np_sampler_start(sampler, 0, false);
    while (np_sampler_next(sampler, &ticket, 1))
        if (ticket.kind == NP_BATCH_TRAIN)
            is_train[ticket.sample] = true;
    for (uint64_t step = 0; step < 100; step++)
        for (int attempt = 1; attempt < 5; attempt++) {
            uint64_t sample;

            np_sampler_ticket(sampler, step, 3, &ticket);
            sample = np_sampler_replacement(sampler, &ticket, attempt);
            cr_assert(sample < 1100 && is_train[sample]);
            cr_assert_eq(sample, np_sampler_replacement(sampler, &ticket, attempt));
            equal += sample == ticket.sample;
        }
    cr_assert_lt(equal, 10);
    np_sampler_free(sampler);
}

Test(sampler, options_that_cannot_work_are_refused)
{
    struct np_sampler *sampler = NULL;
    struct np_err err = {0};
    struct np_sampler_options options = {.nr_train = 0, .batch = 8, .nr_steps = 1};

    cr_assert_eq(np_sampler_new(&options, &sampler, &err), -EINVAL);
    cr_assert_not_null(strstr(err.text, "no samples"));
    options = (struct np_sampler_options){.nr_train = 1, .batch = 8, .nr_steps = 1ull << 31};
    cr_assert_eq(np_sampler_new(&options, &sampler, NULL), -EOVERFLOW);
    cr_assert_null(sampler);
}

Test(sampler, far_positions_are_exact)
{
    struct np_sampler_options options = {.seed = 2,
        .nr_train = 1281167,
        .nr_eval = 50000,
        .batch = 256,
        .nr_steps = 450ull * 1000 * 1000,
        .eval_epochs = 1};
    struct np_sampler *sampler = make(&options);

    for (uint64_t step = options.nr_steps - 20000; step < options.nr_steps; step += 7) {
        struct np_ticket ticket;

        np_sampler_start(sampler, step, false);
        np_sampler_ticket(sampler, sampler->first_seq, 255, &ticket);
        cr_assert(ticket.kind == NP_BATCH_TRAIN && ticket.step == step);
        cr_assert_eq(ticket.position, (step * 256 + 255) % 1281167);
    }
    np_sampler_free(sampler);
}

/* Rows of both kinds, of one process or of several side by side, in the order of batches. */
static uint64_t samples_of(int world, int batch, uint64_t *ret_samples)
{
    uint64_t nr = 0;

    for (int rank = 0; rank < world; rank++) {
        const struct np_sampler_options options = {.seed = 3,
            .nr_train = 103,
            .nr_eval = 37,
            .batch = batch / world,
            .eval_epochs = 0.5,
            .nr_steps = 40,
            .rank = rank,
            .world = world};
        struct np_sampler *sampler = make(&options);
        struct np_ticket ticket;

        np_sampler_start(sampler, 0, false);
        for (; np_sampler_next(sampler, &ticket, 1); nr++) {
            const uint64_t row = (uint64_t)rank * (uint64_t)options.batch + (uint64_t)ticket.row;

            ret_samples[ticket.seq * (uint64_t)batch + row] =
                ticket.sample + (ticket.kind == NP_BATCH_EVAL ? 1000 : 0) + ticket.epoch * 10000;
        }
        np_sampler_free(sampler);
    }
    return nr;
}

Test(sampler, stripes_of_several_processes_are_the_batches_of_one)
{
    static uint64_t whole[10000], striped[10000];
    const uint64_t nr = samples_of(1, 16, whole);

    cr_assert_gt(nr, 40 * 16);
    for (int world = 2; world <= 16; world *= 2) {
        memset(striped, 0xff, sizeof(striped));
        cr_assert_eq(samples_of(world, 16, striped), nr);
        cr_assert_eq(memcmp(whole, striped, nr * sizeof(*whole)), 0, "%d processes", world);
    }
}
