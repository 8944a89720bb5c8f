#include "daemon/service/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

struct place {
    int free, leaving; /* slots; leaving: of runs that are about to end */
};

bool np_device_ended(struct np_device_health *health, const char *device,
    const struct np_device_end *end, double now)
{
    const bool quick = end->died && end->lived_s < NP_QUICK_DEATH_S;

    if (end->well || (end->lived_s >= NP_QUICK_DEATH_S && !end->device_failed)) {
        *health = (struct np_device_health){0};
        return false;
    }
    if (strcmp(device, "cpu") == 0 || !(end->device_failed || quick) ||
        (!end->device_failed && health->nr_deaths > 0 && health->last_run == end->run))
        return false;
    health->nr_deaths += health->nr_deaths < NP_SUSPECT_DEATHS;
    health->last_run = end->run;
    snprintf(health->why, sizeof(health->why), "%s", end->why);
    if (health->nr_deaths < NP_SUSPECT_DEATHS)
        return false;
    health->trial_at = now + NP_SUSPECT_TRIAL_S;
    return true;
}

bool np_device_is_suspect(const struct np_device_health *health)
{
    return health->nr_deaths >= NP_SUSPECT_DEATHS;
}

int np_device_slots(const struct np_device_health *health, int nr_slots, double now)
{
    return !np_device_is_suspect(health) ? nr_slots : now < health->trial_at ? 0 : nr_slots > 0;
}

void np_owners_fini(struct np_owners *owners)
{
    np_free(owners->owners);
    *owners = (struct np_owners){0};
}

int64_t *np_owners_count(struct np_owners *owners, uid_t uid)
{
    int low = 0, high = owners->nr;

    while (low < high) {
        const int middle = (low + high) / 2;

        if (owners->owners[middle].uid < uid)
            low = middle + 1;
        else
            high = middle;
    }
    const bool is_new = low == owners->nr || owners->owners[low].uid != uid;
    if (is_new)
        np_grow(&owners->owners, &owners->room, (size_t)owners->nr + 1, sizeof(*owners->owners));
    struct np_owner *at = &owners->owners[low];
    if (is_new) {
        memmove(at + 1, at, (size_t)(owners->nr - low) * sizeof(*at));
        *at = (struct np_owner){.uid = uid};
        owners->nr++;
    }
    return &at->nr;
}

static bool is_gpu(const char *name)
{
    return strncmp(name, "cuda", 4) == 0;
}

static bool has_gpu(const struct np_slotted *devices, int nr)
{
    for (int i = 0; i < nr; i++)
        if (is_gpu(devices[i].name))
            return true;
    return false;
}

/* Would the device start a run if it had a free slot? */
static bool is_open(const struct np_slotted *device)
{
    return !device->drained && device->nr_slots > 0;
}

/* "cuda" means any GPU. */
static bool suits(
    const struct np_slotted *devices, int nr, const char *wanted, const struct np_slotted *device)
{
    if (strcmp(wanted, "auto") == 0)
        return has_gpu(devices, nr) ? is_gpu(device->name) : strcmp(device->name, "cpu") == 0;
    if (strcmp(wanted, "cuda") == 0)
        return is_gpu(device->name);
    return strcmp(wanted, device->name) == 0;
}

const char *np_dispatch_kind(const char *device)
{
    return is_gpu(device) ? "gpu" : device;
}

bool np_dispatch_suits(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry, int device)
{
    return (!*entry->kind || strcmp(entry->kind, np_dispatch_kind(devices[device].name)) == 0) &&
           suits(devices, nr_devices, entry->device, &devices[device]);
}

/* Is the device one that counts for the run? */
typedef bool (*passes_fn)(
    const struct np_slotted *devices, int nr, const struct np_entry *entry, int device);

static bool is_suitable(
    const struct np_slotted *devices, int nr, const struct np_entry *entry, int device)
{
    return suits(devices, nr, entry->device, &devices[device]);
}

