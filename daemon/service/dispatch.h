/* Decides which run starts next, and on which device. Pure. */
#ifndef NP_DISPATCH_H
#define NP_DISPATCH_H

#include "daemon/service/device_health.h"
#include "daemon/service/queue.h"

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
 * youngest) yield. What is promised to it is not given to a later run; what it cannot use is.
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

#endif
