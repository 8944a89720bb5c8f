/* A plan's memory on the GPU, and copies to and from it. Copies use the compute stream and wait
 * for it: weights are read only for checkpoints. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/plan_memory.h"
#include "trainer/feed.h"
#include "trainer/optim.h"

#define F16_SCALE 65536.0f /* of the loss to begin with, as torch's GradScaler */
#define HASHES    (NP_ARRAY_GRADS * NP_CUDA_HASH_PARTS)

/* --- memory ---------------------------------------------------------------------------------- */

int np_cuda_take(struct np_plan *plan, uint64_t bytes, void *ret_memory, struct np_err *err)
{
    void *memory = NULL;
    int code =
        np_cuda_plan_check(plan, cudaMalloc(&memory, bytes ? bytes : 1), "device memory", err);

    if (code < 0)
        return code;
    memcpy(ret_memory, &memory, sizeof(memory));
    return np_cuda_plan_check(
        plan, cudaMemsetAsync(memory, 0, bytes, np_cuda_stream(plan)), "device memory", err);
}

static int wait_for(struct np_plan *plan, struct np_err *err)
{
    const cudaError_t status = cudaStreamSynchronize(np_cuda_stream(plan));
    const int code = np_cuda_sums_check(plan->sums, err);

    return code < 0 ? code : np_cuda_plan_check(plan, status, "a copy", err);
}

/* Queues the copy: `from` must stay valid. */
static int upload(
    struct np_plan *plan, void *to, const void *from, uint64_t bytes, struct np_err *err)
{
    return np_cuda_plan_check(plan,
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, np_cuda_stream(plan)), "a copy",
        err);
}

static int download(
    struct np_plan *plan, void *to, const void *from, uint64_t bytes, struct np_err *err)
{
    int code = np_cuda_plan_check(plan,
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, np_cuda_stream(plan)), "a copy",
        err);

    return code == 0 ? wait_for(plan, err) : code;
}

static int take_arrays(struct np_plan *plan, bool training, bool halves, struct np_err *err)
{
    uint64_t n = plan->layout->nr_params;
    struct np_cuda_arrays *arrays = &plan->arrays;
    const struct {
        void *to; /* a pointer of any type */
        uint64_t bytes;
        bool needed;
    } all[] = {
        {&arrays->params, n * sizeof(float), true},
        {&arrays->buffers, plan->nr_buffers * sizeof(float), true},
        {&arrays->half, n * 2, halves},
        {&arrays->half_grads, plan->layout->nr_convs * 2, halves && training},
        {&arrays->grads, n * sizeof(float), training},
        {&plan->state[0], n * sizeof(float), training},
        {&plan->rule_of, n / NP_CUDA_CHUNK + 1, true},
        {&plan->scalars, (uint64_t)plan->layout->nr_rules * sizeof(*plan->scalars), training},
        {&arrays->step, sizeof(*arrays->step), true},
        {&arrays->scaler, sizeof(*arrays->scaler), true},
        {&plan->norm_scratch, np_cuda_norm_scratch(n), training},
    };
    int code = 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(*all) && code == 0; i++)
        if (all[i].needed)
            code = np_cuda_take(plan, all[i].bytes, all[i].to, err);
    return code == 0 ? upload(plan, plan->rule_of, plan->layout->rule_of, n / NP_CUDA_CHUNK, err)
                     : code;
}

/* Only for messages, so errors are ignored. */
static void ask_memory(size_t *ret_free, size_t *ret_all)
{
    if (cudaMemGetInfo(ret_free, ret_all) != cudaSuccess)
        cudaGetLastError();
}

