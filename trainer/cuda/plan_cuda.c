/* A network on the GPU: weights and optimizer state as flat arrays, a training and an evaluation
 * program over one arena, and their CUDA graphs. The host queues a step with one launch and reads
 * its numbers later from memory that the device writes, while later steps run. Trainer thread.
 *
 *     set_step (by value) -> graph: input ... backward -> norm -> update; numbers -> event
 *
 * A step that cannot be captured as a graph is queued call by call, in the same order. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/plan_memory.h"
#include "trainer/optim.h"

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

/* --- numbers --------------------------------------------------------------------------------- */

static void add_numbers(struct np_metrics *to, const struct np_cuda_numbers *numbers, bool f16)
{
    to->loss_sum += numbers->loss_sum;
    to->rows += numbers->rows;
    to->correct += numbers->correct;
    to->top5 += numbers->top5;
    /* f16 skips an update whose norm is not finite; in other precisions it ends the run. */
    if (f16 ? numbers->grad_norm > 0 && isfinite(numbers->grad_norm) : numbers->grad_norm != 0)
        to->grad_norm = numbers->grad_norm;
}

/* Of a batch of the plan. */
static size_t rows_of(const struct np_plan *plan)
{
    return (size_t)plan->train->graph->batch;
}

static const float *losses_of(const struct np_plan *plan, uint64_t batch)
{
    return plan->arrays.losses + batch % NP_CUDA_SLOTS * rows_of(plan);
}

static float *unread_losses(const struct np_plan *plan, int of)
{
    return plan->unread_losses + (size_t)of * rows_of(plan);
}

static void drop_read(struct np_plan *plan)
{
    const int first = plan->first_unread;
    const size_t nr = (size_t)(plan->nr_unread - first);

    memmove(plan->unread, plan->unread + first, nr * sizeof(*plan->unread));
    if (plan->unread_losses)
        memmove(
            plan->unread_losses, unread_losses(plan, first), nr * rows_of(plan) * sizeof(float));
    plan->nr_unread -= plan->first_unread;
    plan->first_unread = 0;
}

/* In lanes the numbers of each batch of the plan stay apart. */
static struct np_metrics *place_for_numbers(struct np_plan *plan)
{
    if (!plan->sums)
        return &plan->metrics;
    if (plan->first_unread > plan->nr_unread / 2)
        drop_read(plan);
    const int of = plan->nr_unread++;
    np_grow(&plan->unread, &plan->room_unread, (size_t)plan->nr_unread, sizeof(*plan->unread));
    plan->unread[of] = (struct np_metrics){0};
    if (plan->arrays.losses) { /* a later batch takes their slot */
        const size_t bytes = rows_of(plan) * sizeof(float);

        np_grow(&plan->unread_losses, &plan->room_losses, (size_t)plan->nr_unread, bytes);
        memcpy(unread_losses(plan, of), losses_of(plan, plan->nr_folded), bytes);
    }
    return &plan->unread[of];
}

/* Adds the numbers of the batches before `end`; waits for them. */
static int fold(struct np_plan *plan, uint64_t end, struct np_err *err)
{
    for (; plan->nr_folded < end; plan->nr_folded++) {
        const struct np_cuda_numbers *numbers =
            &plan->arrays.numbers[plan->nr_folded % NP_CUDA_SLOTS];
        const cudaError_t status =
            cudaEventSynchronize(plan->passed[plan->nr_folded % NP_CUDA_SLOTS]);
        int code = np_cuda_sums_check(plan->sums, err);

        if (code == 0)
            code = np_cuda_plan_check(plan, status, "a step", err);
        if (code < 0)
            return code;
        add_numbers(place_for_numbers(plan), numbers, plan->f16);
    }
    return 0;
}

static int plan_metrics(
    struct np_plan *plan, int later, struct np_metrics *ret_metrics, struct np_err *err)
{
    const uint64_t left = plan->nr_batches - plan->nr_folded, out = (uint64_t)later;
    int code = fold(plan, plan->nr_batches - (out < left ? out : left), err);

    if (code < 0)
        return code;
    for (int i = plan->first_unread; i < plan->nr_unread; i++) {
        const struct np_metrics *each = &plan->unread[i];

        plan->metrics.loss_sum += each->loss_sum;
        plan->metrics.rows += each->rows;
        plan->metrics.correct += each->correct;
        plan->metrics.top5 += each->top5;
        if (each->grad_norm != 0)
            plan->metrics.grad_norm = each->grad_norm;
    }
    plan->first_unread = plan->nr_unread = 0;
    *ret_metrics = plan->metrics;
    plan->metrics = (struct np_metrics){0};
    return 0;
}

