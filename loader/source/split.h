/* Chooses the samples of a set that evaluation gets (data.split, data.fold). The choice depends only
 * on the set's labels and these options, not on the run's seed. Any thread. */
#ifndef NP_SPLIT_H
#define NP_SPLIT_H

#include "loader/source/index.h"

enum np_split_rule {
    NP_SPLIT_BY_CLASS, /* evaluation gets the share of each class */
    NP_SPLIT_RANDOM,   /* without regard to classes: the only rule of old runs */
};
extern const char *const np_split_rules[]; /* "class", "random", NULL */

struct np_split_options {
    double share; /* of the samples, for evaluation */
    uint64_t seed;
    enum np_split_rule rule;
    /* nr_folds > 0: not a share but part `fold`, from 0, of so many of equal size. */
    int fold, nr_folds;
};
#define NP_MAX_FOLDS 1000
/* Reads "2/5": fold 1 of 5. False: text is no such fold. */
bool np_fold_read(const char *text, int *ret_fold, int *ret_nr_folds);

struct np_split {
    /* (nr_eval + nr_train): the evaluation samples, then the training samples. Owned. */
    uint32_t *order;
    uint64_t nr_eval, nr_train;
};

/* By class: evaluation gets the share of each class, rounded so that the total is round(share *
 * samples) (largest remainders first), but at least one sample, and not all, of a class of two or
 * more; a class of one goes to training. Both parts are in the set's order. Random: evaluation gets
 * the first round(share * samples) of a permutation, and both parts are in its order. Either part
 * may be empty.
 *
 * Folds: the permuted samples, by class one class after the other, go to the folds in turn. So each
 * sample is in one fold, and sizes differ by at most one, by class also those within each class. Both
 * parts are in the set's order, or, at random, in that of the permutation. -ENOMEM. */
int np_split_make(const struct np_index *index, const struct np_split_options *options,
    struct np_split *ret_split, struct np_err *err);
void np_split_fini(struct np_split *split);

#endif
