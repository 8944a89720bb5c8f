/* A network with weights, ready to evaluate: for `eval` and `predict`. Main thread. */
#ifndef NP_INFERENCE_H
#define NP_INFERENCE_H

#include "daemon/cmd.h"
#include "daemon/config/setup.h"
#include "loader/base/stat.h"
#include "loader/source/source.h"
#include "trainer/device.h"

struct np_inference {
    struct np_config
        *config;           /* borrowed; test chain and normalize are the facts', if there are any */
    struct np_setup setup; /* classes, size, graph; sets only where they had to be asked */
    struct np_node *facts; /* of the checkpoint; NULL: bare weights */
    struct np_device *device;
    enum np_dtype precision;
    struct np_plan *plan;
    struct np_stat *stat;
    struct np_block *block;
};

/* The config of the run that the weights are of: RUN, RUN:best, a checkpoint's folder, or a file in one.
 * NULL: there is none. np_free. */
char *np_inference_config(const char *weights);
/* Is this operand a config, or does the run of the weights give one? By its name: *.yaml, *.yml or "-"; any
 * other is one, too, where the weights are of no run. */
bool np_inference_names_config(const char *operand, const char *weights);
/* "in bf16 on cpu, as the run computed" */
void np_inference_text(const struct np_inference *inference, char *text, size_t text_bytes);

/* Finds weights (np_weights_find()), takes classes and row size from their facts, else from the
 * training set, builds the network with config's batch, and loads it: every tensor must be there and
 * fit. The facts' test chain, normalize, pixels and split take their place in config; where they differ
 * from config's, progress->note says so (Required; borrowed until np_inference_close()). Where older
 * facts lack the split, the config.yaml of the checkpoint's run tells it. The facts' precision is used
 * unless config names one. np_inference_close() follows whether this failed or not. The model's own
 * mistakes are printed, and give -ENOEXEC. */
int np_inference_open(struct np_config *config, const char *weights,
    const struct np_overrides *overrides, const struct np_source_progress *progress,
    struct np_inference *inference, struct np_err *err);
void np_inference_close(struct np_inference *inference);

#endif
