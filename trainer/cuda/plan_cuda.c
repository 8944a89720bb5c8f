/* A network on the GPU: weights and optimizer state as flat arrays, a training and an evaluation
 * program over one arena, and their CUDA graphs. The host queues a step with one launch and reads its
 * numbers a step later from memory that the device writes; it never waits for the step itself.
 * Trainer thread.
 *
 *     set_step (by value) -> graph: input ... backward -> norm -> update; numbers -> event
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/cuda/program_cuda.h"
#include "trainer/optim.h"
#include "trainer/plan.h"

#define F16_SCALE 65536.0f /* of the loss to begin with, as torch's GradScaler */

/* The first time a kind of step is queued call by call, so that every library has loaded what it
 * needs; then it is captured. */
struct captured {
    bool warm;
    cudaGraphExec_t exec;
};

struct np_plan {
    struct np_device *device;
    struct np_cuda *cuda;
    struct np_cuda_layout train_layout, eval_layout; /* places are the same in both */
    const struct np_cuda_layout *layout;
    struct np_cuda_program *train, *eval; /* train NULL: evaluation only */
    struct np_cuda_arrays arrays;
    float *state[2], *sum; /* of the optimizer; of gradients over an accumulation */
    uint8_t *decay;
    void *arena, *workspace, *norm_scratch;
    uint64_t nr_buffers; /* elements */
    struct captured step, step_update, eval_step;
    bool summing; /* sum holds batches that wait for their update */
    bool f16, decoupled;
    struct np_cuda_step now; /* what the device was last told */

    cudaEvent_t passed[NP_CUDA_SLOTS]; /* after the batch of that slot */
    uint64_t nr_batches, nr_folded;    /* queued so far; of these, in `metrics` */
    struct np_metrics metrics;
    struct np_engines *engines;         /* of this run */
    const struct np_cuda_program *last; /* whose logits are in the arena */
    int last_logits;
};

static cudaStream_t stream_of(const struct np_plan *plan)
{
    return plan->cuda->streams[NP_STREAM_COMPUTE];
}

