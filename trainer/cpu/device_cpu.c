/* The CPU device: reads batches in the ring's slots, computes within the call, and keeps the
 * weights as flat f32 arrays in the files' layouts. Trainer thread. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "loader/base/clock.h"
#include "trainer/device.h"
#include "trainer/cpu/kernels_check.h"
#include "trainer/cpu/kernels_onednn.h"
#include "trainer/optim.h"
#include "trainer/cpu/program.h"
#include "trainer/cpu/simd.h"

static int cpu_open(
    struct np_device *device, const struct np_device_options *options, struct np_err *err)
{
    device->pinned = np_page_allocator;
    device->auto_precision = np_vectors_used() == NP_AVX512_BF16 ? NP_BF16 : NP_F32;
    return 0;
}

void np_cpu_describe(struct np_device_info *info)
{
    char version[32];

    np_onednn_version(version);
    np_device_add_library(info, "oneDNN", version, "");
    np_device_add_library(info, "vectors", np_cpu_vectors(), "");
}

static void cpu_close(struct np_device *device)
{
}

/* Calls return when the work is done: no stream ever has work left. */
static void cpu_record(struct np_device *device, enum np_which stream, struct np_event *event)
{
    event->mark = np_now_ns(); /* nothing is ever pending */
}

static void cpu_follow(struct np_device *device, enum np_which stream, const struct np_event *event)
{
}

static int cpu_done(struct np_device *device, struct np_event *event, bool wait)
{
    event->passed_ns = event->mark;
    return 1;
}

const struct np_device_ops np_device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .record = cpu_record,
    .follow = cpu_follow,
    .done = cpu_done,
};

/* --- the plan ------------------------------------------------------------------------------ */

struct np_plan {
    struct np_pool *pool;
    struct np_graph *train, *eval; /* fused copies; train NULL: evaluation only */
    struct np_program *train_program, *eval_program;
    struct np_checked *checked; /* kernels that are wrong here; NULL: the reference runs */
    void *arena;                /* shared: only one program runs at a time */
    uint64_t nr_params, nr_buffers;
    float *params, *buffers, *grads, *state[2];
    float *sum;                  /* of gradients over an accumulation; NULL: none yet */
    bool summing;                /* sum holds batches that have not been applied yet */
    double *block_sums;          /* squares, one a NP_NORM_BLOCK */
    struct np_metrics metrics;   /* since the last metrics(), without the newest batch */
    struct np_metrics newest;    /* of the newest batch */
    const struct np_graph *last; /* whose logits are in the arena */
    const struct np_program *last_program;
    const struct np_hyper *hyper; /* of the current update */
    float grad_scale;
};

static void plan_free(struct np_plan *plan);

static const struct np_fusions fusions = {
    .bn_relu = true, .bn_add_relu = true, .conv_relu = true, .linear_relu = true, .add_relu = true};

static int add_program(struct np_plan *plan, const struct np_graph *graph,
    const struct np_plan_options *options, struct np_graph **ret_graph,
    struct np_program **ret_program, struct np_err *err)
{
    const struct np_arrays arrays = {plan->params, plan->buffers, plan->grads};

    *ret_graph = np_graph_copy(graph);
    np_fuse(*ret_graph, &fusions);
    return np_program_new(
        *ret_graph, options, plan->pool, &arrays, plan->checked, ret_program, err);
}

static int add_arrays(
    struct np_plan *plan, const struct np_graph *graph, bool training, struct np_err *err)
{
    const uint64_t n = graph->nr_params;
    bool all = true;

    plan->nr_params = n;
    plan->nr_buffers = graph->nr_buffers;
    all &= (plan->params = np_try_array(n, sizeof(float), err)) != NULL;
    all &= (plan->buffers = np_try_array(graph->nr_buffers, sizeof(float), err)) != NULL;
    if (training) {
        all &= (plan->grads = np_try_array(n, sizeof(float), err)) != NULL;
        all &= (plan->state[0] = np_try_array(n, sizeof(float), err)) != NULL;
        all &= (plan->block_sums = np_try_array(
                    (n + NP_NORM_BLOCK - 1) / NP_NORM_BLOCK, sizeof(double), err)) != NULL;
    }
    return all ? 0 : np_err_context(err, "the network's parameters");
}

static int plan_prepare(struct np_device *device, const struct np_graph *train,
    const struct np_graph *eval, const struct np_plan_options *options, struct np_plan **ret_plan,
    struct np_err *err)
{
    struct np_plan *plan = np_alloc(sizeof(*plan));
    uint64_t arena_bytes = 0;
    int code;

