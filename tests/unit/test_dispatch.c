/* The next run: priorities, devices, dependencies, yielding; and simulated days on random queues, in which
 * nothing is ever started twice, over a device's slots, or past a run that should come first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/service/access.h"
#include "daemon/service/dispatch.h"
#include "tests/test.h"

enum { MOST = 64 };

static struct np_entry entries[MOST];
static const struct np_entry *pointers[MOST];
static int nr_entries;
static const struct np_slotted two_gpus[] = {
    {.name = "cuda:0", .nr_slots = 1}, {.name = "cuda:1", .nr_slots = 1}};
static const struct np_slotted a_box[] = {
    {.name = "cuda:0", .nr_slots = 2}, {.name = "cpu", .nr_slots = 1}};

static struct np_entry *add(const char *device, int priority)
{
    struct np_entry *entry = &entries[nr_entries];

    *entry =
        (struct np_entry){.id = nr_entries + 1, .priority = priority, .state = NP_ENTRY_QUEUED};
    strcpy(entry->device, device);
    pointers[nr_entries++] = entry;
    return entry;
}

static void put_on(struct np_entry *entry, const char *device)
{
    entry->state = NP_ENTRY_RUNNING;
    strcpy(entry->assigned, device);
}

static int dispatch(const struct np_slotted *devices, int nr, bool preempt, struct np_order *orders)
{
    const struct np_dispatch d = {.entries = pointers,
        .nr_entries = nr_entries,
        .devices = devices,
        .nr_devices = nr,
        .preempt = preempt,
        .now = 1000,
        .longest_s = 100};

    return np_dispatch(&d, orders, MOST);
}

static bool is_start(const struct np_order *order, int entry, int device)
{
    return order->kind == NP_ORDER_START && order->entry == entry &&
           order->devices == UINT64_C(1) << device && order->nr_slots == 1;
}

static int room_for(const struct np_slotted *devices, int nr, const char *device)
{
    struct np_entry entry = {.processes = 1};

    strcpy(entry.device, device);
    return np_dispatch_room(devices, nr, &entry);
}

Test(dispatch, a_run_whose_disk_hangs_is_skipped)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    add("cuda:0", 5)->unready = true;
    add("cuda:0", 0);
    cr_assert_eq(dispatch(two_gpus, 2, true, orders), 1);
    cr_assert(is_start(&orders[0], 1, 0));
}

Test(dispatch, a_run_stays_on_the_kind_of_device_it_began_on)
{
    static const struct np_slotted gone[] = {{.name = "cpu", .nr_slots = 1}, {.name = "cuda:0"}};
    static const struct np_slotted both[] = {{.name = "cpu", .nr_slots = 1},
        {.name = "cuda:0", .nr_slots = 1}},
                                   none[] = {{.name = "cpu", .nr_slots = 1}};
    struct np_order orders[MOST];

    nr_entries = 0;
    strcpy(add("auto", 0)->kind, "gpu");
    cr_assert_eq(dispatch(none, 1, true, orders), 0);
    cr_assert_eq(dispatch(gone, 2, true, orders), 0);
    cr_assert_eq(dispatch(both, 2, true, orders), 1);
    cr_assert(is_start(&orders[0], 0, 1));
    nr_entries = 0;
    add("auto", 0); /* a run that has not begun waits for the lost GPU, too */
    cr_assert_eq(dispatch(gone, 2, true, orders), 0);
    cr_assert_eq(dispatch(none, 1, true, orders), 1);
}

Test(dispatch, goes_by_priority_then_by_age)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    add("auto", 0);
    add("auto", 5);
    add("auto", 5);
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 2);
    cr_assert(is_start(&orders[0], 1, 0));
    cr_assert(is_start(&orders[1], 2, 1));
}

