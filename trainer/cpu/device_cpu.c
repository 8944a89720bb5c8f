/* The CPU device: reads batches in the ring's slots, computes within the call, and keeps the
 * weights as flat f32 arrays in the files' layouts. Trainer thread. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "loader/base/clock.h"
#include "trainer/average.h"
#include "trainer/device.h"
#include "trainer/cpu/kernels_check.h"
#include "trainer/cpu/kernels_onednn_muon.h"
#include "trainer/cpu/lanes_cpu.h"
#include "trainer/optim.h"
#include "trainer/recompute.h"
#include "trainer/cpu/program.h"
#include "trainer/cpu/simd.h"
#include "trainer/sam.h"

static int cpu_open(
    struct np_device *device, const struct np_device_options *options, struct np_err *err)
{
    device->auto_precision = np_vectors_used() == NP_AVX512_BF16 ? NP_BF16 : NP_F32;
    return 0;
}

void np_cpu_describe(struct np_device_info *info)
{
    char version[32];

    np_onednn_version(version);
    np_device_add_library(info, "oneDNN", version, "");
    np_device_add_library(info, "vectors", np_vectors_name(), "");
}

static void cpu_close(struct np_device *device)
{
}

/* Calls return when the work is done: no stream ever has work left. */
static void cpu_record(struct np_device *device, enum np_which stream, struct np_event *event)
{
    event->mark = np_now_ns();
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

enum { TRAIN, EVAL, NR_SIDES };
enum { NR_ARRAYS = NP_ARRAY_GRADS + 1 };

struct side { /* NULL: the plan has no such graph */
    struct np_graph *graph;
    struct np_program *program;
};

struct np_plan {
    struct np_pool *pool;
    struct side sides[NR_SIDES];
    struct np_checked *checked; /* kernels that are wrong here; NULL: the reference runs */
    void *arena;                /* shared: only one program runs at a time */
    float *arrays[NR_ARRAYS];   /* NULL: not used, or not yet */
    uint64_t elements[NR_ARRAYS];
    float *sum; /* of gradients over an accumulation; NULL: none yet */
    struct np_cpu_lanes lanes;
    bool skip_masked;   /* np_plan_options.skip_masked */
    bool summing;       /* sum holds batches that have not been applied yet */
    double *block_sums; /* squares, one per NP_NORM_BLOCK */
    int nr_blocks;
    struct np_metrics metrics; /* since the last metrics(), without the newest batch */
    struct np_metrics *newest; /* of the newest batch: of its lanes (one, if it is whole) */
    double newest_norm;        /* grad_norm, of its update */
    /* (batch) of the newest batch in `metrics`, and of `newest`; NULL: not wanted */
    float *losses[2];
    const struct side *last;      /* its logits are in the arena */
    const struct np_hyper *hyper; /* of the current update */
    float grad_scale;
    struct np_cpu_muon *muon; /* NULL: none yet */
    float *kept[2];           /* params and buffers before sam's second pass; NULL: none yet */
    float climb_scale;        /* of the current np_sam_climb() */
    float average_weight;     /* of the current average; back: the values become it */
    bool average_back;
};

static const struct np_fusions fusions = {
    .bn_relu = true, .bn_add_relu = true, .conv_relu = true, .linear_relu = true, .add_relu = true};

static int add_side(struct np_plan *plan, const struct np_graph *graph,
    const struct np_plan_options *options, struct side *side, struct np_err *err)
{
    const struct np_arrays arrays = {plan->arrays[NP_ARRAY_PARAMS], plan->arrays[NP_ARRAY_BUFFERS],
        plan->arrays[NP_ARRAY_GRADS]};

    if (!graph)
        return 0;
    side->graph = np_graph_copy(graph);
    np_fuse(side->graph, &fusions);
    np_recompute_as(side->graph, options);
    if (np_lanes_prepare(side->graph, options, err) < 0)
        return -EINVAL;
    return np_program_new(
        side->graph, options, plan->pool, &arrays, plan->checked, &side->program, err);
}

/* Arrays that are allocated when they are first needed. */
static bool is_late(int array)
{
    return array > NP_ARRAY_STATE0 && array < NP_ARRAY_GRADS;
}

/* In lanes the buffers are summed behind the gradients. */
static uint64_t array_room(const struct np_plan *plan, const struct np_graph *graph, int array)
{
    const bool both = array == NP_ARRAY_GRADS && plan->lanes.nr > 0;

    return plan->elements[array] + (both ? graph->nr_buffers : 0);
}

static int add_arrays(
    struct np_plan *plan, const struct np_graph *graph, bool training, struct np_err *err)
{
    bool all = true;

    plan->nr_blocks = (int)((graph->nr_params + NP_NORM_BLOCK - 1) / NP_NORM_BLOCK);
    for (int i = 0; i < NR_ARRAYS; i++) {
        plan->elements[i] = np_array_of_buffers(i) ? graph->nr_buffers : graph->nr_params;
        if (i <= NP_ARRAY_BUFFERS || (training && !is_late(i)))
            all &= (plan->arrays[i] =
                           np_try_array(array_room(plan, graph, i), sizeof(float), err)) != NULL;
    }
    if (training)
        all &=
            (plan->block_sums = np_try_array((size_t)plan->nr_blocks, sizeof(double), err)) != NULL;
    return all ? 0 : np_err_context(err, "the network's parameters");
}

static int add_losses(struct np_plan *plan, const struct np_graph *graph, struct np_err *err)
{
    for (int i = 0; i < 2; i++)
        if (!(plan->losses[i] = np_try_array((size_t)graph->batch, sizeof(float), err)))
            return np_err_context(err, "the losses of a batch");
    return 0;
}

static int add_arena(struct np_plan *plan, struct np_err *err)
{
    uint64_t max = 0;

    for (int i = 0; i < NR_SIDES; i++)
        if (plan->sides[i].program && np_program_arena_bytes(plan->sides[i].program) > max)
            max = np_program_arena_bytes(plan->sides[i].program);
    if (!(plan->arena = np_try_alloc(max, err)))
        return np_err_context(err, "the network's activations");
    for (int i = 0; i < NR_SIDES; i++)
        if (plan->sides[i].program)
            np_program_set_arena(plan->sides[i].program, plan->arena);
    return 0;
}

static void plan_free(struct np_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < NR_SIDES; i++) {
        np_program_free(plan->sides[i].program);
        np_graph_free(plan->sides[i].graph);
    }
    np_pool_free(plan->pool);
    np_checked_free(plan->checked);
    np_free(plan->arena);
    for (int i = 0; i < NR_ARRAYS; i++)
        np_free(plan->arrays[i]);
    np_free(plan->sum);
    np_cpu_lanes_fini(&plan->lanes);
    np_free(plan->newest);
    np_cpu_muon_free(plan->muon);
    np_free(plan->kept[0]);
    np_free(plan->kept[1]);
    np_free(plan->block_sums);
    np_free(plan->losses[0]);
    np_free(plan->losses[1]);
    np_free(plan);
}