/* The device writes the numbers into host memory. */
static int take_numbers(struct np_plan *plan, struct np_err *err)
{
    void *numbers = NULL;
    int code = np_cuda_plan_check(plan,
        cudaHostAlloc(
            &numbers, NP_CUDA_SLOTS * sizeof(struct np_cuda_numbers), cudaHostAllocMapped),
        "pinned memory", err);

    if (code < 0)
        return code;
    plan->arrays.numbers = numbers; /* one address for both: unified addressing */
    memset(numbers, 0, NP_CUDA_SLOTS * sizeof(struct np_cuda_numbers));
    for (int i = 0; code == 0 && i < NP_CUDA_SLOTS; i++)
        code = np_cuda_plan_check(plan,
            cudaEventCreateWithFlags(&plan->passed[i],
                cudaEventDisableTiming | cudaEventBlockingSync), /* readers decode */
            "an event", err);
    return code;
}

int np_cuda_take_losses(struct np_plan *plan, const struct np_graph *graph, struct np_err *err)
{
    void *losses = NULL;
    const size_t bytes = NP_CUDA_SLOTS * (size_t)graph->batch * sizeof(float);
    int code = np_cuda_plan_check(
        plan, cudaHostAlloc(&losses, bytes, cudaHostAllocMapped), "pinned memory", err);

    plan->arrays.losses = code < 0 ? NULL : losses;
    return code;
}

int np_cuda_take_weights(struct np_plan *plan, const struct np_graph *train, struct np_err *err)
{
    const uint64_t bytes = (uint64_t)train->classes * sizeof(float);
    int code =
        train->class_weights ? np_cuda_take(plan, bytes, &plan->arrays.class_weights, err) : 0;

    if (code < 0 || !train->class_weights)
        return code;
    return upload(plan, plan->arrays.class_weights, train->class_weights, bytes, err);
}

/* Sets the initial loss scale, or that of a checkpoint's state: "scaler SCALE GOOD". */
static int set_scaler(struct np_plan *plan, const char *state, struct np_err *err)
{
    struct np_cuda_scaler *scaler = &plan->scaler_start;

    *scaler = (struct np_cuda_scaler){.scale = plan->f16 ? F16_SCALE : 1, .grad_scale = 1};
    if (plan->f16 && state && strncmp(state, "scaler ", 7) == 0 &&
        (sscanf(state + 7, "%g %d", &scaler->scale, &scaler->good) != 2 || !(scaler->scale > 0)))
        return np_err_set(err, -EBADMSG, "the loss scale of the checkpoint is malformed");
    return upload(plan, plan->arrays.scaler, scaler, sizeof(*scaler), err);
}

int np_cuda_take_arrays(
    struct np_plan *plan, bool training, bool halves, const char *state, struct np_err *err)
{
    uint64_t n = plan->layout->nr_params;
    size_t free_bytes = 0, all = 0;
    struct np_err why = {0};
    int code;

    ask_memory(&free_bytes, &all);
    code = take_arrays(plan, training, halves, &why);
    if (code == -ENOMEM)
        return np_err_set(err, code,
            "%s: %llu parameters%s take %.3f GB, and %.3f of its %.3f GB are free; no batch fits: "
            "the model is too large",
            plan->device->name, (unsigned long long)n,
            training ? " with gradients and momentum" : "",
            (double)n * (4 + 2 * halves + 8 * training) * 1e-9, (double)free_bytes * 1e-9,
            (double)all * 1e-9);
    if (code < 0)
        return np_err_set(err, code, "%s", why.text);
    code = take_numbers(plan, err);
    return code == 0 ? set_scaler(plan, state, err) : code;
}

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The feed's pixels and labels, which are allocated later. */
static uint64_t feed_bytes(const struct np_graph *graph)
{
    return NP_FEED_BUFFERS *
           (np_tensor_elements(&graph->tensors[graph->input]) +
               np_tensor_elements(&graph->tensors[graph->labels]) * sizeof(int32_t));
}

/* True: train.recompute is off, or saves nothing; false, too, where nothing is trained. */
static bool keeps_all(const struct np_plan *plan)
{
    const struct np_graph *graph = plan->train ? plan->train->graph : NULL;

    for (int n = 0; graph && n < graph->nr_nodes; n++)
        if (graph->nodes[n].again >= 0)
            return false;
    return graph != NULL;
}

/* Reports a batch's memory and the batch that would fit: activations grow with the batch, the
 * workspace does not. */
