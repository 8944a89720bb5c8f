/* A network with weights, ready to evaluate: for `eval` and `predict`. Main thread. */
#ifndef NP_INFERENCE_H
#define NP_INFERENCE_H

#include "daemon/cmd.h"
#include "daemon/setup.h"
#include "loader/base/stat.h"
#include "loader/source.h"
#include "trainer/device.h"

struct np_inference {
    const struct np_config *config;
    struct np_setup setup;  /* classes, size, graph; sets only where they had to be asked */
    struct np_node *facts;  /* of the checkpoint; NULL: bare weights */
    struct np_chain *chain; /* the test chain of the facts; NULL: the config's */
    struct np_device *device;
    struct np_plan *plan;
    struct np_stat *stat;
    struct np_block *block;
};

/* Finds weights (a file, a checkpoint's folder, a run's folder), takes classes and row size from its
 * facts, else from the training set, builds the network with config's batch, and loads it: every
 * tensor must be there and fit. With what could be opened or not, np_inference_close() follows. The
 * model's own mistakes are printed, and give -ENOEXEC. */
int np_inference_open(const struct np_config *config, const char *weights,
    const struct np_overrides *overrides, const struct np_source_progress *progress,
    struct np_inference *inference, struct np_err *err);
void np_inference_close(struct np_inference *inference);
/* The chain for a test image. */
const struct np_chain *np_inference_chain(const struct np_inference *inference);

#endif
