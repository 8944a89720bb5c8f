/* Observes a run for some seconds: two snapshots of its counters, and their difference. Trainer
 * thread, between two steps; allocates nothing. */
#ifndef NP_OBSERVE_H
#define NP_OBSERVE_H

#include "daemon/analysis/cores.h"
#include "daemon/analysis/profile.h"
#include "loader/ring.h"

struct np_snapshot {
    uint64_t ns, images, steps, entered, missed, made, taken, decoded, found;
    struct np_stat_sum readers, trainer;
    struct np_feed_times feed;
    uint64_t stall_ns, ring_ready_ns;
    uint64_t blame_ns[NP_NR_STAGES], bridged_ns[NP_FEED_BRIDGES];
    double process_cpu_s;
    uint64_t reader_cpu_ns, reader_delay_ns; /* on a core; runnable, waiting for one */
    struct np_cores cores;
};

/* The counters of a run, all borrowed. Filled in by the owner of the run. */
struct np_observed {
    const struct np_stat *stat;
    struct np_ring *ring;
    struct np_feed *feed;
    const struct np_knobs *knobs; /* with `auto` resolved */
    uint64_t images, steps;       /* trained so far: images by this process, steps by the run */
    uint64_t entered, missed;     /* np_loader_entered() */
    uint64_t made, taken;         /* np_loader_exchanged(): batches */
    uint64_t decoded, found;      /* np_loader_cache_shared(): pictures */
};

void np_observe_now(const struct np_observed *seen, struct np_snapshot *ret_snapshot);
/* The difference of two snapshots of the same run. */
void np_observe_between(const struct np_observed *seen, const struct np_snapshot *start,
    const struct np_snapshot *end, struct np_observation *ret_observation);
/* Is the run's cache still in its first epoch at this step? */
bool np_observe_fills(const struct np_knobs *knobs, uint64_t step);

#endif
