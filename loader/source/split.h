/* Which samples of one set are kept from training, for evaluation (data.split). A function of the set's
 * labels, share, seed and rule alone: the seed of the run plays no part. Any thread. */
#ifndef NP_SPLIT_H
#define NP_SPLIT_H

#include "loader/source/index.h"

enum np_split_rule {
    NP_SPLIT_BY_CLASS, /* each class keeps its share */
    NP_SPLIT_RANDOM, /* without regard to classes: what runs had before the rule could be chosen */
};
extern const char *const np_split_rules[]; /* "class", "random", NULL */

struct np_split {
    /* (nr_eval + nr_train): the samples of evaluation, then those of training. Owned. */
    uint32_t *order;
    uint64_t nr_eval, nr_train;
};

/* By class: as many of each class as its share of it, rounded so that all are round(share * samples)
 * together (largest remainders first), but at least one, and not all, of a class of two or more; a class
 * of one is trained on. Both parts come in the set's order. Random: the first round(share * samples) of a
 * permutation, and both parts come in its order. Either part may be empty. -ENOMEM. */
int np_split_make(const struct np_index *index, double share, uint64_t seed,
    enum np_split_rule rule, struct np_split *ret_split, struct np_err *err);
void np_split_fini(struct np_split *split);

#endif
