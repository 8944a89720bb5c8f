/* The ring's waits, for ring.c, which knows the counters: readers sleep until a slot is free, the
 * trainer until a batch is ready.
 *
 * No wake-up is lost: a waker changes a counter and then reads the number of sleepers; a sleeper
 * counts itself and then reads the counter. All four accesses are sequentially consistent, so at
 * least one thread sees the change of the other. Each sleeper has its own condition variable, and
 * only those whose batch has come are woken.
 *
 * Deadlock: the trainer sleeps, its batch is not ready, and every reader has left or sleeps for a
 * slot that the trainer holds. The thread that causes the deadlock finds it, under the lock, and
 * stops the ring with an error: it is a bug of ours. */
#ifndef NP_RING_WAIT_H
#define NP_RING_WAIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/mem.h"

enum np_ring_side { NP_RING_READERS, NP_RING_TRAINER, NP_RING_SIDES };

/* True: the sleeper can continue. Reads the counter of the slot, sequentially consistent. */
typedef bool np_ring_holds_fn(const void *slot, uint64_t seq);

struct np_ring_sleeper;
struct np_ring_wait {
    np_ring_holds_fn *holds[NP_RING_SIDES]; /* set once */
    struct {
        _Alignas(NP_ALIGN) _Atomic int nr_waiting; /* changed under the lock */
        struct np_ring_sleeper *first;             /* under the lock */
    } sides[NP_RING_SIDES];
    _Atomic bool stopped;     /* no thread may wait */
    _Atomic bool interrupted; /* the trainer may not wait */
    pthread_mutex_t lock;
    struct np_err stop_err;    /* under lock */
    int nr_joined, nr_working; /* under lock: readers that joined; those that have not left */
};

void np_ring_wait_init(
    struct np_ring_wait *wait, np_ring_holds_fn *is_open, np_ring_holds_fn *is_ready);
void np_ring_wait_fini(struct np_ring_wait *wait);
/* Sleeps until holds() is true for the slot and seq, the ring is stopped, (the trainer) interrupted,
 * or until_ns (np_now_ns(); UINT64_MAX: no limit). */
void np_ring_wait_sleep(struct np_ring_wait *wait, enum np_ring_side side, const void *slot,
    uint64_t seq, uint64_t until_ns);
/* Call it after a counter changed: wakes the sleepers of a side whose batch has come. */
void np_ring_wait_wake(struct np_ring_wait *wait, enum np_ring_side side);
/* As np_ring_stop(), np_ring_interrupt(), np_ring_join(), np_ring_leave(). */
void np_ring_wait_stop(struct np_ring_wait *wait, const struct np_err *err);
void np_ring_wait_interrupt(struct np_ring_wait *wait);
void np_ring_wait_join(struct np_ring_wait *wait);
void np_ring_wait_leave(struct np_ring_wait *wait);
/* The error with which the ring was stopped; false: it was not stopped. */
bool np_ring_wait_why(struct np_ring_wait *wait, struct np_err *ret_err);

#endif