static int check(
    const struct np_plan *plan, cudaError_t status, const char *what, struct np_err *err)
{
    return np_cuda_check(plan->device, status, what, err);
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Zeroed. bytes 0 gives something, too. */
static int take(struct np_plan *plan, uint64_t bytes, void **ret_memory, struct np_err *err)
{
    void *memory = NULL;
    int code = check(plan, cudaMalloc(&memory, bytes ? bytes : 1), "device memory", err);

    if (code < 0)
        return code;
    *ret_memory = memory;
    return check(plan, cudaMemsetAsync(memory, 0, bytes, stream_of(plan)), "device memory", err);
}

static int take_floats(struct np_plan *plan, float **ret_memory, struct np_err *err)
{
    void *memory = NULL;
    int code = take(plan, plan->layout->nr_params * sizeof(float), &memory, err);

    *ret_memory = memory;
    return code;
}

static int take_arrays(struct np_plan *plan, bool training, bool halves, struct np_err *err)
{
    uint64_t n = plan->layout->nr_params;
    struct np_cuda_arrays *arrays = &plan->arrays;
    void *memory = NULL;
    int code = take_floats(plan, &arrays->params, err);

    if (code == 0 && (code = take(plan, plan->nr_buffers * sizeof(float), &memory, err)) == 0)
        arrays->buffers = memory;
    if (code == 0 && halves)
        code = take(plan, n * 2, &arrays->half, err);
    if (code == 0 && halves && training)
        code = take(plan, plan->layout->nr_convs * 2, &arrays->half_grads, err);
    if (code == 0 && training)
        code = take_floats(plan, &arrays->grads, err);
    if (code == 0 && training)
        code = take_floats(plan, &plan->state[0], err);
    if (code == 0 && (code = take(plan, n / NP_CUDA_CHUNK + 1, &memory, err)) == 0) {
        plan->decay = memory;
        code = check(plan,
            cudaMemcpyAsync(memory, plan->layout->decay, n / NP_CUDA_CHUNK, cudaMemcpyHostToDevice,
                stream_of(plan)),
            "a copy", err);
    }
    if (code == 0 && (code = take(plan, sizeof(*arrays->step), &memory, err)) == 0)
        arrays->step = memory;
    if (code == 0 && (code = take(plan, sizeof(*arrays->scaler), &memory, err)) == 0)
        arrays->scaler = memory;
    if (code == 0 && training)
        code = take(plan, np_cuda_norm_scratch(n), &plan->norm_scratch, err);
    return code;
}

/* Numbers lie with the host, where the device can write them. */
static int take_numbers(struct np_plan *plan, struct np_err *err)
{
    void *numbers = NULL;
    int code = check(plan,
        cudaHostAlloc(
            &numbers, NP_CUDA_SLOTS * sizeof(struct np_cuda_numbers), cudaHostAllocMapped),
        "pinned memory", err);

    if (code < 0)
        return code;
    plan->arrays.numbers = numbers; /* one address for both: unified addressing */
    memset(numbers, 0, NP_CUDA_SLOTS * sizeof(struct np_cuda_numbers));
    for (int i = 0; code == 0 && i < NP_CUDA_SLOTS; i++)
        code = check(plan, cudaEventCreateWithFlags(&plan->passed[i], cudaEventDisableTiming),
            "an event", err);
    return code;
}

/* As it begins, or as a checkpoint has it: "scaler SCALE GOOD". */
static int set_scaler(struct np_plan *plan, const char *state, struct np_err *err)
{
    struct np_cuda_scaler scaler = {.scale = plan->f16 ? F16_SCALE : 1, .grad_scale = 1};

    if (plan->f16 && state && strncmp(state, "scaler ", 7) == 0 &&
        (sscanf(state + 7, "%g %d", &scaler.scale, &scaler.good) != 2 || !(scaler.scale > 0)))
        return np_err_set(err, -EBADMSG, "the loss scale of the checkpoint is malformed");

    return check(plan,
        cudaMemcpyAsync(
            plan->arrays.scaler, &scaler, sizeof(scaler), cudaMemcpyHostToDevice, stream_of(plan)),
        "a copy", err);
}

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The largest batch whose activations would fit, with the message of what does not. */
static int too_large(struct np_plan *plan, uint64_t arena, int batch, struct np_err *err)
{
    size_t free_bytes = 0, all = 0;
    double fits;

    cudaMemGetInfo(&free_bytes, &all);
    fits = (double)free_bytes / (double)(arena ? arena : 1) * batch * 0.95;
    return np_err_set(err, -ENOMEM,
        "%s: the activations of a batch of %d take %.2f GB, and %.2f of its %.2f GB are free "
        "beside "
        "the weights; %s %d",
        plan->device->name, batch, (double)arena * 1e-9, (double)free_bytes * 1e-9,
        (double)all * 1e-9,
        fits >= 1 ? "a loader.batch that would fit:" : "no batch fits; a batch of 1 has to, not",
        fits >= 1 ? (int)fits : 0);
}

static int take_arena(struct np_plan *plan, int batch, struct np_err *err)
{
    uint64_t arena = 0, workspace = 0;
    struct np_err why = {0};
    int code;

    if (plan->train) {
        arena = np_cuda_program_arena_bytes(plan->train);
        workspace = np_cuda_program_workspace_bytes(plan->train);
    }
    if (plan->eval) {
        arena = greater(arena, np_cuda_program_arena_bytes(plan->eval));
        workspace = greater(workspace, np_cuda_program_workspace_bytes(plan->eval));
    }
    code = take(plan, workspace, &plan->workspace, &why);
    if (code == 0)
        code = take(plan, arena, &plan->arena, &why);
    if (code == -ENOMEM)
        return too_large(plan, arena + workspace, batch, err);
    if (code < 0)
        return np_err_set(err, code, "%s", why.text);
    if (plan->train)
        code = np_cuda_program_bind(plan->train, plan->arena, plan->workspace, err);
    if (code == 0 && plan->eval)
        code = np_cuda_program_bind(plan->eval, plan->arena, plan->workspace, err);
    return code;
}

static int add_program(struct np_plan *plan, const struct np_graph *graph, bool deterministic,
    struct np_cuda_layout *layout, struct np_cuda_program **ret_program, struct np_err *err)
{
    struct np_cuda_arrays arrays = plan->arrays;

    arrays.layout = layout;
    return np_cuda_program_new(plan->cuda, graph, &arrays, deterministic, ret_program, err);
}

static int add_layout(
    const struct np_graph *graph, struct np_cuda_layout *layout, struct np_err *err)
{
    struct np_graph *device = np_cuda_graph(graph);
    int code = device ? np_cuda_layout_init(layout, graph, device, err)
                      : np_err_set(err, -ENOMEM, "no memory for the graph");

    np_graph_free(device);
    return code;
}

/* A checkpoint's engines come first; a new run's from the cache, or timed. Timing runs weight
 * gradients into their arrays, which the first step writes anew. */
static int tune(struct np_plan *plan, const char *state, struct np_err *err)
{
    int code = 0, timed = 0;

    plan->engines = np_engines_new();
    if (!plan->engines)
        return np_err_set(err, -ENOMEM, "no memory for the choice of engines");
    if (state)
        code = np_engines_parse(plan->engines, state, err);
    else
        np_engines_load(plan->engines, plan->cuda);
    if (code == 0 && plan->train)
        code = np_cuda_program_tune(plan->train, plan->engines, &timed, err);
    if (code == 0 && plan->eval)
        code = np_cuda_program_tune(plan->eval, plan->engines, &timed, err);
    if (code == 0 && timed > 0 && !state)
        np_engines_save(plan->engines, plan->cuda);
    return code;
}

static void plan_free(struct np_plan *plan);

static int plan_prepare(struct np_device *device, const struct np_graph *train,
    const struct np_graph *eval, const struct np_plan_options *options, struct np_plan **ret_plan,
    struct np_err *err)
{
    const struct np_graph *graph = train ? train : eval;
    enum np_dtype precision = graph->tensors[graph->input].dtype;
    struct np_plan *plan = np_alloc(sizeof(*plan));
    int code = 0;

    if (!plan)
        return np_err_set(err, -ENOMEM, "no memory for a plan");
    plan->device = device;
    plan->cuda = device->state;
    plan->nr_buffers = graph->nr_buffers;
    plan->f16 = precision == NP_F16;
    plan->last_logits = graph->logits;
    if (train)
        code = add_layout(train, &plan->train_layout, err);
    if (code == 0 && eval)
        code = add_layout(eval, &plan->eval_layout, err);
    plan->layout = train ? &plan->train_layout : &plan->eval_layout;
    if (code == 0)
        code = take_arrays(plan, train != NULL, precision != NP_F32, err);
    if (code == 0)
        code = take_numbers(plan, err);
    if (code == 0)
        code = set_scaler(plan, options->state, err);
    if (code == 0 && train)
        code = add_program(
            plan, train, options->deterministic, &plan->train_layout, &plan->train, err);
    if (code == 0 && eval)
        code =
            add_program(plan, eval, options->deterministic, &plan->eval_layout, &plan->eval, err);
    if (code == 0)
        code = take_arena(plan, graph->batch, err);
    if (code == 0)
        code = tune(plan, options->state, err);
    if (code == 0)
        code = check(plan, cudaStreamSynchronize(stream_of(plan)), "to prepare", err);
    if (code < 0)
        plan_free(plan);
    else
        *ret_plan = plan;
    return code;
}

static void plan_free(struct np_plan *plan)
{
    struct captured *const all[] = {&plan->step, &plan->step_update, &plan->eval_step};
    void *const memory[] = {plan->arrays.params, plan->arrays.grads, plan->arrays.half,
        plan->arrays.half_grads, plan->arrays.buffers, plan->arrays.step, plan->arrays.scaler,
        plan->state[0], plan->state[1], plan->sum, plan->decay, plan->arena, plan->workspace,
        plan->norm_scratch};

    cudaStreamSynchronize(stream_of(plan));
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i]->exec)
            cudaGraphExecDestroy(all[i]->exec);
    np_cuda_program_free(plan->train);
    np_cuda_program_free(plan->eval);
    np_cuda_layout_fini(&plan->train_layout);
    np_cuda_layout_fini(&plan->eval_layout);
    np_engines_free(plan->engines);
    for (size_t i = 0; i < sizeof(memory) / sizeof(*memory); i++)
        if (memory[i])
            cudaFree(memory[i]);
    if (plan->arrays.numbers)
        cudaFreeHost(plan->arrays.numbers);
    for (int i = 0; i < NP_CUDA_SLOTS; i++)
        if (plan->passed[i])
            cudaEventDestroy(plan->passed[i]);
    np_free(plan);
}

