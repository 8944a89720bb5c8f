/* The time of np_now_ns() from the processor's counter, which is cheaper to read several times per
 * row. The clock sets it twenty times a second; in between it differs by some microseconds. Without
 * an invariant counter, with one that drifts, and on other processors, every call reads the clock.
 * One thread. */
#ifndef NP_TICK_H
#define NP_TICK_H

#include <stdint.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "loader/base/clock.h"

struct np_tick {
    uint64_t ticks, ns; /* the last pair of readings */
    uint64_t period;    /* ticks until the next such reading; 0: use the clock */
    uint64_t scale;     /* ns a tick, times 2^32 */
    int off;
};

void np_tick_init(struct np_tick *tick);
uint64_t np_tick_set(struct np_tick *tick);

/* May be a little less than the last result. */
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