static int plan_lane_numbers(
    struct np_plan *plan, int n, struct np_metrics *ret_numbers, float *losses, struct np_err *err)
{
    const int missing = n - (plan->nr_unread - plan->first_unread);
    const int code = missing > 0 ? fold(plan, plan->nr_folded + (uint64_t)missing, err) : 0;

    if (code < 0)
        return code;
    memcpy(ret_numbers, plan->unread + plan->first_unread, (size_t)n * sizeof(*ret_numbers));
    if (losses)
        memcpy(losses, unread_losses(plan, plan->first_unread),
            (size_t)n * rows_of(plan) * sizeof(*losses));
    plan->first_unread += n;
    return 0;
}

/* The numbers are still in their slot: at most NP_CUDA_SLOTS - 1 later batches are queued. */
static void plan_losses(const struct np_plan *plan, float *out)
{
    memcpy(out, losses_of(plan, plan->nr_folded - 1), rows_of(plan) * sizeof(*out));
}

/* --- steps ----------------------------------------------------------------------------------- */

/* Queues the batch's values for the device; its slot must be free. values: of its first row, of labels that
 * are not classes. */
static int announce_values(struct np_plan *plan, const void *images, const void *labels,
    const float *values, struct np_err *err)
{
    const bool has_values = (plan->train ? plan->train : plan->eval)->graph->values > 0;
    int code = 0;

    if (plan->nr_batches >= NP_CUDA_SLOTS)
        code = fold(plan, plan->nr_batches - NP_CUDA_SLOTS + 1, err);
    plan->now.images = images;
    plan->now.labels = labels;
    plan->now.values = has_values ? values : NULL;
    plan->now.slot = plan->nr_batches;
    np_cuda_set_step(np_cuda_stream(plan), plan->arrays.step, &plan->now);
    return code;
}

/* Of a whole batch of the program: the values follow its labels. */
static int announce(struct np_plan *plan, const struct np_cuda_program *program, const void *images,
    const void *labels, struct np_err *err)
{
    const float *values = np_batch_values(labels, program->graph->batch);

    return announce_values(plan, images, labels, values, err);
}

/* Of rule number r. */
static struct np_scalars scalars_of(const struct np_plan *plan, const struct np_hyper *hyper, int r)
{
    const struct np_hyper own = np_hyper_of(hyper, plan->layout->for_matrices[r]);
    struct np_scalars scalars;

    np_optim_scalars(&own, &plan->layout->rules[r], &scalars);
    return scalars;
}

/* The values of rule 0 go with the step's, those of other rules ahead of them. */
static void set_hyper(struct np_plan *plan, const struct np_hyper *hyper)
{
    struct np_cuda_step *step = &plan->now;

    step->clip_norm = hyper->clip_norm;
    step->update = scalars_of(plan, hyper, 0);
    for (int first = 1; first < plan->layout->nr_rules; first += NP_CUDA_SENT) {
        struct np_scalars scalars[NP_CUDA_SENT];
        int n = 0;

        for (; n < NP_CUDA_SENT && first + n < plan->layout->nr_rules; n++)
            scalars[n] = scalars_of(plan, hyper, first + n);
        np_cuda_set_scalars(np_cuda_stream(plan), plan->scalars, first, scalars, n);
    }
}

static bool freezes(const struct np_cuda_layout *layout)
{
    for (int r = 0; r < layout->nr_rules; r++)
        if (layout->rules[r].thaw > 0 || layout->rules[r].stop > 0)
            return true;
    return false;
}

static struct np_cuda_rules rules_of(const struct np_plan *plan)
{
    return (struct np_cuda_rules){plan->rule_of, plan->scalars, freezes(plan->layout)};
}

/* Does the update read the convolutions' gradients as halves, as they are, so that no launch casts them? */
static bool reads_halves(const struct np_plan *plan, enum np_cuda_kind kind)
{
    return kind == NP_CUDA_STEP_UPDATE && plan->arrays.half_grads && plan->kind != NP_LAMB &&
           plan->kind != NP_MUON;
}

