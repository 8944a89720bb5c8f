/* A network on the GPU: weights and optimizer state as flat arrays, a training and an evaluation
 * program over one arena, and their CUDA graphs. The host queues a step with one launch
 * (plan_queue.c) and reads its numbers later from memory that the device writes, while later steps
 * run. Trainer thread. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/plan_queue.h"

static int add_program(struct np_plan *plan, const struct np_graph *graph,
    const struct np_plan_options *options, struct np_cuda_layout *layout,
    struct np_cuda_program **ret_program, struct np_err *err)
{
    const struct np_dnn_rules rules = {
        .deterministic = options->deterministic, .tf32 = options->tf32};
    const struct np_cuda_parts parts = {plan->cuda, plan->convs, plan->engines, options};
    struct np_cuda_arrays arrays = plan->arrays;

    arrays.layout = layout;
    return np_cuda_program_new(&parts, graph, &arrays, &rules, ret_program, err);
}

/* With several processes rank 0 chooses, and the others take its choice. */
static int share_engines(struct np_plan *plan, struct np_comm *comm, struct np_err *err)
{
    char *text = NULL;
    int code;

    if (np_comm_rank(comm) == 0) {
        text = np_strdup("");
        np_engines_print(plan->engines, &text);
    }
    code = np_cuda_sums_share(comm, &text, err);
    if (code == 0 && np_comm_rank(comm) > 0)
        code = np_engines_take(plan->engines, text, err);
    np_free(text);
    return code;
}

/* Loads the engines of a checkpoint, or for a new run from the cache. */
static int add_engines(
    struct np_plan *plan, const char *state, struct np_comm *comm, struct np_err *err)
{
    const char *retune = getenv("NNPIPE_CUDA_RETUNE");

    plan->convs = np_cuda_convs_new(&plan->cuda->target, plan->cuda->props.totalGlobalMem);
    plan->engines = np_engines_new();
    if (np_comm_rank(comm) > 0)
        return share_engines(plan, comm, err);
    if (state)
        return np_engines_take(plan->engines, state, err);
    plan->engines_path = np_engines_path(plan->cuda);
    if (!retune || strcmp(retune, "1") != 0)
        np_engines_read(plan->engines, plan->engines_path);
    return 0;
}

/* Another engine rounds differently: a user who resumes a run must know. */
static void note_lost(const struct np_plan *plan, bool resumed)
{
    const char *result = resumed ? "chosen anew, and weights may round differently" : "timed anew";
    const struct np_cuda_convs *convs = plan->convs;

    if (convs->nr_lost > 0)
        np_device_note(plan->device,
            "%s: cuDNN no longer offers the engine %s of the %s (%d of its convolutions): %s",
            convs->lost_node, convs->lost_id, resumed ? "checkpoint" : "cache", convs->nr_lost,
            result);
    if (plan->engines->nr_old > 0)
        np_device_note(plan->device,
            "the %s is of an older version, which did not name engines: they are %s",
            resumed ? "checkpoint" : "cache of engines", result);
}

/* follows: another process has chosen. Times shapes without a known engine. This writes weight gradients into their arrays, which the
 * first step overwrites. */
static int tune(struct np_plan *plan, bool resumed, bool follows, struct np_err *err)
{
    int code = 0, timed = 0;

    if (follows && plan->convs->nr_lost > 0)
        return np_err_set(err, -EINVAL,
            "%s: cuDNN does not offer the engine %s, which rank 0 chose for layer %s: with another "
            "one "
            "this process would round differently",
            plan->device->name, plan->convs->lost_id, plan->convs->lost_node);
    note_lost(plan, resumed);
    if (plan->train)
        code = np_cuda_program_tune(plan->train, plan->engines, &timed, err);
    if (code == 0 && plan->eval)
        code = np_cuda_program_tune(plan->eval, plan->engines, &timed, err);
    if (code == 0 && follows && timed > 0)
        return np_err_set(err, -EINVAL,
            "%s: cuDNN has no plan for %d shapes of convolutions for which rank 0 chose one: this "
            "process would round differently",
            plan->device->name, timed);
    if (code == 0 && timed > 0)
        np_engines_merge(plan->engines, plan->engines_path);
    return code == 0 && timed > 0 ? np_cuda_settle_memory(plan, err) : code;
}