    if (!options->reference)
        plan->checked = np_checked_new(options);
    code = np_pool_new(options->threads > 0 ? options->threads : 1, &plan->pool, err);
    if (code == 0)
        code = add_arrays(plan, train ? train : eval, train != NULL, err);
    if (code == 0 && train)
        code = add_program(plan, train, options, &plan->train, &plan->train_program, err);
    if (code == 0 && eval)
        code = add_program(plan, eval, options, &plan->eval, &plan->eval_program, err);
    if (code < 0)
        goto out;
    if (plan->checked)
        np_checked_settle(plan->checked);
    if (train)
        arena_bytes = np_program_arena_bytes(plan->train_program);
    if (eval && np_program_arena_bytes(plan->eval_program) > arena_bytes)
        arena_bytes = np_program_arena_bytes(plan->eval_program);
    plan->arena = np_try_alloc(arena_bytes, err);
    if (!plan->arena) {
        code = np_err_context(err, "the network's activations");
        goto out;
    }
    if (train)
        np_program_set_arena(plan->train_program, plan->arena);
    if (eval)
        np_program_set_arena(plan->eval_program, plan->arena);
    *ret_plan = plan;
out:
    if (code < 0)
        plan_free(plan);
    return code;
}

static void plan_free(struct np_plan *plan)
{
    if (!plan)
        return;
    np_program_free(plan->train_program);
    np_program_free(plan->eval_program);
    np_graph_free(plan->train);
    np_graph_free(plan->eval);
    np_pool_free(plan->pool);
    np_checked_free(plan->checked);
    np_free(plan->arena);
    np_free(plan->params);
    np_free(plan->buffers);
    np_free(plan->grads);
    np_free(plan->sum);
    np_free(plan->state[0]);
    np_free(plan->state[1]);
    np_free(plan->block_sums);
    np_free(plan);
}

/* Counts the newest batch among the older ones. */
static void settle(struct np_plan *plan)
{
    plan->metrics.rows += plan->newest.rows;
    plan->metrics.loss_sum += plan->newest.loss_sum;
    plan->metrics.correct += plan->newest.correct;
    plan->metrics.top5 += plan->newest.top5;
    if (plan->newest.grad_norm != 0) /* also when it is NaN */
        plan->metrics.grad_norm = plan->newest.grad_norm;
    memset(&plan->newest, 0, sizeof(plan->newest));
}

/* Adds the batch's losses: rows in order, in double, so that the sum is the same on every
 * machine. */
static void add_metrics(struct np_plan *plan, const struct np_graph *graph,
    const struct np_program *program, const int32_t *labels)
{
    const float *loss = np_program_tensor(program, graph->loss);
    const float *correct = np_program_tensor(program, graph->correct);
    const float *top5 = np_program_tensor(program, graph->top5);

    settle(plan);
    for (int row = 0; row < graph->batch; row++) {
        if (labels[row] < 0)
            continue;
        plan->newest.rows++;
        plan->newest.loss_sum += loss[row];
        plan->newest.correct += correct[row] != 0;
        plan->newest.top5 += top5[row] != 0;
    }
    plan->last = graph;
    plan->last_program = program;
}

/* sum += grads; an item is a block. */
static void sum_block(void *context, int item, int thread)
{
    struct np_plan *plan = context;
    uint64_t first = (uint64_t)item * NP_NORM_BLOCK, end = first + NP_NORM_BLOCK;

    if (end > plan->nr_params)
        end = plan->nr_params;
    for (uint64_t i = first; i < end; i++)
        plan->sum[i] = plan->summing ? plan->sum[i] + plan->grads[i] : plan->grads[i];
}

static int nr_blocks(const struct np_plan *plan)
{
    return (int)((plan->nr_params + NP_NORM_BLOCK - 1) / NP_NORM_BLOCK);
}

static int plan_step(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
    float loss_scale, bool accumulate, struct np_err *err)
{
    const struct np_step_info info = {.step = step, .loss_scale = loss_scale};

    /* This batch's gradients are kept apart from the sum: batchnorm's backward reads them. */
    if (accumulate && !plan->sum &&
        !(plan->sum = np_try_array(plan->nr_params, sizeof(float), err)))
        return np_err_context(err, "the sum of gradients");
    if (!accumulate)
        plan->summing = false; /* drops a sum that was never used */
    else if (!plan->summing) {
        np_pool_run(plan->pool, nr_blocks(plan), sum_block, plan); /* of the first batch */
        plan->summing = true;
    }
    np_program_run(plan->train_program, images, labels, &info);
    if (accumulate)
        np_pool_run(plan->pool, nr_blocks(plan), sum_block, plan);
    add_metrics(plan, plan->train, plan->train_program, labels);
    return 0;
}

static void square_block(void *context, int item, int thread)
{
    struct np_plan *plan = context;
    const float *grads = plan->summing ? plan->sum : plan->grads;
    uint64_t first = (uint64_t)item * NP_NORM_BLOCK, n = plan->nr_params - first;

    plan->block_sums[item] = np_square_sum(grads + first, n < NP_NORM_BLOCK ? n : NP_NORM_BLOCK);
}

static double grad_norm(struct np_plan *plan)
{
    double sum = 0;

    np_pool_run(plan->pool, nr_blocks(plan), square_block, plan);
    for (int i = 0; i < nr_blocks(plan); i++)
        sum += plan->block_sums[i];
    return sqrt(sum);
}

