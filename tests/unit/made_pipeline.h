/* A computed pipeline: readers, ring, copies and steps as in loader/ and trainer/feed.c, event by event,
 * in exact time. Tests compare the profiler's model with it. */
#ifndef NP_MADE_PIPELINE_H
#define NP_MADE_PIPELINE_H

#include "daemon/analysis/profile.h"

struct made_pipeline {
    int readers, depth, slots, batch;
    double cores;                          /* fewer than readers: they take turns */
    double stage_s[NP_NR_STAGES];          /* an image of decompress, decode, augment, batch */
    double spread;                         /* of these times: each is drawn from (1 +- spread) */
    double disk_s;                         /* the disk's time an image; 0: nothing is read */
    double copy_s, step_s;                 /* a batch */
    double checkpoint_s, checkpoint_steps; /* 0: none */
    double pause_s, pause_every_s;         /* no reader begins a row then; 0: they never do */
    uint64_t seed;
};

/* Runs it for so many batches, the first fifth as warm-up; images a second. ret_*: what the profiler
 * would have seen; NULL: not asked for. */
double made_pipeline_run(const struct made_pipeline *pipeline, int nr_batches,
    struct np_observation *ret_observation, struct np_ceilings *ret_ceilings,
    struct np_knobs *ret_knobs);
/* With one stage's cost divided by faster. */
struct made_pipeline made_pipeline_with(
    const struct made_pipeline *pipeline, enum np_stage stage, double faster);

#endif