static void plan_part(struct np_plan *plan)
{
    if (!plan->sums)
        return;
    np_cuda_drop_graph(plan, NP_CUDA_SUM);
    np_cuda_drop_graph(plan, NP_CUDA_LAST);
    np_cuda_sums_part(plan->sums);
}

static void plan_free(struct np_plan *plan)
{
    plan_part(plan);
    cudaStreamSynchronize(np_cuda_stream(plan));
    np_cuda_snapshot_free(&plan->snapshot);
    for (int i = 0; i < NP_CUDA_NR_KINDS; i++)
        np_cuda_drop_graph(plan, i);
    np_cuda_sums_free(plan->sums);
    np_free(plan->unread);
    np_free(plan->unread_losses);
    np_cuda_program_free(plan->train);
    np_cuda_program_free(plan->eval);
    np_cuda_muon_free(plan->muon);
    np_cuda_convs_free(plan->convs);
    np_cuda_layout_fini(&plan->train_layout);
    np_cuda_layout_fini(&plan->eval_layout);
    np_engines_free(plan->engines);
    np_free(plan->engines_path);
    np_cuda_release_memory(plan);
    np_free(plan);
}

static int plan_prepare(struct np_device *device, const struct np_graph *train,
    const struct np_graph *eval, const struct np_plan_options *options, struct np_plan **ret_plan,
    struct np_err *err)
{
    const struct np_graph *graph = train ? train : eval;
    struct np_plan *plan = np_alloc(sizeof(*plan));
    int code = 0;

    assert(graph);
    enum np_dtype precision = graph->tensors[graph->input].dtype;
    plan->device = device;
    plan->cuda = device->state;
    plan->nr_buffers = graph->nr_buffers;
    plan->f16 = precision == NP_F16;
    plan->graphs = np_cuda_graphs();
    if (train)
        code = np_cuda_layout_init(&plan->train_layout, train, options->muon, err);
    if (code == 0 && eval)
        code = np_cuda_layout_init(&plan->eval_layout, eval, false, err);
    plan->layout = train ? &plan->train_layout : &plan->eval_layout;
    if (code == 0)
        code = np_cuda_take_arrays(plan, train != NULL, precision != NP_F32, options->state, err);
    if (code == 0 && options->losses)
        code = np_cuda_take_losses(plan, graph, err);
    if (train)
        plan->mix = train->nodes[0].attrs.mix; /* of NP_OP_INPUT */
    if (code == 0 && train)
        code = np_cuda_take_weights(plan, train, err);
    if (code == 0 && train && options->parts > 1)
        code = np_cuda_sums_new(plan, options, &plan->sums, err);
    struct np_comm *comm = plan->sums ? options->comm : NULL;
    if (code == 0)
        code = add_engines(plan, options->state, comm, err);
    if (code == 0 && train)
        code = add_program(plan, train, options, &plan->train_layout, &plan->train, err);
    if (code == 0 && eval)
        code = add_program(plan, eval, options, &plan->eval_layout, &plan->eval, err);
    if (code == 0 && train && options->muon)
        code = np_cuda_muon_new(plan->cuda, plan->layout, options->tf32, &plan->muon, err);
    if (code == 0)
        code = np_cuda_take_muon(plan, err); /* before the batch, which gets the rest */
    if (code == 0 && plan->sums)
        code = np_cuda_sums_take(plan->sums, err);
    if (code == 0 && comm)
        code = np_cuda_take_hashes(plan, err);
    if (code == 0)
        code = np_cuda_take_arena(plan, graph, err);
    if (code == 0)
        code = tune(plan, options->state != NULL, np_comm_rank(comm) > 0, err);
    if (code == 0)
        code = np_cuda_snapshot_take(plan, options->snapshot, err);
    if (code == 0 && comm && np_comm_rank(comm) == 0)
        code = share_engines(plan, comm, err);
    if (code == 0)
        code = np_cuda_plan_check(
            plan, cudaStreamSynchronize(np_cuda_stream(plan)), "to prepare", err);
    if (code < 0)
        plan_free(plan);
    else
        *ret_plan = plan;
    return code;
}