Test(dispatch, spreads_over_devices_and_obeys_the_requested_one)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    add("cpu", 0);
    add("cuda:0", 0);
    add("auto", 0);
    add("auto", 0);
    add("cpu", 0);
    add("sim", 0); /* no user has it */
    cr_assert_eq(dispatch(a_box, 2, true, orders), 3);
    cr_assert(is_start(&orders[0], 0, 1));
    cr_assert(is_start(&orders[1], 1, 0));
    cr_assert(is_start(&orders[2], 2, 0));
    cr_assert_eq(room_for(a_box, 2, "cuda"), 1);
    cr_assert_eq(room_for(a_box, 2, "sim"), 0);
    cr_assert_eq(room_for(a_box, 2, "cuda:1"), 0);
}

Test(dispatch, waits_for_the_predecessor_and_fails_with_it)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    struct np_entry *first = add("auto", 0), *second = add("auto", 9);
    second->after[second->nr_after++] = 1;
    second->after[second->nr_after++] = 77; /* removed long ago */
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 1);
    cr_assert(is_start(&orders[0], 0, 0));
    first->state = NP_ENTRY_DONE;
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 1);
    cr_assert(is_start(&orders[0], 1, 0));
    first->state = NP_ENTRY_FAILED;
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 1);
    cr_assert(orders[0].kind == NP_ORDER_FAIL && orders[0].entry == 1 && orders[0].other == 1);
}

Test(dispatch, a_paused_run_fails_with_its_predecessor_and_is_not_started)
{
    struct np_order orders[MOST];
    struct np_entry *first, *second;

    nr_entries = 0;
    first = add("auto", 0);
    second = add("auto", 0);
    second->after[second->nr_after++] = 1;
    second->state = NP_ENTRY_PAUSED;
    first->state = NP_ENTRY_DONE;
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 0);
    first->state = NP_ENTRY_FAILED;
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 1);
    cr_assert(orders[0].kind == NP_ORDER_FAIL && orders[0].entry == 1 && orders[0].other == 1);
}

Test(dispatch, a_drained_device_gets_no_new_run_and_no_run_yields_there)
{
    struct np_slotted devices[] = {
        {.name = "cuda:0", .nr_slots = 1, .drained = true}, {.name = "cuda:1", .nr_slots = 1}};
    struct np_order orders[MOST];

    nr_entries = 0;
    put_on(add("auto", -9), "cuda:0");
    add("auto", 5);
    add("cuda:0", 5);
    cr_assert_eq(dispatch(devices, 2, true, orders), 1);
    cr_assert(is_start(&orders[0], 1, 1));
    put_on(&entries[1], "cuda:1");
    cr_assert_eq(dispatch(devices, 2, true, orders), 0);
    entries[0].state = NP_ENTRY_STOPPING; /* its slot is free soon, and stays so */
    cr_assert_eq(dispatch(devices, 2, true, orders), 0);
    entries[0].state = NP_ENTRY_DONE;
    cr_assert_eq(dispatch(devices, 2, true, orders), 0);
    devices[0].drained = false;
    cr_assert_eq(dispatch(devices, 2, true, orders), 1);
    cr_assert(is_start(&orders[0], 2, 0));
    cr_assert_eq(room_for(devices, 1, "cuda:0"), 1);
}

Test(dispatch, backs_off_until_its_time)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    add("auto", 0)->not_before = 1001;
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 0);
    entries[0].not_before = 1000;
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 1);
    entries[0].not_before = 1000 + 3600; /* longer than anything waits: the clock was set back */
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 1);
}

Test(dispatch, the_lowest_and_youngest_run_yields_once)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    put_on(add("auto", 1), "cuda:0");
    put_on(add("auto", 1), "cuda:1");
    entries[1].started = 5;
    add("auto", 9);
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 0);
    cr_assert_eq(dispatch(two_gpus, 2, true, orders), 1);
    cr_assert(orders[0].kind == NP_ORDER_YIELD && orders[0].entry == 1 && orders[0].other == 3);
    entries[1].state = NP_ENTRY_YIELDING; /* its slot is spoken for */
    add("auto", 0);
    cr_assert_eq(dispatch(two_gpus, 2, true, orders), 0);
    add("auto", 2);
    cr_assert_eq(dispatch(two_gpus, 2, true, orders), 1);
    cr_assert(orders[0].kind == NP_ORDER_YIELD && orders[0].entry == 0 && orders[0].other == 5);
}