/* --- numbers --------------------------------------------------------------------------------- */

/* Adds the numbers of the batches before `end`, waiting for them. */
static int fold(struct np_plan *plan, uint64_t end, struct np_err *err)
{
    for (; plan->nr_folded < end; plan->nr_folded++) {
        const struct np_cuda_numbers *numbers =
            &plan->arrays.numbers[plan->nr_folded % NP_CUDA_SLOTS];
        int code = check(plan, cudaEventSynchronize(plan->passed[plan->nr_folded % NP_CUDA_SLOTS]),
            "a step", err);

        if (code < 0)
            return code;
        plan->metrics.loss_sum += numbers->loss_sum;
        plan->metrics.rows += numbers->rows;
        plan->metrics.correct += numbers->correct;
        plan->metrics.top5 += numbers->top5;
        if (numbers->grad_norm > 0)
            plan->metrics.grad_norm = numbers->grad_norm;
    }
    return 0;
}

static int plan_metrics(
    struct np_plan *plan, bool but_last, struct np_metrics *ret_metrics, struct np_err *err)
{
    uint64_t end = plan->nr_batches - (but_last && plan->nr_batches > plan->nr_folded);
    int code = fold(plan, end, err);

    if (code < 0)
        return code;
    *ret_metrics = plan->metrics;
    plan->metrics = (struct np_metrics){0};
    return 0;
}

