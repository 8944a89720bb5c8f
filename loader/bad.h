/* Samples that cannot be decoded: counted against the budget, named for bad_samples.jsonl. */
#ifndef NP_BAD_H
#define NP_BAD_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/batch.h"

/* A sample that was replaced (training) or masked (evaluation). */
struct np_bad_sample {
    uint64_t step, sample;
    uint64_t seq;     /* the ring's number of its batch, and where in it */
    int row, attempt; /* samples before it that were bad at this place */
    uint32_t position, epoch;
    enum np_batch_kind kind;
    char path[1024]; /* file, or shard:member */
    uint64_t offset; /* in the file */
    char reason[256];
};

struct np_bad;

struct np_bad_options {
    bool fail;                  /* the first one ends the run */
    double budget;              /* share of an epoch, or of an evaluation */
    uint64_t nr_train, nr_eval; /* samples */
    uint32_t epoch;             /* where the run begins ... */
    uint64_t nr_bad;            /* ... and bad samples of that epoch so far */
};

int np_bad_new(const struct np_bad_options *options, struct np_bad **ret_bad, struct np_err *err);
void np_bad_free(struct np_bad *bad);
/* Keeps one, copied, until its batch is judged. Any thread. 0: another sample may take its place; 1: none
 * needs to, the run will not get past this row; -ENOMEM. */
int np_bad_add(struct np_bad *bad, const struct np_bad_sample *sample, struct np_err *err);
/* A batch whose rows are all there; each one, in their order. -EBADMSG: the policy says fail, the budget
 * is spent, or nothing good was found for a row; err says so. Its samples can be had from now on. */
int np_bad_judge(struct np_bad *bad, uint64_t seq, struct np_err *err);
/* The next one judged, in order of batch, row and attempt; false: none. Any thread. */
bool np_bad_next(struct np_bad *bad, struct np_bad_sample *ret_sample);

#endif
