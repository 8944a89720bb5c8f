/* The time of np_now_ns(), read from the processor's own counter where that is cheaper: for who looks at
 * the clock several times a row. It is set by the clock twenty times a second, and lies within some
 * microseconds of it in between. Where the counter is not invariant, or has lost its step, and on other
 * processors it is the clock itself. One thread's. */
#ifndef NP_TICK_H
#define NP_TICK_H

#include <stdint.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "loader/base/clock.h"

struct np_tick {
    uint64_t ticks, ns; /* read together, last */
    uint64_t period;    /* ticks until the next such reading; 0: the clock is asked */
    uint64_t scale;     /* ns a tick, times 2^32 */
    int off;
};

void np_tick_init(struct np_tick *tick);
/* The clock, and the counter set by it. */
uint64_t np_tick_set(struct np_tick *tick);

/* May lie a little before what was returned last. */
static inline uint64_t np_tick_ns(struct np_tick *tick)
{
#if defined(__x86_64__)
    const uint64_t passed = __rdtsc() - tick->ticks;

    if (passed < tick->period)
        return tick->ns + (passed * tick->scale >> 32);
#endif
    return np_tick_set(tick);
}

#endif