static bool is_trusted(
    const struct np_slotted *devices, int nr, const struct np_entry *entry, int device)
{
    return is_suitable(devices, nr, entry, device) &&
           !np_device_is_suspect(&devices[device].health);
}

static bool is_usable(
    const struct np_slotted *devices, int nr, const struct np_entry *entry, int device)
{
    return np_dispatch_suits(devices, nr, entry, device) && is_open(&devices[device]);
}

/* A process has a GPU of its own; the CPU and the sim device have a slot for each. A GPU that is
 * gone may come back, and how many a service has that still looks for them ("cuda") is not known. */
static int slots_of(const struct np_slotted *device, int nr_wanted)
{
    const bool may_be_more = strcmp(device->name, "cuda") == 0;
    const int nr = *device->gone ? (may_be_more ? nr_wanted : 1) : device->nr_slots;
    const int most = is_gpu(device->name) && !may_be_more ? 1 : nr_wanted;

    return nr < most ? nr : most;
}

static int count_slots(
    const struct np_slotted *devices, int nr, const struct np_entry *entry, passes_fn passes)
{
    int slots = 0;

    for (int i = 0; i < nr; i++)
        if (passes(devices, nr, entry, i))
            slots += slots_of(&devices[i], np_entry_processes(entry));
    return slots;
}

int np_dispatch_room(const struct np_slotted *devices, int nr_devices, const struct np_entry *entry)
{
    return count_slots(devices, nr_devices, entry, is_suitable);
}

int np_dispatch_suspect(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry)
{
    if (count_slots(devices, nr_devices, entry, is_trusted) >= np_entry_processes(entry))
        return -1;
    for (int i = 0; i < nr_devices; i++)
        if (is_suitable(devices, nr_devices, entry, i) && np_device_is_suspect(&devices[i].health))
            return i;
    return -1;
}

int np_dispatch_drained(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry)
{
    if (count_slots(devices, nr_devices, entry, is_usable) >= np_entry_processes(entry))
        return -1;
    for (int i = 0; i < nr_devices; i++)
        if (np_dispatch_suits(devices, nr_devices, entry, i) && devices[i].drained)
            return i;
    return -1;
}

static bool is_leaving(const struct np_entry *entry)
{
    return np_entry_has_worker(entry) && entry->state != NP_ENTRY_RUNNING;
}

static void count_places(const struct np_dispatch *d, struct place places[NP_MAX_DEVICES])
{
    for (int i = 0; i < d->nr_devices; i++)
        places[i] = (struct place){
            .free = np_device_slots(&d->devices[i].health, d->devices[i].nr_slots, d->ticks)};
    for (int e = 0; e < d->nr_entries; e++)
        for (int i = 0; np_entry_has_worker(d->entries[e]) && i < d->nr_devices; i++) {
            const int nr = np_entry_slots_on(d->entries[e], d->devices[i].name);

            places[i].free -= nr;
            places[i].leaving += is_leaving(d->entries[e]) ? nr : 0;
        }
}

/* The runs it depends on: all done (0), some not finished (1), or *ret_id failed (-1). A removed
 * run had finished, with a state that is not known: it is ignored. */
static int check_after(const struct np_dispatch *d, const struct np_entry *entry, int64_t *ret_id)
{
    int waits = 0;

    for (int i = 0; i < entry->nr_after; i++) {
        const int index = np_entry_find(d->entries, d->nr_entries, entry->after[i]);
        const struct np_entry *other = index < 0 ? NULL : d->entries[index];

        if (!other || other->state == NP_ENTRY_DONE)
            continue;
        if (np_entry_is_finished(other)) {
            *ret_id = other->id;
            return -1;
        }
        waits = 1;
    }
    return waits;
}

