#include "trainer/lanes.h"

static int own(const struct np_lanes *lanes)
{
    return lanes->nr / np_comm_world(lanes->comm);
}

/* The rows of this process among all. */
static size_t first_row(const struct np_lanes *lanes)
{
    return (size_t)(np_comm_rank(lanes->comm) * own(lanes) * lanes->rows);
}

static void wait_for(const struct np_lanes *lanes, const char *what)
{
    if (lanes->comm)
        np_stat_wait(lanes->block, NP_STATE_BLOCKED, what, "the other processes", 0);
}

static void waited(const struct np_lanes *lanes)
{
    if (lanes->comm)
        np_stat_done(lanes->block);
}

/* Adds the numbers of all lanes in their order, so that the sum does not depend on the processes. */
static int add_numbers(const struct np_lanes *lanes, struct np_metrics *sums, struct np_err *err)
{
    const size_t bytes = (size_t)own(lanes) * sizeof(*lanes->numbers);
    const struct np_metrics *first = lanes->numbers + np_comm_rank(lanes->comm) * own(lanes);
    wait_for(lanes, "losses");
    const int code = np_comm_gather(lanes->comm, first, lanes->numbers, bytes, err);
    waited(lanes);

    for (int i = 0; code == 0 && i < lanes->nr; i++) {
        sums->loss_sum += lanes->numbers[i].loss_sum;
        sums->rows += lanes->numbers[i].rows;
        sums->correct += lanes->numbers[i].correct;
        sums->top5 += lanes->numbers[i].top5;
    }
    return code;
}

static struct np_metrics *own_numbers(const struct np_lanes *lanes)
{
    return lanes->numbers + np_comm_rank(lanes->comm) * own(lanes);
}

static int step_at_once(const struct np_lanes *lanes, const struct np_plan_ops *ops,
    struct np_plan *plan, const struct np_stripe *stripe, uint64_t step,
    const struct np_hyper *hyper, struct np_err *err)
{
    const float scale = 1.0f / (float)(lanes->rows * lanes->nr * lanes->accumulate);
    const bool adds = step % (uint64_t)lanes->accumulate > 0;
    const int code = ops->step(plan, stripe->images, stripe->labels, step, scale, adds, err);

    ops->numbers(plan, own_numbers(lanes));
    if (code == 0 && hyper && hyper->sam_rho > 0)
        return ops->climb(plan, stripe->images, stripe->labels, step, scale, hyper, err);
    return code;
}

/* This process's losses are in their place: gets those of the others. */
static int gather_losses(const struct np_lanes *lanes, struct np_err *err)
{
    const size_t bytes = (size_t)(lanes->rows * own(lanes)) * sizeof(*lanes->losses);

    wait_for(lanes, "losses");
    const int code =
        np_comm_gather(lanes->comm, lanes->losses + first_row(lanes), lanes->losses, bytes, err);
    waited(lanes);
    return code;
}

/* The losses of the rows of all processes. */
static int take_losses(const struct np_lanes *lanes, const struct np_plan_ops *ops,
    struct np_plan *plan, struct np_err *err)
{
    struct np_metrics unused;
    int code = ops->metrics(plan, false, &unused, err); /* of the newest batch, too */

    if (code < 0)
        return code;
    ops->losses(plan, lanes->losses + first_row(lanes));
    return gather_losses(lanes, err);
}

int np_lanes_step(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    const struct np_stripe *stripe, uint64_t step, const struct np_hyper *hyper,
    struct np_metrics *ret_metrics, struct np_err *err)
{
    const struct np_plan_ops *ops = device->plan_ops;
    struct np_metrics sums = {0}, of_update;
    int code = step_at_once(lanes, ops, plan, stripe, step, hyper, err);

    /* What may fail comes before the update: until then the weights can be saved. */
    if (code == 0)
        code = add_numbers(lanes, &sums, err);
    if (code == 0 && lanes->losses)
        code = take_losses(lanes, ops, plan, err);
    if (code == 0 && hyper)
        code = ops->update(plan, hyper, err);
    if (code == 0)
        code = ops->metrics(plan, false, &of_update, err);
    if (code == 0) {
        sums.grad_norm = of_update.grad_norm;
        *ret_metrics = sums;
    }
    return code;
}

/* --- queued ---------------------------------------------------------------------------------- */

static struct np_lane_batch batch_of(
    const struct np_lanes *lanes, const struct np_stripe *stripe, uint64_t step)
{
    return (struct np_lane_batch){
        .images = stripe->images,
        .labels = stripe->labels,
        .row_bytes = stripe->row_bytes,
        .rows = lanes->rows,
        .step = step,
        .loss_scale = 1.0f / (float)(lanes->rows * lanes->nr * lanes->accumulate),
        .adds = step % (uint64_t)lanes->accumulate > 0,
    };
}

int np_lanes_queue(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    const struct np_stripe *stripe, uint64_t step, const struct np_hyper *hyper, struct np_err *err)
{
    const struct np_lane_batch batch = batch_of(lanes, stripe, step);

    return device->plan_ops->step_lanes(plan, &batch, hyper, err);
}

int np_lanes_read(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    struct np_metrics *ret_metrics, struct np_err *err)
{
    struct np_metrics sums = {0};
    float *losses = lanes->losses ? lanes->losses + first_row(lanes) : NULL;
    int code = device->plan_ops->lane_numbers(plan, own(lanes), own_numbers(lanes), losses, err);

    if (code == 0)
        code = add_numbers(lanes, &sums, err);
    if (code == 0 && losses)
        code = gather_losses(lanes, err);
    if (code == 0) {
        sums.grad_norm = own_numbers(lanes)[own(lanes) - 1].grad_norm;
        *ret_metrics = sums;
    }
    return code;
}

static int eval_queued(const struct np_lanes *lanes, const struct np_plan_ops *ops,
    struct np_plan *plan, const struct np_stripe *stripe, struct np_err *err)
{
    const struct np_lane_batch batch = batch_of(lanes, stripe, 0);
    float *logits = lanes->logits ? lanes->logits + first_row(lanes) * (size_t)lanes->width : NULL;
    const int code = ops->eval_lanes(plan, &batch, logits, err);

    return code == 0 ? ops->lane_numbers(plan, own(lanes), own_numbers(lanes), NULL, err) : code;
}

int np_lanes_eval(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    const struct np_stripe *stripe, struct np_metrics *sums, struct np_err *err)
{
    const struct np_plan_ops *ops = device->plan_ops;
    const int code = ops->at_once ? ops->eval(plan, stripe->images, stripe->labels, err)
                                  : eval_queued(lanes, ops, plan, stripe, err);

    if (code == 0 && ops->at_once)
        ops->numbers(plan, own_numbers(lanes));
    return code == 0 ? add_numbers(lanes, sums, err) : code;
}