static int queue_update(struct np_plan *plan, const float *grads, bool halves, struct np_err *err)
{
    const struct np_cuda_arrays *a = &plan->arrays;
    uint64_t n = plan->layout->nr_params;
    const struct np_cuda_rules rules = rules_of(plan);
    const bool together = plan->clip_norm == 0 && !plan->f16 && plan->kind != NP_LAMB &&
                          plan->kind != NP_MUON; /* the norm is reported, and decides nothing */

    const struct np_cuda_optimizer update = {
        .params = a->params,
        .m = plan->state[0],
        .v = plan->state[1],
        .grads = grads,
        .half_grads = halves ? a->half_grads : NULL,
        .nr_halves = halves ? plan->layout->nr_convs : 0,
        .rules = rules,
        .starts = plan->lamb.starts,
        .nr_tensors = plan->lamb.nr_tensors,
        .squares = plan->lamb.squares,
        .ratios = plan->lamb.ratios,
        .half = a->half,
        .dtype = plan->train->dtype,
        .n = n,
        .numbers = together ? a->numbers : NULL,
        .partial = plan->norm_scratch,
    };
    if (!together)
        np_cuda_norm(np_cuda_stream(plan), a->step, a->scaler, &update, plan->f16, a->numbers);
    np_cuda_update(np_cuda_stream(plan), a->step, a->scaler, &update, plan->kind == NP_LAMB);
    const int code = plan->kind == NP_MUON ? np_cuda_muon_queue(plan->muon, np_cuda_stream(plan), a,
                                                 &update, plan->iterations, err)
                                           : 0;
    return code == 0 ? np_cuda_plan_check(plan, cudaPeekAtLastError(), "an update", err) : code;
}

static bool has_sums(enum np_cuda_kind kind)
{
    return kind == NP_CUDA_SUM || kind == NP_CUDA_LAST;
}

struct queueing {
    struct np_plan *plan;
    enum np_cuda_kind kind;
};

static int queue_calls(void *context, struct np_err *err)
{
    const struct queueing *queueing = context;
    struct np_plan *plan = queueing->plan;
    const bool updates = queueing->kind == NP_CUDA_STEP_UPDATE || queueing->kind == NP_CUDA_LAST;
    const bool halves = reads_halves(plan, queueing->kind);

    if (plan->train)
        plan->train->leaves_halves = halves;
    int code =
        has_sums(queueing->kind)
            ? np_cuda_sums_queue_last(plan->sums, plan->train, err)
            : np_cuda_program_queue(queueing->kind == NP_CUDA_EVAL ? plan->eval : plan->train, err);

    if (code == 0 && updates)
        code = queue_update(plan, plan->arrays.grads, halves, err);
    return code == 0 ? np_cuda_plan_check(plan, cudaPeekAtLastError(), "a kernel", err) : code;
}

/* A failed capture has run nothing: this step and all later ones of its kind are queued call by
 * call. A fault of the GPU itself returns there. */
static void try_capture(struct queueing *queueing, struct np_cuda_captured *captured)
{
    struct np_plan *plan = queueing->plan;
    struct np_err why = {0};

    if (np_cuda_capture(np_cuda_stream(plan), queue_calls, queueing, &captured->exec, &why) == 0)
        return;
    captured->refused = true;
    if (!plan->noted_refusal)
        np_device_note(plan->device,
            "%s; steps are queued call by call, which gives the same result", why.text);
    plan->noted_refusal = true;
}

/* If one process cannot capture the sums, none may. */
static int agree_on_capture(struct np_plan *plan, enum np_cuda_kind kind, struct np_err *err)
{
    struct np_cuda_captured *captured = &plan->captured[kind];
    bool refused = captured->refused || !plan->graphs;
    const int code = np_cuda_sums_any(plan->sums, &refused, err);

    if (code == 0 && refused && captured->exec)
        np_cuda_drop_graph(plan, kind);
    captured->refused = refused;
    return code;
}

static int queue(struct np_plan *plan, enum np_cuda_kind kind, struct np_err *err)
{
    struct np_cuda_captured *captured = &plan->captured[kind];
    struct queueing queueing = {plan, kind};
    int code = 0;

    nvtxRangePushA(kind == NP_CUDA_EVAL ? "nnpipe eval" : "nnpipe step");
    const bool second = captured->warm && !captured->exec && !captured->refused;
    if (plan->graphs && second)
        try_capture(&queueing, captured);
    if (has_sums(kind) && second)
        code = agree_on_capture(plan, kind, err);
    if (code < 0)
        return code;
    code = captured->exec
               ? np_cuda_plan_check(
                     plan, cudaGraphLaunch(captured->exec, np_cuda_stream(plan)), "a step", err)
               : queue_calls(&queueing, err);
    nvtxRangePop();
    captured->warm = true;
    if (kind != NP_CUDA_EVAL)
        plan->halves_only = reads_halves(plan, kind);
    plan->last = kind == NP_CUDA_EVAL ? plan->eval : plan->train;
    return code;
}

