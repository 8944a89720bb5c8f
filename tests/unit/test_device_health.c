/* When a device is set aside, and when it is not. */
#include <string.h>

#include "daemon/service/dispatch.h"
#include "tests/test.h"

static struct np_device_health health;

static bool ends(int64_t run, bool device_failed, bool died, double lived_s)
{
    const struct np_device_end end = {.run = run,
        .device_failed = device_failed,
        .died = died,
        .lived_s = lived_s,
        .why = "out of order"};

    return np_device_ended(&health, "cuda:0", &end, 100);
}

Test(device_health, three_failures_in_a_row_make_a_device_suspect_for_a_while)
{
    health = (struct np_device_health){0};
    cr_assert(!ends(1, true, false, 1));
    cr_assert(!ends(1, true, false, 500));
    cr_assert(!np_device_is_suspect(&health));
    cr_assert_eq(np_device_slots(&health, 4, 100), 4);
    cr_assert(ends(1, true, false, 1));
    cr_assert(np_device_is_suspect(&health));
    cr_assert_str_eq(health.why, "out of order");
    cr_assert_eq(np_device_slots(&health, 4, 100), 0);
    cr_assert_eq(np_device_slots(&health, 4, 100 + NP_SUSPECT_TRIAL_S), 1);
    cr_assert(ends(2, true, false, 1), "the trial failed");
    cr_assert_eq(np_device_slots(&health, 4, 100), 0);
}

Test(device_health, quick_deaths_count_if_they_are_of_different_runs)
{
    health = (struct np_device_health){0};
    for (int i = 0; i < 10; i++)
        cr_assert(!ends(1, false, true, 1), "one run that always crashes");
    cr_assert(!ends(2, false, true, 1));
    cr_assert(ends(3, false, true, 1));
}

Test(device_health, success_clears_a_device_and_other_ends_do_not)
{
    const struct np_device_end done = {.run = 9, .well = true, .lived_s = 1, .why = ""};

    health = (struct np_device_health){0};
    ends(1, true, false, 1);
    ends(2, true, false, 1);
    cr_assert(!ends(3, false, false, 1), "its data could not be read");
    cr_assert_eq(health.nr_deaths, 2);
    cr_assert(!ends(4, false, true, 61), "it has worked for a minute");
    cr_assert_eq(health.nr_deaths, 0);
    for (int i = 0; i < 3; i++)
        ends(1, true, false, 1);
    np_device_ended(&health, "cuda:0", &done, 100);
    cr_assert_eq(health.nr_deaths, 0);
}

Test(device_health, the_cpu_is_never_suspect)
{
    const struct np_device_end end = {.run = 1, .device_failed = true, .why = "?"};
    struct np_device_health cpu = {0};

    for (int i = 0; i < 5; i++)
        cr_assert(!np_device_ended(&cpu, "cpu", &end, 100));
    cr_assert(!np_device_is_suspect(&cpu));
}