static int too_large(struct np_plan *plan, size_t free_bytes, size_t all, uint64_t activations,
    uint64_t workspace, int batch, struct np_err *err)
{
    double room = ((double)free_bytes - (double)workspace) * 0.95;
    int fits = room > 0 ? (int)(room / (double)activations * batch) : 0;
    char advice[64] = "not even a batch of 1 fits";

    if (fits > 0)
        snprintf(advice, sizeof(advice), "loader.batch: %d would fit", fits);
    return np_err_set(err, -ENOMEM,
        "%s: a batch of %d takes %.3f GB and %.3f GB of workspace, and %.3f of its "
        "%.3f GB are free beside the weights; %s%s",
        plan->device->name, batch, (double)activations * 1e-9, (double)workspace * 1e-9,
        (double)free_bytes * 1e-9, (double)all * 1e-9, advice,
        keeps_all(plan) ? "; train.recompute: true takes less for a batch" : "");
}

static uint64_t workspace_bytes(const struct np_plan *plan)
{
    return greater(plan->train ? np_cuda_program_workspace_bytes(plan->train) : 0,
        plan->eval ? np_cuda_program_workspace_bytes(plan->eval) : 0);
}

static int bind(struct np_plan *plan, struct np_err *err)
{
    int code = 0;

    if (plan->train)
        code = np_cuda_program_bind(plan->train, plan->arena, plan->workspace, err);
    if (code == 0 && plan->eval)
        code = np_cuda_program_bind(plan->eval, plan->arena, plan->workspace, err);
    return code;
}

int np_cuda_take_arena(struct np_plan *plan, const struct np_graph *graph, struct np_err *err)
{
    uint64_t arena = greater(plan->train ? plan->train->memory.arena_bytes : 0,
        plan->eval ? plan->eval->memory.arena_bytes : 0);
    size_t free_bytes = 0, all = 0;
    struct np_err why = {0};
    int code;

    plan->workspace_bytes = workspace_bytes(plan);
    ask_memory(&free_bytes, &all);
    code = np_cuda_take(plan, plan->workspace_bytes, &plan->workspace, &why);
    if (code == 0)
        code = np_cuda_take(plan, arena, &plan->arena, &why);
    if (code == -ENOMEM)
        return too_large(plan, free_bytes, all, arena + feed_bytes(graph), plan->workspace_bytes,
            graph->batch, err);
    if (code < 0)
        return np_err_set(err, code, "%s", why.text);
    return bind(plan, err);
}

/* No queued work uses the workspace: the last trial has ended. */
int np_cuda_settle_memory(struct np_plan *plan, struct np_err *err)
{
    uint64_t n = plan->layout->nr_params, bytes = workspace_bytes(plan);
    int code = np_cuda_plan_check(plan,
        cudaMemsetAsync(plan->arrays.params, 0, n * sizeof(float), np_cuda_stream(plan)),
        "device memory", err);

    if (code == 0 && plan->arrays.half)
        code = np_cuda_plan_check(plan,
            cudaMemsetAsync(plan->arrays.half, 0, n * 2, np_cuda_stream(plan)), "device memory",
            err);
    if (code < 0 || bytes == plan->workspace_bytes)
        return code;
    cudaFree(plan->workspace);
    plan->workspace = NULL;
    plan->workspace_bytes = bytes;
    code = np_cuda_take(plan, bytes, &plan->workspace, err);
    return code == 0 ? bind(plan, err) : code;
}

int np_cuda_second_state(struct np_plan *plan, struct np_err *err)
{
    return plan->state[1]
               ? 0
               : np_cuda_take(plan, plan->layout->nr_params * sizeof(float), &plan->state[1], err);
}