/* --- steps ----------------------------------------------------------------------------------- */

/* Tells the device about the batch; its slot must be free. */
static int announce(
    struct np_plan *plan, const void *images, const void *labels, struct np_err *err)
{
    int code = 0;

    if (plan->nr_batches >= NP_CUDA_SLOTS)
        code = fold(plan, plan->nr_batches - NP_CUDA_SLOTS + 1, err);
    plan->now.images = images;
    plan->now.labels = labels;
    plan->now.slot = plan->nr_batches;
    np_cuda_set_step(stream_of(plan), plan->arrays.step, &plan->now);
    return code;
}

static void set_hyper(struct np_cuda_step *step, const struct np_hyper *hyper)
{
    double t = (double)hyper->update + 1;
    double bias1 = 1 - pow(hyper->beta1, t), bias2 = 1 - pow(hyper->beta2, t);

    step->lr = hyper->lr;
    step->momentum = hyper->momentum;
    step->weight_decay = hyper->weight_decay;
    step->eps = hyper->eps;
    step->clip_norm = hyper->clip_norm;
    step->nesterov = hyper->nesterov;
    step->decoupled = hyper->decoupled;
    if (!hyper->decoupled)
        return;
    step->keep = (float)(1 - (double)hyper->lr * hyper->weight_decay);
    step->one_minus_beta1 = (float)(1 - hyper->beta1);
    step->beta2 = (float)hyper->beta2;
    step->one_minus_beta2 = (float)(1 - hyper->beta2);
    step->adamw_step = (float)(hyper->lr / bias1);
    step->root_bias = (float)sqrt(bias2);
}

