/* See dispatch.h. */
#include "daemon/service/dispatch.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 64

struct place {
    int free;    /* slots nobody has */
    int leaving; /* slots of runs that are about to end */
};

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

/* "cuda" is any of them. */
static bool suits(
    const struct np_slotted *devices, int nr, const char *wanted, const struct np_slotted *device)
{
    if (strcmp(wanted, "auto") == 0)
        return has_gpu(devices, nr) ? is_gpu(device->name) : strcmp(device->name, "cpu") == 0;
    if (strcmp(wanted, "cuda") == 0)
        return is_gpu(device->name);
    return strcmp(wanted, device->name) == 0;
}

bool np_dispatch_knows(const struct np_slotted *devices, int nr_devices, const char *wanted)
{
    for (int i = 0; i < nr_devices; i++)
        if (suits(devices, nr_devices, wanted, &devices[i]))
            return true;
    return false;
}

static bool is_leaving(const struct np_entry *entry)
{
    return np_entry_has_worker(entry) && entry->state != NP_ENTRY_RUNNING;
}

static void count_places(const struct np_dispatch *d, struct place places[MOST_DEVICES])
{
    for (int i = 0; i < d->nr_devices; i++)
        places[i] = (struct place){.free = d->devices[i].nr_slots};
    for (int e = 0; e < d->nr_entries; e++)
        for (int i = 0; np_entry_has_worker(d->entries[e]) && i < d->nr_devices; i++)
            if (strcmp(d->entries[e]->assigned, d->devices[i].name) == 0) {
                places[i].free--;
                places[i].leaving += is_leaving(d->entries[e]);
            }
}

static const struct np_entry *by_id(const struct np_dispatch *d, int64_t id)
{
    int low = 0, high = d->nr_entries;

    while (low < high) {
        const int middle = (low + high) / 2;

        if (d->entries[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < d->nr_entries && d->entries[low]->id == id ? d->entries[low] : NULL;
}

/* What it comes after: all done (0), still to come (1), or never (-1; *ret_id says which). One that was
 * removed was over; nobody knows how, and nobody waits for it. */
static int look_before(const struct np_dispatch *d, const struct np_entry *entry, int64_t *ret_id)
{
    int waits = 0;

    for (int i = 0; i < entry->nr_after; i++) {
        const struct np_entry *other = by_id(d, entry->after[i]);

        if (!other || other->state == NP_ENTRY_DONE)
            continue;
        if (np_entry_is_over(other)) {
            *ret_id = other->id;
            return -1;
        }
        waits = 1;
    }
    return waits;
}

/* The suitable device with most free slots; -1: none has any. */
static int free_device(
    const struct np_dispatch *d, const struct np_entry *entry, const struct place *places)
{
    int best = -1;

    for (int i = 0; i < d->nr_devices; i++)
        if (places[i].free > 0 && suits(d->devices, d->nr_devices, entry->device, &d->devices[i]) &&
            (best < 0 || places[i].free > places[best].free))
            best = i;
    return best;
}

/* Takes a slot that will soon be free; false: there is none. */
static bool take_leaving(
    const struct np_dispatch *d, const struct np_entry *entry, struct place *places)
{
    for (int i = 0; i < d->nr_devices; i++)
        if (places[i].leaving > 0 &&
            suits(d->devices, d->nr_devices, entry->device, &d->devices[i])) {
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
            return suits(d->devices, d->nr_devices, entry->device, &d->devices[i]);
    return false;
}

/* Whom it may make yield; -1: nobody. */
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

static int before(const void *left, const void *right)
{
    const struct np_entry *a = **(const struct np_entry *const *const *)left;
    const struct np_entry *b = **(const struct np_entry *const *const *)right;

    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* What becomes of one run that is queued or bound; false: nothing now. */
static bool order_for(const struct np_dispatch *d, int e, struct place *places, bool *yields,
    struct np_order *ret_order)
{
    const struct np_entry *entry = d->entries[e];
    int64_t other = 0;
    const int waits = look_before(d, entry, &other);

    if (waits < 0) {
        *ret_order = (struct np_order){.kind = NP_ORDER_FAIL, .entry = e, .other = other};
        return true;
    }
    const double wait_s = entry->not_before - d->now;
    if (waits > 0 || entry->state == NP_ENTRY_PAUSED || (wait_s > 0 && wait_s <= d->longest_s))
        return false;
    const int device = free_device(d, entry, places);
    if (device >= 0) {
        places[device].free--;
        *ret_order = (struct np_order){.kind = NP_ORDER_START, .entry = e, .device = device};
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

/* Paused, and perhaps never to be done. */
static bool is_bound(const struct np_entry *entry)
{
    return entry->state == NP_ENTRY_PAUSED && entry->nr_after > 0;
}

int np_dispatch(const struct np_dispatch *d, struct np_order *ret_orders, int most)
{
    const struct np_entry *const **turns = calloc((size_t)d->nr_entries + 1, sizeof(*turns));
    bool *yields = calloc((size_t)d->nr_entries + 1, sizeof(*yields));
    struct place places[MOST_DEVICES];
    int nr = 0, nr_turns = 0;

    if (turns && yields && d->nr_devices <= MOST_DEVICES) {
        count_places(d, places);
        for (int e = 0; e < d->nr_entries; e++)
            if (d->entries[e]->state == NP_ENTRY_QUEUED || is_bound(d->entries[e]))
                turns[nr_turns++] = &d->entries[e];
        qsort(turns, (size_t)nr_turns, sizeof(*turns), before);
        for (int i = 0; i < nr_turns && nr < most; i++)
            nr += order_for(d, (int)(turns[i] - d->entries), places, yields, &ret_orders[nr]);
    }
    free(turns);
    free(yields);
    return nr;
}
