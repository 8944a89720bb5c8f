/* Decides which run starts next, and on which device. Pure. Also detects broken devices: a device
 * on which every run dies always has the most free slots, so it would fail the whole queue. Times
 * of a device's health are seconds of a monotonic clock. */
#ifndef NP_DISPATCH_H
#define NP_DISPATCH_H

#include "daemon/service/queue.h"

#define NP_QUICK_DEATH_S   60.0 /* a longer run clears its device */
#define NP_SUSPECT_DEATHS  3    /* starts in a row */
#define NP_SUSPECT_TRIAL_S 900.0

struct np_device_health {
    int nr_deaths;    /* starts in a row that died */
    int64_t last_run; /* the run that died last */
    double trial_at;  /* a suspect device gets no run before, and one at a time after it */
    char why[256];    /* how the last run died */
};

struct np_device_end { /* how a worker ended */
    int64_t run;
    bool device_failed; /* at its opening, or later */
    bool died;          /* its process was killed or crashed, and no stop was requested */
    bool well;          /* it is done, or its device worked until the stop */
    double lived_s;
    const char *why;
};

#define NP_MAX_DEVICES 64 /* bits of a set of them */
struct np_slotted {       /* a device and its slots */
    char name[32];        /* "cuda:0", "cpu", "sim" */
    int nr_slots;         /* runs at a time */
    char gone[200];       /* why it was there before and has no slots now; "": it has */
    bool drained;         /* starts no new runs; running ones continue */
    struct np_device_health health;
};

enum np_order_kind {
    NP_ORDER_START,
    NP_ORDER_RESERVE, /* it waits, and slots that are free, or about to be, are kept for it */
    NP_ORDER_YIELD,   /* checkpoint, then queue again, for a run of higher priority */
    NP_ORDER_FAIL,    /* a run that it depends on will never be done */
};
struct np_order {
    enum np_order_kind kind;
    int entry;        /* index */
    uint64_t devices; /* for a start or a reservation: a bit for the index of each */
    int nr_slots;     /* on them, for its processes */
    int64_t other;    /* ID: the run that it yields to, or that failed before it */
};

struct np_dispatch {
    const struct np_entry *const *entries; /* by id */
    int nr_entries;
    const struct np_slotted *devices;
    int nr_devices;
    bool preempt;             /* a run of higher priority may make one of lower priority yield */
    int64_t running_per_user; /* processes of running runs of one owner; 0: no limit */
    double now;               /* Unix time */
    double ticks;             /* monotonic clock, seconds */
    double longest_s; /* max delay of a run: a longer one means that the clock was set back */
};

/* Fills ret_orders (at most max_orders) in the order in which to carry them out; returns their
 * number. Runs start by priority, then by the number of their owner's processes that run or are
 * ahead of them (fewer first), then by ID. "auto" means any GPU of the service, or `cpu` if it has
 * none.
 *
 * A run starts when all of its processes have slots: a GPU for each, or as many slots of the CPU or
 * the sim device. Until then it waits for slots that are about to become free, which later runs
 * then do not get; if these are too few, the runs of the lowest priority below its own (among equals
 * the youngest) yield, but only if that is enough. A run of several processes also keeps the slots
 * that are free already, with an order NP_ORDER_RESERVE each time: its caller sets `reserves`, and
 * from then on it stays before all runs of its priority. A run that cannot start on the devices that
 * start runs now (one is drained, suspect or gone) keeps none. */
int np_dispatch(const struct np_dispatch *dispatch, struct np_order *ret_orders, int max_orders);
/* Slots that the run would get here if nothing else ran: with fewer than its processes it never
 * starts. */
int np_dispatch_room(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry);
/* A suspect device that the run waits for; -1 if suitable devices that are not suspect are enough. */
int np_dispatch_suspect(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry);
/* A drained device that the run waits for; -1 if none, or if the suitable devices that start runs
 * are enough. */
int np_dispatch_drained(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry);
/* May the run use this device? A run that has started stays on its kind of device, because another
 * kind rounds differently. */
bool np_dispatch_suits(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry, int device);
const char *np_dispatch_kind(const char *device); /* "gpu", "cpu" or "sim" */

/* Counts an end: a failure of the device, or a process that died within NP_QUICK_DEATH_S if the
 * last death was of another run (a run that always crashes is its own fault). Errors of the run do
 * not count. The CPU is never suspect: no other device could take its runs. Returns true if the
 * device has become suspect, or its trial failed. */
bool np_device_ended(struct np_device_health *health, const char *device,
    const struct np_device_end *end, double now);
bool np_device_is_suspect(const struct np_device_health *health);
/* The number of slots that may start a run now: nr_slots; 0 while the device is suspect; 1 for its
 * trial. */
int np_device_slots(const struct np_device_health *health, int nr_slots, double now);

/* A counter for each owner of runs; zeroed at first. */
struct np_owners {
    struct np_owner {
        uid_t uid;
        int64_t nr;
    } * owners; /* sorted by uid */
    int nr;
    size_t room;
};
/* The owner's counter, 0 at first; borrowed until the next call. */
int64_t *np_owners_count(struct np_owners *owners, uid_t uid);
void np_owners_fini(struct np_owners *owners);

#endif
