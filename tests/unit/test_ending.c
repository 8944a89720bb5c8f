/* Which runs that are over are forgotten. */
#include "daemon/service/ending.h"
#include "tests/test.h"

enum { MOST = 16 };
static struct np_entry entries[MOST];
static const struct np_entry *pointers[MOST];

static void set(int i, uid_t uid, enum np_entry_state state, double ended)
{
    entries[i] = (struct np_entry){.id = i + 1, .uid = uid, .state = state, .ended = ended};
    pointers[i] = &entries[i];
}

Test(ending, one_users_runs_do_not_push_out_anothers)
{
    const struct np_service_options options = {.keep_runs = 3};

    set(0, 1, NP_ENTRY_DONE, 10); /* the oldest of all */
    for (int i = 1; i < 5; i++)
        set(i, 2, NP_ENTRY_DONE, 100 - i);
    set(5, 2, NP_ENTRY_RUNNING, 0);
    cr_assert_eq(np_ending_oldest(&options, pointers, 6, 1000), 5);
    cr_assert_eq(np_ending_oldest(&options, pointers, 4, 1000), 0);
}

Test(ending, what_is_older_than_is_kept_goes)
{
    const struct np_service_options options = {.keep_s = 50};

    set(0, 1, NP_ENTRY_DONE, 10);
    set(1, 1, NP_ENTRY_FAILED, 5);
    set(2, 1, NP_ENTRY_QUEUED, 0);
    cr_assert_eq(np_ending_oldest(&options, pointers, 3, 55), 0);
    cr_assert_eq(np_ending_oldest(&options, pointers, 3, 56), 2);
}
