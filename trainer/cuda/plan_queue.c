#include "trainer/cuda/plan_queue.h"

#include <math.h>
#include <nvtx3/nvToolsExt.h>
#include <string.h>

#include "trainer/optim.h"

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

int np_cuda_plan_metrics(
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

int np_cuda_plan_lane_numbers(
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
void np_cuda_plan_losses(const struct np_plan *plan, float *out)
{
    memcpy(out, losses_of(plan, plan->nr_folded - 1), rows_of(plan) * sizeof(*out));
}

/* --- steps ----------------------------------------------------------------------------------- */

int np_cuda_announce(struct np_plan *plan, const void *images, const void *labels,
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

/* Of rule number r. */
static struct np_scalars scalars_of(const struct np_plan *plan, const struct np_hyper *hyper, int r)
{
    const struct np_hyper own = np_hyper_of(hyper, plan->layout->for_matrices[r]);
    struct np_scalars scalars;

    np_optim_scalars(&own, &plan->layout->rules[r], &scalars);
    return scalars;
}

/* The values of rule 0 go with the step's, those of other rules ahead of them. */
void np_cuda_set_hyper(struct np_plan *plan, const struct np_hyper *hyper)
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

int np_cuda_queue_update(struct np_plan *plan, const float *grads, struct np_err *err)
{
    return queue_update(plan, grads, false, err);
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

int np_cuda_queue(struct np_plan *plan, enum np_cuda_kind kind, struct np_err *err)
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

int np_cuda_finish(struct np_plan *plan, struct np_err *err)
{
    int code = np_cuda_plan_check(plan,
        cudaEventRecord(plan->passed[plan->nr_batches % NP_CUDA_SLOTS], np_cuda_stream(plan)),
        "an event", err);

    plan->nr_batches++;
    return code;
}

int np_cuda_add_up(struct np_plan *plan, bool first, struct np_err *err)
{
    uint64_t n = plan->layout->nr_params;
    int code = plan->sum ? 0 : np_cuda_take(plan, n * sizeof(float), &plan->sum, err);

    np_cuda_whole_grads(plan);
    if (code == 0)
        np_cuda_accumulate(np_cuda_stream(plan), plan->arrays.grads, plan->sum, first, n);
    return code;
}

int np_cuda_queue_climb(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
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

int np_cuda_queue_return(struct np_plan *plan, struct np_err *err)
{
    const struct np_cuda_arrays *a = &plan->arrays;
    void *stream = np_cuda_stream(plan);

    np_cuda_swap(
        stream, a->params, plan->kept[0], plan->train->dtype, a->half, plan->layout->nr_params);
    np_cuda_swap(stream, a->buffers, plan->kept[1], NP_CUDA_F32, NULL, plan->nr_buffers);
    return np_cuda_plan_check(plan, cudaPeekAtLastError(), "sam's way back", err);
}
