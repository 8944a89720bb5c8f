/* The split of one set: each class keeps its share, by split_seed alone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/rng.h"
#include "loader/source/split.h"

#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_set.h"

static struct np_split split_of(
    const struct np_index *index, double share, uint64_t seed, enum np_split_rule rule)
{
    struct np_split split = {0};
    struct np_err err = {0};

    const struct np_split_options options = {.share = share, .seed = seed, .rule = rule};

    cr_assert_eq(np_split_make(index, &options, &split, &err), 0, "%s", err.text);
    return split;
}

/* How many of each class are kept. */
static void count(const struct np_index *index, const struct np_split *split, int *kept)
{
    for (uint64_t i = 0; i < split->nr_eval; i++)
        kept[np_index_record(index, split->order[i])->label]++;
}

Test(split, each_class_keeps_its_share_rounded_so_that_the_sum_is_right)
{
    static const int sizes[] = {59, 118, 48, 38, 90, 44}, want[] = {12, 23, 10, 7, 18, 9};
    struct np_index *index = made_classes(sizes, 6, true);
    struct np_split split = split_of(index, 0.2, 1, NP_SPLIT_BY_CLASS);
    int kept[6] = {0};

    cr_expect_eq(split.nr_eval, 79);
    cr_expect_eq(split.nr_train, 318);
    count(index, &split, kept);
    for (int c = 0; c < 6; c++)
        cr_expect(
            abs(kept[c] - want[c]) <= 1 && kept[c] >= sizes[c] / 5, "class %d: %d", c, kept[c]);
    np_split_fini(&split);
    np_index_free(index);
}

Test(split, both_parts_are_the_set_in_its_order)
{
    static const int sizes[] = {20, 7, 1, 2};
    struct np_index *index = made_classes(sizes, 4, true);
    struct np_split split = split_of(index, 0.3, 4, NP_SPLIT_BY_CLASS);
    int seen[30] = {0};

    cr_assert_eq(split.nr_eval + split.nr_train, 30);
    for (uint64_t i = 0; i < 30; i++) {
        seen[split.order[i]]++;
        cr_expect(i == 0 || i == split.nr_eval || split.order[i] > split.order[i - 1]);
    }
    for (int i = 0; i < 30; i++)
        cr_expect_eq(seen[i], 1);
    np_split_fini(&split);
    np_index_free(index);
}

Test(split, a_class_of_two_gives_one_and_a_class_of_one_none)
{
    static const int sizes[] = {100, 2, 1, 3};
    static const double shares[] = {0.01, 0.1, 0.5, 0.9};

    for (int s = 0; s < 4; s++) {
        struct np_index *index = made_classes(sizes, 4, true);
        struct np_split split = split_of(index, shares[s], 1, NP_SPLIT_BY_CLASS);
        int kept[4] = {0};

        count(index, &split, kept);
        cr_expect_eq(kept[1], 1);
        cr_expect_eq(kept[2], 0);
        cr_expect(kept[3] >= 1 && kept[3] <= 2);
        np_split_fini(&split);
        np_index_free(index);
    }
}

Test(split, a_seed_fixes_the_parts_and_another_seed_has_others)
{
    static const int sizes[] = {50, 50};
    struct np_index *index = made_classes(sizes, 2, true);
    struct np_split a = split_of(index, 0.2, 1, NP_SPLIT_BY_CLASS),
                    b = split_of(index, 0.2, 1, NP_SPLIT_BY_CLASS),
                    c = split_of(index, 0.2, 2, NP_SPLIT_BY_CLASS);

    cr_expect_eq(memcmp(a.order, b.order, 100 * sizeof(*a.order)), 0);
    cr_expect_neq(memcmp(a.order, c.order, 20 * sizeof(*a.order)), 0);
    np_split_fini(&a);
    np_split_fini(&b);
    np_split_fini(&c);
    np_index_free(index);
}

