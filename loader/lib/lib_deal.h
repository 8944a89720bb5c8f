/* Dealt order: which sample each row has, and what its random operations draw, as a torch DataLoader
 * and torchvision would have it. All calls come from the program's thread, under the loader's lock:
 * a batch costs some 10 us, less than a thread of its own would. */
#ifndef NP_LIB_DEAL_H
#define NP_LIB_DEAL_H

#include "loader/lib/lib.h"

/* Deals into dealt, (nr_batches, batch), which is the sampler's. NULL: out of memory. */
struct np_dealer *np_dealer_new(
    const struct nnp_loader *loader, int nr_batches, struct np_err *err);
void np_dealer_free(struct np_dealer *dealer);
const struct np_dealt *np_dealer_rows_of(const struct np_dealer *dealer); /* (nr_batches, batch) */
/* Has an epoch begun that has not ended? Else nothing can be taken. */
bool np_dealer_has_epoch(const struct np_dealer *dealer);
void np_dealer_end_epoch(struct np_dealer *dealer);
/* The readers start: returns the number of their first batch. */
uint64_t np_dealer_start(struct np_dealer *dealer);
/* Deals the batches that have room in the ring, and opens them. */
int np_dealer_deal(struct np_dealer *dealer, struct np_ring *ring, struct np_err *err);
/* The program takes this batch of the ring. False: it is void, and is dropped. */
bool np_dealer_took(struct np_dealer *dealer, uint64_t seq);
/* Rows of a dealt batch. */
int np_dealer_rows(const struct np_dealer *dealer, uint64_t seq);

#endif