/* Call it when the batch and its update are queued. */
static int finish(struct np_plan *plan, struct np_err *err)
{
    int code = np_cuda_plan_check(plan,
        cudaEventRecord(plan->passed[plan->nr_batches % NP_CUDA_SLOTS], np_cuda_stream(plan)),
        "an event", err);

    plan->nr_batches++;
    return code;
}

static int add_up(struct np_plan *plan, bool first, struct np_err *err)
{
    uint64_t n = plan->layout->nr_params;
    int code = plan->sum ? 0 : np_cuda_take(plan, n * sizeof(float), &plan->sum, err);

    np_cuda_whole_grads(plan);
    if (code == 0)
        np_cuda_accumulate(np_cuda_stream(plan), plan->arrays.grads, plan->sum, first, n);
    return code;
}

static int plan_step(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
    float loss_scale, bool accumulate, struct np_err *err)
{
    int code = 0;

    if (!accumulate)
        plan->summing = false; /* drops an unused sum */
    else if (!plan->summing) {
        code = add_up(plan, true, err); /* of the first batch */
        plan->summing = true;
    }
    plan->now.step = step;
    plan->now.loss_scale = loss_scale;
    np_mix_draw(&plan->mix, step, &plan->now.mixed);
    if (code == 0)
        code = announce(plan, plan->train, images, labels, err);
    if (code == 0)
        code = queue(plan, NP_CUDA_STEP, err);
    if (code == 0 && accumulate)
        code = add_up(plan, false, err);
    return code == 0 ? finish(plan, err) : code;
}

/* After plan_step(): the norm goes to the newest batch's numbers, whose event is recorded again
 * after it. */
static int plan_update(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    int code = np_cuda_take_optimizer(plan, hyper, err);

    if (code < 0)
        return code;
    set_hyper(plan, hyper);
    np_cuda_set_step(np_cuda_stream(plan), plan->arrays.step, &plan->now);
    code = queue_update(plan, plan->summing ? plan->sum : plan->arrays.grads, false, err);
    plan->summing = false;
    if (code < 0)
        return code;
    plan->nr_batches--;
    return finish(plan, err);
}

/* Keeps params and buffers, and moves the params uphill. */
static int queue_climb(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    const struct np_cuda_arrays *a = &plan->arrays;
    const struct np_cuda_climb climb = {
        .params = a->params,
        .kept = plan->kept[0],
        .grads = a->grads,
        .rules = rules_of(plan),
        .half = a->half,
        .dtype = plan->train->dtype,
        .n = plan->layout->nr_params,
        .rho = hyper->sam_rho,
        .adaptive = hyper->sam_adaptive,
    };
    const cudaError_t status = cudaMemcpyAsync(plan->kept[1], a->buffers,
        plan->nr_buffers * sizeof(float), cudaMemcpyDeviceToDevice, np_cuda_stream(plan));

    np_cuda_climb(np_cuda_stream(plan), a->step, a->scaler, &climb, a->numbers, plan->norm_scratch);
    return np_cuda_plan_check(
        plan, status != cudaSuccess ? status : cudaPeekAtLastError(), "sam's way uphill", err);
}

/* Exchanges params, with their halves, and buffers with the copies: their bits return. */
static int queue_return(struct np_plan *plan, struct np_err *err)
{
    const struct np_cuda_arrays *a = &plan->arrays;
    void *stream = np_cuda_stream(plan);

    np_cuda_swap(
        stream, a->params, plan->kept[0], plan->train->dtype, a->half, plan->layout->nr_params);
    np_cuda_swap(stream, a->buffers, plan->kept[1], NP_CUDA_F32, NULL, plan->nr_buffers);
    return np_cuda_plan_check(plan, cudaPeekAtLastError(), "sam's way back", err);
}

/* The numbers of the second pass go to the next batch's slot, which that batch overwrites. */
static int plan_sam(struct np_plan *plan, const void *images, const void *labels,
    const struct np_hyper *hyper, struct np_err *err)
{
    int code = np_cuda_take_kept(plan, err);

    if (code == 0)
        code = announce(plan, plan->train, images, labels, err);
    if (code == 0)
        code = queue(plan, NP_CUDA_STEP, err);
    if (code == 0)
        code = queue_climb(plan, hyper, err);
    plan->nr_batches++;
    if (code == 0)
        code = announce(plan, plan->train, images, labels, err);
    plan->nr_batches--;
    if (code == 0)
        code = queue(plan, NP_CUDA_STEP, err);
    if (code == 0)
        code = queue_return(plan, err);
    if (code < 0)
        return code;
    plan->now.slot = plan->nr_batches;
    np_cuda_set_step(np_cuda_stream(plan), plan->arrays.step, &plan->now);
    code = queue_update(plan, plan->arrays.grads, false, err);
    return code == 0 ? finish(plan, err) : code;
}

