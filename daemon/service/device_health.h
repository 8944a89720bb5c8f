/* Which devices are not to be trusted: one on which start after start dies would otherwise take, and fail, every run
 * of the queue, for it is always the one with the most free slots. Pure; the service's thread. Times are seconds on a
 * monotonic clock. */
#ifndef NP_DEVICE_HEALTH_H
#define NP_DEVICE_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define NP_QUICK_DEATH_S   60.0 /* a run that lives longer clears its device */
#define NP_SUSPECT_DEATHS  3    /* starts in a row */
#define NP_SUSPECT_TRIAL_S 900.0

struct np_device_health {
    int nr_deaths;    /* starts in a row that died */
    int64_t last_run; /* of the last of them */
    double trial_at;  /* until then a suspect device is given no run, then one at a time */
    char why[256];    /* how the last one died */
};

struct np_device_end { /* a worker that has ended */
    int64_t run;
    bool device_failed; /* the device could not be opened, or failed while it was at work */
    bool died;          /* its process was killed or crashed, and nobody had told it to end */
    bool well;          /* it is done, or its device was at work until it was told to stop */
    double lived_s;
    const char *why;
};

/* Counts an end. A failure of the device counts, and a process that died within NP_QUICK_DEATH_S where another
 * run's was the last to (one run that always crashes is that run's fault); an error that the run itself explains
 * says nothing of the device. The CPU is never suspect: there is nothing to give its runs to. True: the device has
 * just become suspect, or its trial failed. */
bool np_device_ended(struct np_device_health *health, const char *device,
    const struct np_device_end *end, double now);
bool np_device_is_suspect(const struct np_device_health *health);
/* Slots of `nr_slots` that runs may be started in now: all, none of a suspect device, or one for its trial. */
int np_device_slots(const struct np_device_health *health, int nr_slots, double now);

#endif