/* Lanes with numbers of their own. */
static int nr_numbers(const struct np_plan *plan)
{
    return plan->lanes.nr > 0 ? plan->lanes.nr : 1;
}

static int plan_prepare(struct np_device *device, const struct np_graph *train,
    const struct np_graph *eval, const struct np_plan_options *options, struct np_plan **ret_plan,
    struct np_err *err)
{
    struct np_plan *plan = np_alloc(sizeof(*plan));

    plan->skip_masked = options->skip_masked;
    np_cpu_lanes_init(&plan->lanes, train ? train : eval, options);
    plan->newest = np_alloc_array((size_t)nr_numbers(plan), sizeof(*plan->newest));
    if (!options->reference)
        plan->checked = np_checked_new(options);
    int code = np_pool_new(options->threads > 0 ? options->threads : 1, &plan->pool, err);
    if (code == 0)
        code = add_arrays(plan, train ? train : eval, train != NULL, err);
    if (code == 0)
        code = add_side(plan, train, options, &plan->sides[TRAIN], err);
    if (code == 0)
        code = add_side(plan, eval, options, &plan->sides[EVAL], err);
    if (code == 0 && plan->checked)
        np_checked_settle(plan->checked);
    if (code == 0 && options->losses)
        code = add_losses(plan, train ? train : eval, err);
    if (code == 0)
        code = add_arena(plan, err);
    if (code < 0)
        plan_free(plan);
    else
        *ret_plan = plan;
    return code;
}

