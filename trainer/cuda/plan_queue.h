/* What a plan queues for a batch, call by call or as one graph, and the numbers that come back; plan_cuda.c has the steps
 * and evaluations that are made of these calls. Trainer thread; only numbers are waited for.
 *
 *     set_step (by value) -> graph: input ... backward -> norm -> update; numbers -> event
 *
 * A step that cannot be captured as a graph is queued call by call, in the same order. */
#ifndef NP_PLAN_QUEUE_H
#define NP_PLAN_QUEUE_H

#include "trainer/cuda/plan_memory.h"

/* Queues the batch's values for the device, when its slot is free. values: of its first row, of labels that are not
 * classes; plan->now has the rest. */
int np_cuda_announce(struct np_plan *plan, const void *images, const void *labels,
    const float *values, struct np_err *err);
/* Puts the rates and factors of the next update into plan->now, which announces them. */
void np_cuda_set_hyper(struct np_plan *plan, const struct np_hyper *hyper);
/* Queues the announced batch; STEP_UPDATE and LAST: with its update. */
int np_cuda_queue(struct np_plan *plan, enum np_cuda_kind kind, struct np_err *err);
/* An update by itself. */
int np_cuda_queue_update(struct np_plan *plan, const float *grads, struct np_err *err);
/* Call it when the batch and its update are queued. */
int np_cuda_finish(struct np_plan *plan, struct np_err *err);

/* Adds the gradients to plan->sum; first: they replace what is there. */
int np_cuda_add_up(struct np_plan *plan, bool first, struct np_err *err);
/* Of SAM, behind np_cuda_take_kept(). Keeps params and buffers, and moves the params uphill. */
int np_cuda_queue_climb(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err);
/* Exchanges params, with their halves, and buffers with the copies: their bits return. */
int np_cuda_queue_return(struct np_plan *plan, struct np_err *err);

/* Of np_cuda_plan_ops. */
int np_cuda_plan_metrics(
    struct np_plan *plan, int later, struct np_metrics *ret_metrics, struct np_err *err);
int np_cuda_plan_lane_numbers(
    struct np_plan *plan, int n, struct np_metrics *ret_numbers, float *losses, struct np_err *err);
void np_cuda_plan_losses(const struct np_plan *plan, float *out);

#endif
