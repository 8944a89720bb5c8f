/* The bad-sample policy. Readers add, the run takes and writes the list. Counts are kept an
 * epoch (training) and an evaluation, because readers work across their edges; what is bad
 * depends on content alone, so the counts are the same whatever the threads did.
 * Memory is taken only for bad samples, which the budget bounds. */
#include "loader/bad.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>

#include "loader/base/mem.h"

/* Epochs or evaluations that readers may be in at once; a set smaller than a batch has many. */
#define NR_COUNTS 64

struct count {
    uint64_t period; /* epoch, or step of the evaluation */
    uint64_t nr_bad;
};

struct entry {
    struct np_bad_sample sample;
    struct entry *next;
};

struct np_bad {
    struct np_bad_options options; /* set once */

    pthread_mutex_t lock;
    struct count counts[2][NR_COUNTS]; /* under lock; [enum np_batch_kind] */
    struct entry *first, **last;       /* under lock: not taken yet, oldest first */
};

int np_bad_new(const struct np_bad_options *options, struct np_bad **ret_bad, struct np_err *err)
{
    struct np_bad *bad = np_alloc(sizeof(*bad));

    if (!bad)
        return np_err_set(err, -ENOMEM, "out of memory for the bad-sample list");
    bad->options = *options;
    bad->last = &bad->first;
    pthread_mutex_init(&bad->lock, NULL);
    bad->counts[NP_BATCH_TRAIN][options->epoch % NR_COUNTS] =
        (struct count){options->epoch, options->nr_bad};
    *ret_bad = bad;
    return 0;
}

void np_bad_free(struct np_bad *bad)
{
    if (!bad)
        return;
    for (struct entry *entry = bad->first, *next; entry; entry = next) {
        next = entry->next;
        np_free(entry);
    }
    pthread_mutex_destroy(&bad->lock);
    np_free(bad);
}

/* Bad samples of this one's epoch or evaluation, itself included. */
static uint64_t count(struct np_bad *bad, const struct np_bad_sample *sample)
{
    const uint64_t period = sample->kind == NP_BATCH_TRAIN ? sample->epoch : sample->step;
    struct count *slot = &bad->counts[sample->kind][period % NR_COUNTS];

    if (slot->period != period)
        *slot = (struct count){.period = period};
    return ++slot->nr_bad;
}

static int judge(const struct np_bad *bad, const struct np_bad_sample *sample, uint64_t nr_bad,
    struct np_err *err)
{
    const bool train = sample->kind == NP_BATCH_TRAIN;
    const uint64_t n = train ? bad->options.nr_train : bad->options.nr_eval;
    const uint64_t allowed = (uint64_t)ceil(bad->options.budget * (double)n);

    if (bad->options.fail)
        return np_err_set(err, -EBADMSG,
            "bad sample %s at offset %llu: %s (loader.bad_samples says fail)", sample->path,
            (unsigned long long)sample->offset, sample->reason);
    if (nr_bad <= allowed)
        return 0;
    return np_err_set(err, -EBADMSG,
        "over %llu of the %llu samples of %s %llu are bad, more than loader.bad_samples.budget "
        "allows (%g%%); bad_samples.jsonl in the run's folder names them, the last is %s: %s",
        (unsigned long long)allowed, (unsigned long long)n,
        train ? "epoch" : "the evaluation after step",
        (unsigned long long)(train ? sample->epoch : sample->step), bad->options.budget * 100,
        sample->path, sample->reason);
}

int np_bad_add(struct np_bad *bad, const struct np_bad_sample *sample, struct np_err *err)
{
    struct entry *entry = np_alloc(sizeof(*entry));
    uint64_t nr_bad;

    if (!entry)
        return np_err_set(err, -ENOMEM, "out of memory for the bad-sample list");
    entry->sample = *sample;
    pthread_mutex_lock(&bad->lock);
    *bad->last = entry;
    bad->last = &entry->next;
    nr_bad = count(bad, sample);
    pthread_mutex_unlock(&bad->lock);
    return judge(bad, sample, nr_bad, err);
}

bool np_bad_next(struct np_bad *bad, struct np_bad_sample *ret_sample)
{
    struct entry *entry;

    pthread_mutex_lock(&bad->lock);
    entry = bad->first;
    if (entry && !(bad->first = entry->next))
        bad->last = &bad->first;
    pthread_mutex_unlock(&bad->lock);
    if (!entry)
        return false;
    *ret_sample = entry->sample;
    np_free(entry);
    return true;
}