/* Of an owner. */
static struct np_entry *add_of(uid_t uid, const char *device, int priority)
{
    struct np_entry *entry = add(device, priority);

    entry->uid = uid;
    return entry;
}

Test(dispatch, of_equal_runs_that_of_the_user_with_fewer_runs_is_next)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    put_on(add_of(1, "auto", 0), "cuda:0");
    add_of(1, "auto", 0);
    add_of(1, "auto", 0);
    add_of(2, "auto", 0); /* has none yet, and came last */
    cr_assert_eq(dispatch(two_gpus, 2, true, orders), 1);
    cr_assert(is_start(&orders[0], 3, 1));
    entries[1].priority = 1; /* a priority is more than a share */
    cr_assert_eq(dispatch(two_gpus, 2, false, orders), 1);
    cr_assert(is_start(&orders[0], 1, 1));
}

Test(dispatch, runs_of_one_user_do_not_keep_another_waiting)
{
    static const struct np_slotted wide[] = {{.name = "cpu", .nr_slots = 6}};
    struct np_order orders[MOST];
    int of[3] = {0};

    nr_entries = 0;
    for (int i = 0; i < 40; i++)
        add_of(1, "cuda", 0); /* no such device: does not count */
    for (int i = 0; i < 10; i++)
        add_of(1, "cpu", 0);
    for (int i = 0; i < 4; i++)
        add_of(2, "cpu", 0);
    cr_assert_eq(dispatch(wide, 1, false, orders), 6);
    for (int i = 0; i < 6; i++)
        of[entries[orders[i].entry].uid]++;
    cr_assert(of[1] == 3 && of[2] == 3);
}

Test(dispatch, no_user_has_more_runs_at_a_time_than_the_limit)
{
    static const struct np_slotted wide[] = {{.name = "cpu", .nr_slots = 6}};
    struct np_order orders[MOST];
    struct np_dispatch d = {.entries = pointers,
        .devices = wide,
        .nr_devices = 1,
        .preempt = true,
        .running_per_user = 2,
        .now = 1000,
        .longest_s = 100};

    nr_entries = 0;
    put_on(add_of(1, "cpu", 0), "cpu");
    for (int i = 0; i < 5; i++)
        add_of(1, "cpu", 9);
    add_of(2, "cpu", 0);
    d.nr_entries = nr_entries;
    cr_assert_eq(np_dispatch(&d, orders, MOST), 2);
    cr_assert(is_start(&orders[0], 1, 0) && is_start(&orders[1], 6, 0));
}

/* --- a day ------------------------------------------------------------------------------------ */

static unsigned rng;
static int any(int n)
{
    rng = rng * 1664525u + 1013904223u;
    return (int)((rng >> 8) % (unsigned)n);
}

static void let_pass(void)
{
    for (int i = 0; i < nr_entries; i++) {
        struct np_entry *entry = &entries[i];

        if (entry->state == NP_ENTRY_YIELDING)
            entry->state = any(2) ? NP_ENTRY_QUEUED : entry->state;
        else if (entry->state == NP_ENTRY_RUNNING && any(4) == 0)
            entry->state = any(8) ? NP_ENTRY_DONE : NP_ENTRY_FAILED;
        if (!np_entry_has_worker(entry))
            entry->assigned[0] = '\0';
    }
}

static void put_on_all(
    struct np_entry *entry, const struct np_order *order, const struct np_slotted *devices)
{
    char text[NP_ASSIGNED] = "";

    for (int d = 0; d < NP_MAX_DEVICES; d++)
        if (order->devices >> d & 1)
            strcat(strcat(text, *text ? "," : ""), devices[d].name);
    put_on(entry, text);
    entry->reserves = 0;
}