/* --- steps ----------------------------------------------------------------------------------- */

/* Of a whole batch of the program: the values follow its labels. */
static int announce(struct np_plan *plan, const struct np_cuda_program *program, const void *images,
    const void *labels, struct np_err *err)
{
    const float *values = np_batch_values(labels, program->graph->batch);

    return np_cuda_announce(plan, images, labels, values, err);
}

static int plan_step(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
    float loss_scale, bool accumulate, struct np_err *err)
{
    int code = 0;

    if (!accumulate)
        plan->summing = false; /* drops an unused sum */
    else if (!plan->summing) {
        code = np_cuda_add_up(plan, true, err); /* of the first batch */
        plan->summing = true;
    }
    plan->now.step = step;
    plan->now.loss_scale = loss_scale;
    np_mix_draw(&plan->mix, step, &plan->now.mixed);
    if (code == 0)
        code = announce(plan, plan->train, images, labels, err);
    if (code == 0)
        code = np_cuda_queue(plan, NP_CUDA_STEP, err);
    if (code == 0 && accumulate)
        code = np_cuda_add_up(plan, false, err);
    return code == 0 ? np_cuda_finish(plan, err) : code;
}

/* After plan_step(): the norm goes to the newest batch's numbers, whose event is recorded again
 * after it. */
static int plan_update(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    int code = np_cuda_take_optimizer(plan, hyper, err);

    if (code < 0)
        return code;
    np_cuda_set_hyper(plan, hyper);
    np_cuda_set_step(np_cuda_stream(plan), plan->arrays.step, &plan->now);
    code = np_cuda_queue_update(plan, plan->summing ? plan->sum : plan->arrays.grads, err);
    plan->summing = false;
    if (code < 0)
        return code;
    plan->nr_batches--;
    return np_cuda_finish(plan, err);
}

/* The numbers of the second pass go to the next batch's slot, which that batch overwrites. */
static int plan_sam(struct np_plan *plan, const void *images, const void *labels,
    const struct np_hyper *hyper, struct np_err *err)
{
    int code = np_cuda_take_kept(plan, err);

    if (code == 0)
        code = announce(plan, plan->train, images, labels, err);
    if (code == 0)
        code = np_cuda_queue(plan, NP_CUDA_STEP, err);
    if (code == 0)
        code = np_cuda_queue_climb(plan, hyper, err);
    plan->nr_batches++;
    if (code == 0)
        code = announce(plan, plan->train, images, labels, err);
    plan->nr_batches--;
    if (code == 0)
        code = np_cuda_queue(plan, NP_CUDA_STEP, err);
    if (code == 0)
        code = np_cuda_queue_return(plan, err);
    if (code < 0)
        return code;
    plan->now.slot = plan->nr_batches;
    np_cuda_set_step(np_cuda_stream(plan), plan->arrays.step, &plan->now);
    code = np_cuda_queue_update(plan, plan->arrays.grads, err);
    return code == 0 ? np_cuda_finish(plan, err) : code;
}

/* Both at once, as one graph. */
static int plan_step_update(struct np_plan *plan, const void *images, const void *labels,
    uint64_t step, float loss_scale, const struct np_hyper *hyper, struct np_err *err)
{
    int code = np_cuda_take_optimizer(plan, hyper, err);

    plan->now.step = step;
    plan->now.loss_scale = loss_scale;
    np_mix_draw(&plan->mix, step, &plan->now.mixed);
    np_cuda_set_hyper(plan, hyper);
    plan->summing = false;
    if (code == 0 && hyper->sam_rho > 0)
        return plan_sam(plan, images, labels, hyper, err);
    if (code == 0)
        code = announce(plan, plan->train, images, labels, err);
    if (code == 0)
        code = np_cuda_queue(plan, NP_CUDA_STEP_UPDATE, err);
    return code == 0 ? np_cuda_finish(plan, err) : code;
}

/* --- lanes ----------------------------------------------------------------------------------- */

