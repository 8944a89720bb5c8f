/* A network with weights, ready to evaluate: for `eval` and `predict`. Main thread. */
#ifndef NP_INFERENCE_H
#define NP_INFERENCE_H

#include "daemon/cmd.h"
#include "daemon/config/setup.h"
#include "loader/base/json.h"
#include "loader/base/stat.h"
#include "loader/source/source.h"
#include "trainer/device.h"

struct np_inference {
    /* Set by the caller before np_inference_open(): batches are rarely full. Rows with a negative
     * label are then not computed, and the CPU has a lane per thread. */
    bool serving;
    int lanes; /* of the plan */
    /* Borrowed; test chain, normalize, pixels and split are replaced by those of the facts, if
     * any. */
    struct np_config *config;
    const struct np_source_progress *progress; /* borrowed */
    struct np_setup setup; /* classes, size, graph; the sets only if they were needed for these */
    struct np_node *facts; /* of the checkpoint; NULL: bare weights */
    struct np_device *device;
    enum np_dtype precision;
    struct np_plan *plan;
    struct np_stat *stat;
    struct np_block *block;
};

/* The path of config.yaml of the run that weights belong to: RUN, RUN:best, a checkpoint's
 * folder, or a file in one. NULL: there is none. np_free. */
char *np_inference_config(const char *weights);
/* Is this operand a config? Yes if it is *.yaml, *.yml or "-", or if the weights belong to no
 * run. */
bool np_inference_names_config(const char *operand, const char *weights);
/* "in bf16 on cpu, as the run computed", and the views of train.tta */
void np_inference_text(const struct np_inference *inference, char *text, size_t text_bytes);

/* --tta WORD of a command, as an override of train.tta; word NULL: not given. 0, or NP_EXIT_USAGE
 * after a message. */
int np_inference_tta(const char *command, const char *word, struct np_overrides *overrides);

/* Finds weights (np_weights_find()), takes classes and row size from their facts, else from the
 * training set, builds the network with config's batch, and loads it: every tensor must be
 * present and fit. Test chain, normalize, pixels and split of the facts replace those of config;
 * progress->note (Required; borrowed until np_inference_close()) reports the differences. If
 * older facts lack the split, it comes from the config.yaml of the checkpoint's run. Uses the
 * facts' precision unless config sets one. The caller calls np_inference_close() even after an
 * error. Prints errors of the model itself and returns -ENOEXEC. */
int np_inference_open(struct np_config *config, const char *weights,
    const struct np_overrides *overrides, const struct np_source_progress *progress,
    struct np_inference *inference, struct np_err *err);
void np_inference_close(struct np_inference *inference);

/* Probabilities of one picture, in double: the softmax of its (n) logits, or the sigmoid of each. */
void np_odds(const float *logits, int n, bool sigmoids, double *odds);
/* The index of the largest, which the caller then sets to -1 to take the next. */
int np_take_best(const double *odds, int n);
/* Adds `classes` to an object: the names of those that a network for several classes answers with a
 * probability above 0.5. */
void np_odds_classes(struct np_json *json, const struct np_node *classes, const double *odds);

#endif