/* As the service does: what no order keeps any more is released. */
static bool carry_out(
    const struct np_order *orders, int nr, const struct np_slotted *devices, double now)
{
    bool kept[MOST] = {false};

    for (int i = 0; i < nr; i++) {
        struct np_entry *entry = &entries[orders[i].entry];

        if (entry->state != (orders[i].kind == NP_ORDER_YIELD ? NP_ENTRY_RUNNING : NP_ENTRY_QUEUED))
            return false;
        switch (orders[i].kind) {
        case NP_ORDER_START: put_on_all(entry, &orders[i], devices); break;
        case NP_ORDER_RESERVE:
            entry->reserves = entry->reserves > 0 ? entry->reserves : now;
            kept[orders[i].entry] = true;
            break;
        case NP_ORDER_YIELD: entry->state = NP_ENTRY_YIELDING; break;
        case NP_ORDER_FAIL: entry->state = NP_ENTRY_FAILED;
        }
    }
    for (int i = 0; i < nr_entries; i++)
        if (!kept[i])
            entries[i].reserves = 0;
    return true;
}

/* No more processes than slots; all of a run's processes have one, those on GPUs one each. */
static bool fits_slots(const struct np_slotted *devices, int nr)
{
    for (int d = 0; d < nr; d++) {
        int on = 0;

        for (int i = 0; i < nr_entries; i++)
            on += np_entry_has_worker(&entries[i]) ? np_entry_slots_on(&entries[i], devices[d].name)
                                                   : 0;
        if (on > devices[d].nr_slots)
            return false;
    }
    for (int i = 0; i < nr_entries; i++) {
        int of = 0;

        for (int d = 0; d < nr; d++)
            of += np_entry_slots_on(&entries[i], devices[d].name);
        if (np_entry_has_worker(&entries[i]) && of != np_entry_processes(&entries[i]))
            return false;
    }
    return true;
}

static const struct np_slotted wide_box[] = {{.name = "cuda:0", .nr_slots = 1},
    {.name = "cuda:1", .nr_slots = 1}, {.name = "cuda:2", .nr_slots = 2},
    {.name = "cuda:3", .nr_slots = 1}, {.name = "cpu", .nr_slots = 4}};
#define NR_WIDE 5

static int most_processes(const char *device)
{
    return strcmp(device, "cuda:0") == 0 ? 1 : 4;
}

static void add_drawn(void)
{
    static const char *const wants[] = {"auto", "cuda", "cuda:0", "cpu"};
    struct np_entry *entry = add_of((uid_t)any(3), wants[any(4)], any(5) - 2);

    if (nr_entries > 3 && any(3) == 0)
        entry->after[entry->nr_after++] = 1 + any(nr_entries - 1);
    if (any(3) == 0)
        entry->processes = 1 + any(most_processes(entry->device));
}

/* Does order i start a run where order k keeps all that is free? before: the runs that kept slots
 * before this turn. */
static bool passes(const struct np_order *orders, int i, int k, const bool *before)
{
    const struct np_order *start = &orders[i], *kept = &orders[k];

    if (start->kind != NP_ORDER_START || kept->kind != NP_ORDER_RESERVE || before[start->entry] ||
        !before[kept->entry] || entries[kept->entry].priority < entries[start->entry].priority)
        return false;
    for (int d = 0; d < NR_WIDE; d++)
        if (start->devices >> d & 1 && (wide_box[d].nr_slots == 1 || d == NR_WIDE - 1) &&
            np_dispatch_suits(wide_box, NR_WIDE, &entries[kept->entry], d))
            return true;
    return false;
}

Test(dispatch, random_events_end_with_every_run_finished, .timeout = 120)
{
    for (unsigned day = 0; day < 300; day++) {
        struct np_order orders[MOST];
        int hours = 0, over = 0;

        rng = day;
        nr_entries = 0;
        while (over < MOST && hours++ < 4000) {
            bool before[MOST] = {false};

            if (nr_entries < MOST && any(2))
                add_drawn();
            for (int i = 0; i < nr_entries; i++)
                before[i] = entries[i].reserves > 0;
            const int nr = dispatch(wide_box, NR_WIDE, true, orders);
            cr_assert(carry_out(orders, nr, wide_box, hours), "day %u: an order twice", day);
            cr_assert(fits_slots(wide_box, NR_WIDE), "day %u: more runs than slots", day);
            for (int i = 0; i < nr * nr; i++)
                cr_assert(!passes(orders, i / nr, i % nr, before),
                    "day %u, hour %d: a waiting run was passed", day, hours);
            let_pass();
            over = 0;
            for (int i = 0; i < nr_entries; i++)
                over += np_entry_is_finished(&entries[i]);
        }
        cr_assert_eq(over, MOST, "day %u: %d of %d over", day, over, MOST);
    }
}

