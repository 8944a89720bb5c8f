/* Samples that cannot be decoded: counted against the budget, and listed for bad_samples.jsonl. */
#ifndef NP_BAD_H
#define NP_BAD_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/batch.h"

/* A bad sample: replaced in training, masked in an evaluation. */
struct np_bad_sample {
    uint64_t step, sample;
    uint64_t seq;     /* of its batch */
    int row, attempt; /* attempt: number of bad samples before it at this row */
    uint32_t position, epoch;
    enum np_batch_kind kind;
    char path[1024]; /* file, or shard:member */
    uint64_t offset; /* in the file */
    char reason[256];
};

struct np_bad;

struct np_bad_options {
    bool fail;                  /* the first bad sample ends the run */
    double budget;              /* max share of bad samples in an epoch or evaluation */
    uint64_t nr_train, nr_eval; /* samples */
    uint32_t epoch;             /* the first epoch of this process */
    uint64_t nr_bad;            /* bad samples in that epoch before the run resumed */
};

int np_bad_new(const struct np_bad_options *options, struct np_bad **ret_bad, struct np_err *err);
void np_bad_free(struct np_bad *bad);
/* Copies a bad sample and keeps it until its batch is judged. Any thread. 0: replace it; 1: do not
 * replace it, because the run will end at this row; -ENOMEM. */
int np_bad_add(struct np_bad *bad, const struct np_bad_sample *sample, struct np_err *err);
/* Copies those of batch seq that are not judged yet, in order of row and attempt, at most max;
 * returns their number, which may exceed max. Any thread. */
int np_bad_of(struct np_bad *bad, uint64_t seq, struct np_bad_sample *ret_samples, int max);
/* Judges a complete batch; np_ring_judge() calls it for every batch, in order, with the struct
 * np_bad as context. After it np_bad_next() returns the bad samples of the batch. -EBADMSG: the
 * policy is fail, the budget is spent, or all replacements of a row were bad. */
int np_bad_judge(void *context, uint64_t seq, struct np_err *err);
/* Samples that were judged so far. The thread that takes batches. */
uint64_t np_bad_judged(const struct np_bad *bad);
/* The next judged sample, in order of batch, row and attempt; false: none. Any thread. */
bool np_bad_next(struct np_bad *bad, struct np_bad_sample *ret_sample);

#endif