/* Tensors lie behind one another in the order of their offsets, not of the graph. */
static int compare_starts(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static int take_lamb(struct np_plan *plan, struct np_err *err)
{
    const struct np_graph *graph = plan->layout->files;
    const uint64_t chunks = plan->layout->nr_params / NP_CUDA_CHUNK;
    uint32_t *starts = np_alloc_array((size_t)graph->nr_tensors + 1, sizeof(*starts));
    int n = 0;

    for (int t = 0; t < graph->nr_tensors; t++)
        if (graph->tensors[t].role == NP_ROLE_PARAM)
            starts[n++] = (uint32_t)(plan->layout->offsets[t] / NP_CUDA_CHUNK);
    qsort(starts, (size_t)n, sizeof(*starts), compare_starts);
    starts[n] = (uint32_t)chunks;
    plan->lamb.nr_tensors = n;
    int code = np_cuda_take(plan, 2 * chunks * sizeof(double), &plan->lamb.squares, err);
    if (code == 0)
        code = np_cuda_take(plan, chunks * sizeof(float), &plan->lamb.ratios, err);
    if (code == 0)
        code = np_cuda_take(plan, ((size_t)n + 1) * sizeof(*starts), &plan->lamb.starts, err);
    if (code == 0)
        code = upload(plan, plan->lamb.starts, starts, ((size_t)n + 1) * sizeof(*starts), err);
    if (code == 0)
        code = wait_for(plan, err);
    np_free(starts);
    return code;
}

int np_cuda_take_muon(struct np_plan *plan, struct np_err *err)
{
    const uint64_t bytes = plan->muon ? np_cuda_muon_bytes(plan->muon) : 0;
    size_t free_bytes = 0, all = 0;
    struct np_err why = {0};
    int code;

    if (!plan->muon)
        return 0;
    ask_memory(&free_bytes, &all);
    code = np_cuda_take(plan, bytes, &plan->muon_memory, &why);
    if (code == -ENOMEM)
        return np_err_set(err, code,
            "%s: muon's largest matrix takes %.3f GB to update, and %.3f of its %.3f GB are free "
            "beside the weights; no batch fits",
            plan->device->name, (double)bytes * 1e-9, (double)free_bytes * 1e-9,
            (double)all * 1e-9);
    if (code < 0)
        return np_err_set(err, code, "%s", why.text);
    return np_cuda_muon_bind(plan->muon, plan->muon_memory, err);
}

void np_cuda_drop_graph(struct np_plan *plan, enum np_cuda_kind kind)
{
    if (plan->captured[kind].exec)
        cudaGraphExecDestroy(plan->captured[kind].exec);
    plan->captured[kind] = (struct np_cuda_captured){0};
}

int np_cuda_take_optimizer(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    if (hyper->kind == NP_MUON && !plan->muon)
        return np_err_set(err, -EINVAL, "%s: this plan is not for muon", plan->device->name);
    if (plan->kind != hyper->kind || plan->iterations != hyper->iterations ||
        (plan->clip_norm == 0) != (hyper->clip_norm == 0)) {
        np_cuda_drop_graph(plan, NP_CUDA_STEP_UPDATE);
        np_cuda_drop_graph(plan, NP_CUDA_LAST);
    }
    plan->kind = hyper->kind;
    plan->iterations = hyper->iterations;
    plan->clip_norm = hyper->clip_norm;
    if (hyper->kind == NP_LAMB && !plan->lamb.starts && take_lamb(plan, err) < 0)
        return err->code;
    return np_hyper_states(hyper) > 1 ? np_cuda_second_state(plan, err) : 0;
}

/* Takes copies of params and buffers. */
static int take_copies(struct np_plan *plan, float *copies[2], struct np_err *err)
{
    const uint64_t sizes[] = {plan->layout->nr_params, plan->nr_buffers};
    int code = 0;

    for (int i = 0; i < 2 && code == 0; i++)
        if (!copies[i])
            code = np_cuda_take(plan, sizes[i] * sizeof(float), &copies[i], err);
    return code;
}

int np_cuda_take_averages(struct np_plan *plan, struct np_err *err)
{
    return take_copies(plan, plan->average, err);
}

int np_cuda_take_kept(struct np_plan *plan, struct np_err *err)
{
    return take_copies(plan, plan->kept, err) < 0
               ? np_err_context(err, "train.sam's copy of the weights")
               : 0;
}

int np_cuda_take_hashes(struct np_plan *plan, struct np_err *err)
{
    return np_cuda_take(plan, HASHES * sizeof(*plan->hashes), &plan->hashes, err);
}

void np_cuda_release_memory(struct np_plan *plan)
{
    void *const memory[] = {plan->arrays.params, plan->arrays.grads, plan->arrays.half,
        plan->arrays.half_grads, plan->arrays.buffers, plan->arrays.step, plan->arrays.scaler,
        plan->state[0], plan->state[1], plan->sum, plan->rule_of, plan->scalars, plan->arena,
        plan->workspace, plan->norm_scratch, plan->muon_memory, plan->lamb.starts,
        plan->lamb.squares, plan->lamb.ratios, plan->average[0], plan->average[1], plan->kept[0],
        plan->kept[1], plan->arrays.class_weights, plan->hashes};

    for (size_t i = 0; i < sizeof(memory) / sizeof(*memory); i++)
        if (memory[i])
            cudaFree(memory[i]);
    if (plan->arrays.numbers)
        cudaFreeHost(plan->arrays.numbers);
    if (plan->arrays.losses)
        cudaFreeHost(plan->arrays.losses);
    for (int i = 0; i < NP_CUDA_SLOTS; i++)
        if (plan->passed[i])
            cudaEventDestroy(plan->passed[i]);
}

/* --- copies ---------------------------------------------------------------------------------- */

int np_cuda_array(struct np_plan *plan, int array, float **ret_array, struct np_err *err)
{
    if (array == NP_ARRAY_STATE1 && plan->train && np_cuda_second_state(plan, err) < 0)
        return -ENOMEM;
    if ((array == NP_ARRAY_AVERAGE || array == NP_ARRAY_AVERAGE_BUFFERS) && plan->train &&
        np_cuda_take_averages(plan, err) < 0)
        return -ENOMEM;
    float *const arrays[] = {[NP_ARRAY_PARAMS] = plan->arrays.params,
        [NP_ARRAY_BUFFERS] = plan->arrays.buffers,
        [NP_ARRAY_STATE0] = plan->state[0],
        [NP_ARRAY_STATE1] = plan->state[1],
        [NP_ARRAY_AVERAGE] = plan->average[0],
        [NP_ARRAY_AVERAGE_BUFFERS] = plan->average[1],
        [NP_ARRAY_GRADS] = plan->summing ? plan->sum : plan->arrays.grads};
    *ret_array = arrays[array];
    return *ret_array
               ? 0
               : np_err_set(err, -EINVAL, "this plan is for evaluation: it has no array %d", array);
}

/* Returns the device's array, and allocates one of its size on the host; buffers have the files'
 * layout. */
static int begin_copy(struct np_plan *plan, int array, float **ret_device, float **ret_host,
    uint64_t *ret_bytes, struct np_err *err)
{
    const int code = np_cuda_array(plan, array, ret_device, err);

    if (code < 0)
        return code;
    *ret_bytes =
        (np_array_of_buffers(array) ? plan->nr_buffers : plan->layout->nr_params) * sizeof(float);
    *ret_host = np_try_alloc(*ret_bytes, err);
    return *ret_host ? 0 : -ENOMEM;
}

void np_cuda_whole_grads(struct np_plan *plan)
{
    if (plan->halves_only)
        np_cuda_program_cast(plan->train);
    plan->halves_only = false;
}

/* f16's gradients are multiplied by the loss scale. */
static int unscale(struct np_plan *plan, float *grads, uint64_t n, struct np_err *err)
{
    struct np_cuda_scaler scaler;
    int code = download(plan, &scaler, plan->arrays.scaler, sizeof(scaler), err);

    for (uint64_t i = 0; code == 0 && i < n; i++)
        grads[i] /= scaler.scale;
    return code;
}

int np_cuda_plan_read(struct np_plan *plan, int array, float *out, struct np_err *err)
{
    float *device, *host = NULL;
    uint64_t bytes;
    int code = begin_copy(plan, array, &device, &host, &bytes, err);

    if (code == 0 && array == NP_ARRAY_GRADS && !plan->summing)
        np_cuda_whole_grads(plan);
    if (code == 0)
        code = download(plan, host, device, bytes, err);
    if (code == 0 && array == NP_ARRAY_GRADS && plan->f16)
        code = unscale(plan, host, bytes / sizeof(float), err);
    if (code == 0 && np_array_of_buffers(array))
        memcpy(out, host, bytes);
    else if (code == 0)
        np_cuda_layout_unpack(plan->layout, host, out);
    np_free(host);
    return code;
}

int np_cuda_plan_write(struct np_plan *plan, int array, const float *in, struct np_err *err)
{
    float *device, *host = NULL;
    uint64_t bytes;
    int code = begin_copy(plan, array, &device, &host, &bytes, err);

    if (code == 0 && np_array_of_buffers(array))
        memcpy(host, in, bytes);
    else if (code == 0)
        np_cuda_layout_pack(plan->layout, in, host);
    if (code == 0)
        code = upload(plan, device, host, bytes, err);
    if (code == 0 && array == NP_ARRAY_PARAMS && plan->arrays.half)
        np_cuda_cast(np_cuda_stream(plan), NP_CUDA_F32, device,
            plan->f16 ? NP_CUDA_F16 : NP_CUDA_BF16, plan->arrays.half, plan->layout->nr_params);
    if (code == 0)
        code = wait_for(plan, err);
    np_free(host);
    return code;
}

int np_cuda_plan_hash(struct np_plan *plan, unsigned arrays, uint64_t *ret_hash, struct np_err *err)
{
    uint64_t parts[HASHES], first = 0, hash = 0;
    int code = 0;

    for (int i = 0; code == 0 && i < NP_ARRAY_GRADS; i++) {
        const uint64_t n = np_array_of_buffers(i) ? plan->nr_buffers : plan->layout->nr_params;
        float *array;

        if (arrays >> i & 1 && (code = np_cuda_array(plan, i, &array, err)) == 0)
            np_cuda_hash(np_cuda_stream(plan), array, n, first,
                plan->hashes + (size_t)i * NP_CUDA_HASH_PARTS);
        first += n;
    }
    if (code == 0)
        code = np_cuda_plan_check(plan, cudaPeekAtLastError(), "a hash", err);
    if (code == 0)
        code = download(plan, parts, plan->hashes, sizeof(parts), err);
    for (int i = 0; code == 0 && i < HASHES; i++)
        hash += parts[i];
    if (code == 0)
        *ret_hash = hash;
    return code;
}

int np_cuda_plan_logits(struct np_plan *plan, float *out, struct np_err *err)
{
    const struct np_cuda_program *last = plan->last;
    const struct np_tensor *logits;
    void *f32 = NULL;
    uint64_t n;
    int code;

    if (!last)
        return np_err_set(err, -EINVAL, "no batch has been run yet");
    logits = &last->graph->tensors[last->graph->logits];
    n = np_tensor_elements(logits);
    if ((code = np_cuda_take(plan, n * sizeof(float), &f32, err)) < 0)
        return code;
    np_cuda_cast(np_cuda_stream(plan), (enum np_cuda_dtype)logits->dtype,
        (const char *)last->arena + last->memory.offsets[last->graph->logits], NP_CUDA_F32, f32, n);
    code = download(plan, out, f32, n * sizeof(float), err);
    cudaFree(f32);
    return code;
}

char *np_cuda_state_text(const struct np_plan *plan, const struct np_cuda_scaler *scaler)
{
    char *text = plan->f16 ? np_format("scaler %.9g %d\n", (double)scaler->scale, scaler->good)
                           : np_strdup("");

    np_engines_print(plan->engines, &text);
    return text;
}

int np_cuda_plan_state(struct np_plan *plan, char **ret_text, struct np_err *err)
{
    struct np_cuda_scaler scaler;
    int code = download(plan, &scaler, plan->arrays.scaler, sizeof(scaler), err);

    if (code < 0)
        return code;
    *ret_text = np_cuda_state_text(plan, &scaler);
    return 0;
}
