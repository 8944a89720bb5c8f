/* Balanced classes: each comes equally often, and a class has all its samples before one comes again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/balance.h"
#include "loader/sampler.h"

#include "tests/test.h"
#include "tests/unit/made_set.h"

#define MAX 200

static int sum(const int *values, int n)
{
    int total = 0;

    for (int i = 0; i < n; i++)
        total += values[i];
    return total;
}

Test(balance, draws_take_classes_in_turn_and_a_class_whole_before_it_comes_again)
{
    static const int sizes[] = {1, 40, 0, 7, 2};
    struct np_index *index = made_classes(sizes, 5, true);
    struct np_balance *balance = NULL;
    int seen[50] = {0}, turns[50] = {0}, moved = 0;

    cr_assert_eq(np_balance_new(index, NULL, 50, &balance, NULL), 0);
    cr_assert_eq(balance->nr_classes, 4, "the class without samples does not count");
    for (uint64_t draw = 0; draw < 4 * 400; draw++) {
        static const int classes[] = {0, 1, 3, 4};
        const uint32_t sample = np_balance_sample(balance, 5, draw);
        const int class = classes[draw % 4], turn = (int)(draw / 4) / sizes[class];

        cr_assert_lt(sample, 50);
        cr_assert_eq((int)np_index_record(index, sample)->label, class, "draw %d", (int)draw);
        cr_assert_eq(seen[sample], turn, "draw %d: sample %d", (int)draw, (int)sample);
        seen[sample]++;
        moved += turn > 0 && turns[sample] != (int)(draw / 4) % sizes[class];
        turns[sample] = (int)(draw / 4) % sizes[class];
    }
    cr_expect_gt(moved, 350, "each turn has an order of its own");
    np_balance_free(balance);
    np_index_free(index);
}

/* Of all epochs: the draws of each class per epoch, and of each sample in all. */
static void check_epochs(const int *sizes, int nr_classes, int nr_eval, int repeat, int nr_epochs)
{
    const int all = sum(sizes, nr_classes), n = all - nr_eval, nr_draws = (n + repeat - 1) / repeat;
    struct np_index *index = made_classes(sizes, nr_classes, true);
    struct np_balance *balance = NULL;
    struct np_sampler *sampler = NULL;
    uint32_t split[MAX];
    int samples[MAX] = {0}, of_class[8] = {0}, kept = 0;

    for (int i = 0; i < all; i++)
        split[i] = (uint32_t)((i * 37 + 5) % all);
    cr_assert_eq(np_balance_new(index, split + nr_eval, (uint64_t)n, &balance, NULL), 0);
    const struct np_sampler_options options = {.seed = 3,
        .nr_train = (uint64_t)n,
        .nr_eval = (uint64_t)nr_eval,
        .batch = 1,
        .nr_steps = (uint64_t)(n * nr_epochs),
        .repeat = repeat,
        .balance = true,
        .classes = balance,
        .split = split};
    cr_assert_eq(np_sampler_new(&options, &sampler, NULL), 0);
    for (int c = 0; c < nr_classes; c++)
        kept += sizes[c] > 0;
    for (int epoch = 0; epoch < nr_epochs; epoch++) {
        int classes[8] = {0};
        struct np_ticket ticket, last = {0};

        for (int p = 0; p < n; p++) {
            np_sampler_ticket(sampler, (uint64_t)(epoch * n + p), 0, &ticket);
            cr_assert_eq(ticket.position, (uint32_t)p);
            cr_assert(p % repeat == 0 || ticket.sample == last.sample, "position %d", p);
            if (p % repeat == 0) {
                samples[ticket.sample]++;
                classes[np_index_record(index, ticket.sample)->label]++;
            }
            last = ticket;
        }
        for (int c = 0; c < nr_classes; c++) {
            cr_assert(sizes[c] == 0 || classes[c] == nr_draws / kept ||
                          classes[c] == (nr_draws + kept - 1) / kept,
                "class %d: %d of %d draws of epoch %d", c, classes[c], nr_draws, epoch);
            of_class[c] += classes[c];
        }
    }
    for (int i = nr_eval; i < all; i++) {
        const unsigned c = np_index_record(index, split[i])->label;
        int size = 0;

        for (int k = nr_eval; k < all; k++)
            size += np_index_record(index, split[k])->label == c;
        cr_assert(samples[split[i]] == of_class[c] / size ||
                      samples[split[i]] == (of_class[c] + size - 1) / size,
            "sample %d: %d of the %d draws of %d", (int)split[i], samples[split[i]], of_class[c],
            size);
    }
    for (int i = 0; i < nr_eval; i++)
        cr_assert_eq(samples[split[i]], 0, "evaluation's sample %d is not drawn", (int)split[i]);
    np_sampler_free(sampler);
    np_balance_free(balance);
    np_index_free(index);
}

Test(balance, epochs_have_equal_classes_of_the_part_that_is_trained_on)
{
    static const int sizes[] = {3, 50, 11, 26};

    check_epochs(sizes, 4, 0, 1, 7);
    check_epochs(sizes, 4, 13, 1, 7); /* 77 is no multiple of 4 */
    check_epochs(sizes, 3, 0, 3, 9);
    check_epochs(sizes, 4, 1, 3, 9);
    check_epochs(sizes, 4, 1, 200, 9); /* one sample an epoch */
}

Test(balance, seeds_give_other_orders_and_one_class_is_a_set_of_its_own)
{
    static const int sizes[] = {100};
    struct np_index *index = made_classes(sizes, 1, true);
    struct np_balance *balance = NULL;
    int same = 0;

    cr_assert_eq(np_balance_new(index, NULL, 100, &balance, NULL), 0);
    for (uint64_t draw = 0; draw < 100; draw++)
        same += np_balance_sample(balance, 1, draw) == np_balance_sample(balance, 2, draw);
    cr_expect(same < 10, "%d", same);
    np_balance_free(balance);
    np_index_free(index);
}

Test(balance, a_sample_in_no_class_is_refused)
{
    static const int sizes[] = {2, 2};
    struct np_index *index = made_classes(sizes, 2, false);
    struct np_balance *balance = NULL;
    struct np_err err = {0};

    cr_expect_eq(np_balance_new(index, NULL, 4, &balance, &err), -EINVAL);
    cr_expect_str_eq(err.text, "loader.balance: sample 1 of the training set is in no class");
    cr_expect_null(balance);
    np_index_free(index);
}
