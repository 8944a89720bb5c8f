/* What the counters of a run say over some seconds. Trainer thread, between two steps; allocates nothing. */
#ifndef NP_OBSERVE_H
#define NP_OBSERVE_H

#include "daemon/analysis/cores.h"
#include "daemon/analysis/profile.h"
#include "loader/ring.h"

/* All counters at one moment. */
struct np_snapshot {
    uint64_t ns, images, steps;
    struct np_stat_sum readers, trainer;
    struct np_feed_times feed;
    uint64_t stall_ns, ring_ready_ns;
    uint64_t blame_ns[NP_NR_STAGES], bridged_ns[NP_FEED_BRIDGES];
    double process_cpu_s;
    uint64_t reader_cpu_ns, reader_delay_ns; /* on a core; ready, and waiting for one */
    struct np_cores cores;
};

/* What counts in a run, all borrowed. Whoever owns the run fills it in. */
struct np_observed {
    const struct np_stat *stat;
    struct np_ring *ring;
    struct np_feed *feed;
    const struct np_knobs *knobs; /* `auto` decided */
    uint64_t images, steps;       /* trained so far: images by this process, steps by the run */
};

void np_observe_now(const struct np_observed *seen, struct np_snapshot *ret_snapshot);
/* From one moment to a later one of the same run. */
void np_observe_between(const struct np_observed *seen, const struct np_snapshot *start,
    const struct np_snapshot *end, struct np_observation *ret_observation);
/* Has the run a cache that is still in its first epoch at this step? */
bool np_observe_fills(const struct np_knobs *knobs, uint64_t step);

#endif
