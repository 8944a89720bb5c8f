/* One pass over a set with given weights: what `eval` does, and a run's last test. */
#ifndef NP_EVALUATE_H
#define NP_EVALUATE_H

#include "daemon/config/config.h"
#include "daemon/run/watch.h"
#include "loader/loader.h"
#include "loader/source/split.h"
#include "trainer/trainer.h"

struct np_evaluation {
    const struct np_config *config;
    struct np_device *device;
    struct np_plan *plan; /* weights in it */
    struct np_index *index;
    const struct np_split *split;  /* its evaluation part; NULL: all of it */
    const int32_t *labels;         /* class -> the network's; NULL: equal */
    const struct np_node *classes; /* the network's, by name */
    struct np_batch_shape shape;
    struct np_stat *stat;
    struct np_block *block;
    struct np_watch
        *watch; /* Optional: armed while batches come, and a stop ends waiting for one */
    /* Optional. Asked after each batch; true ends it with -EINTR. */
    bool (*stopping)(void *context);
    /* Optional. A sample that could not be read. */
    void (*bad)(void *context, const struct np_bad_sample *bad);
    void *context;
};

/* Starts a loader, evaluates, stops it. Blocks. Where the loss is not finite it evaluates once more,
 * looks at each image's outputs, and fails with -EDOM, the first such image and output named. */
int np_evaluate(
    const struct np_evaluation *evaluation, struct np_eval_report *ret_report, struct np_err *err);
/* -EDOM, the class named, where one of the (classes) outputs for an image is not finite. */
int np_outputs_check(const float *logits, const struct np_node *classes, struct np_err *err);

#endif