/* --- several processes ------------------------------------------------------------------------ */

static const struct np_slotted four_gpus[] = {{.name = "cuda:0", .nr_slots = 1},
    {.name = "cuda:1", .nr_slots = 1}, {.name = "cuda:2", .nr_slots = 1},
    {.name = "cuda:3", .nr_slots = 1}, {.name = "cpu", .nr_slots = 4}};

static struct np_entry *add_gang(const char *device, int priority, int processes)
{
    struct np_entry *entry = add(device, priority);

    entry->processes = processes;
    return entry;
}

static bool is_order(
    const struct np_order *order, enum np_order_kind kind, int entry, uint64_t devices)
{
    return order->kind == kind && order->entry == entry && order->devices == devices;
}

Test(dispatch, a_run_of_four_starts_on_four_gpus_or_on_none)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    add_gang("cuda", 0, 4);
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 1);
    cr_assert(is_order(&orders[0], NP_ORDER_START, 0, 0xf) && orders[0].nr_slots == 4);
    cr_assert_eq(dispatch(four_gpus, 3, true, orders), 0, "three GPUs: it keeps none of them");
    put_on(&entries[0], "cuda:0,cuda:1,cuda:2,cuda:3");
    add("cuda", 0);
    add("cpu", 0);
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 1);
    cr_assert(is_start(&orders[0], 2, 4));
}

Test(dispatch, its_processes_have_gpus_of_their_own_and_share_the_cpu)
{
    static const struct np_slotted doubled[] = {
        {.name = "cuda:0", .nr_slots = 4}, {.name = "cuda:1", .nr_slots = 4}};
    struct np_order orders[MOST];

    nr_entries = 0;
    add_gang("cuda", 0, 2);
    cr_assert_eq(dispatch(doubled, 2, true, orders), 1);
    cr_assert(is_order(&orders[0], NP_ORDER_START, 0, 3) && orders[0].nr_slots == 2);
    nr_entries = 0;
    add_gang("cuda", 0, 4);
    cr_assert_eq(dispatch(doubled, 2, true, orders), 0);
    nr_entries = 0;
    add("cpu", 0);
    add_gang("cpu", 0, 3);
    add("cpu", 0);
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 2);
    cr_assert(is_start(&orders[0], 0, 4));
    cr_assert(is_order(&orders[1], NP_ORDER_START, 1, 16) && orders[1].nr_slots == 3);
}

Test(dispatch, the_first_waiting_run_keeps_devices_as_they_free_and_nothing_passes_it)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    put_on(add("cuda", 0), "cuda:1");
    put_on(add("cuda", 0), "cuda:2");
    add_gang("cuda", 0, 4);
    add("cuda", 0);
    add("cuda:0", 0);
    add("cpu", 0);
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 2);
    cr_assert(is_order(&orders[0], NP_ORDER_RESERVE, 2, 0x9) && orders[0].nr_slots == 2);
    cr_assert(is_start(&orders[1], 5, 4), "what it cannot use is for others");
    entries[2].reserves = 1000;
    entries[5].state = NP_ENTRY_DONE;
    entries[0].state = NP_ENTRY_STOPPING; /* its slot is about to be free */
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 1);
    cr_assert(is_order(&orders[0], NP_ORDER_RESERVE, 2, 0xb) && orders[0].nr_slots == 3);
    entries[0].state = entries[1].state = NP_ENTRY_DONE;
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 1);
    cr_assert(is_order(&orders[0], NP_ORDER_START, 2, 0xf));
}

