/* A ring of pinned batches between reader threads and the one trainer thread. A free
 * slot is the only brake: nothing can overflow. Waits are named in stat. */
#ifndef NP_RING_H
#define NP_RING_H

#include "loader/base/err.h"
#include "loader/base/mem.h"
#include "loader/base/stat.h"
#include "loader/batch.h"

struct np_ring;

/* nr_slots >= 2. Memory from allocator, once. Any thread. */
int np_ring_new(const struct np_batch_shape *shape, int nr_slots,
    const struct np_allocator *allocator, struct np_ring **ret_ring, struct np_err *err);
void np_ring_free(struct np_ring *ring); /* nobody waits in it any more */

/* A reader thread begins (called before it is started), and has handed in all its rows. When the
 * trainer waits for a batch and every reader that has joined has left, or waits for a slot that is
 * not free, the ring is stopped with -EDEADLK. A ring that nobody joins is not watched. Any thread. */
void np_ring_join(struct np_ring *ring);
void np_ring_leave(struct np_ring *ring);
/* The slot of batch seq, once it is free; blocks until then. Many rows of one batch may
 * be claimed by many readers: all get the same batch. NULL: the ring was stopped. Reader threads. */
struct np_batch *np_ring_claim(struct np_ring *ring, uint64_t seq, struct np_block *block);
/* The same without blocking; NULL: not free yet, or stopped. */
struct np_batch *np_ring_try_claim(struct np_ring *ring, uint64_t seq);
/* Row of a claimed batch: u8 (height, width, channels). */
uint8_t *np_ring_row(const struct np_ring *ring, const struct np_batch *batch, int row);
/* One row is written; the last of the batch makes it ready. Reader threads, once a row. The
 * reader of row 0 has set kind, step, part and nr_parts before; the ring sets seq and slot. block: of
 * the calling thread, or NULL. */
void np_ring_commit(struct np_ring *ring, struct np_batch *batch, const struct np_block *block);
/* Of a batch that np_ring_take() has slept for: what the reader of its last row did during that sleep
 * (np_stat_recent()). Zeros: it was ready before, or nothing is known. Trainer thread. */
void np_ring_late(
    const struct np_ring *ring, const struct np_batch *batch, uint64_t ret_ns[NP_NR_STAGES]);
/* The next batch in order (0, 1, 2 ... from first_seq); blocks. NULL: stopped, *err says why
 * (code 0: plain stop), or -EINTR: interrupted, and the batch is not ready. Trainer thread. */
struct np_batch *np_ring_take(struct np_ring *ring, struct np_block *block, struct np_err *err);
/* Is the next batch ready? Never blocks. Trainer thread. */
bool np_ring_ready(const struct np_ring *ring);
/* Gives the slot back; any order. Trainer thread. */
void np_ring_release(struct np_ring *ring, struct np_batch *batch);
/* Everybody who waits returns, now and later. err (may be NULL) is what take reports. Any thread. */
void np_ring_stop(struct np_ring *ring, const struct np_err *err);
/* Before the first take: asked for each batch that is taken, in order, by np_ring_take(). An error (*err is
 * set) stops the ring with it, and the batch is not given. */
void np_ring_judge(struct np_ring *ring,
    int (*judge)(void *context, uint64_t seq, struct np_err *err), void *context);
/* np_ring_take() waits no more, now and later: what is ready it still gives. Any thread. */
void np_ring_interrupt(struct np_ring *ring);
/* Before the first claim: numbering starts here. */
void np_ring_start(struct np_ring *ring, uint64_t first_seq);
bool np_ring_stopped(const struct np_ring *ring); /* any thread */
int np_ring_slots(const struct np_ring *ring);
int np_ring_full(const struct np_ring *ring); /* slots ready and not taken; a gauge */
/* So far: ready batches x time. Its growth between two moments over the time between them is the mean
 * number of batches that lay ready. Any thread. */
uint64_t np_ring_ready_ns(const struct np_ring *ring);

#endif
