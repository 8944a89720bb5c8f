#include "trainer/lanes.h"

static int own(const struct np_lanes *lanes)
{
    return lanes->nr / np_comm_world(lanes->comm);
}

static const void *images_of(const struct np_lanes *lanes, const struct np_stripe *stripe, int i)
{
    return (const char *)stripe->images + (size_t)(i * lanes->rows) * stripe->row_bytes;
}

static const void *labels_of(const struct np_lanes *lanes, const struct np_stripe *stripe, int i)
{
    return (const int32_t *)stripe->labels + (size_t)(i * lanes->rows);
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

/* A device that sums over all lanes and processes itself. */
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

/* A device that computes a lane as a batch: the sums of processes are added here. */
static int step_by_lanes(const struct np_lanes *lanes, const struct np_plan_ops *ops,
    struct np_plan *plan, const struct np_stripe *stripe, uint64_t step,
    const struct np_hyper *hyper, struct np_err *err)
{
    const int first = np_comm_rank(lanes->comm) * own(lanes);
    const float scale = 1.0f / (float)(lanes->rows * lanes->nr);
    float *gradients = NULL;
    uint64_t n = 0;
    int code = 0;

    for (int i = 0; code == 0 && i < own(lanes); i++) {
        const uint64_t lane = step * (uint64_t)lanes->nr + (uint64_t)(first + i);

        code = ops->step(plan, images_of(lanes, stripe, i), labels_of(lanes, stripe, i), lane,
            scale, false, err);
        if (code == 0)
            code = ops->metrics(plan, false, &lanes->numbers[first + i], err);
    }
    if (code == 0) {
        ops->sums(plan, &gradients, &n);
        wait_for(lanes, "gradients");
        code = np_comm_sum(lanes->comm, gradients, n, err);
        waited(lanes);
    }
    return code;
}

/* The losses of the rows of all processes. */
static int take_losses(const struct np_lanes *lanes, const struct np_plan_ops *ops,
    struct np_plan *plan, struct np_err *err)
{
    const size_t rows = (size_t)(lanes->rows * own(lanes));
    float *first = lanes->losses + (size_t)np_comm_rank(lanes->comm) * rows;
    struct np_metrics unused;
    int code = ops->metrics(plan, false, &unused, err); /* of the newest batch, too */

    if (code < 0)
        return code;
    ops->losses(plan, first);
    wait_for(lanes, "losses");
    code = np_comm_gather(lanes->comm, first, lanes->losses, rows * sizeof(*first), err);
    waited(lanes);
    return code;
}

int np_lanes_step(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    const struct np_stripe *stripe, uint64_t step, const struct np_hyper *hyper,
    struct np_metrics *ret_metrics, struct np_err *err)
{
    const struct np_plan_ops *ops = device->plan_ops;
    struct np_metrics sums = {0}, of_update;
    int code =
        (ops->at_once ? step_at_once : step_by_lanes)(lanes, ops, plan, stripe, step, hyper, err);

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

static int eval_by_lanes(const struct np_lanes *lanes, const struct np_plan_ops *ops,
    struct np_plan *plan, const struct np_stripe *stripe, struct np_err *err)
{
    int code = 0;

    for (int i = 0; code == 0 && i < own(lanes); i++) {
        code = ops->eval(plan, images_of(lanes, stripe, i), labels_of(lanes, stripe, i), err);
        if (code == 0)
            code = ops->metrics(plan, false, &own_numbers(lanes)[i], err);
    }
    return code;
}

int np_lanes_eval(const struct np_lanes *lanes, struct np_device *device, struct np_plan *plan,
    const struct np_stripe *stripe, struct np_metrics *sums, struct np_err *err)
{
    const struct np_plan_ops *ops = device->plan_ops;
    const int code = ops->at_once ? ops->eval(plan, stripe->images, stripe->labels, err)
                                  : eval_by_lanes(lanes, ops, plan, stripe, err);

    if (code == 0 && ops->at_once)
        ops->numbers(plan, own_numbers(lanes));
    return code == 0 ? add_numbers(lanes, sums, err) : code;
}
