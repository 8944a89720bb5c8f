/* Sets the counter by the clock. Two readings count only if they lie close together: a thread that
 * was interrupted between them tries again. */
#include "loader/base/tick.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

#define PERIOD    (1ull << 27) /* ticks: about 50 ms; times a scale below 2^32 it fits 64 bits */
#define LEAST     (1ull << 24) /* ticks between readings, for a scale accurate to about 1e-5 */
#define CLOSE     2000         /* ticks */
#define NR_TRIES  3
#define MAX_DRIFT 0.01 /* of the scale; above it the clock is used */

static int is_invariant(void)
{
    unsigned a, b, c, d = 0;

    return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8;
}

void np_tick_init(struct np_tick *tick)
{
    memset(tick, 0, sizeof(*tick));
    tick->off = !is_invariant();
}

static void set_scale(struct np_tick *tick, uint64_t ticks, uint64_t ns)
{
    const double scale = (double)(ns - tick->ns) / (double)(ticks - tick->ticks) * 4294967296.0;
    const double drift = tick->scale ? scale / (double)tick->scale - 1 : 0;

    if (scale < 1 || scale >= 4294967296.0 || drift > MAX_DRIFT || drift < -MAX_DRIFT) {
        tick->off = 1;
        tick->period = 0;
        return;
    }
    tick->scale = (uint64_t)scale;
    tick->period = PERIOD;
}

uint64_t np_tick_set(struct np_tick *tick)
{
    uint64_t now_ns = 0;

    if (tick->off)
        return np_now_ns();
    for (int i = 0; i < NR_TRIES; i++) {
        const uint64_t before = __rdtsc();

        now_ns = np_now_ns();
        const uint64_t after = __rdtsc(), ticks = before + (after - before) / 2;
        if (after - before > CLOSE)
            continue;
        if (tick->ns > 0 && ticks - tick->ticks < LEAST)
            return now_ns;
        if (tick->ns > 0)
            set_scale(tick, ticks, now_ns);
        tick->ticks = ticks;
        tick->ns = now_ns;
        return now_ns;
    }
    return now_ns;
}

#else

void np_tick_init(struct np_tick *tick)
{
    memset(tick, 0, sizeof(*tick));
    tick->off = 1;
}

uint64_t np_tick_set(struct np_tick *tick)
{
    return np_now_ns();
}

#endif
