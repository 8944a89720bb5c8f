/* A thread's time in each state, and its reads in flight x time. The sums add up to the thread's
 * time at any moment: a reader tries again if the ledger was written meanwhile (a sequence lock).
 * The writer, which is the thread itself, never waits. */
#ifndef NP_LEDGER_H
#define NP_LEDGER_H

#include <stdint.h>

#define NP_LEDGER_STATES 4 /* 0: the first state of every thread */
#define NP_LEDGER_LEFT   NP_LEDGER_STATES

struct np_ledger {
    _Atomic uint64_t version; /* odd: it is being written */
    _Atomic uint64_t since_ns;
    _Atomic uint64_t state; /* since then; NP_LEDGER_LEFT: the thread has left */
    _Atomic uint64_t in_flight;
    _Atomic uint64_t state_ns[NP_LEDGER_STATES]; /* up to since_ns */
    _Atomic uint64_t in_flight_ns;
};

/* Calls of the thread itself; now_ns never decreases. Each adds the time since the call before. */
void np_ledger_init(struct np_ledger *ledger, uint64_t now_ns); /* of zeroed memory */
void np_ledger_enter(struct np_ledger *ledger, int state, uint64_t now_ns);
void np_ledger_in_flight(struct np_ledger *ledger, int nr_reads, uint64_t now_ns);
void np_ledger_leave(struct np_ledger *ledger, uint64_t now_ns);
/* Any thread. After NP_LEDGER_LEFT the caller also sees what the thread stored before it left. */
int np_ledger_state(const struct np_ledger *ledger);
/* Adds the sums of this moment. Any thread. */
void np_ledger_add(
    const struct np_ledger *ledger, uint64_t state_ns[NP_LEDGER_STATES], uint64_t *in_flight_ns);

#endif