/* Adds the newest batch to the metrics. */
static void settle(struct np_plan *plan)
{
    uint64_t rows = 0;

    for (int i = 0; i < nr_numbers(plan); i++) {
        plan->metrics.rows += plan->newest[i].rows;
        plan->metrics.loss_sum += plan->newest[i].loss_sum;
        plan->metrics.correct += plan->newest[i].correct;
        plan->metrics.top5 += plan->newest[i].top5;
        rows += plan->newest[i].rows;
    }
    if (rows > 0) {
        float *older = plan->losses[0];

        plan->losses[0] = plan->losses[1];
        plan->losses[1] = older;
    }
    if (plan->newest_norm != 0) /* also when it is NaN */
        plan->metrics.grad_norm = plan->newest_norm;
    memset(plan->newest, 0, (size_t)nr_numbers(plan) * sizeof(*plan->newest));
    plan->newest_norm = 0;
}

/* Adds the batch's losses: the rows of a lane in order, in double, then the lanes, so that the sum is
 * the same on every machine. */
static void add_metrics(struct np_plan *plan, const struct side *side, const int32_t *labels)
{
    const struct np_graph *graph = side->graph;
    const float *loss = np_program_tensor(side->program, graph->loss);
    const float *correct = np_program_tensor(side->program, graph->correct);
    const float *top5 = np_program_tensor(side->program, graph->top5);

    settle(plan);
    if (plan->losses[1])
        memcpy(plan->losses[1], loss, (size_t)graph->batch * sizeof(float));
    for (int row = 0; row < graph->batch; row++) {
        struct np_metrics *numbers = &plan->newest[(int64_t)row * nr_numbers(plan) / graph->batch];

        if (labels[row] < 0)
            continue;
        numbers->rows++;
        numbers->loss_sum += loss[row];
        numbers->correct += correct[row] != 0;
        numbers->top5 += top5[row] != 0;
    }
    plan->last = side;
}

/* sum += grads; an item is a block. */
static void sum_block(void *context, int item, int thread)
{
    struct np_plan *plan = context;
    const float *grads = plan->arrays[NP_ARRAY_GRADS];
    uint64_t first = (uint64_t)item * NP_NORM_BLOCK, end = first + NP_NORM_BLOCK;

    if (end > plan->elements[NP_ARRAY_GRADS])
        end = plan->elements[NP_ARRAY_GRADS];
    for (uint64_t i = first; i < end; i++)
        plan->sum[i] = plan->summing ? plan->sum[i] + grads[i] : grads[i];
}

/* --- steps ---------------------------------------------------------------------------------- */

/* Forward and backward: gradients of the whole batch, in all processes. */
static int compute(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
    float loss_scale, struct np_err *err)
{
    const struct side *side = &plan->sides[TRAIN];
    struct np_step_info info = {.step = step, .loss_scale = loss_scale};
    int code = 0;

    if (plan->lanes.nr > 0)
        code = np_cpu_lanes_start(&plan->lanes, side->graph, labels, &info, err);
    if (code == 0)
        code = np_program_run(side->program, images, labels, &info, err);
    return code == 0 && plan->lanes.nr > 0
               ? np_cpu_lanes_sum(&plan->lanes, side->graph, plan->arrays, step, err)
               : code;
}

static int plan_step(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
    float loss_scale, bool accumulate, struct np_err *err)
{
    if (plan->lanes.nr > 0 && !accumulate &&
        np_cpu_lanes_keep(&plan->lanes, plan->arrays[NP_ARRAY_BUFFERS],
            plan->elements[NP_ARRAY_BUFFERS], err) < 0)
        return -ENOMEM;
    /* This batch's gradients are kept apart from the sum: batchnorm's backward reads them. */
    if (accumulate && !plan->sum &&
        !(plan->sum = np_try_array(plan->elements[NP_ARRAY_GRADS], sizeof(float), err)))
        return np_err_context(err, "the sum of gradients");
    if (!accumulate)
        plan->summing = false; /* drops an unused sum */
    else if (!plan->summing) {
        np_pool_run(plan->pool, plan->nr_blocks, sum_block, plan); /* of the first batch */
        plan->summing = true;
    }
    const int code = compute(plan, images, labels, step, loss_scale, err);
    if (code < 0)
        return code;
    if (accumulate)
        np_pool_run(plan->pool, plan->nr_blocks, sum_block, plan);
    add_metrics(plan, &plan->sides[TRAIN], labels);
    return 0;
}

static float *grads_of(const struct np_plan *plan)
{
    return plan->summing ? plan->sum : plan->arrays[NP_ARRAY_GRADS];
}

static void square_block(void *context, int item, int thread)
{
    struct np_plan *plan = context;
    uint64_t first = (uint64_t)item * NP_NORM_BLOCK, n = plan->elements[NP_ARRAY_GRADS] - first;

    plan->block_sums[item] =
        np_square_sum(grads_of(plan) + first, n < NP_NORM_BLOCK ? n : NP_NORM_BLOCK);
}

