/* Samples that cannot be decoded: counted against the budget, named for bad_samples.jsonl. */
#ifndef NP_BAD_H
#define NP_BAD_H

#include "loader/loader.h"

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
/* Counts and keeps one, copied. Any thread. -EBADMSG: the policy says fail, or the budget is
 * spent; err says so. -ENOMEM. */
int np_bad_add(struct np_bad *bad, const struct np_bad_sample *sample, struct np_err *err);
/* The next one kept, in the order added; false: none. Any thread. */
bool np_bad_next(struct np_bad *bad, struct np_bad_sample *ret_sample);

#endif
