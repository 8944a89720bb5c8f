/* Decides which run starts next, and on which device. Pure. Also detects broken devices: without
 * that, a device on which every run dies would fail the whole queue, because it always has the
 * most free slots. Times of a device's health are seconds of a monotonic clock. */
#ifndef NP_DISPATCH_H
#define NP_DISPATCH_H

#include "daemon/service/queue.h"

#define NP_QUICK_DEATH_S   60.0 /* a longer run clears its device */
#define NP_SUSPECT_DEATHS  3    /* starts in a row */
#define NP_SUSPECT_TRIAL_S 900.0

struct np_device_health {
    int nr_deaths;    /* starts in a row that died */
    int64_t last_run; /* the run that died last */
    double trial_at;  /* a suspect device gets no run until then, and one at a time after */
    char why[256];    /* how the last run died */
};

struct np_device_end { /* how a worker ended */
    int64_t run;
    bool device_failed; /* the device could not be opened, or failed later */
    bool died;          /* its process was killed or crashed, and no stop was requested */
    bool well;          /* it is done, or its device worked until the stop */
    double lived_s;
    const char *why;
};

#define NP_MAX_DEVICES 64
struct np_slotted { /* a device of the service */
    char name[32];  /* "cuda:0", "cpu", "sim" */
    int nr_slots;   /* runs at a time */
    char gone[200]; /* why it has no slots although it was there before; "": it is there */
    bool drained;   /* starts no new runs; running ones continue */
    struct np_device_health health;
};

enum np_order_kind {
    NP_ORDER_START, /* start on that device */
    NP_ORDER_YIELD, /* checkpoint, then queue again, for a run of higher priority */
    NP_ORDER_FAIL,  /* a run that it depends on will never be done */
};
struct np_order {
    enum np_order_kind kind;
    int entry;     /* index */
    int device;    /* index; for a start */
    int64_t other; /* ID: the run that it yields to, or that failed before it */
};

struct np_dispatch {
    const struct np_entry *const *entries; /* by id */
    int nr_entries;
    const struct np_slotted *devices;
    int nr_devices;
    bool preempt;             /* a run of higher priority may make one of lower priority yield */
    int64_t running_per_user; /* running runs of one owner; 0: no limit */
    double now;               /* Unix time */
    double ticks;             /* clock of the devices' health, in seconds */
    double longest_s; /* longest delay of a run: a longer one means the clock was set back */
};

/* Fills ret_orders (at most max_orders) in the order in which to carry them out; returns their
 * number. Runs are taken by priority; among equals, first the run whose owner has fewer runs
 * running or ahead of it; then by ID. A run without a free slot waits for one that is about to
 * become free; else it makes the run of the lowest priority below its own (among equals the
 * youngest) yield. A later run gets no slot that is promised to it, only those that it cannot use.
 * "auto" stands for any GPU of the service, or for `cpu` if it has none. */
int np_dispatch(const struct np_dispatch *dispatch, struct np_order *ret_orders, int max_orders);
/* Can a run that asks for this device ever start here? */
bool np_dispatch_knows(const struct np_slotted *devices, int nr_devices, const char *wanted);
/* The suspect device that such a run waits for; -1 unless all suitable devices are suspect. */
int np_dispatch_suspect(const struct np_slotted *devices, int nr_devices, const char *wanted);
/* The drained device that the run waits for; -1 if another suitable device starts runs, or none
 * is drained. */
int np_dispatch_drained(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry);
/* May the run use this device? A run that has started stays on its kind of device, because the
 * other kind rounds differently. */
bool np_dispatch_suits(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry, int device);
/* The kind of a device: "gpu", "cpu" or "sim". */
const char *np_dispatch_kind(const char *device);

/* Counts an end. A failure of the device counts. A process that died within NP_QUICK_DEATH_S
 * counts if the last death was of another run (a run that always crashes is its own fault). An
 * error that the run explains does not count. The CPU is never suspect: no other device could
 * take its runs. Returns true if the device has just become suspect, or its trial failed. */
bool np_device_ended(struct np_device_health *health, const char *device,
    const struct np_device_end *end, double now);
/* Did the last NP_SUSPECT_DEATHS starts die? */
bool np_device_is_suspect(const struct np_device_health *health);
/* How many of nr_slots may start a run now: all; none while the device is suspect; one for its
 * trial. */
int np_device_slots(const struct np_device_health *health, int nr_slots, double now);

/* One counter for each owner of runs; zeroed at first. */
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
