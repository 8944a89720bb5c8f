/* The bad-sample policy. Readers add samples in any order and ahead of the run; the run judges each
 * batch when it takes it, in order. So the batch at which a run ends depends on the data alone, not
 * on the progress of the readers. The budget bounds the memory: once it is spent, readers look for
 * no replacement. */
#include "loader/bad.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>

#include "loader/base/mem.h"

#define MAX_ATTEMPTS 1000 /* replacements of one position */

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
    uint64_t nr_judged; /* the thread that takes batches */
    /* under lock */
    struct count counts[2];      /* by enum np_batch_kind: judged, in the newest period */
    struct entry *unjudged;      /* by batch, row, attempt */
    struct entry *first, **last; /* judged, for np_bad_next(); the same order */
};

int np_bad_new(const struct np_bad_options *options, struct np_bad **ret_bad, struct np_err *err)
{
    struct np_bad *bad = np_try_alloc(sizeof(*bad), err);

    if (!bad)
        return -ENOMEM;
    bad->options = *options;
    bad->last = &bad->first;
    pthread_mutex_init(&bad->lock, NULL);
    bad->counts[NP_BATCH_TRAIN] = (struct count){options->epoch, options->nr_bad};
    *ret_bad = bad;
    return 0;
}

static void free_list(struct entry *entry)
{
    for (struct entry *next; entry; entry = next) {
        next = entry->next;
        np_free(entry);
    }
}

void np_bad_free(struct np_bad *bad)
{
    if (!bad)
        return;
    free_list(bad->first);
    free_list(bad->unjudged);
    pthread_mutex_destroy(&bad->lock);
    np_free(bad);
}

static uint64_t period_of(const struct np_bad_sample *sample)
{
    return sample->kind == NP_BATCH_TRAIN ? sample->epoch : sample->step;
}

/* Samples in the epoch or evaluation of this one. */
static uint64_t samples_of(const struct np_bad *bad, const struct np_bad_sample *sample)
{
    return sample->kind == NP_BATCH_TRAIN ? bad->options.nr_train : bad->options.nr_eval;
}

static uint64_t allowed_of(const struct np_bad *bad, const struct np_bad_sample *sample)
{
    return (uint64_t)ceil(bad->options.budget * (double)samples_of(bad, sample));
}

static bool is_before(const struct np_bad_sample *a, const struct np_bad_sample *b)
{
    if (a->seq != b->seq)
        return a->seq < b->seq;
    return a->row != b->row ? a->row < b->row : a->attempt < b->attempt;
}

int np_bad_add(struct np_bad *bad, const struct np_bad_sample *sample, struct np_err *err)
{
    const struct count *judged = &bad->counts[sample->kind];
    struct entry *entry = np_try_alloc(sizeof(*entry), err), **at;
    uint64_t nr_bad = 1; /* a lower bound: bad samples of this period up to this one */

    if (!entry)
        return -ENOMEM;
    entry->sample = *sample;
    pthread_mutex_lock(&bad->lock);
    for (at = &bad->unjudged; *at && is_before(&(*at)->sample, sample); at = &(*at)->next)
        nr_bad +=
            (*at)->sample.kind == sample->kind && period_of(&(*at)->sample) == period_of(sample);
    entry->next = *at;
    *at = entry;
    if (judged->period == period_of(sample))
        nr_bad += judged->nr_bad;
    pthread_mutex_unlock(&bad->lock);
    return bad->options.fail || nr_bad > allowed_of(bad, sample) || sample->attempt >= MAX_ATTEMPTS;
}

int np_bad_of(struct np_bad *bad, uint64_t seq, struct np_bad_sample *ret_samples, int max)
{
    int n = 0;

    pthread_mutex_lock(&bad->lock);
    for (const struct entry *at = bad->unjudged; at && at->sample.seq <= seq; at = at->next)
        if (at->sample.seq == seq) {
            if (n < max)
                ret_samples[n] = at->sample;
            n++;
        }
    pthread_mutex_unlock(&bad->lock);
    return n;
}

/* nr_bad: in the same epoch or evaluation, this sample included. */
static int judge(const struct np_bad *bad, const struct np_bad_sample *sample, uint64_t nr_bad,
    struct np_err *err)
{
    const uint64_t allowed = allowed_of(bad, sample);

    if (bad->options.fail)
        return np_err_set(err, -EBADMSG,
            "bad sample %s at offset %llu: %s (loader.bad_samples is fail)", sample->path,
            (unsigned long long)sample->offset, sample->reason);
    if (nr_bad > allowed)
        return np_err_set(err, -EBADMSG,
            "over %llu of the %llu samples of %s %llu are bad, more than loader.bad_samples.budget "
            "allows (%g%%); bad_samples.jsonl in the run's folder lists them, the last is %s: %s",
            (unsigned long long)allowed, (unsigned long long)samples_of(bad, sample),
            sample->kind == NP_BATCH_TRAIN ? "epoch" : "the evaluation after step",
            (unsigned long long)period_of(sample), bad->options.budget * 100, sample->path,
            sample->reason);
    if (sample->attempt >= MAX_ATTEMPTS)
        return np_err_set(err, -EBADMSG,
            "%d replacements of a bad sample, one after another, are bad too", MAX_ATTEMPTS);
    return 0;
}

/* Under lock. */
static uint64_t count(struct np_bad *bad, const struct np_bad_sample *sample)
{
    struct count *judged = &bad->counts[sample->kind];

    if (judged->period != period_of(sample))
        *judged = (struct count){.period = period_of(sample)};
    return ++judged->nr_bad;
}

int np_bad_judge(void *context, uint64_t seq, struct np_err *err)
{
    struct np_bad *bad = context;
    int code = 0;

    pthread_mutex_lock(&bad->lock);
    while (bad->unjudged && bad->unjudged->sample.seq <= seq) {
        struct entry *entry = bad->unjudged;
        const uint64_t nr_bad = count(bad, &entry->sample);

        bad->nr_judged++;
        bad->unjudged = entry->next;
        entry->next = NULL;
        *bad->last = entry;
        bad->last = &entry->next;
        if (code == 0)
            code = judge(bad, &entry->sample, nr_bad, err);
    }
    pthread_mutex_unlock(&bad->lock);
    return code;
}

uint64_t np_bad_judged(const struct np_bad *bad)
{
    return bad->nr_judged;
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
