/* Who runs next, and where. Pure: the queue as it is -> what to do now. */
#ifndef NP_DISPATCH_H
#define NP_DISPATCH_H

#include "daemon/service/device_health.h"
#include "daemon/service/queue.h"

struct np_slotted { /* a device of the service */
    char name[32];  /* "cuda:0", "cpu", "sim" */
    int nr_slots;   /* runs at a time */
    char gone[200]; /* why it has no slots, though it was there before; "": it is there */
    bool drained;   /* no new run is started there; running ones continue */
    struct np_device_health health;
};

enum np_order_kind {
    NP_ORDER_START, /* on that device */
    NP_ORDER_YIELD, /* checkpoint, end, and queue again: a run of higher priority takes its place */
    NP_ORDER_FAIL,  /* what it comes after will never be done */
};
struct np_order {
    enum np_order_kind kind;
    int entry;     /* index */
    int device;    /* index; of a start */
    int64_t other; /* id: the run that makes it yield, or that failed before it */
};

struct np_dispatch {
    const struct np_entry *const *entries; /* by id */
    int nr_entries;
    const struct np_slotted *devices;
    int nr_devices;
    bool preempt;             /* a run of higher priority may make one of lower yield */
    int64_t running_per_user; /* runs of one owner at a time; 0: any number */
    double now;               /* Unix time */
    double ticks;             /* seconds on the clock of the devices' health */
    double
        longest_s; /* that a run may have to wait: one that would wait longer saw the clock set back */
};

/* At most `most` orders, in the order they are to be carried out; their number. Runs are taken by priority; of
 * equals the one whose owner has fewer runs running, with those that come before it counted in; then by id. One
 * that finds no free slot waits for a slot that is about to be free, then makes the run of the lowest priority below
 * its own (of equals the youngest) yield. What is promised to it is not given to a run behind it; what it cannot use
 * is. "auto" stands for any GPU of the service, or for `cpu` where it has none. */
int np_dispatch(const struct np_dispatch *dispatch, struct np_order *ret_orders, int most);
/* Can a run that wants this device ever be started here? */
bool np_dispatch_knows(const struct np_slotted *devices, int nr_devices, const char *wanted);
/* The suspect device that such a run waits for: all devices that suit it are suspect. -1: one is not, or none suits. */
int np_dispatch_suspect(const struct np_slotted *devices, int nr_devices, const char *wanted);
/* A drained device that the run waits for: no device that suits it starts runs. -1: another does, or none is drained. */
int np_dispatch_drained(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry);
/* May the run be on that device? One that has begun stays on its kind of device: the other rounds differently. */
bool np_dispatch_suits(
    const struct np_slotted *devices, int nr_devices, const struct np_entry *entry, int device);
/* "gpu", "cpu", "sim" */
const char *np_dispatch_kind(const char *device);

#endif
