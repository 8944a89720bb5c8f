/* Runs of the pipeline for tests: a set, its settings, and a digest of the batches of a run. */
#ifndef NP_MADE_LOADER_H
#define NP_MADE_LOADER_H

#include "loader/loader.h"
#include "tests/unit/made_set.h"

enum { N = 97, BATCH = 16, STEPS = 24, SIDE = 12, HIGH = 112, WIDE = 160 };

/* A run's settings with what they borrow. */
struct rig {
    struct np_loader_options options;
    struct np_loader_config config;
    struct np_chain *augment, *test_augment;
    struct made_set set, eval;
    struct np_node *list;
};

struct outcome {
    uint64_t digest; /* of images, labels and the facts of batches */
    uint64_t nr_batches, nr_bad, nr_masked, nr_replaced, nr_entered, nr_missed;
    struct np_err err;
    char reasons[4096];
};

/* A train set of N pictures of SIDE x SIDE (JPEGs: HIGH x WIDE, which a crop needs) and, where nr_eval is
 * not 0, one for evaluation; two readers with pread. augment: crop and flip. Returns 0 on success. */
int rig_make(struct rig *rig, enum made_kind kind, bool augment, int nr_eval);
void rig_free(struct rig *rig);
/* Runs to the end or an error. skip: batches that do not count. */
struct outcome rig_run(const struct rig *rig, uint64_t skip);

#endif