static void update_tensor(void *context, int item, int thread)
{
    struct np_plan *plan = context;
    const struct np_tensor *tensor = &plan->train->tensors[item];
    uint64_t at = tensor->offset, n;

    if (tensor->role != NP_ROLE_PARAM)
        return;
    n = np_tensor_elements(tensor);
    const float *grads = (plan->summing ? plan->sum : plan->grads) + at;

    if (plan->hyper->decoupled)
        np_adamw_update(plan->params + at, plan->state[0] + at, plan->state[1] + at, grads, n,
            plan->hyper, plan->grad_scale, tensor->decay);
    else
        np_sgd_update(plan->params + at, plan->hyper->momentum != 0 ? plan->state[0] + at : NULL,
            grads, n, plan->hyper, plan->grad_scale, tensor->decay);
}

static int second_state(struct np_plan *plan, struct np_err *err)
{
    if (!plan->state[1])
        plan->state[1] = np_try_array(plan->nr_params, sizeof(float), err);
    return plan->state[1] ? 0 : np_err_context(err, "AdamW's second state");
}

static int plan_update(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    if (hyper->decoupled && second_state(plan, err) < 0)
        return -ENOMEM;
    plan->hyper = hyper;
    plan->grad_scale = 1;
    if (hyper->clip_norm > 0) {
        plan->newest.grad_norm = grad_norm(plan);
        plan->grad_scale = np_clip_scale(plan->newest.grad_norm, hyper->clip_norm);
    }
    np_pool_run(plan->pool, plan->train->nr_tensors, update_tensor, plan);
    plan->summing = false;
    return 0;
}

static int plan_eval(
    struct np_plan *plan, const void *images, const void *labels, struct np_err *err)
{
    const struct np_step_info info = {.step = 0, .loss_scale = 1};

    np_program_run(plan->eval_program, images, labels, &info);
    add_metrics(plan, plan->eval, plan->eval_program, labels);
    return 0;
}

static int plan_metrics(
    struct np_plan *plan, bool but_last, struct np_metrics *ret_metrics, struct np_err *err)
{
    if (!but_last)
        settle(plan);
    *ret_metrics = plan->metrics;
    memset(&plan->metrics, 0, sizeof(plan->metrics));
    return 0;
}

/* Returns a flat array and its length; NULL if the plan has none. */
static float *array_of(struct np_plan *plan, int array, uint64_t *ret_n)
{
    *ret_n = array == NP_ARRAY_BUFFERS ? plan->nr_buffers : plan->nr_params;
    switch (array) {
    case NP_ARRAY_PARAMS: return plan->params;
    case NP_ARRAY_BUFFERS: return plan->buffers;
    case NP_ARRAY_STATE0: return plan->state[0];
    case NP_ARRAY_STATE1: return plan->state[1];
    case NP_ARRAY_GRADS: return plan->summing ? plan->sum : plan->grads;
    default: return NULL;
    }
}

static int plan_read(struct np_plan *plan, int array, float *out, struct np_err *err)
{
    uint64_t n;
    const float *from;

    if (array == NP_ARRAY_STATE1 && plan->train && second_state(plan, err) < 0)
        return -ENOMEM;
    from = array_of(plan, array, &n);
    if (!from)
        return np_err_set(err, -EINVAL, "this plan is for evaluation: it has no array %d", array);
    memcpy(out, from, n * sizeof(float));
    return 0;
}

static int plan_write(struct np_plan *plan, int array, const float *in, struct np_err *err)
{
    uint64_t n;
    float *to;

    if (array == NP_ARRAY_STATE1 && plan->train && second_state(plan, err) < 0)
        return -ENOMEM;
    to = array_of(plan, array, &n);
    if (!to)
        return np_err_set(err, -EINVAL, "this plan is for evaluation: it has no array %d", array);
    memcpy(to, in, n * sizeof(float));
    return 0;
}

static int plan_state(struct np_plan *plan, char **ret_text, struct np_err *err)
{
    *ret_text = plan->checked ? np_checked_state(plan->checked) : np_strdup("");
    return 0;
}

static float half_to_float(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

static int plan_logits(struct np_plan *plan, float *out, struct np_err *err)
{
    const struct np_tensor *tensor;
    const void *from;
    uint64_t n;

    if (!plan->last)
        return np_err_set(err, -EINVAL, "no batch has been run yet");
    tensor = &plan->last->tensors[plan->last->logits];
    from = np_program_tensor(plan->last_program, plan->last->logits);
    n = np_tensor_elements(tensor);
    if (tensor->dtype == NP_F32) {
        memcpy(out, from, n * sizeof(float));
        return 0;
    }
    for (uint64_t i = 0; i < n; i++)
        out[i] = half_to_float(((const uint16_t *)from)[i]);
    return 0;
}

const struct np_plan_ops np_plan_cpu = {
    .prepare = plan_prepare,
    .free = plan_free,
    .step = plan_step,
    .update = plan_update,
    .eval = plan_eval,
    .metrics = plan_metrics,
    .read = plan_read,
    .write = plan_write,
    .state = plan_state,
    .logits = plan_logits,
};
