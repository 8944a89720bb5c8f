/* The processor's counter as a clock: it keeps to the clock, and gives up where it cannot. */
#include "loader/base/tick.h"
#include "tests/test.h"

#define MS 1000000u

/* The largest distance between the two over so many ms; each reading lies between two of the clock. */
static uint64_t worst_error(struct np_tick *tick, unsigned ms)
{
    const uint64_t end_ns = np_now_ns() + (uint64_t)ms * MS;
    uint64_t worst = 0, after = 0;

    while (after < end_ns) {
        const uint64_t before = np_now_ns(), between = np_tick_ns(tick);
        uint64_t error = 0;

        after = np_now_ns();
        if (between < before)
            error = before - between;
        else if (between > after)
            error = between - after;
        worst = error > worst ? error : worst;
    }
    return worst;
}

Test(tick, keeps_to_the_clock, .timeout = 120)
{
    struct np_tick tick;

    np_tick_init(&tick);
    cr_assert_lt(worst_error(&tick, 300), 50000u);
    cr_assert(tick.off || tick.period > 0, "it is set after 300 ms");
    np_sleep_until_ns(np_now_ns() + 300 * (uint64_t)MS); /* no reading for a while */
    cr_assert_lt(worst_error(&tick, 100), 50000u);
}

Test(tick, uses_the_clock_if_the_counter_drifts, .timeout = 120)
{
    struct np_tick tick;

    np_tick_init(&tick);
    worst_error(&tick, 50);
    if (tick.off) /* this processor has no such counter */
        return;
    tick.scale = tick.scale / 10 * 11;
    worst_error(&tick, 300);
    cr_assert(tick.off);
    cr_assert_eq(worst_error(&tick, 50), 0u);
}
