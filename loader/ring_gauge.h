/* Measures the ring: how many batches lie ready, and what the reader of a late batch did while the
 * trainer waited for it. One lock, taken twice a batch. */
#ifndef NP_RING_GAUGE_H
#define NP_RING_GAUGE_H

#include "loader/base/err.h"
#include "loader/base/stat.h"

struct np_ring_gauge;
struct np_ring_gauge *np_ring_gauge_new(struct np_err *err); /* NULL: no memory */
void np_ring_gauge_free(struct np_ring_gauge *gauge);
/* The trainer begins to wait for a batch. */
void np_ring_gauge_wait(struct np_ring_gauge *gauge, uint64_t seq);
/* The reader of the last row of a batch calls this before it marks the batch ready. block: may be
 * NULL. */
void np_ring_gauge_ready(struct np_ring_gauge *gauge, uint64_t seq, const struct np_block *block);
/* The trainer has taken a batch. */
void np_ring_gauge_take(struct np_ring_gauge *gauge);
/* As np_ring_full(), np_ring_ready_ns(), np_ring_late(). */
int np_ring_gauge_full(struct np_ring_gauge *gauge);
uint64_t np_ring_gauge_ready_ns(struct np_ring_gauge *gauge);
void np_ring_gauge_late(struct np_ring_gauge *gauge, uint64_t seq, uint64_t ret_ns[NP_NR_STAGES]);

#endif
