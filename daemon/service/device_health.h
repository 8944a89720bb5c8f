/* Detects broken devices. Without it, a device on which every run dies would fail the whole
 * queue, because it always has the most free slots. Pure. Times are seconds of a monotonic
 * clock. */
#ifndef NP_DEVICE_HEALTH_H
#define NP_DEVICE_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