/* What runs of before the rule have in their checkpoints. */
Test(split, at_random_is_the_permutation_that_older_runs_had)
{
    static const int sizes[] = {60, 40};
    struct np_index *index = made_classes(sizes, 2, true);
    struct np_split split = split_of(index, 0.25, 7, NP_SPLIT_RANDOM);

    cr_expect_eq(split.nr_eval, 25);
    for (uint64_t i = 0; i < 100; i++)
        cr_expect_eq(split.order[i], np_permute(100, 7, NP_STREAM_SPLIT, 0, 0, i));
    np_split_fini(&split);
    np_index_free(index);
}

/* Each sample is in one fold; sizes differ by one at most, by class also within each class. */
static void check_folds(enum np_split_rule rule, int nr_folds)
{
    static const int sizes[] = {23, 7, 1, 2, 30};
    struct np_index *index = made_classes(sizes, 5, true);
    int seen[63] = {0};

    for (int fold = 0; fold < nr_folds; fold++) {
        const struct np_split_options options = {0.5, 3, rule, fold, nr_folds};
        struct np_split split;
        int kept[5] = {0};

        cr_assert_eq(np_split_make(index, &options, &split, NULL), 0);
        cr_expect_eq(split.nr_eval + split.nr_train, 63);
        cr_expect(split.nr_eval == (uint64_t)(63 / nr_folds) ||
                  split.nr_eval == (uint64_t)(63 / nr_folds + 1));
        for (uint64_t i = 0; i < split.nr_eval; i++)
            seen[split.order[i]]++;
        count(index, &split, kept);
        for (int c = 0; c < 5 && rule == NP_SPLIT_BY_CLASS; c++)
            cr_expect(kept[c] == sizes[c] / nr_folds || kept[c] == sizes[c] / nr_folds + 1,
                "fold %d, class %d: %d", fold, c, kept[c]);
        np_split_fini(&split);
    }
    for (int i = 0; i < 63; i++)
        cr_expect_eq(seen[i], 1, "sample %d of %d folds", i, nr_folds);
    np_index_free(index);
}

Test(split, folds_are_equal_parts_of_which_each_sample_is_in_one)
{
    for (int nr_folds = 2; nr_folds < 12; nr_folds++) {
        check_folds(NP_SPLIT_BY_CLASS, nr_folds);
        check_folds(NP_SPLIT_RANDOM, nr_folds);
    }
}

Test(split, a_fold_is_two_numbers)
{
    static const char *const wrong[] = {"", "2", "/5", "2/", "0/5", "6/5", "1/1", "1/1001", "-1/5",
        "1/-5", "1/5/5", " 1/5", "1/5 ", "1.0/5", "99999999999999999999/5", "1/0"};
    int fold, nr;

    cr_assert(np_fold_read("2/5", &fold, &nr) && fold == 1 && nr == 5);
    cr_assert(np_fold_read("1000/1000", &fold, &nr) && fold == 999 && nr == 1000);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        cr_expect(!np_fold_read(wrong[i], &fold, &nr), "'%s'", wrong[i]);
}

#ifndef NP_SAN /* they have an allocator of their own */
Test(split, every_allocation_fails_once_and_is_reported)
{
    static const int sizes[] = {5, 5};
    struct np_index *index = made_classes(sizes, 2, true);

    for (int rule = NP_SPLIT_BY_CLASS; rule <= NP_SPLIT_RANDOM; rule++)
        for (int n = 1, failed = 1; failed; n++) {
            struct np_split split = {0};
            struct np_err err = {0};

            const struct np_split_options options = {
                .share = 0.2, .seed = 1, .rule = (enum np_split_rule)rule};

            made_memory_fail_libc(n);
            const int code = np_split_make(index, &options, &split, &err);

            failed = made_memory_failed_libc();
            made_memory_fail_libc(0);
            cr_assert_eq(code, failed ? -ENOMEM : 0);
            cr_assert(!failed || (!split.order && *err.text));
            np_split_fini(&split);
        }
    np_index_free(index);
}
#endif
