/* A thread's time in each state, and its reads in flight x time. At any moment the sums add up to
 * the thread's time: a reader repeats if the thread wrote meanwhile (a sequence lock). The thread
 * itself, which is the only writer, never waits. */
#ifndef NP_LEDGER_H
#define NP_LEDGER_H

#include <stdint.h>

#define NP_LEDGER_STATES 4 /* each thread begins in state 0 */
#define NP_LEDGER_LEFT   NP_LEDGER_STATES

struct np_ledger {
    _Atomic uint64_t version; /* odd: a write is in progress */
    _Atomic uint64_t since_ns;
    _Atomic uint64_t state; /* since since_ns; NP_LEDGER_LEFT: the thread has left */
    _Atomic uint64_t in_flight;
    _Atomic uint64_t state_ns[NP_LEDGER_STATES]; /* until since_ns */
    _Atomic uint64_t in_flight_ns;
};

/* The thread itself calls these; now_ns never decreases. Each call adds the time since the previous
 * one. */
void np_ledger_init(struct np_ledger *ledger, uint64_t now_ns); /* ledger: zeroed */
void np_ledger_enter(struct np_ledger *ledger, int state, uint64_t now_ns);
void np_ledger_in_flight(struct np_ledger *ledger, int nr_reads, uint64_t now_ns);
void np_ledger_leave(struct np_ledger *ledger, uint64_t now_ns);
/* Any thread. With NP_LEDGER_LEFT the caller also sees what the thread stored before it left. */
int np_ledger_state(const struct np_ledger *ledger);
/* Adds the sums up to this moment. Any thread. */
void np_ledger_add(
    const struct np_ledger *ledger, uint64_t state_ns[NP_LEDGER_STATES], uint64_t *in_flight_ns);

#endif
