/* Where the two sides of the ring sleep: readers for a slot that is free, the trainer for a batch that is
 * ready. For ring.c alone; what a counter means is its business.
 *
 * Who wakes whom: a counter is changed first and the number of sleepers read after it; a
 * sleeper counts itself first and reads the counter after that. All four are sequentially
 * consistent, so one of the two sees the other. Each sleeper has a condition variable of its own,
 * and only those are woken whose batch it is.
 *
 * A wait that nobody can end any more is found by whoever made it so, under the lock: the trainer
 * sleeps, its batch is not ready, and every reader has left or sleeps for a slot that the trainer
 * holds. It is a bug of ours, and ends the ring with an error. */
#ifndef NP_RING_WAIT_H
#define NP_RING_WAIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/mem.h"

enum np_ring_side { NP_RING_READERS, NP_RING_TRAINER, NP_RING_SIDES };

/* Has what a sleeper waits for come? Reads the slot's counter, sequentially consistent. */
typedef bool np_ring_holds_fn(const void *slot, uint64_t seq);

struct np_ring_sleeper;
struct np_ring_wait {
    np_ring_holds_fn *holds[NP_RING_SIDES]; /* set once */
    struct {
        _Alignas(NP_ALIGN) _Atomic int nr_waiting; /* changed under the lock */
        struct np_ring_sleeper *first;             /* under the lock */
    } sides[NP_RING_SIDES];
    _Atomic bool stopped;     /* nobody shall wait */
    _Atomic bool interrupted; /* the trainer shall not */
    pthread_mutex_t lock;
    struct np_err stop_err;    /* under lock */
    int nr_joined, nr_working; /* readers, under lock: so far; of them not left yet */
};

void np_ring_wait_init(
    struct np_ring_wait *wait, np_ring_holds_fn *is_open, np_ring_holds_fn *is_ready);
void np_ring_wait_fini(struct np_ring_wait *wait);
/* Sleeps until the slot's counter holds for seq, the ring is stopped, or (the trainer) interrupted. */
void np_ring_wait_sleep(
    struct np_ring_wait *wait, enum np_ring_side side, const void *slot, uint64_t seq);
/* After a counter was changed: wakes those of a side who slept for it. */
void np_ring_wait_wake(struct np_ring_wait *wait, enum np_ring_side side);
/* As np_ring_stop(), np_ring_interrupt(), np_ring_join(), np_ring_leave(). */
void np_ring_wait_stop(struct np_ring_wait *wait, const struct np_err *err);
void np_ring_wait_interrupt(struct np_ring_wait *wait);
void np_ring_wait_join(struct np_ring_wait *wait);
void np_ring_wait_leave(struct np_ring_wait *wait);
/* What it was stopped with; false: it was not. */
bool np_ring_wait_why(struct np_ring_wait *wait, struct np_err *ret_err);

#endif