/* Both at once, as one graph. */
static int plan_step_update(struct np_plan *plan, const void *images, const void *labels,
    uint64_t step, float loss_scale, const struct np_hyper *hyper, struct np_err *err)
{
    int code = np_cuda_take_optimizer(plan, hyper, err);

    plan->now.step = step;
    plan->now.loss_scale = loss_scale;
    np_mix_draw(&plan->mix, step, &plan->now.mixed);
    set_hyper(plan, hyper);
    plan->summing = false;
    if (code == 0 && hyper->sam_rho > 0)
        return plan_sam(plan, images, labels, hyper, err);
    if (code == 0)
        code = announce(plan, plan->train, images, labels, err);
    if (code == 0)
        code = queue(plan, NP_CUDA_STEP_UPDATE, err);
    return code == 0 ? finish(plan, err) : code;
}

/* --- lanes ----------------------------------------------------------------------------------- */

/* A lane of the batch, on the device. */
static int announce_lane(
    struct np_plan *plan, const struct np_lane_batch *batch, int lane, struct np_err *err)
{
    const size_t rows = (size_t)batch->rows, row = (size_t)lane * rows;
    const size_t all = rows * (size_t)np_cuda_sums_own(plan->sums);
    const size_t width = (size_t)(plan->train ? plan->train : plan->eval)->graph->values;

    return announce_values(plan, (const char *)batch->images + row * batch->row_bytes,
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
        code = queue(plan, last ? kind : NP_CUDA_STEP, err);
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
            code = finish(plan, err);
    }
    return code;
}

/* A batch of several, one after the other: its sum is added to theirs, after the last one. */
static int accumulate_lanes(struct np_plan *plan, const struct np_lane_batch *batch,
    const struct np_hyper *hyper, struct np_err *err)
{
    int code = queue_lanes(plan, batch, NP_CUDA_SUM, err);

    if (code == 0)
        code = add_up(plan, !batch->adds, err);
    return code == 0 && hyper ? queue_update(plan, plan->sum, false, err) : code;
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
        code = queue_climb(plan, hyper, err);
    plan->nr_batches++;
    for (int lane = 0; code == 0 && lane < np_cuda_sums_own(plan->sums); lane++)
        code = queue_lane(plan, batch, lane, NP_CUDA_SUM, err);
    plan->nr_batches--;
    if (code == 0)
        code = queue_return(plan, err);
    if (code < 0)
        return code;
    plan->now.slot = plan->nr_batches;
    np_cuda_set_step(np_cuda_stream(plan), plan->arrays.step, &plan->now);
    return queue_update(plan, plan->arrays.grads, false, err);
}

static int plan_step_lanes(struct np_plan *plan, const struct np_lane_batch *batch,
    const struct np_hyper *hyper, struct np_err *err)
{
    int code = hyper ? np_cuda_take_optimizer(plan, hyper, err) : 0;

    if (code == 0)
        code = np_cuda_sums_check(plan->sums, err);
    if (code == 0 && hyper)
        set_hyper(plan, hyper);
    if (code < 0)
        return code;
    code = hyper && hyper->sam_rho > 0 ? climb_lanes(plan, batch, hyper, err)
           : !hyper || batch->adds     ? accumulate_lanes(plan, batch, hyper, err)
                                       : queue_lanes(plan, batch, NP_CUDA_LAST, err);
    return code == 0 ? finish(plan, err) : code;
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
        code = queue(plan, NP_CUDA_EVAL, err);
    }
    return code == 0 ? finish(plan, err) : code;
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
    .lane_numbers = plan_lane_numbers,
    .part = plan_part,
    .average = plan_average,
    .swap = plan_swap,
    .eval = plan_eval,
    .metrics = plan_metrics,
    .losses = plan_losses,
    .read = np_cuda_plan_read,
    .write = np_cuda_plan_write,
    .state = np_cuda_plan_state,
    .snap = np_cuda_plan_snap,
    .snapped = np_cuda_plan_snapped,
    .snapshot = np_cuda_plan_snapshot,
    .logits = np_cuda_plan_logits,
};