/* Avoids the device of the run's last death; else prefers the most free slots. */
static bool is_better(const struct np_dispatch *d, const struct np_entry *entry,
    const struct place *places, int device, int best)
{
    const bool died = strcmp(d->devices[device].name, entry->died_on) == 0,
               best_died = strcmp(d->devices[best].name, entry->died_on) == 0;

    return died != best_died ? best_died : places[device].free > places[best].free;
}

/* What a run gets, or what is kept free for it. */
struct grasp {
    const struct np_entry *entry;
    uint64_t could;          /* devices that would start it, a bit each */
    uint64_t devices;        /* those on which it has slots */
    int each, nr, nr_wanted; /* slots: at most of a device, taken, needed */
};

static uint64_t bit(int device)
{
    return UINT64_C(1) << device;
}

/* Slots of the devices that would start it if nothing else ran. */
static int look_around(const struct np_dispatch *d, struct grasp *grasp)
{
    int nr = 0;

    for (int i = 0; i < d->nr_devices; i++) {
        const struct np_slotted *device = &d->devices[i];
        const int slots = np_device_slots(&device->health, device->nr_slots, d->ticks);
        const int each = is_gpu(device->name) ? 1 : grasp->nr_wanted;

        if (slots == 0 || !is_open(device) ||
            !np_dispatch_suits(d->devices, d->nr_devices, grasp->entry, i))
            continue;
        grasp->could |= bit(i);
        grasp->each = each;
        nr += slots < each ? slots : each;
    }
    return nr;
}

static void take(struct grasp *grasp, int device, int *slots)
{
    int nr = grasp->nr_wanted - grasp->nr;

    nr = nr < grasp->each ? nr : grasp->each;
    nr = nr < *slots ? nr : *slots;
    if (nr == 0)
        return;
    *slots -= nr;
    grasp->nr += nr;
    grasp->devices |= bit(device);
}

/* The best device with a free slot that has none for the run yet; -1: there is none. */
static int free_device(
    const struct np_dispatch *d, const struct grasp *grasp, const struct place *places)
{
    int best = -1;

    for (int i = 0; i < d->nr_devices; i++)
        if (places[i].free > 0 && grasp->could & ~grasp->devices & bit(i) &&
            (best < 0 || is_better(d, grasp->entry, places, i, best)))
            best = i;
    return best;
}

static void take_free(const struct np_dispatch *d, struct grasp *grasp, struct place *places)
{
    int device;

    while (grasp->nr < grasp->nr_wanted && (device = free_device(d, grasp, places)) >= 0)
        take(grasp, device, &places[device].free);
}

/* Those that are about to become free. */
static void take_leaving(const struct np_dispatch *d, struct grasp *grasp, struct place *places)
{
    for (int i = 0; i < d->nr_devices; i++)
        if (places[i].leaving > 0 && grasp->could & bit(i) &&
            (grasp->each > 1 || !(grasp->devices & bit(i))))
            take(grasp, i, &places[i].leaving);
}

/* --- runs that yield ------------------------------------------------------------------------ */

/* Adds the slots that a run would leave to the run that wants them. */
static void take_of(
    const struct np_dispatch *d, const struct np_entry *running, struct grasp *grasp)
{
    for (int i = 0; i < d->nr_devices; i++) {
        int slots = np_entry_slots_on(running, d->devices[i].name);

        if (slots > 0 && grasp->could & bit(i) && (grasp->each > 1 || !(grasp->devices & bit(i))))
            take(grasp, i, &slots);
    }
}

/* The run of the lowest priority, among equals the youngest, that would help; -1: none. */
static int victim(const struct np_dispatch *d, const struct grasp *grasp, const bool *yields)
{
    int best = -1;

    for (int e = 0; e < d->nr_entries; e++) {
        const struct np_entry *running = d->entries[e];
        struct grasp with = *grasp;

        if (running->state != NP_ENTRY_RUNNING || yields[e] ||
            running->priority >= grasp->entry->priority)
            continue;
        if (best >= 0 && (running->priority > d->entries[best]->priority ||
                             (running->priority == d->entries[best]->priority &&
                                 running->started < d->entries[best]->started)))
            continue;
        take_of(d, running, &with);
        if (with.nr > grasp->nr)
            best = e;
    }
    return best;
}

