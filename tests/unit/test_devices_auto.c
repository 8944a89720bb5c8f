/* What `devices: auto` stands for, by what `nnpipe devices --json` says now and said before. */
#include <string.h>

#include "daemon/service/devices.h"
#include "daemon/service/dispatch.h"
#include "tests/test.h"

Test(devices_auto, takes_usable_devices_and_keeps_the_place_of_lost_ones)
{
    struct np_slotted devices[NP_MAX_DEVICES] = {{.name = "cuda:0", .nr_slots = 2},
        {.name = "cuda:1", .nr_slots = 2}, {.name = "cpu", .nr_slots = 2}};
    const int nr = np_devices_take(
        "{\"event\": \"device\", \"name\": \"cuda:0\", \"usable\": true}\n"
        "no JSON\n"
        "{\"event\": \"device\", \"name\": \"cuda:1\", \"usable\": false, \"reason\": \"Xid 79\"}\n"
        "{\"event\": \"device\", \"name\": \"cpu\", \"usable\": true}\n"
        "{\"event\": \"device\", \"name\": \"sim\", \"usable\": true}\n",
        2, devices, 3);

    cr_assert_eq(nr, 3);
    cr_assert_str_eq(devices[0].name, "cuda:0");
    cr_assert(devices[0].nr_slots == 2 && !*devices[0].gone);
    cr_assert_str_eq(devices[1].name, "cuda:1");
    cr_assert_eq(devices[1].nr_slots, 0);
    cr_assert_str_eq(devices[1].gone, "Xid 79");
    cr_assert_str_eq(devices[2].name, "cpu");
}

Test(devices_auto, a_gpu_missing_from_the_list_is_gone_and_comes_back)
{
    static const char cpu[] = "{\"name\": \"cpu\", \"usable\": true}\n",
                      gpu[] = "{\"name\": \"cuda:0\", \"usable\": true}\n";
    struct np_slotted devices[NP_MAX_DEVICES] = {
        {.name = "cuda:0", .nr_slots = 1}, {.name = "cpu", .nr_slots = 1}};
    int nr = np_devices_take(cpu, 1, devices, 2);

    cr_assert_eq(nr, 2);
    cr_assert_str_eq(devices[1].name, "cuda:0");
    cr_assert_eq(devices[1].nr_slots, 0);
    nr = np_devices_take(gpu, 1, devices, nr);
    cr_assert_eq(nr, 1);
    cr_assert(devices[0].nr_slots == 1 && !*devices[0].gone);
}