static double grad_norm(struct np_plan *plan)
{
    double sum = 0;

    np_pool_run(plan->pool, plan->nr_blocks, square_block, plan);
    for (int i = 0; i < plan->nr_blocks; i++)
        sum += plan->block_sums[i];
    return sqrt(sum);
}

/* A frozen parameter has no gradient: it is not in the norm. */
static void clear_frozen(struct np_plan *plan)
{
    const struct np_graph *graph = plan->sides[TRAIN].graph;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];

        if (tensor->role == NP_ROLE_PARAM && np_rule_freezes(&tensor->rule, plan->hyper->update))
            memset(grads_of(plan) + tensor->offset, 0, np_tensor_elements(tensor) * sizeof(float));
    }
}

static void update_tensor(struct np_plan *plan, int item, int thread)
{
    const struct np_tensor *tensor = &plan->sides[TRAIN].graph->tensors[item];
    const uint64_t at = tensor->offset, n = np_tensor_elements(tensor);

    if (tensor->role != NP_ROLE_PARAM)
        return;
    float *const *arrays = plan->arrays;
    struct np_update update = {
        .params = arrays[NP_ARRAY_PARAMS] + at,
        .state = {arrays[NP_ARRAY_STATE0] + at,
            arrays[NP_ARRAY_STATE1] ? arrays[NP_ARRAY_STATE1] + at : NULL},
        .grads = grads_of(plan) + at,
        .n = n,
        .grad_scale = plan->grad_scale,
        .rule = tensor->rule,
    };
    if (plan->hyper->kind == NP_MUON)
        np_cpu_muon_fill(plan->muon, item, thread, &update);
    np_optim_update(plan->hyper, &update);
}

static bool needs_all_threads(const struct np_plan *plan, int item)
{
    return plan->hyper->kind == NP_MUON && np_cpu_muon_is_large(plan->muon, item);
}

static void update_small(void *context, int item, int thread)
{
    if (!needs_all_threads(context, item))
        update_tensor(context, item, thread);
}

static void update_all(struct np_plan *plan)
{
    const int nr = plan->sides[TRAIN].graph->nr_tensors;

    np_pool_run(plan->pool, nr, update_small, plan);
    for (int i = 0; i < nr; i++)
        if (needs_all_threads(plan, i))
            update_tensor(plan, i, 0);
}

static int late_array(struct np_plan *plan, int array, struct np_err *err)
{
    float **late = &plan->arrays[array];

    if (!*late)
        *late = np_try_array(plan->elements[array], sizeof(float), err);
    return *late ? 0
                 : np_err_context(err, array == NP_ARRAY_STATE1 ? "the optimizer's second state"
                                                                : "the weights' average");
}

static void weights_changed(struct np_plan *plan)
{
    for (int i = 0; i < NR_SIDES; i++)
        np_program_weights_changed(plan->sides[i].program);
}

static int plan_update(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    if (np_hyper_states(hyper) > 1 && late_array(plan, NP_ARRAY_STATE1, err) < 0)
        return -ENOMEM;
    if (hyper->kind == NP_MUON && !plan->muon &&
        np_cpu_muon_new(plan->sides[TRAIN].graph, plan->pool, &plan->muon, err) < 0)
        return -ENOMEM;
    plan->hyper = hyper;
    plan->grad_scale = 1;
    if (hyper->clip_norm > 0) {
        clear_frozen(plan);
        plan->newest_norm = grad_norm(plan);
        plan->grad_scale = np_clip_scale(plan->newest_norm, hyper->clip_norm);
    }
    update_all(plan);
    plan->lanes.unapplied = false;
    weights_changed(plan);
    plan->summing = false;
    return 0;
}

/* --- sam ----------------------------------------------------------------------------------- */

static uint64_t block_size(const struct np_plan *plan, int item)
{
    const uint64_t n = plan->elements[NP_ARRAY_PARAMS] - (uint64_t)item * NP_NORM_BLOCK;

    return n < NP_NORM_BLOCK ? n : NP_NORM_BLOCK;
}

static void sam_square_block(void *context, int item, int thread)
{
    struct np_plan *plan = context;
    const uint64_t first = (uint64_t)item * NP_NORM_BLOCK;

    plan->block_sums[item] = np_sam_squares(plan->arrays[NP_ARRAY_PARAMS] + first,
        plan->arrays[NP_ARRAY_GRADS] + first, block_size(plan, item), plan->hyper->sam_adaptive);
}