/* A lane of the batch, on the device. */
static int announce_lane(
    struct np_plan *plan, const struct np_lane_batch *batch, int lane, struct np_err *err)
{
    const size_t rows = (size_t)batch->rows, row = (size_t)lane * rows;
    const size_t all = rows * (size_t)np_cuda_sums_own(plan->sums);
    const size_t width = (size_t)(plan->train ? plan->train : plan->eval)->graph->values;

    return np_cuda_announce(plan, (const char *)batch->images + row * batch->row_bytes,
        (const int32_t *)batch->labels + row,
        np_batch_values(batch->labels, (int)all) + row * width, err);
}

/* kind: of the last lane. */
static int queue_lane(struct np_plan *plan, const struct np_lane_batch *batch, int lane,
    enum np_cuda_kind kind, struct np_err *err)
{
    const struct np_cuda_sums *sums = plan->sums;
    const bool last = lane + 1 == np_cuda_sums_own(sums);
    const uint64_t lanes = (uint64_t)np_cuda_sums_lanes(sums);
    int code;

    plan->now.step = batch->step * lanes + (uint64_t)np_cuda_sums_first(sums) + (uint64_t)lane;
    plan->now.loss_scale = batch->loss_scale;
    np_mix_draw(&plan->mix, plan->now.step, &plan->now.mixed);
    code = np_cuda_sums_begin(plan->sums, lane, err);
    if (code == 0)
        code = announce_lane(plan, batch, lane, err);
    if (code == 0)
        code = np_cuda_queue(plan, last ? kind : NP_CUDA_STEP, err);
    return code == 0 && !last ? np_cuda_sums_add(plan->sums, lane, err) : code;
}

/* All lanes; the last one is not finished. */
static int queue_lanes(struct np_plan *plan, const struct np_lane_batch *batch,
    enum np_cuda_kind kind, struct np_err *err)
{
    const int own = np_cuda_sums_own(plan->sums);
    int code = 0;

    for (int lane = 0; code == 0 && lane < own; lane++) {
        code = queue_lane(plan, batch, lane, kind, err);
        if (code == 0 && lane + 1 < own)
            code = np_cuda_finish(plan, err);
    }
    return code;
}

/* A batch of several, one after the other: its sum is added to theirs, after the last one. */
static int accumulate_lanes(struct np_plan *plan, const struct np_lane_batch *batch,
    const struct np_hyper *hyper, struct np_err *err)
{
    int code = queue_lanes(plan, batch, NP_CUDA_SUM, err);

    if (code == 0)
        code = np_cuda_add_up(plan, !batch->adds, err);
    return code == 0 && hyper ? np_cuda_queue_update(plan, plan->sum, err) : code;
}

/* As plan_sam(): all lanes, then all of them again uphill. The numbers of this second pass go to the slot behind
 * that of the last lane, which the next batch overwrites. */
static int climb_lanes(struct np_plan *plan, const struct np_lane_batch *batch,
    const struct np_hyper *hyper, struct np_err *err)
{
    int code = np_cuda_take_kept(plan, err);

    if (code == 0)
        code = queue_lanes(plan, batch, NP_CUDA_SUM, err);
    if (code == 0)
        code = np_cuda_queue_climb(plan, hyper, err);
    plan->nr_batches++;
    for (int lane = 0; code == 0 && lane < np_cuda_sums_own(plan->sums); lane++)
        code = queue_lane(plan, batch, lane, NP_CUDA_SUM, err);
    plan->nr_batches--;
    if (code == 0)
        code = np_cuda_queue_return(plan, err);
    if (code < 0)
        return code;
    plan->now.slot = plan->nr_batches;
    np_cuda_set_step(np_cuda_stream(plan), plan->arrays.step, &plan->now);
    return np_cuda_queue_update(plan, plan->arrays.grads, err);
}

static int plan_step_lanes(struct np_plan *plan, const struct np_lane_batch *batch,
    const struct np_hyper *hyper, struct np_err *err)
{
    int code = hyper ? np_cuda_take_optimizer(plan, hyper, err) : 0;

    if (code == 0)
        code = np_cuda_sums_check(plan->sums, err);
    if (code == 0 && hyper)
        np_cuda_set_hyper(plan, hyper);
    if (code < 0)
        return code;
    code = hyper && hyper->sam_rho > 0 ? climb_lanes(plan, batch, hyper, err)
           : !hyper || batch->adds     ? accumulate_lanes(plan, batch, hyper, err)
                                       : queue_lanes(plan, batch, NP_CUDA_LAST, err);
    return code == 0 ? np_cuda_finish(plan, err) : code;
}

