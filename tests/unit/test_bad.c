/* The bad-sample policy by itself: budgets an epoch and an evaluation, the order, the list. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/bad.h"

#include "tests/test.h"

static struct np_bad_sample sample(enum np_batch_kind kind, uint32_t epoch, uint64_t step)
{
    struct np_bad_sample bad = {.kind = kind, .epoch = epoch, .step = step, .sample = step};

    snprintf(bad.path, sizeof(bad.path), "a.tar:%llu.jpg", (unsigned long long)step);
    snprintf(bad.reason, sizeof(bad.reason), "is torn");
    return bad;
}

/* The next batch has one bad sample, and is taken. */
static int add(struct np_bad *bad, enum np_batch_kind kind, uint32_t epoch, uint64_t step)
{
    static uint64_t seq;
    struct np_bad_sample one = sample(kind, epoch, step);

    one.seq = seq++;
    cr_assert_geq(np_bad_add(bad, &one, NULL), 0);
    return np_bad_judge(bad, one.seq, NULL);
}

Test(bad, the_budget_is_per_epoch)
{
    const struct np_bad_options options = {.budget = 0.02, .nr_train = 100, .nr_eval = 50};
    struct np_bad *bad = NULL;

    cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
    for (uint32_t epoch = 0; epoch < 200; epoch++)
        for (int i = 0; i < 2; i++)
            cr_assert_eq(add(bad, NP_BATCH_TRAIN, epoch, 1), 0);
    cr_assert_eq(add(bad, NP_BATCH_TRAIN, 199, 5), -EBADMSG);
    np_bad_free(bad);
}

Test(bad, an_evaluation_has_a_budget_of_its_own)
{
    const struct np_bad_options options = {.budget = 0.02, .nr_train = 100, .nr_eval = 50};
    struct np_bad *bad = NULL;

    cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
    cr_assert_eq(add(bad, NP_BATCH_TRAIN, 0, 1), 0);
    cr_assert_eq(add(bad, NP_BATCH_TRAIN, 0, 1), 0);
    cr_assert_eq(add(bad, NP_BATCH_EVAL, 0, 10), 0); /* 2 % of 50 */
    cr_assert_eq(add(bad, NP_BATCH_EVAL, 0, 20), 0);
    cr_assert_eq(add(bad, NP_BATCH_EVAL, 0, 20), -EBADMSG);
    np_bad_free(bad);
}

Test(bad, a_resumed_run_continues_the_count)
{
    const struct np_bad_options options = {
        .budget = 0.05, .nr_train = 100, .epoch = 67, .nr_bad = 4};
    struct np_bad *bad = NULL;
    struct np_err err = {0};
    struct np_bad_sample one = sample(NP_BATCH_TRAIN, 67, 9);

    cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
    cr_assert_eq(np_bad_add(bad, &one, &err), 0);
    cr_assert_eq(np_bad_judge(bad, 0, &err), 0);
    one.seq = 1;
    cr_assert_eq(np_bad_add(bad, &one, &err), 1); /* nothing need take its place */
    cr_assert_eq(np_bad_judge(bad, 1, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "over 5 of the 100 samples of epoch 67"));
    cr_assert_not_null(strstr(err.text, "a.tar:9.jpg: is torn"));
    cr_assert_eq(add(bad, NP_BATCH_TRAIN, 68, 1), 0);
    np_bad_free(bad);
}

Test(bad, a_small_budget_allows_one_and_a_zero_budget_none)
{
    struct np_bad_options options = {.budget = 0.001, .nr_train = 10};
    struct np_bad *bad = NULL;

    cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
    cr_assert_eq(add(bad, NP_BATCH_TRAIN, 0, 1), 0);
    cr_assert_eq(add(bad, NP_BATCH_TRAIN, 0, 2), -EBADMSG);
    np_bad_free(bad);
    options.budget = 0;
    cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
    cr_assert_eq(add(bad, NP_BATCH_TRAIN, 0, 1), -EBADMSG);
    np_bad_free(bad);
    options = (struct np_bad_options){.budget = 1, .nr_train = 10, .fail = true};
    cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
    cr_assert_eq(add(bad, NP_BATCH_TRAIN, 0, 1), -EBADMSG);
    np_bad_free(bad);
}

