/* What a run's time limit makes of it when its worker has ended. */
#include "daemon/service/service_limits.h"
#include "tests/test.h"

static enum np_entry_state after(
    enum np_entry_state state, double limit_s, double ran_s, double lived_s)
{
    const struct np_service_run run = {.lived_s = lived_s};
    struct np_entry to = {
        .state = state, .time_limit_s = limit_s, .ran_s = ran_s, .lived_s = lived_s};

    np_service_count_time(&run, &to);
    cr_assert(to.ran_s == ran_s + lived_s && to.lived_s == 0);
    return to.state;
}

Test(time_limit, counts_all_attempts_and_spares_finished_runs)
{
    cr_assert_eq(after(NP_ENTRY_QUEUED, 10, 6, 3.5), NP_ENTRY_QUEUED);
    cr_assert_eq(after(NP_ENTRY_QUEUED, 10, 6, 4), NP_ENTRY_TIMEOUT); /* it has to wait no more */
    cr_assert_eq(after(NP_ENTRY_STOPPED, 10, 6, 4), NP_ENTRY_TIMEOUT);
    cr_assert_eq(after(NP_ENTRY_STOPPED, 10, 6, 3), NP_ENTRY_STOPPED); /* by a user */
    cr_assert_eq(after(NP_ENTRY_DONE, 10, 6, 9), NP_ENTRY_DONE);
    cr_assert_eq(after(NP_ENTRY_FAILED, 10, 6, 9), NP_ENTRY_FAILED);
    cr_assert_eq(after(NP_ENTRY_PAUSED, 10, 6, 9), NP_ENTRY_PAUSED);
    cr_assert_eq(after(NP_ENTRY_QUEUED, 0, 1e6, 1e6), NP_ENTRY_QUEUED);
}
