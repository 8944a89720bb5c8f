/* One pass over a set with given weights: for `eval` and a run's final test. */
#ifndef NP_EVALUATE_H
#define NP_EVALUATE_H

#include "daemon/config/config.h"
#include "daemon/run/figures.h"
#include "daemon/run/outcomes.h"
#include "daemon/run/watch.h"
#include "loader/loader.h"
#include "loader/source/split.h"
#include "trainer/trainer.h"

struct np_evaluation {
    const struct np_config *config;
    struct np_device *device;
    struct np_plan *plan; /* holds the weights */
    struct np_index *index;
    const struct np_split *split;  /* evaluates its val part; NULL: the whole index */
    const int32_t *labels;         /* class in the index -> the network's; NULL: equal */
    const struct np_node *classes; /* the network's, by name */
    struct np_batch_shape shape;
    struct np_stat *stat;
    struct np_block *block;
    struct np_watch *watch; /* Optional: armed during the pass; a stop ends the wait for a batch */
    /* Optional. Called after each batch; true ends the pass with -EINTR. */
    bool (*stopping)(void *context);
    /* Optional: gets an outcome of each image, and every output is checked in the first pass. Costs a
     * copy of the outputs of each batch. */
    struct np_outcomes *outcomes;
    /* Optional: the same for labels that are not classes. */
    struct np_kept *kept;
    /* Optional: takes the outputs (classes) of each image, in order, unchecked; then a loss that is
     * not finite is no error. Negative: ends the pass with this code. */
    int (*answer)(void *context, uint64_t sample, const float *logits, struct np_err *err);
    /* Required. Called for a sample that could not be read. */
    void (*bad)(void *context, const struct np_bad_sample *bad);
    void *context;
};

/* The loader of a pass. */
void np_evaluation_loader(
    const struct np_evaluation *evaluation, struct np_loader_config *ret_config);
/* Starts a loader, evaluates, stops it. Blocks. If the loss is not finite, evaluates again,
 * checks each image's outputs, and fails with -EDOM; the error names the first such image and
 * output. */
int np_evaluate(
    const struct np_evaluation *evaluation, struct np_eval_report *ret_report, struct np_err *err);
/* -EDOM, with the class, if one of the (classes) outputs for an image is not finite. */
int np_outputs_check(const float *logits, const struct np_node *classes, struct np_err *err);

#endif
