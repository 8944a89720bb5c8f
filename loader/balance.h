/* The training samples by class, for an order in which each class comes equally often. Immutable;
 * any thread. */
#ifndef NP_BALANCE_H
#define NP_BALANCE_H

#include "loader/source/index.h"

struct np_balance {
    uint32_t nr_classes; /* that have samples */
    uint32_t *first;     /* (nr_classes + 1): where each class begins in `samples` */
    uint32_t *samples;   /* (nr_samples): positions in `order` */
};

/* Groups nr_samples samples by the index's classes. order: their numbers in the index; NULL: 0, 1,
 * 2 ... The caller frees *ret_balance. -EINVAL: a sample is in no class; -ENOMEM. */
int np_balance_new(const struct np_index *index, const uint32_t *order, uint64_t nr_samples,
    struct np_balance **ret_balance, struct np_err *err);
void np_balance_free(struct np_balance *balance);
/* The sample of draw `draw`, as a position in `order`. Draws take the classes in turn. The draws of a
 * class have all its samples once, shuffled, then all of them again in another order, and so on. */
uint32_t np_balance_sample(const struct np_balance *balance, uint64_t seed, uint64_t draw);

#endif