/* Three batches of four rows, two bad ones in each, of which row 2 takes two attempts. */
static void found(struct np_bad *bad, const int order[9])
{
    for (int i = 0; i < 9; i++) {
        struct np_bad_sample one = sample(NP_BATCH_TRAIN, 0, (uint64_t)order[i]);

        one.seq = (uint64_t)order[i] / 3;
        one.row = order[i] % 3 == 0 ? 1 : 2;
        one.attempt = order[i] % 3 == 2;
        np_bad_add(bad, &one, NULL);
    }
}

Test(bad, the_end_of_a_run_depends_on_no_order_of_finding)
{
    static const int orders[][9] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8}, {8, 7, 6, 5, 4, 3, 2, 1, 0}, {6, 7, 8, 3, 4, 0, 1, 5, 2}};
    const struct np_bad_options options = {.budget = 0.04, .nr_train = 100};

    for (int i = 0; i < 3; i++) {
        struct np_bad_sample got;
        struct np_err err = {0};
        struct np_bad *bad = NULL;

        cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
        found(bad, orders[i]);
        cr_assert_not(np_bad_next(bad, &got)); /* nothing is judged yet */
        cr_assert_eq(np_bad_judge(bad, 0, &err), 0);
        cr_assert_eq(np_bad_judge(bad, 1, &err), -EBADMSG);
        cr_assert_not_null(strstr(err.text, "the last is a.tar:4.jpg"), "%s", err.text);
        for (uint64_t k = 0; k < 6; k++) { /* the batch that ends it is listed whole */
            cr_assert(np_bad_next(bad, &got));
            cr_assert_eq(got.step, k);
        }
        cr_assert_not(np_bad_next(bad, &got)); /* the readers' work ahead is not */
        np_bad_free(bad);
    }
}

Test(bad, a_row_that_ends_the_run_requests_no_more_samples)
{
    const struct np_bad_options options = {.budget = 0.03, .nr_train = 100};
    struct np_bad_sample one = sample(NP_BATCH_TRAIN, 0, 1);
    struct np_bad *bad = NULL;

    cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
    for (one.row = 5; one.row >= 3; one.row--) /* behind it: they do not count for row 0 */
        cr_assert_eq(np_bad_add(bad, &one, NULL), 0);
    one.row = 0;
    for (one.attempt = 0; one.attempt < 3; one.attempt++)
        cr_assert_eq(np_bad_add(bad, &one, NULL), 0);
    cr_assert_eq(np_bad_add(bad, &one, NULL), 1);
    one.row = 6;
    cr_assert_eq(np_bad_add(bad, &one, NULL), 1);
    np_bad_free(bad); /* the address sanitizer counts */
}

Test(bad, a_row_without_a_good_sample_after_many_attempts_ends_the_run)
{
    const struct np_bad_options options = {.budget = 1, .nr_train = 1000000};
    struct np_bad_sample one = sample(NP_BATCH_TRAIN, 0, 1);
    struct np_err err = {0};
    struct np_bad *bad = NULL;

    cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
    for (; one.attempt < 1000; one.attempt++)
        cr_assert_eq(np_bad_add(bad, &one, NULL), 0);
    cr_assert_eq(np_bad_add(bad, &one, NULL), 1);
    cr_assert_eq(np_bad_judge(bad, 0, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "1000 replacements of a bad sample"));
    np_bad_free(bad);
}

Test(bad, the_list_gives_each_once_in_order_and_frees_the_rest)
{
    const struct np_bad_options options = {.budget = 1, .nr_train = 1000};
    struct np_bad_sample got;
    struct np_bad *bad = NULL;

    cr_assert_eq(np_bad_new(&options, &bad, NULL), 0);
    cr_assert_not(np_bad_next(bad, &got));
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 5; i++)
            cr_assert_eq(add(bad, NP_BATCH_TRAIN, 0, round * 5 + i), 0);
        for (uint64_t i = 0; i < 5; i++) {
            cr_assert(np_bad_next(bad, &got));
            cr_assert_eq(got.step, round * 5 + i);
            cr_assert_str_eq(got.reason, "is torn");
        }
        cr_assert_not(np_bad_next(bad, &got));
    }
    add(bad, NP_BATCH_TRAIN, 0, 99);
    np_bad_free(bad); /* the address sanitizer counts */
}