static void queue_update(struct np_plan *plan, const float *grads)
{
    const struct np_cuda_arrays *a = &plan->arrays;
    uint64_t n = plan->layout->nr_params;
    struct np_cuda_program *program = plan->train;
    enum np_dtype dtype =
        np_cuda_program_graph(program)->tensors[np_cuda_program_graph(program)->input].dtype;

    np_cuda_norm(
        stream_of(plan), a->step, a->scaler, grads, n, plan->f16, a->numbers, plan->norm_scratch);
    np_cuda_update(stream_of(plan), a->step, a->scaler, a->params, plan->state[0], plan->state[1],
        grads, plan->decay, (enum np_cuda_dtype)dtype, a->half, n);
}

enum kind { STEP, STEP_UPDATE, EVAL };

static int queue_kind(struct np_plan *plan, enum kind kind, struct np_err *err)
{
    int code = np_cuda_program_queue(kind == EVAL ? plan->eval : plan->train, err);

    if (code == 0 && kind == STEP_UPDATE)
        queue_update(plan, plan->arrays.grads);
    return code == 0 ? check(plan, cudaPeekAtLastError(), "a kernel", err) : code;
}

static int capture(
    struct np_plan *plan, enum kind kind, struct captured *captured, struct np_err *err)
{
    cudaGraph_t graph = NULL;
    int code =
        check(plan, cudaStreamBeginCapture(stream_of(plan), cudaStreamCaptureModeThreadLocal),
            "to capture a step", err);

    if (code < 0)
        return code;
    code = queue_kind(plan, kind, err);
    cudaError_t status = cudaStreamEndCapture(stream_of(plan), &graph);
    if (code == 0)
        code = check(plan, status, "to capture a step", err);
    if (code == 0)
        code = check(plan, cudaGraphInstantiate(&captured->exec, graph, 0),
            "to make a graph of a step", err);
    if (graph)
        cudaGraphDestroy(graph);
    return code;
}

/* Queues a step of this kind, and the event behind it. */
static int queue(struct np_plan *plan, enum kind kind, struct np_err *err)
{
    struct captured *captured = kind == EVAL   ? &plan->eval_step
                                : kind == STEP ? &plan->step
                                               : &plan->step_update;
    int code = 0;

    if (captured->warm && !captured->exec)
        code = capture(plan, kind, captured, err);
    if (code == 0)
        code = captured->exec
                   ? check(plan, cudaGraphLaunch(captured->exec, stream_of(plan)), "a step", err)
                   : queue_kind(plan, kind, err);
    captured->warm = true;
    plan->last = kind == EVAL ? plan->eval : plan->train;
    return code;
}

/* The batch is queued whole, its update included. */
static int finish(struct np_plan *plan, struct np_err *err)
{
    int code = check(plan,
        cudaEventRecord(plan->passed[plan->nr_batches % NP_CUDA_SLOTS], stream_of(plan)),
        "an event", err);

    plan->nr_batches++;
    return code;
}

static int second_state(struct np_plan *plan, struct np_err *err)
{
    return plan->state[1] ? 0 : take_floats(plan, &plan->state[1], err);
}

static int add_up(struct np_plan *plan, bool first, struct np_err *err)
{
    int code = plan->sum ? 0 : take_floats(plan, &plan->sum, err);

    if (code == 0)
        np_cuda_accumulate(
            stream_of(plan), plan->arrays.grads, plan->sum, first, plan->layout->nr_params);
    return code;
}

static int plan_step(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
    float loss_scale, bool accumulate, struct np_err *err)
{
    int code = 0;

    if (accumulate && !plan->summing) {
        code = add_up(plan, true, err); /* the first batch's */
        plan->summing = true;
    }
    plan->now.step = step;
    plan->now.loss_scale = loss_scale;
    if (code == 0)
        code = announce(plan, images, labels, err);
    if (code == 0)
        code = queue(plan, STEP, err);
    if (code == 0 && accumulate)
        code = add_up(plan, false, err);
    return code == 0 ? finish(plan, err) : code;
}

