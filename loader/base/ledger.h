/* How long a thread has been in each state, and reads in flight x time. The sums must add up to the
 * thread's time at any moment, so readers read again when the ledger was written meanwhile (a
 * sequence lock); the writer, which is the thread itself, never waits. */
#ifndef NP_LEDGER_H
#define NP_LEDGER_H

#include <stdint.h>

#define NP_LEDGER_STATES 4 /* 0 is the first one of every thread */
#define NP_LEDGER_LEFT   NP_LEDGER_STATES

struct np_ledger {
    _Atomic uint64_t version; /* odd: it is being written */
    _Atomic uint64_t since_ns;
    _Atomic uint64_t state; /* since then; NP_LEDGER_LEFT: the thread has */
    _Atomic uint64_t in_flight;
    _Atomic uint64_t state_ns[NP_LEDGER_STATES]; /* up to since_ns */
    _Atomic uint64_t in_flight_ns;
};

/* The thread's own calls; now_ns never goes back. The first three count the time since the call
 * before and go on with what they are told. */
void np_ledger_init(struct np_ledger *ledger, uint64_t now_ns); /* of zeroed memory */
void np_ledger_enter(struct np_ledger *ledger, int state, uint64_t now_ns);
void np_ledger_in_flight(struct np_ledger *ledger, int nr_reads, uint64_t now_ns);
void np_ledger_leave(struct np_ledger *ledger, uint64_t now_ns);
/* Any thread. NP_LEDGER_LEFT: it has, and what it stored before that can be seen. */
int np_ledger_state(const struct np_ledger *ledger);
/* Adds what the ledger holds at this moment. Any thread. */
void np_ledger_add(
    const struct np_ledger *ledger, uint64_t state_ns[NP_LEDGER_STATES], uint64_t *in_flight_ns);

#endif
