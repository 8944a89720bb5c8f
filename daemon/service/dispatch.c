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

bool np_dispatch_knows(const struct np_slotted *devices, int nr_devices, const char *wanted)
{
    for (int i = 0; i < nr_devices; i++)
        if (suits(devices, nr_devices, wanted, &devices[i]))
            return true;
    return false;
}

int np_dispatch_suspect(const struct np_slotted *devices, int nr_devices, const char *wanted)
{
    int suspect = -1;

    for (int i = 0; i < nr_devices; i++)
        if (suits(devices, nr_devices, wanted, &devices[i])) {
            if (!np_device_is_suspect(&devices[i].health))
                return -1;
            suspect = suspect < 0 ? i : suspect;
        }
    return suspect;
}

int np_dispatch_drained(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry)
{
    int drained = -1;

    for (int i = 0; i < nr_devices; i++) {
        if (!np_dispatch_suits(devices, nr_devices, entry, i))
            continue;
        if (is_open(&devices[i]))
            return -1;
        if (devices[i].drained && drained < 0)
            drained = i;
    }
    return drained;
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
        for (int i = 0; np_entry_has_worker(d->entries[e]) && i < d->nr_devices; i++)
            if (strcmp(d->entries[e]->assigned, d->devices[i].name) == 0) {
                places[i].free--;
                places[i].leaving += is_leaving(d->entries[e]);
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

static int free_device(
    const struct np_dispatch *d, const struct np_entry *entry, const struct place *places)
{
    int best = -1;

    for (int i = 0; i < d->nr_devices; i++)
        if (places[i].free > 0 && is_open(&d->devices[i]) &&
            np_dispatch_suits(d->devices, d->nr_devices, entry, i) &&
            (best < 0 || is_better(d, entry, places, i, best)))
            best = i;
    return best;
}

/* Reserves a slot that is about to become free; false: none. */
static bool take_leaving(
    const struct np_dispatch *d, const struct np_entry *entry, struct place *places)
{
    for (int i = 0; i < d->nr_devices; i++)
        if (places[i].leaving > 0 && is_open(&d->devices[i]) &&
            np_dispatch_suits(d->devices, d->nr_devices, entry, i)) {
            places[i].leaving--;
            return true;
        }
    return false;
}

static bool on_suitable_device(
    const struct np_dispatch *d, const struct np_entry *entry, const struct np_entry *running)
{
    for (int i = 0; i < d->nr_devices; i++)
        if (strcmp(running->assigned, d->devices[i].name) == 0)
            return is_open(&d->devices[i]) &&
                   np_dispatch_suits(d->devices, d->nr_devices, entry, i);
    return false;
}

static int victim(const struct np_dispatch *d, const struct np_entry *entry, const bool *yields)
{
    int best = -1;

    for (int e = 0; e < d->nr_entries; e++) {
        const struct np_entry *running = d->entries[e];

        if (running->state != NP_ENTRY_RUNNING || yields[e] ||
            running->priority >= entry->priority || !on_suitable_device(d, entry, running))
            continue;
        if (best < 0 || running->priority < d->entries[best]->priority ||
            (running->priority == d->entries[best]->priority &&
                running->started >= d->entries[best]->started))
            best = e;
    }
    return best;
}

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

static int by_share(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;

    if (a->entry->priority != b->entry->priority)
        return a->entry->priority > b->entry->priority ? -1 : 1;
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
        ahead = i > 0 && is_same_owners(turns[i - 1].entry, turns[i].entry) ? ahead + 1 : 0;
        turns[i].share = *np_owners_count(running, turns[i].entry->uid) + ahead;
    }
    qsort(turns, (size_t)nr, sizeof(*turns), by_share);
}

static bool order_for(const struct np_dispatch *d, const struct turn *turn, struct place *places,
    bool *yields, struct np_order *ret_order)
{
    const struct np_entry *entry = turn->entry;
    const int device = free_device(d, entry, places);

    if (device >= 0) {
        places[device].free--;
        *ret_order =
            (struct np_order){.kind = NP_ORDER_START, .entry = turn->index, .device = device};
        return true;
    }
    if (take_leaving(d, entry, places) || !d->preempt)
        return false;
    const int gone = victim(d, entry, yields);
    if (gone < 0)
        return false;
    yields[gone] = true;
    *ret_order = (struct np_order){.kind = NP_ORDER_YIELD, .entry = gone, .other = entry->id};
    return true;
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
                ++*np_owners_count(&running, d->entries[e]->uid);
        nr = sort_out(d, turns, &nr_turns, ret_orders, max_orders);
        share_out(turns, nr_turns, &running);
        for (int i = 0; i < nr_turns && nr < max_orders; i++) {
            int64_t *runs = np_owners_count(&running, turns[i].entry->uid);

            if (d->running_per_user > 0 && *runs >= d->running_per_user)
                continue;
            if (order_for(d, &turns[i], places, yields, &ret_orders[nr]))
                *runs += ret_orders[nr++].kind == NP_ORDER_START;
        }
    }
    np_owners_fini(&running);
    np_free(turns);
    np_free(yields);
    return nr;
}