/* After plan_step(): the norm goes to the newest batch's numbers, whose event moves behind it. */
static int plan_update(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    int code = hyper->decoupled ? second_state(plan, err) : 0;

    if (code < 0)
        return code;
    set_hyper(&plan->now, hyper);
    np_cuda_set_step(stream_of(plan), plan->arrays.step, &plan->now);
    queue_update(plan, plan->summing ? plan->sum : plan->arrays.grads);
    plan->summing = false;
    if ((code = check(plan, cudaPeekAtLastError(), "an update", err)) < 0)
        return code;
    plan->nr_batches--;
    return finish(plan, err);
}

/* Both at once, as one graph. */
static int plan_step_update(struct np_plan *plan, const void *images, const void *labels,
    uint64_t step, float loss_scale, const struct np_hyper *hyper, struct np_err *err)
{
    int code = hyper->decoupled ? second_state(plan, err) : 0;

    if (plan->decoupled != hyper->decoupled &&
        plan->step_update.exec) { /* other arrays: another graph */
        cudaGraphExecDestroy(plan->step_update.exec);
        plan->step_update.exec = NULL;
    }
    plan->decoupled = hyper->decoupled;
    plan->now.step = step;
    plan->now.loss_scale = loss_scale;
    set_hyper(&plan->now, hyper);
    plan->summing = false;
    if (code == 0)
        code = announce(plan, images, labels, err);
    if (code == 0)
        code = queue(plan, STEP_UPDATE, err);
    return code == 0 ? finish(plan, err) : code;
}

static int plan_eval(
    struct np_plan *plan, const void *images, const void *labels, struct np_err *err)
{
    int code = announce(plan, images, labels, err);

    if (code == 0)
        code = queue(plan, EVAL, err);
    return code == 0 ? finish(plan, err) : code;
}

/* --- arrays ---------------------------------------------------------------------------------- */

static float *array_of(struct np_plan *plan, int array)
{
    switch (array) {
    case NP_ARRAY_PARAMS: return plan->arrays.params;
    case NP_ARRAY_BUFFERS: return plan->arrays.buffers;
    case NP_ARRAY_STATE0: return plan->state[0];
    case NP_ARRAY_STATE1: return plan->state[1];
    case NP_ARRAY_GRADS: return plan->summing ? plan->sum : plan->arrays.grads;
    default: return NULL;
    }
}

/* The device's array, and a host's one of its size; buffers lie as in the files. */
static int begin_copy(struct np_plan *plan, int array, float **ret_device, float **ret_host,
    uint64_t *ret_bytes, struct np_err *err)
{
    if (array == NP_ARRAY_STATE1 && plan->train && second_state(plan, err) < 0)
        return -ENOMEM;
    *ret_device = array_of(plan, array);
    if (!*ret_device)
        return np_err_set(err, -EINVAL, "this plan only evaluates: it has no array %d", array);
    *ret_bytes =
        (array == NP_ARRAY_BUFFERS ? plan->nr_buffers : plan->layout->nr_params) * sizeof(float);
    *ret_host = np_alloc(*ret_bytes + 1);
    return *ret_host ? 0 : np_err_set(err, -ENOMEM, "no memory to copy an array");
}

/* f16's gradients carry the loss's scale. */
static int unscale(struct np_plan *plan, float *grads, uint64_t n, struct np_err *err)
{
    struct np_cuda_scaler scaler;
    int code = check(plan,
        cudaMemcpy(&scaler, plan->arrays.scaler, sizeof(scaler), cudaMemcpyDeviceToHost), "a copy",
        err);

    for (uint64_t i = 0; code == 0 && i < n; i++)
        grads[i] /= scaler.scale;
    return code;
}