static void climb_block(void *context, int item, int thread)
{
    struct np_plan *plan = context;
    const uint64_t first = (uint64_t)item * NP_NORM_BLOCK;

    np_sam_climb(plan->arrays[NP_ARRAY_PARAMS] + first, plan->arrays[NP_ARRAY_GRADS] + first,
        block_size(plan, item), plan->climb_scale, plan->hyper->sam_adaptive);
}

/* Copies params and buffers into plan->kept, or back: their bits return. */
static void keep(struct np_plan *plan, bool back)
{
    for (int i = NP_ARRAY_PARAMS; i <= NP_ARRAY_BUFFERS; i++)
        memcpy(back ? plan->arrays[i] : plan->kept[i], back ? plan->kept[i] : plan->arrays[i],
            plan->elements[i] * sizeof(float));
}

static int take_kept(struct np_plan *plan, struct np_err *err)
{
    for (int i = NP_ARRAY_PARAMS; i <= NP_ARRAY_BUFFERS; i++)
        if (!plan->kept[i] &&
            !(plan->kept[i] = np_try_array(plan->elements[i] + 1, sizeof(float), err)))
            return np_err_context(err, "train.sam's copy of the weights");
    return 0;
}

/* Moves the weights uphill of the gradients of the pass before. */
static void climb(struct np_plan *plan, const struct np_hyper *hyper)
{
    double sum = 0;

    plan->hyper = hyper;
    clear_frozen(plan);
    np_pool_run(plan->pool, plan->nr_blocks, sam_square_block, plan);
    for (int i = 0; i < plan->nr_blocks; i++)
        sum += plan->block_sums[i];
    plan->climb_scale = np_sam_scale(sqrt(sum), hyper->sam_rho);
    np_pool_run(plan->pool, plan->nr_blocks, climb_block, plan);
    weights_changed(plan);
}

static int plan_climb(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
    float loss_scale, const struct np_hyper *hyper, struct np_err *err)
{
    if (take_kept(plan, err) < 0)
        return -ENOMEM;
    keep(plan, false);
    climb(plan, hyper);
    const int code = compute(plan, images, labels, step, loss_scale, err);
    keep(plan, true); /* also after an error: the weights may be saved */
    return code;
}

static int plan_step_update(struct np_plan *plan, const void *images, const void *labels,
    uint64_t step, float loss_scale, const struct np_hyper *hyper, struct np_err *err)
{
    int code = plan_step(plan, images, labels, step, loss_scale, false, err);

    if (code == 0 && hyper->sam_rho > 0)
        code = plan_climb(plan, images, labels, step, loss_scale, hyper, err);
    return code == 0 ? plan_update(plan, hyper, err) : code;
}

/* --- averages ------------------------------------------------------------------------------ */

/* One block of the params; the last item: the buffers. */
static void average_block(void *context, int item, int thread)
{
    struct np_plan *plan = context;
    const bool buffers = item == plan->nr_blocks;
    const int array = buffers ? NP_ARRAY_AVERAGE_BUFFERS : NP_ARRAY_AVERAGE;
    const uint64_t first = buffers ? 0 : (uint64_t)item * NP_NORM_BLOCK;
    uint64_t n = plan->elements[array] - first;
    float *average = plan->arrays[array] + first;
    float *values = plan->arrays[buffers ? NP_ARRAY_BUFFERS : NP_ARRAY_PARAMS] + first;

    if (!buffers && n > NP_NORM_BLOCK)
        n = NP_NORM_BLOCK;
    np_average_blend(average, values, n, plan->average_weight);
    if (plan->average_back)
        memcpy(values, average, n * sizeof(float));
}

static int late_averages(struct np_plan *plan, struct np_err *err)
{
    const int code = late_array(plan, NP_ARRAY_AVERAGE, err);

    return code == 0 ? late_array(plan, NP_ARRAY_AVERAGE_BUFFERS, err) : code;
}

static int plan_average(struct np_plan *plan, float weight, bool back, struct np_err *err)
{
    if (late_averages(plan, err) < 0)
        return -ENOMEM;
    plan->average_weight = weight;
    plan->average_back = back;
    np_pool_run(plan->pool, plan->nr_blocks + 1, average_block, plan);
    if (back)
        weights_changed(plan);
    return 0;
}

static void swap_arrays(float *a, float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const float value = a[i];

        a[i] = b[i];
        b[i] = value;
    }
}

