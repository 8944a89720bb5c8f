/* A batch in lanes: equal parts, whose gradients are summed in a fixed binary tree: lanes 0 and 1, lanes 2
 * and 3, then these two sums, and so on; a last one without a neighbour goes up as it is. Each process has a
 * stripe of the lanes, which is a subtree if it has 1, 2, 4 ... of them: then it computes the bits of one
 * process. A device computes all lanes of a process at once, or each as a batch of its plan: then batchnorm averages over
 * a lane's rows, and the running statistics move once a step, by the mean over the lanes ("ghost
 * batches", arXiv:1705.08741). Trainer thread. */
#ifndef NP_LANES_H
#define NP_LANES_H

#include "loader/base/stat.h"
#include "trainer/comm.h"
#include "trainer/device.h"

struct np_lanes {
    int nr;                 /* of a batch, in all processes; 1: batches are computed whole */
    int rows;               /* of a lane: the batch of the plan's graphs, unless all are at once */
    int accumulate;         /* batches of an update */
    struct np_comm *comm;   /* NULL: one process */
    struct np_block *block; /* of the trainer: waits for other processes are named there */
    struct np_metrics *numbers; /* (nr), the caller's: scratch */
    float *losses; /* (rows * nr), the caller's: a step's, of all processes; NULL: not wanted */
    /* (rows * nr, width), the caller's, for a device with plan_ops->eval_lanes(): np_lanes_eval() fills this
     * process's rows with their outputs; NULL: not wanted */
    float *logits;
    int width;
};

/* This process's rows of a batch on the device, of row_bytes each; np_batch_values() has the values of
 * labels. */
struct np_stripe {
    const void *images, *labels;
    size_t row_bytes;
};

/* For a device that computes all lanes at_once: forward and backward of all lanes, and the update, unless hyper is NULL: then the batch is not the
 * last one of an accumulation. Returns when it is computed. step: of the run. Errors: those of the plan
 * and of the sums over processes. */
int np_lanes_step(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    const struct np_stripe *stripe, uint64_t step, const struct np_hyper *hyper,
    struct np_metrics *ret_metrics, struct np_err *err);
/* For a device with plan_ops->step_lanes(): queues the same. The step's numbers, and its losses, come later, in the
 * order of the steps. */
int np_lanes_queue(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    const struct np_stripe *stripe, uint64_t step, const struct np_hyper *hyper,
    struct np_err *err);
int np_lanes_read(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    struct np_metrics *ret_metrics, struct np_err *err);
/* Evaluates a batch, and adds all processes' numbers to *sums, lane by lane. */
int np_lanes_eval(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    const struct np_stripe *stripe, struct np_metrics *sums, struct np_err *err);

#endif