/* Are the slots enough without victim `but`? */
static bool enough_without(
    const struct np_dispatch *d, struct grasp grasp, const int *victims, int nr, int but)
{
    for (int i = 0; i < nr; i++)
        if (i != but)
            take_of(d, d->entries[victims[i]], &grasp);
    return grasp.nr == grasp.nr_wanted;
}

/* Writes the runs that must yield; 0: no set of runs would be enough. */
static int find_victims(
    const struct np_dispatch *d, const struct grasp *grasp, bool *yields, int victims[NP_MAX_GANG])
{
    struct grasp with = *grasp;
    int nr = 0, gone;

    while (with.nr < with.nr_wanted && (gone = victim(d, &with, yields)) >= 0) {
        take_of(d, d->entries[gone], &with);
        yields[gone] = true;
        victims[nr++] = gone;
    }
    for (int i = nr - 1; i >= 0; i--) /* those of the highest priority are spared first */
        if (with.nr < with.nr_wanted || enough_without(d, *grasp, victims, nr, i)) {
            yields[victims[i]] = false;
            memmove(&victims[i], &victims[i + 1], (size_t)(--nr - i) * sizeof(*victims));
        }
    return nr;
}

/* --- order ---------------------------------------------------------------------------------- */

struct turn { /* a queued run that may start now */
    const struct np_entry *entry;
    int index;
    int64_t share; /* runs of its owner that are running, or ahead of it */
};

static int by_owner(const void *left, const void *right)
{
    const struct np_entry *a = ((const struct turn *)left)->entry,
                          *b = ((const struct turn *)right)->entry;

    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    if (a->uid != b->uid)
        return a->uid < b->uid ? -1 : 1;
    const int device = strcmp(a->device, b->device);
    return device ? device : a->id < b->id ? -1 : a->id > b->id;
}

/* A run for which devices are kept free stays before the others of its priority. */
static int by_share(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;
    const double a_since = a->entry->reserves, b_since = b->entry->reserves;

    if (a->entry->priority != b->entry->priority)
        return a->entry->priority > b->entry->priority ? -1 : 1;
    if (a_since != b_since)
        return b_since == 0 || (a_since > 0 && a_since < b_since) ? -1 : 1;
    if (a->share != b->share)
        return a->share < b->share ? -1 : 1;
    return a->entry->id < b->entry->id ? -1 : a->entry->id > b->entry->id;
}

static bool is_same_owners(const struct np_entry *a, const struct np_entry *b)
{
    return a->uid == b->uid && a->priority == b->priority && strcmp(a->device, b->device) == 0;
}

/* Owners take turns: the n-th run of an owner comes after the (n-1)-th of every other owner. Runs
 * for different devices are counted separately: runs that cannot start must not delay others. */
static void share_out(struct turn *turns, int nr, struct np_owners *running)
{
    int64_t ahead = 0;

    qsort(turns, (size_t)nr, sizeof(*turns), by_owner);
    for (int i = 0; i < nr; i++) {
        const bool same = i > 0 && is_same_owners(turns[i - 1].entry, turns[i].entry);

        ahead = same ? ahead + np_entry_processes(turns[i - 1].entry) : 0;
        turns[i].share = *np_owners_count(running, turns[i].entry->uid) + ahead;
    }
    qsort(turns, (size_t)nr, sizeof(*turns), by_share);
}

/* Writes at most `room` orders for a run: its start, or the runs that yield to it and what is kept
 * free for it. Takes the slots out of places in either case. Returns their number. */
