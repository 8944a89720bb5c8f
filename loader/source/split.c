#include "loader/source/split.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "loader/base/text.h"

const char *const np_split_rules[] = {"class", "random", NULL};

bool np_fold_read(const char *text, int *ret_fold, int *ret_nr_folds)
{
    int64_t fold, nr;
    const char *rest = np_text_int_end(text, &fold);

    if (!rest || *rest != '/' || !np_text_int(rest + 1, 2, NP_MAX_FOLDS, &nr) || fold < 1 ||
        fold > nr)
        return false;
    *ret_fold = (int)fold - 1;
    *ret_nr_folds = (int)nr;
    return true;
}

/* A class; the last one holds the samples without a label. */
struct class
{
    int number;
    uint64_t nr_samples, nr_kept;
    uint64_t first;   /* of its samples in the list sorted by class */
    double remainder; /* of its share, after rounding down; below 0: add nothing */
};

static int class_of(const struct np_index *index, uint64_t sample)
{
    const struct np_record *record = np_index_record(index, sample);

    return record->no_label ? index->nr_classes : (int)record->label;
}

static int larger_remainder(const void *left, const void *right)
{
    const struct class *const *a = left, *const *b = right;

    if ((*a)->remainder != (*b)->remainder)
        return (*a)->remainder > (*b)->remainder ? -1 : 1;
    return (*a)->number - (*b)->number;
}

/* Rounds each class's share down, but not below one; returns the total. */
static uint64_t round_down(struct class *classes, int nr_classes, double share)
{
    uint64_t nr_kept = 0;

    for (int c = 0; c < nr_classes; c++) {
        struct class *class = &classes[c];
        const double part = share * (double)class->nr_samples;
        const uint64_t max = class->nr_samples > 1 ? class->nr_samples - 1 : 0;

        class->nr_kept = (uint64_t)part;
        class->remainder = part - (double)class->nr_kept;
        if (class->nr_kept == 0 && max > 0) {
            class->nr_kept = 1;
            class->remainder = -1;
        }
        if (class->nr_kept >= max) {
            class->nr_kept = max;
            class->remainder = -1;
        }
        nr_kept += class->nr_kept;
    }
    return nr_kept;
}

static int share_out(
    struct class *classes, int nr_classes, double share, uint64_t nr_wanted, struct np_err *err)
{
    struct class **sorted = np_try_array((size_t)nr_classes, sizeof(*sorted), err);
    uint64_t nr_kept;

    if (!sorted)
        return -ENOMEM;
    nr_kept = round_down(classes, nr_classes, share);
    for (int c = 0; c < nr_classes; c++)
        sorted[c] = &classes[c];
    qsort(sorted, (size_t)nr_classes, sizeof(struct class *), larger_remainder);
    for (int c = 0; c < nr_classes && nr_kept < nr_wanted && sorted[c]->remainder >= 0; c++) {
        sorted[c]->nr_kept++;
        nr_kept++;
    }
    np_free(sorted);
    return 0;
}

static void put_in_order(const bool *kept, uint64_t nr_samples, struct np_split *split)
{
    uint64_t nr_eval = 0, nr_train = 0;

    for (uint64_t i = 0; i < nr_samples; i++)
        nr_eval += kept[i];
    split->nr_eval = nr_eval;
    split->nr_train = nr_samples - nr_eval;
    nr_eval = 0;
    for (uint64_t i = 0; i < nr_samples; i++)
        split->order[kept[i] ? nr_eval++ : split->nr_eval + nr_train++] = (uint32_t)i;
}

/* Without folds all are in it. */
static bool in_fold(const struct np_split_options *options, uint64_t i)
{
    return options->nr_folds == 0 || i % (uint64_t)options->nr_folds == (uint64_t)options->fold;
}

/* Chooses of a permutation of each class the first nr_kept samples, or those of the fold. sorted:
 * scratch, (nr_samples). */