/* The programs keep pointers to the arrays, so the values move. */
static int plan_swap(struct np_plan *plan, struct np_err *err)
{
    float *const *arrays = plan->arrays;

    if (late_averages(plan, err) < 0)
        return -ENOMEM;
    swap_arrays(
        arrays[NP_ARRAY_PARAMS], arrays[NP_ARRAY_AVERAGE], plan->elements[NP_ARRAY_AVERAGE]);
    swap_arrays(arrays[NP_ARRAY_BUFFERS], arrays[NP_ARRAY_AVERAGE_BUFFERS],
        plan->elements[NP_ARRAY_AVERAGE_BUFFERS]);
    weights_changed(plan);
    return 0;
}

static int plan_eval(
    struct np_plan *plan, const void *images, const void *labels, struct np_err *err)
{
    struct np_step_info info = {
        .step = 0, .loss_scale = 1, .skip = plan->skip_masked ? labels : NULL};
    const int views = np_graph_nr_views(plan->sides[EVAL].graph);
    int code = 0;

    for (; code == 0 && info.view < views; info.view++)
        code = np_program_run(plan->sides[EVAL].program, images, labels, &info, err);
    add_metrics(plan, &plan->sides[EVAL], labels);
    return code;
}

static void plan_numbers(const struct np_plan *plan, struct np_metrics *ret_numbers)
{
    memcpy(ret_numbers, plan->newest, (size_t)nr_numbers(plan) * sizeof(*plan->newest));
}

static int plan_metrics(
    struct np_plan *plan, int later, struct np_metrics *ret_metrics, struct np_err *err)
{
    if (later == 0)
        settle(plan);
    *ret_metrics = plan->metrics;
    memset(&plan->metrics, 0, sizeof(plan->metrics));
    return 0;
}

static void plan_losses(const struct np_plan *plan, float *out)
{
    memcpy(out, plan->losses[0], (size_t)plan->last->graph->batch * sizeof(float));
}

static int find_array(
    struct np_plan *plan, int array, float **ret_array, size_t *ret_bytes, struct np_err *err)
{
    if (is_late(array) && plan->sides[TRAIN].graph && late_array(plan, array, err) < 0)
        return -ENOMEM;
    *ret_array = array == NP_ARRAY_GRADS ? grads_of(plan) : plan->arrays[array];
    if (array == NP_ARRAY_BUFFERS && plan->lanes.unapplied)
        *ret_array = plan->lanes.first_buffers;
    *ret_bytes = plan->elements[array] * sizeof(float);
    if (!*ret_array)
        return np_err_set(err, -EINVAL, "this plan is for evaluation: it has no array %d", array);
    return 0;
}

static int plan_read(struct np_plan *plan, int array, float *out, struct np_err *err)
{
    float *from;
    size_t bytes;
    int code = find_array(plan, array, &from, &bytes, err);

    if (code == 0)
        memcpy(out, from, bytes);
    return code;
}

static int plan_write(struct np_plan *plan, int array, const float *in, struct np_err *err)
{
    float *to;
    size_t bytes;
    int code = find_array(plan, array, &to, &bytes, err);

    if (code == 0)
        memcpy(to, in, bytes);
    weights_changed(plan);
    return code;
}

static int plan_state(struct np_plan *plan, char **ret_text, struct np_err *err)
{
    *ret_text = plan->checked ? np_checked_state(plan->checked) : np_strdup("");
    return 0;
}

static int plan_logits(struct np_plan *plan, float *out, struct np_err *err)
{
    if (!plan->last)
        return np_err_set(err, -EINVAL, "no batch has been run yet");
    const int logits = plan->last->graph->logits;
    const struct np_tensor *tensor = &plan->last->graph->tensors[logits];
    const void *from = np_program_tensor(plan->last->program, logits);

    if (tensor->dtype == NP_F32)
        memcpy(out, from, np_tensor_elements(tensor) * sizeof(float));
    else
        np_f32_from_bf16(out, from, np_tensor_elements(tensor));
    return 0;
}

const struct np_plan_ops np_plan_cpu = {
    .synchronous = true,
    .prepare = plan_prepare,
    .free = plan_free,
    .step = plan_step,
    .at_once = true,
    .numbers = plan_numbers,
    .climb = plan_climb,
    .update = plan_update,
    .step_update = plan_step_update,
    .average = plan_average,
    .swap = plan_swap,
    .eval = plan_eval,
    .metrics = plan_metrics,
    .losses = plan_losses,
    .read = plan_read,
    .write = plan_write,
    .state = plan_state,
    .logits = plan_logits,
};
