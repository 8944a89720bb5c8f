/* Which runs that are over are forgotten. */
#include "daemon/service/retention.h"
#include "tests/test.h"

enum { MOST = 16 };
static struct np_entry entries[MOST];
static const struct np_entry *pointers[MOST];

static void set(int i, uid_t uid, enum np_entry_state state, double ended)
{
    entries[i] = (struct np_entry){.id = i + 1, .uid = uid, .state = state, .ended = ended};
    pointers[i] = &entries[i];
}

Test(retention, runs_of_one_user_do_not_evict_those_of_another)
{
    const struct np_service_options options = {.keep_runs = 3};

    set(0, 1, NP_ENTRY_DONE, 10); /* the oldest of all */
    for (int i = 1; i < 5; i++)
        set(i, 2, NP_ENTRY_DONE, 100 - i);
    set(5, 2, NP_ENTRY_RUNNING, 0);
    cr_assert_eq(np_retention_oldest(&options, pointers, 6, 1000), 5);
    cr_assert_eq(np_retention_oldest(&options, pointers, 4, 1000), 0);
}

Test(retention, runs_older_than_the_retention_are_deleted)
{
    const struct np_service_options options = {.keep_s = 50};

    set(0, 1, NP_ENTRY_DONE, 10);
    set(1, 1, NP_ENTRY_FAILED, 5);
    set(2, 1, NP_ENTRY_QUEUED, 0);
    cr_assert_eq(np_retention_oldest(&options, pointers, 3, 55), 0);
    cr_assert_eq(np_retention_oldest(&options, pointers, 3, 56), 2);
}

Test(retention, a_clock_is_trusted_an_hour_after_it_was_set)
{
    struct np_steady clock = {0};

    cr_expect(!np_retention_is_steady(&clock, 1e9, 5));
    cr_expect(!np_retention_is_steady(&clock, 1e9 + 3599, 5 + 3599));
    cr_expect(np_retention_is_steady(&clock, 1e9 + 3600, 5 + 3600));
    cr_expect(
        np_retention_is_steady(&clock, 1e9 + 3650, 5 + 3610)); /* ntpd slews, or steps a little */
    cr_expect(!np_retention_is_steady(&clock, 2e9, 5 + 3620)); /* years ahead */
    cr_expect(!np_retention_is_steady(&clock, 2e9 + 3599, 5 + 3620 + 3599));
    cr_expect(!np_retention_is_steady(&clock, 1e9 + 7300, 5 + 7300)); /* and back */
    cr_expect(np_retention_is_steady(&clock, 1e9 + 10900, 5 + 10900));
}