Test(dispatch, a_run_that_keeps_devices_stays_first_of_its_priority)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    put_on(add_of(1, "cpu", 0), "cpu");
    put_on(add_of(3, "cuda", 0), "cuda:0");
    add_gang("cuda", 0, 4)->uid = 1;
    add_of(2, "cuda", 0); /* its owner has no run: without the reservation it is first */
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 2);
    cr_assert(orders[0].kind == NP_ORDER_START && orders[0].entry == 3);
    entries[2].reserves = 900;
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 1);
    cr_assert(is_order(&orders[0], NP_ORDER_RESERVE, 2, 0xe));
    entries[3].priority = 1; /* but a higher priority passes it */
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 2);
    cr_assert(orders[0].kind == NP_ORDER_START && orders[0].entry == 3);
    cr_assert(orders[1].kind == NP_ORDER_RESERVE && orders[1].nr_slots == 2);
}

Test(dispatch, a_run_that_cannot_start_keeps_no_devices)
{
    struct np_slotted devices[5];
    struct np_order orders[MOST];

    memcpy(devices, four_gpus, sizeof(devices));
    nr_entries = 0;
    put_on(add("cuda", 0), "cuda:0");
    add_gang("cuda", 0, 4)->reserves = 1;
    add("cuda", 0);
    devices[3].drained = true;
    cr_assert_eq(dispatch(devices, 5, true, orders), 1);
    cr_assert(is_start(&orders[0], 2, 1));
    cr_assert_eq(np_dispatch_drained(devices, 5, &entries[1]), 3);
    cr_assert_eq(np_dispatch_drained(devices, 5, &entries[2]), -1);
    devices[3].drained = false;
    devices[3].health = (struct np_device_health){.nr_deaths = NP_SUSPECT_DEATHS, .trial_at = 1};
    cr_assert_eq(dispatch(devices, 5, true, orders), 1);
    cr_assert(is_start(&orders[0], 2, 1));
    cr_assert_eq(np_dispatch_suspect(devices, 5, &entries[1]), 3);
    devices[3].health.trial_at = 0; /* it is tried */
    cr_assert_eq(dispatch(devices, 5, true, orders), 1);
    cr_assert(is_order(&orders[0], NP_ORDER_RESERVE, 1, 0xe));
    snprintf(devices[3].gone, sizeof(devices[3].gone), "it is not found");
    devices[3].nr_slots = 0;
    cr_assert_eq(np_dispatch_room(devices, 5, &entries[1]), 4, "it may come back");
    cr_assert_eq(np_dispatch_room(devices, 3, &entries[1]), 3);
}

Test(dispatch, runs_yield_to_a_run_of_several_only_if_that_is_enough)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    put_on(add("cuda", 0), "cuda:0");
    put_on(add("cuda", 1), "cuda:1");
    put_on(add_gang("cuda", -1, 2), "cuda:2,cuda:3");
    add_gang("cuda", 5, 3);
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 2);
    cr_assert(orders[0].kind == NP_ORDER_YIELD && orders[0].entry == 2 && orders[0].other == 4);
    cr_assert(orders[1].kind == NP_ORDER_YIELD && orders[1].entry == 0);
    entries[3].processes = 4;
    entries[1].priority = 5; /* one GPU is missing, whoever yields */
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 0);
    entries[1].priority = 1;
    entries[3].processes = 2; /* the pair of the lowest priority is enough */
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 1);
    cr_assert(orders[0].kind == NP_ORDER_YIELD && orders[0].entry == 2);
}

Test(dispatch, a_run_whose_end_would_not_be_needed_does_not_yield)
{
    struct np_order orders[MOST];

    nr_entries = 0;
    put_on(add("cuda", -5), "cuda:0");
    put_on(add_gang("cuda", 0, 3), "cuda:1,cuda:2,cuda:3");
    add_gang("cuda", 5, 3);
    cr_assert_eq(dispatch(four_gpus, 5, true, orders), 1);
    cr_assert(
        orders[0].kind == NP_ORDER_YIELD && orders[0].entry == 1, "the run on cuda:0 is spared");
}