static void draw(const struct np_index *index, const struct np_split_options *options,
    struct class *classes, int nr_classes, uint32_t *sorted, bool *kept)
{
    const uint64_t nr_samples = np_index_samples(index);
    uint64_t first = 0;

    for (int c = 0; c < nr_classes; c++) {
        classes[c].first = first;
        first += classes[c].nr_samples;
        classes[c].nr_samples = 0;
    }
    for (uint64_t i = 0; i < nr_samples; i++) {
        struct class *class = &classes[class_of(index, i)];

        sorted[class->first + class->nr_samples++] = (uint32_t)i;
    }
    for (int c = 0; c < nr_classes; c++) {
        const struct class *class = &classes[c];
        const uint64_t max = options->nr_folds ? class->nr_samples : class->nr_kept;

        for (uint64_t k = 0; k < max; k++)
            if (in_fold(options, class->first + k))
                kept[sorted[class->first + np_permute(class->nr_samples, options->seed,
                                               NP_STREAM_SPLIT, 0, (uint32_t)c + 1, k)]] = true;
    }
}

static int by_class(const struct np_index *index, const struct np_split_options *options,
    struct np_split *split, struct np_err *err)
{
    const double share = options->share;
    const uint64_t nr_samples = np_index_samples(index);
    const int nr_classes = index->nr_classes + 1;
    struct class *classes = np_try_array((size_t)nr_classes, sizeof(*classes), err);
    bool *kept = np_try_array((size_t)nr_samples + 1, sizeof(*kept), err);
    int code = classes && kept ? 0 : -ENOMEM;

    for (int c = 0; code == 0 && c < nr_classes; c++)
        classes[c].number = c;
    for (uint64_t i = 0; code == 0 && i < nr_samples; i++)
        classes[class_of(index, i)].nr_samples++;
    if (code == 0 && options->nr_folds == 0)
        code = share_out(
            classes, nr_classes, share, (uint64_t)llround(share * (double)nr_samples), err);
    if (code == 0) {
        draw(index, options, classes, nr_classes, split->order, kept);
        put_in_order(kept, nr_samples, split);
    }
    np_free(classes);
    np_free(kept);
    return code;
}

static void at_random(
    const struct np_index *index, const struct np_split_options *options, struct np_split *split)
{
    const uint64_t nr_samples = np_index_samples(index);
    uint64_t nr_eval = 0, nr_train = 0;

    split->nr_eval = (uint64_t)llround(options->share * (double)nr_samples);
    if (options->nr_folds) /* as many as i % nr_folds == fold has */
        split->nr_eval = (nr_samples + (uint64_t)(options->nr_folds - 1 - options->fold)) /
                         (uint64_t)options->nr_folds;
    split->nr_train = nr_samples - split->nr_eval;
    for (uint64_t i = 0; i < nr_samples; i++) {
        const bool eval = options->nr_folds ? in_fold(options, i) : i < split->nr_eval;

        split->order[eval ? nr_eval++ : split->nr_eval + nr_train++] =
            (uint32_t)np_permute(nr_samples, options->seed, NP_STREAM_SPLIT, 0, 0, i);
    }
}

int np_split_make(const struct np_index *index, const struct np_split_options *options,
    struct np_split *ret_split, struct np_err *err)
{
    const uint64_t nr_samples = np_index_samples(index);
    struct np_split split = {0};
    int code = 0;

    if (nr_samples > UINT32_MAX)
        return np_err_set(err, -EOVERFLOW, "a set has more than 4294967295 samples");
    split.order = np_try_array((size_t)nr_samples + 1, sizeof(*split.order), err);
    if (!split.order)
        code = -ENOMEM;
    else if (options->rule == NP_SPLIT_RANDOM)
        at_random(index, options, &split);
    else
        code = by_class(index, options, &split, err);
    if (code < 0) {
        np_split_fini(&split);
        return code;
    }
    *ret_split = split;
    return 0;
}

void np_split_fini(struct np_split *split)
{
    np_free(split->order);
    *split = (struct np_split){0};
}