static int plan_average(struct np_plan *plan, float weight, bool back, struct np_err *err)
{
    const struct np_cuda_arrays *a = &plan->arrays;
    void *stream = np_cuda_stream(plan);

    if (np_cuda_take_averages(plan, err) < 0)
        return err->code;
    np_cuda_average(stream, plan->average[0], a->params, weight, back, plan->train->dtype, a->half,
        plan->layout->nr_params);
    np_cuda_average(
        stream, plan->average[1], a->buffers, weight, back, NP_CUDA_F32, NULL, plan->nr_buffers);
    return np_cuda_plan_check(plan, cudaPeekAtLastError(), "an average", err);
}

static int plan_swap(struct np_plan *plan, struct np_err *err)
{
    const struct np_cuda_arrays *a = &plan->arrays;
    void *stream = np_cuda_stream(plan);

    if (np_cuda_take_averages(plan, err) < 0)
        return err->code;
    np_cuda_swap(
        stream, a->params, plan->average[0], plan->train->dtype, a->half, plan->layout->nr_params);
    np_cuda_swap(stream, a->buffers, plan->average[1], NP_CUDA_F32, NULL, plan->nr_buffers);
    return np_cuda_plan_check(plan, cudaPeekAtLastError(), "an average", err);
}

/* Each view writes the batch's numbers, the last one those of the mean. */
static int queue_views(struct np_plan *plan, struct np_err *err)
{
    const int views = np_graph_nr_views(plan->eval->graph);
    int code = 0;

    for (; plan->now.view < views && code == 0; plan->now.view++) {
        if (plan->now.view > 0)
            np_cuda_set_step(np_cuda_stream(plan), plan->arrays.step, &plan->now);
        code = np_cuda_queue(plan, NP_CUDA_EVAL, err);
    }
    return code == 0 ? np_cuda_finish(plan, err) : code;
}

static int plan_eval(
    struct np_plan *plan, const void *images, const void *labels, struct np_err *err)
{
    plan->now.view = 0;
    const int code = announce(plan, plan->eval, images, labels, err);
    return code == 0 ? queue_views(plan, err) : code;
}

static int plan_eval_lanes(
    struct np_plan *plan, const struct np_lane_batch *batch, float *logits, struct np_err *err)
{
    const struct np_graph *graph = plan->eval->graph;
    const size_t n = (size_t)batch->rows * (size_t)graph->classes;
    int code = 0;

    for (int lane = 0; code == 0 && lane < np_cuda_sums_own(plan->sums); lane++) {
        plan->now.view = 0;
        code = announce_lane(plan, batch, lane, err);
        if (code == 0)
            code = queue_views(plan, err);
        if (code == 0 && logits)
            code = np_cuda_plan_logits(plan, logits + (size_t)lane * n, err);
    }
    return code;
}

const struct np_plan_ops np_cuda_plan_ops = {
    .prepare = plan_prepare,
    .free = plan_free,
    .step = plan_step,
    .update = plan_update,
    .step_update = plan_step_update,
    .step_lanes = plan_step_lanes,
    .eval_lanes = plan_eval_lanes,
    .lane_numbers = np_cuda_plan_lane_numbers,
    .part = plan_part,
    .average = plan_average,
    .swap = plan_swap,
    .eval = plan_eval,
    .metrics = np_cuda_plan_metrics,
    .losses = np_cuda_plan_losses,
    .read = np_cuda_plan_read,
    .write = np_cuda_plan_write,
    .state = np_cuda_plan_state,
    .snap = np_cuda_plan_snap,
    .snapped = np_cuda_plan_snapped,
    .snapshot = np_cuda_plan_snapshot,
    .hash = np_cuda_plan_hash,
    .logits = np_cuda_plan_logits,
};