Test(dispatch, processes_count_for_shares_and_limits)
{
    struct np_order orders[MOST];
    struct np_dispatch d = {.entries = pointers,
        .devices = four_gpus,
        .nr_devices = 5,
        .running_per_user = 3,
        .now = 1000,
        .longest_s = 100};

    nr_entries = 0;
    put_on(add_of(1, "cpu", 0), "cpu");
    add_gang("cuda", 0, 2)->uid = 1;
    add_of(1, "cuda", 0);
    add_gang("cuda", 0, 4)->uid = 2; /* more than it may have */
    d.nr_entries = nr_entries;
    cr_assert_eq(np_dispatch(&d, orders, MOST), 1);
    cr_assert(is_order(&orders[0], NP_ORDER_START, 1, 0x3));
    d.running_per_user = 0;
    nr_entries = 0;
    add_gang("cuda", 0, 2)->uid = 1;
    add_of(1, "cuda", 0);
    add_of(2, "cuda", 0);
    add_of(2, "cuda", 0);
    d.nr_entries = nr_entries;
    cr_assert_eq(np_dispatch(&d, orders, MOST), 3);
    cr_assert(
        orders[0].entry == 0 && orders[1].entry == 2 && orders[2].entry == 3, "two of each owner");
}

Test(dispatch, slots_of_a_run_follow_from_its_devices)
{
    struct np_entry entry = {.processes = 4, .assigned = "cuda:1,cuda:12"};

    cr_expect_eq(np_entry_slots_on(&entry, "cuda:1"), 1);
    cr_expect_eq(np_entry_slots_on(&entry, "cuda:12"), 1);
    cr_expect_eq(np_entry_slots_on(&entry, "cuda:2"), 0);
    cr_expect_eq(np_entry_slots_on(&entry, ""), 0);
    strcpy(entry.assigned, "cpu");
    cr_expect_eq(np_entry_slots_on(&entry, "cpu"), 4);
    cr_expect_eq(np_entry_slots_on(&entry, "cp"), 0);
    entry.processes = 0;
    cr_expect_eq(np_entry_slots_on(&entry, "cpu"), 1);
}

/* --- rights ----------------------------------------------------------------------------------- */

Test(access, no_user_has_more_rights_than_the_table_gives)
{
    const struct np_access box = {.service_uid = 100, .for_box = true}, own = {.service_uid = 1000};
    const struct np_caller root = {.socket = true},
                           owner = {.socket = true, .uid = 5, .member = true},
                           member = {.socket = true, .uid = 6, .member = true},
                           other = {.socket = true, .uid = 7}, net = {.uid = 5},
                           token = {.token = true}, owners = {.user = true, .uid = 5},
                           members = {.user = true, .uid = 6}, admins = {.user = true, .uid = 100},
                           myself = {.socket = true, .uid = 1000};

    for (int action = 0; action < NP_NR_ACTIONS; action++) {
        const enum np_action d = (enum np_action)action;

        cr_assert(np_access_may(&box, &root, d, 5) && np_access_may(&own, &root, d, 5));
        cr_assert(np_access_may(&own, &myself, d, 1000));
        cr_assert_eq(np_access_may(&box, &owner, d, 5), d != NP_ACTION_MANAGE);
        cr_assert_eq(
            np_access_may(&box, &member, d, 5), d == NP_ACTION_SUBMIT || d == NP_ACTION_LIST ||
                                                    d == NP_ACTION_TOKEN || d == NP_ACTION_HEALTH);
        cr_assert_eq(np_access_may(&box, &other, d, 5), d == NP_ACTION_HEALTH);
        cr_assert_eq(np_access_may(&own, &member, d, 5), d == NP_ACTION_HEALTH);
        cr_assert_eq(np_access_may(&box, &net, d, 5), d == NP_ACTION_LIST || d == NP_ACTION_HEALTH);
        const bool by_net = d != NP_ACTION_SUBMIT && d != NP_ACTION_TOKEN && d != NP_ACTION_MANAGE;
        cr_assert_eq(np_access_may(&box, &token, d, 5), by_net);
        cr_assert_eq(np_access_may(&box, &admins, d, 5), by_net);
        cr_assert_eq(np_access_may(&box, &owners, d, 5), by_net);
        cr_assert_eq(
            np_access_may(&box, &members, d, 5), d == NP_ACTION_LIST || d == NP_ACTION_HEALTH);
        cr_assert_eq(
            np_access_may(&own, &owners, d, 5), d == NP_ACTION_LIST || d == NP_ACTION_HEALTH);
    }
}

