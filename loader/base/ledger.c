#include "loader/base/ledger.h"

#include <stdatomic.h>

#include "loader/base/clock.h"

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Pairs with take(): a thread that loads a value sees all earlier stores. */
static void put(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, n, memory_order_release);
}

static uint64_t take(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_acquire);
}

/* A thread that loads one of these values also sees the odd version before it. */
static void turn(struct np_ledger *ledger, uint64_t state, uint64_t in_flight, uint64_t now_ns)
{
    const uint64_t version = get(&ledger->version), before = get(&ledger->state);
    const uint64_t passed_ns = now_ns - get(&ledger->since_ns);

    atomic_store_explicit(&ledger->version, version + 1, memory_order_relaxed);
    if (before < NP_LEDGER_STATES)
        put(&ledger->state_ns[before], get(&ledger->state_ns[before]) + passed_ns);
    put(&ledger->in_flight_ns, get(&ledger->in_flight_ns) + get(&ledger->in_flight) * passed_ns);
    put(&ledger->since_ns, now_ns);
    put(&ledger->state, state);
    put(&ledger->in_flight, in_flight);
    put(&ledger->version, version + 2);
}

void np_ledger_init(struct np_ledger *ledger, uint64_t now_ns)
{
    atomic_init(&ledger->since_ns, now_ns);
}

void np_ledger_enter(struct np_ledger *ledger, int state, uint64_t now_ns)
{
    turn(ledger, (uint64_t)state, get(&ledger->in_flight), now_ns);
}

void np_ledger_in_flight(struct np_ledger *ledger, int nr_reads, uint64_t now_ns)
{
    turn(ledger, get(&ledger->state), (uint64_t)nr_reads, now_ns);
}

void np_ledger_leave(struct np_ledger *ledger, uint64_t now_ns)
{
    turn(ledger, NP_LEDGER_LEFT, 0, now_ns);
}

int np_ledger_state(const struct np_ledger *ledger)
{
    return (int)take(&ledger->state);
}

/* Pairs with the stores in turn(): with an unchanged version, all values belong to one moment. */
void np_ledger_add(
    const struct np_ledger *ledger, uint64_t state_ns[NP_LEDGER_STATES], uint64_t *in_flight_ns)
{
    uint64_t version, since_ns, now_ns, state, in_flight, whole_ns, each_ns[NP_LEDGER_STATES];

    do {
        version = take(&ledger->version);
        since_ns = take(&ledger->since_ns);
        state = take(&ledger->state);
        in_flight = take(&ledger->in_flight);
        whole_ns = take(&ledger->in_flight_ns);
        for (int i = 0; i < NP_LEDGER_STATES; i++)
            each_ns[i] = take(&ledger->state_ns[i]);
        now_ns = np_now_ns();
    } while (version % 2 == 1 || get(&ledger->version) != version);
    const uint64_t passed_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    if (state < NP_LEDGER_STATES)
        state_ns[state] += passed_ns;
    *in_flight_ns += whole_ns + in_flight * passed_ns;
    for (int i = 0; i < NP_LEDGER_STATES; i++)
        state_ns[i] += each_ns[i];
}