static int order_for(const struct np_dispatch *d, const struct turn *turn, struct place *places,
    bool *yields, struct np_order *ret_orders, int room)
{
    struct grasp grasp = {.entry = turn->entry, .nr_wanted = np_entry_processes(turn->entry)};
    int victims[NP_MAX_GANG], nr = 0, nr_victims;

    if (look_around(d, &grasp) < grasp.nr_wanted || room == 0)
        return 0;
    take_free(d, &grasp, places);
    const bool starts = grasp.nr == grasp.nr_wanted;
    if (!starts)
        take_leaving(d, &grasp, places);
    if (starts || (grasp.nr_wanted > 1 && grasp.nr > 0))
        ret_orders[nr++] = (struct np_order){.kind = starts ? NP_ORDER_START : NP_ORDER_RESERVE,
            .entry = turn->index,
            .devices = grasp.devices,
            .nr_slots = grasp.nr};
    if (grasp.nr == grasp.nr_wanted || !d->preempt)
        return nr;
    nr_victims = find_victims(d, &grasp, yields, victims);
    for (int i = 0; i < nr_victims && nr < room; i++)
        ret_orders[nr++] = (struct np_order){
            .kind = NP_ORDER_YIELD, .entry = victims[i], .other = turn->entry->id};
    return nr;
}

/* Fills turns with the runs that may start now. Writes orders for runs that will never start, and
 * returns their number. */
static int sort_out(const struct np_dispatch *d, struct turn *turns, int *ret_nr_turns,
    struct np_order *ret_orders, int max_orders)
{
    int nr = 0;

    for (int e = 0; e < d->nr_entries; e++) {
        const struct np_entry *entry = d->entries[e];
        const double wait_s = entry->not_before - d->now;
        int64_t other = 0;

        if (entry->state != NP_ENTRY_QUEUED && entry->state != NP_ENTRY_PAUSED)
            continue;
        const int waits = check_after(d, entry, &other);
        if (waits < 0 && nr < max_orders)
            ret_orders[nr++] = (struct np_order){.kind = NP_ORDER_FAIL, .entry = e, .other = other};
        else if (waits == 0 && entry->state == NP_ENTRY_QUEUED && !entry->unready &&
                 (wait_s <= 0 || wait_s > d->longest_s))
            turns[(*ret_nr_turns)++] = (struct turn){.entry = entry, .index = e};
    }
    return nr;
}

int np_dispatch(const struct np_dispatch *d, struct np_order *ret_orders, int max_orders)
{
    const size_t nr_entries = (size_t)d->nr_entries + 1;
    struct turn *turns = np_try_array(nr_entries, sizeof(*turns), NULL);
    bool *yields = np_try_array(nr_entries, sizeof(*yields), NULL);
    struct np_owners running = {0};
    struct place places[NP_MAX_DEVICES];
    int nr = 0, nr_turns = 0;

    if (turns && yields && d->nr_devices <= NP_MAX_DEVICES) {
        count_places(d, places);
        for (int e = 0; e < d->nr_entries; e++)
            if (np_entry_has_worker(d->entries[e]))
                *np_owners_count(&running, d->entries[e]->uid) += np_entry_processes(d->entries[e]);
        nr = sort_out(d, turns, &nr_turns, ret_orders, max_orders);
        share_out(turns, nr_turns, &running);
        for (int i = 0; i < nr_turns && nr < max_orders; i++) {
            int64_t *runs = np_owners_count(&running, turns[i].entry->uid);
            const int processes = np_entry_processes(turns[i].entry);

            if (d->running_per_user > 0 && *runs + processes > d->running_per_user)
                continue;
            const int more =
                order_for(d, &turns[i], places, yields, &ret_orders[nr], max_orders - nr);
            *runs += more > 0 && ret_orders[nr].kind == NP_ORDER_START ? processes : 0;
            nr += more;
        }
    }
    np_owners_fini(&running);
    np_free(turns);
    np_free(yields);
    return nr;
}