static int plan_read(struct np_plan *plan, int array, float *out, struct np_err *err)
{
    float *device, *host = NULL;
    uint64_t bytes;
    int code = begin_copy(plan, array, &device, &host, &bytes, err);

    if (code == 0)
        code = check(plan,
            cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_of(plan)), "a copy",
            err);
    if (code == 0)
        code = check(plan, cudaStreamSynchronize(stream_of(plan)), "a copy", err);
    if (code == 0 && array == NP_ARRAY_GRADS && plan->f16)
        code = unscale(plan, host, bytes / sizeof(float), err);
    if (code == 0 && array == NP_ARRAY_BUFFERS)
        memcpy(out, host, bytes);
    else if (code == 0)
        np_cuda_layout_unpack(plan->layout, host, out);
    np_free(host);
    return code;
}

static int plan_write(struct np_plan *plan, int array, const float *in, struct np_err *err)
{
    float *device, *host = NULL;
    uint64_t bytes;
    int code = begin_copy(plan, array, &device, &host, &bytes, err);

    if (code == 0 && array == NP_ARRAY_BUFFERS)
        memcpy(host, in, bytes);
    else if (code == 0)
        np_cuda_layout_pack(plan->layout, in, host);
    if (code == 0)
        code = check(plan,
            cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_of(plan)), "a copy",
            err);
    if (code == 0 && array == NP_ARRAY_PARAMS && plan->arrays.half)
        np_cuda_cast(stream_of(plan), NP_CUDA_F32, device, plan->f16 ? NP_CUDA_F16 : NP_CUDA_BF16,
            plan->arrays.half, plan->layout->nr_params);
    if (code == 0)
        code = check(plan, cudaStreamSynchronize(stream_of(plan)), "a copy", err);
    np_free(host);
    return code;
}

/* --- logits ---------------------------------------------------------------------------------- */

static int plan_logits(struct np_plan *plan, float *out, struct np_err *err)
{
    const struct np_graph *graph;
    const struct np_tensor *logits;
    void *f32 = NULL;
    uint64_t n;
    int code;

    if (!plan->last)
        return np_err_set(err, -EINVAL, "no batch has been run yet");
    graph = np_cuda_program_graph(plan->last);
    logits = &graph->tensors[graph->logits];
    n = np_tensor_elements(logits);
    if ((code = take(plan, n * sizeof(float), &f32, err)) < 0)
        return code;
    np_cuda_cast(stream_of(plan), (enum np_cuda_dtype)logits->dtype,
        np_cuda_program_tensor(plan->last, graph->logits), NP_CUDA_F32, f32, n);
    code = check(plan,
        cudaMemcpyAsync(out, f32, n * sizeof(float), cudaMemcpyDeviceToHost, stream_of(plan)),
        "a copy", err);
    if (code == 0)
        code = check(plan, cudaStreamSynchronize(stream_of(plan)), "a copy", err);
    cudaFree(f32);
    return code;
}

static int plan_state(struct np_plan *plan, char **ret_text, struct np_err *err)
{
    struct np_cuda_scaler scaler;
    char *text = NULL;
    int code = check(plan,
        cudaMemcpyAsync(
            &scaler, plan->arrays.scaler, sizeof(scaler), cudaMemcpyDeviceToHost, stream_of(plan)),
        "a copy", err);

    if (code == 0)
        code = check(plan, cudaStreamSynchronize(stream_of(plan)), "a copy", err);
    if (code == 0 && plan->f16) {
        text = np_format("scaler %.9g %d\n", (double)scaler.scale, scaler.good);
        code = text ? 0 : np_err_set(err, -ENOMEM, "out of memory");
    }
    if (code == 0)
        code = np_engines_print(plan->engines, &text, err);
    if (code < 0)
        np_free(text);
    else
        *ret_text = text;
    return code;
}

const struct np_plan_ops np_cuda_plan_ops = {
    .prepare = plan_prepare,
    .free = plan_free,
    .step = plan_step,
    .update = plan_update,
    .step_update = plan_step_update,
    .eval = plan_eval,
    .metrics = plan_metrics,
    .read = plan_read,
    .write = plan_write,
    .state = plan_state,
    .logits = plan_logits,
};
