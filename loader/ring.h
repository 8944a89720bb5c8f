/* A ring of pinned batches between the reader threads and the trainer thread. Readers wait only for
 * a free slot, so nothing can overflow. Waits are recorded in the block of the waiting thread. */
#ifndef NP_RING_H
#define NP_RING_H

#include "loader/base/err.h"
#include "loader/base/mem.h"
#include "loader/base/stat.h"
#include "loader/batch.h"

struct np_ring;

/* nr_slots >= 2. Takes its memory from allocator, once. -ENOMEM. Any thread. */
int np_ring_new(const struct np_batch_shape *shape, int nr_slots,
    const struct np_allocator *allocator, struct np_ring **ret_ring, struct np_err *err);
void np_ring_free(struct np_ring *ring); /* call it when no thread waits in it */

/* Call join before a reader thread starts, and leave after its last row. If the trainer waits for a
 * batch that cannot come, because all joined readers have left or wait for a slot, the ring stops
 * with -EDEADLK. A ring that no reader joined is not checked. Any thread. */
void np_ring_join(struct np_ring *ring);
void np_ring_leave(struct np_ring *ring);
/* Waits until the slot of batch seq is free, and returns it. Many readers may claim the same batch,
 * each for its rows. NULL: the ring was stopped. Reader threads. */
struct np_batch *np_ring_claim(struct np_ring *ring, uint64_t seq, struct np_block *block);
/* The same without waiting; NULL: not free yet, or stopped. */
struct np_batch *np_ring_try_claim(struct np_ring *ring, uint64_t seq);
/* Row of a claimed batch whose rows have row_bytes each (np_batch_row_bytes_of()). */
uint8_t *np_ring_row(
    const struct np_ring *ring, const struct np_batch *batch, size_t row_bytes, int row);
/* Marks one row as written; the last row makes the batch ready. Call it once a row. The reader of
 * row 0 sets kind, step, part and nr_parts before; the ring sets seq and slot. block: the calling
 * thread's, or NULL. Reader threads. */
void np_ring_commit(struct np_ring *ring, struct np_batch *batch, const struct np_block *block);
/* The same for all rows of a batch at once, of which none is marked. */
void np_ring_commit_all(struct np_ring *ring, struct np_batch *batch, const struct np_block *block);
/* The time by stage (np_stat_recent()) of the reader of the batch's last row, while np_ring_take()
 * slept for that batch. Zeros: the trainer did not wait, or it is not known. Trainer thread. */
void np_ring_late(
    const struct np_ring *ring, const struct np_batch *batch, uint64_t ret_ns[NP_NR_STAGES]);
/* Waits for the next batch (first_seq, first_seq + 1, ...) and returns it. NULL: the ring was
 * stopped, and *err has the error of the stop (code 0: none); -EINTR: interrupted before the batch
 * was ready. Trainer thread. */
struct np_batch *np_ring_take(struct np_ring *ring, struct np_block *block, struct np_err *err);
/* True: the next batch is ready. Trainer thread. */
bool np_ring_ready(const struct np_ring *ring);
/* True: the trainer waits for a batch. Any thread. */
bool np_ring_starves(const struct np_ring *ring);
/* Waits until np_ring_take() will not wait, or until until_ns (np_now_ns()). Trainer thread. */
void np_ring_expect(struct np_ring *ring, struct np_block *block, uint64_t until_ns);
/* Frees the slot for a later batch. Batches may be released in any order. Trainer thread. */
void np_ring_release(struct np_ring *ring, struct np_batch *batch);
/* Gives a taken batch the memory *memory, which has the same sizes, and *memory the batch's. So the
 * program can keep a batch while its slot is used again. Trainer thread. */
void np_ring_swap(struct np_batch *batch, struct np_batch_memory *memory);
/* Before np_ring_start(): from now on a free slot may be claimed only after np_ring_open(). */
void np_ring_gate(struct np_ring *ring);
/* Batch seq may be claimed; its slot is free. Trainer thread. */
void np_ring_open(struct np_ring *ring, uint64_t seq);
/* Ends all waits, present and future. np_ring_take() then reports err (may be NULL). Any thread. */
void np_ring_stop(struct np_ring *ring, const struct np_err *err);
/* np_ring_take() will call judge() with each batch, in order, before it returns the batch. If
 * judge() fails (with *err set), the ring stops with that error. Call this before the first
 * take. */
void np_ring_judge(struct np_ring *ring,
    int (*judge)(void *context, uint64_t seq, struct np_err *err), void *context);
/* Ends the waits of np_ring_take(), present and future; it returns only batches that are ready. Any
 * thread. */
void np_ring_interrupt(struct np_ring *ring);
/* Sets the number of the first batch, before the first claim. */
void np_ring_start(struct np_ring *ring, uint64_t first_seq);
bool np_ring_stopped(const struct np_ring *ring); /* any thread */
int np_ring_slots(const struct np_ring *ring);
int np_ring_full(const struct np_ring *ring); /* batches that are ready and not taken */
/* The integral of np_ring_full() over time: its growth in an interval, divided by the interval, is
 * the mean number of ready batches. Any thread. */
uint64_t np_ring_ready_ns(const struct np_ring *ring);

#endif