Test(dispatch, a_run_waits_for_a_drained_device_where_no_other_suits_it)
{
    struct np_slotted devices[] = {{.name = "cuda:0", .nr_slots = 1, .drained = true},
        {.name = "cuda:1", .nr_slots = 1}, {.name = "cpu", .nr_slots = 1, .drained = true}};
    struct np_entry any = {.device = "auto"}, first = {.device = "cuda:0"};
    struct np_entry begun = {.device = "auto", .kind = "cpu"};

    cr_expect_eq(np_dispatch_drained(devices, 3, &any), -1);
    cr_expect_eq(np_dispatch_drained(devices, 3, &first), 0);
    cr_expect_eq(np_dispatch_drained(devices, 3, &begun), -1, "auto is a GPU here");
    devices[1].nr_slots = 0; /* it is gone */
    cr_expect_eq(np_dispatch_drained(devices, 3, &any), 0);
    devices[0].drained = false;
    cr_expect_eq(np_dispatch_drained(devices, 3, &any), -1);
    devices[0].nr_slots = 0;
    cr_expect_eq(np_dispatch_drained(devices, 3, &any), -1, "none is drained");
}

Test(dispatch, a_suspect_device_gets_no_run_and_then_one_for_its_trial)
{
    struct np_slotted devices[] = {
        {.name = "cuda:0", .nr_slots = 2}, {.name = "cuda:1", .nr_slots = 1}};
    struct np_order orders[MOST];

    devices[0].health = (struct np_device_health){.nr_deaths = NP_SUSPECT_DEATHS, .trial_at = 1};
    nr_entries = 0;
    for (int i = 0; i < 3; i++)
        add("auto", 0);
    cr_assert_eq(dispatch(devices, 2, false, orders), 1);
    cr_assert(is_start(&orders[0], 0, 1));
    devices[0].health.trial_at = 0;
    cr_assert_eq(dispatch(devices, 2, false, orders), 2, "one of its two slots");
    struct np_entry any_gpu = {.device = "auto"}, first = {.device = "cuda:0"},
                    second = {.device = "cuda:1"}, both = {.device = "auto", .processes = 2};
    cr_assert_eq(np_dispatch_suspect(devices, 2, &any_gpu), -1);
    cr_assert_eq(np_dispatch_suspect(devices, 2, &first), 0);
    cr_assert_eq(np_dispatch_suspect(devices, 2, &second), -1);
    cr_assert_eq(np_dispatch_suspect(devices, 2, &both), 0, "it needs the suspect one, too");
}

Test(dispatch, a_run_is_not_started_again_where_it_died_while_another_device_is_free)
{
    const struct np_slotted devices[] = {
        {.name = "cuda:0", .nr_slots = 4}, {.name = "cuda:1", .nr_slots = 1}};
    struct np_order orders[MOST];

    nr_entries = 0;
    strcpy(add("auto", 0)->died_on, "cuda:0");
    cr_assert_eq(dispatch(devices, 2, false, orders), 1);
    cr_assert(is_start(&orders[0], 0, 1));
    strcpy(entries[0].died_on, "cuda:1");
    cr_assert_eq(dispatch(devices, 2, false, orders), 1);
    cr_assert(is_start(&orders[0], 0, 0));
    strcpy(entries[0].died_on, "cuda:0");
    cr_assert_eq(dispatch(devices, 1, false, orders), 1, "it is better than nothing");
}
