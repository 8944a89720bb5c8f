/* Self-test of the updates: the device's weights against optim.c, fed with the gradients that the
 * device itself has just computed, so that the tolerance is that of the formulas alone in every
 * precision. What is compared is how far the weights moved, not where they are. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "trainer/optim.h"
#include "trainer/selftest/selftest_side.h"

#define SETTLE_UPDATES 24 /* halvings from any power of two that float16 may start with */

struct truth {
    float *params, *state[2], *grads, *device; /* (n) */
    float *block;                              /* holds them all */
    uint64_t n;
};

static int truth_init(struct truth *truth, const float *params, uint64_t n, struct np_err *err)
{
    *truth = (struct truth){.n = n};
    truth->block = np_self_arrays((const uint64_t[]){n, n, n, n, n}, 5,
        (float **const[]){
            &truth->params, &truth->state[0], &truth->state[1], &truth->grads, &truth->device},
        err);
    if (!truth->block)
        return -ENOMEM;
    memcpy(truth->params, params, n * sizeof(float));
    return 0;
}

static void update_truth(
    struct truth *truth, const struct np_graph *graph, const struct np_hyper *hyper)
{
    const double norm = sqrt(np_square_sum(truth->grads, truth->n));
    const float scale = np_clip_scale(norm, hyper->clip_norm);

    /* f16's loss scale is still too large for these weights: the device must leave them alone */
    if (!isfinite(norm) && graph->tensors[graph->input].dtype == NP_F16)
        return;
    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];
        uint64_t at = tensor->offset, n = np_tensor_elements(tensor);

        if (tensor->role != NP_ROLE_PARAM)
            continue;
        if (hyper->decoupled)
            np_adamw_update(truth->params + at, truth->state[0] + at, truth->state[1] + at,
                truth->grads + at, n, hyper, scale, tensor->decay);
        else
            np_sgd_update(truth->params + at, truth->state[0] + at, truth->grads + at, n, hyper,
                scale, tensor->decay);
    }
}

/* The device's update and the truth's, from the gradients that are there now. */
static int update_both(struct np_self_side *side, struct truth *truth, const struct np_hyper *hyper,
    struct np_err *err)
{
    const struct np_plan_ops *ops = side->device->plan_ops;
    int code = ops->read(side->plan, NP_ARRAY_GRADS, truth->grads, err);

    if (code == 0)
        code = ops->update(side->plan, hyper, err);
    if (code == 0)
        update_truth(truth, side->train, hyper);
    return code;
}

/* Step and update as the trainer queues them; a step's gradients are there after its update, too. */
static int step_update_both(struct np_self_side *side, struct truth *truth, int at, uint64_t step,
    const struct np_hyper *hyper, struct np_err *err)
{
    int code = np_self_step_update(side, at, step, hyper, err);

    if (code == 0)
        code = side->device->plan_ops->read(side->plan, NP_ARRAY_GRADS, truth->grads, err);
    if (code == 0)
        update_truth(truth, side->train, hyper);
    return code;
}

/* The device's array against the truth's, both less what they started with. */
static int compare(struct np_self_side *side, struct truth *truth, int array, const float *want,
    const float *start, double *error, struct np_err *err)
{
    int code = side->device->plan_ops->read(side->plan, array, truth->device, err);
    double off = 0, moved = 0, found;

    for (uint64_t i = 0; i < truth->n && code == 0; i++) {
        double from = start ? (double)start[i] : 0, d = (double)truth->device[i] - (double)want[i];

        off += d * d;
        moved += ((double)want[i] - from) * ((double)want[i] - from);
    }
    found = off == 0 ? 0 : sqrt(off / moved);
    if (!isfinite(found))
        found = INFINITY;
    *error = found > *error ? found : *error;
    return code;
}

static int try_sgd(struct np_self_side *side, struct truth *truth, const float *params,
    uint64_t step, double error[NP_SELF_NR], struct np_err *err)
{
    const struct np_plan_ops *ops = side->device->plan_ops;
    struct np_hyper hyper = {
        .lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true, .clip_norm = 0};
    struct np_metrics metrics;
    double norm = 0;
    int code = np_self_step(side, 0, step, false, err);

    if (code == 0)
        code = np_self_step(side, 1, step + 1, true, err);
    if (code == 0)
        code = ops->read(side->plan, NP_ARRAY_GRADS, truth->grads, err);
    if (code == 0) {
        norm = sqrt(np_square_sum(truth->grads, truth->n));
        hyper.clip_norm = (float)(0.5 * norm);
        code = update_both(side, truth, &hyper, err);
    }
    if (code == 0)
        code = ops->metrics(side->plan, false, &metrics, err);
    if (code < 0)
        return code;
    error[NP_SELF_NORM] = fabs(metrics.grad_norm - norm) / norm;
    if (!isfinite(error[NP_SELF_NORM]))
        error[NP_SELF_NORM] = INFINITY;
    hyper.clip_norm = 0;
    hyper.update = 1;
    code = step_update_both(side, truth, 0, step + 2, &hyper, err);
    if (code == 0)
        code =
            compare(side, truth, NP_ARRAY_PARAMS, truth->params, params, &error[NP_SELF_SGD], err);
    if (code == 0)
        code =
            compare(side, truth, NP_ARRAY_STATE0, truth->state[0], NULL, &error[NP_SELF_SGD], err);
    return code;
}

static int try_adamw(struct np_self_side *side, struct truth *truth, const float *params,
    uint64_t step, double error[NP_SELF_NR], struct np_err *err)
{
    struct np_hyper hyper = {.lr = 0.01f,
        .weight_decay = 0.1f,
        .eps = 1e-8f,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .decoupled = true};
    int code = 0;

    for (int i = 0; i < 2 && code == 0; i++) {
        hyper.update = (uint64_t)i;
        code = step_update_both(side, truth, i, step + (uint64_t)i, &hyper, err);
    }
    for (int i = 0; i < 2 && code == 0; i++)
        code = compare(
            side, truth, NP_ARRAY_STATE0 + i, truth->state[i], NULL, &error[NP_SELF_ADAMW], err);
    if (code == 0)
        code = compare(
            side, truth, NP_ARRAY_PARAMS, truth->params, params, &error[NP_SELF_ADAMW], err);
    return code;
}

int np_self_optimizers(struct np_self_side *side, const float *params, const float *buffers,
    uint64_t step, double error[NP_SELF_NR], struct np_err *err)
{
    int code = 0;

    error[NP_SELF_SGD] = error[NP_SELF_ADAMW] = 0;
    for (int adamw = 0; adamw < 2 && code == 0; adamw++) {
        struct truth truth;

        code = truth_init(&truth, params, side->train->nr_params, err);
        if (code == 0)
            code = np_self_write(side, params, buffers, adamw, err);
        if (code == 0)
            code = (adamw ? try_adamw : try_sgd)(side, &truth, params, step, error, err);
        np_free(truth.block);
    }
    return code;
}

int np_self_settle(
    struct np_self_side *side, const float *params, const float *buffers, struct np_err *err)
{
    const struct np_hyper still = {.lr = 0};
    int code = np_self_write(side, params, buffers, false, err);

    for (int i = 0; i < SETTLE_UPDATES && code == 0; i++) {
        code = np_self_step(side, i % NP_SELF_BATCHES, (uint64_t)i, false, err);
        if (code == 0)
            code = side->device->plan_ops->update(side->plan, &still, err);
    }
    return code;
}
