/* See program_cuda.h. A node's operands are looked up once, at bind; what it queues is told in
 * calls_cuda.c. */
#include "trainer/cuda/program_cuda.h"

#include <errno.h>

#include "trainer/cuda/calls_cuda.h"

#define MAX_PLANS 12 /* of cuDNN's that are timed for a convolution */
#define NR_TRIALS 5  /* the fastest of these counts */

static const struct np_fusions fusions = {
    .bn_relu = true, .bn_add_relu = true, .conv_relu = true, .linear_relu = true, .add_relu = true};

static bool is_conv(enum np_op op)
{
    return op == NP_OP_CONV || op == NP_OP_CONV_DGRAD || op == NP_OP_CONV_WGRAD;
}

static bool is_linear(enum np_op op)
{
    return op == NP_OP_LINEAR || op == NP_OP_LINEAR_DGRAD || op == NP_OP_LINEAR_WGRAD;
}

/* Scratch of our own kernels for this node. */
static uint64_t scratch_of(const struct np_cuda_program *program, const struct np_op_node *node)
{
    bool sums =
        node->op == NP_OP_BN_STATS || node->op == NP_OP_BN_REDUCE ||
        ((node->op == NP_OP_CONV_WGRAD || node->op == NP_OP_LINEAR_WGRAD) && node->nr_outs > 1);
    int t = node->op == NP_OP_BN_STATS ? node->ins[0] : node->nr_ins > 1 ? node->ins[1] : -1;

    return sums ? np_cuda_channel_scratch(np_cuda_rows(program, t), np_cuda_channels(program, t))
                : 0;
}

static int prepare_call(struct np_cuda_program *program, struct np_cuda_call *call,
    const struct np_dnn_rules *rules, struct np_err *err)
{
    const struct np_op_node *node = call->node;
    uint64_t bytes = scratch_of(program, node);
    int code = 0;

    if (is_conv(node->op)) {
        code = np_cuda_conv_new(
            &program->cuda->target, rules, program->graph, node, MAX_PLANS, &call->conv, err);
        if (code == 0 && np_cuda_conv_workspace(call->conv) > bytes)
            bytes = np_cuda_conv_workspace(call->conv);
    } else if (is_linear(node->op)) {
        if (program->cuda
                ->cublaslt) /* none where plans are made for a GPU that is only described */
            code = np_cuda_linear_new(&program->cuda->libs.cublaslt, program->cuda->cublaslt,
                program->graph, node, rules->tf32, &call->linear, err);
        if (NP_LINEAR_WORKSPACE > bytes)
            bytes = NP_LINEAR_WORKSPACE;
    } else if (!np_cuda_lowerings[node->op].run) {
        code = np_err_set(
            err, -ENOTSUP, "%s: the CUDA device has no %s", node->name, np_op_names[node->op]);
    }
    if (bytes > program->workspace_bytes)
        program->workspace_bytes = bytes;
    return code;
}

int np_cuda_program_new(struct np_cuda *cuda, const struct np_graph *graph,
    const struct np_cuda_arrays *arrays, bool deterministic, struct np_cuda_program **ret_program,
    struct np_err *err)
{
    const struct np_dnn_rules rules = {
        .deterministic = deterministic, .runtime = cuda->libs.nvrtc_library.handle != NULL};
    struct np_cuda_program *program = np_alloc(sizeof(*program));
    int code = 0;

    if (!program)
        return np_err_set(err, -ENOMEM, "no memory for a program");
    program->cuda = cuda;
    program->arrays = *arrays;
    program->graph = np_cuda_graph(graph);
    program->dtype = (enum np_cuda_dtype)graph->tensors[graph->input].dtype;
    if (!program->graph) {
        code = np_err_set(err, -ENOMEM, "no memory for the graph");
        goto out;
    }
    code = np_fuse(program->graph, &fusions, err);
    if (code == 0)
        code = np_memory_plan(program->graph, NULL, &program->memory, err);
    if (code < 0)
        goto out;
    program->calls = np_alloc_array((size_t)program->graph->nr_nodes, sizeof(*program->calls));
    if (!program->calls)
        code = np_err_set(err, -ENOMEM, "no memory for a program");
    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++) {
        program->calls[n].node = &program->graph->nodes[n];
        code = prepare_call(program, &program->calls[n], &rules, err);
    }
out:
    if (code < 0)
        np_cuda_program_free(program);
    else
        *ret_program = program;
    return code;
}

void np_cuda_program_free(struct np_cuda_program *program)
{
    if (!program)
        return;
    for (int n = 0; program->calls && n < program->graph->nr_nodes; n++) {
        np_cuda_conv_free(program->calls[n].conv);
        np_cuda_linear_free(program->calls[n].linear);
    }
    np_free(program->calls);
    np_memory_fini(&program->memory);
    np_graph_free(program->graph);
    np_free(program);
}

uint64_t np_cuda_program_arena_bytes(const struct np_cuda_program *program)
{
    return program->memory.arena_bytes;
}

uint64_t np_cuda_program_workspace_bytes(const struct np_cuda_program *program)
{
    return program->workspace_bytes;
}

/* --- operands -------------------------------------------------------------------------------- */

static void *half_at(void *array, uint64_t element)
{
    return (uint16_t *)array + element;
}

/* The parameter whose gradient this tensor is. */
static int param_of(const struct np_graph *graph, int grad)
{
    for (int t = 0; t < graph->nr_tensors; t++)
        if (graph->tensors[t].role == NP_ROLE_PARAM && graph->tensors[t].grad == grad)
            return t;
    return -1;
}

/* Convolutions and products of halves read halves of their parameters, and convolutions write halves
 * of gradients; everything else is f32. */
static void *operand(const struct np_cuda_program *program, const struct np_op_node *node, int t)
{
    const struct np_cuda_arrays *arrays = &program->arrays;
    const struct np_tensor *x = &program->graph->tensors[t];
    int param = x->role == NP_ROLE_GRAD ? param_of(program->graph, t) : t;
    uint64_t at;

    switch (x->role) {
    case NP_ROLE_INPUT: return NULL; /* found through the step */
    case NP_ROLE_BUFFER: return arrays->buffers + x->offset;
    case NP_ROLE_PARAM:
        at = arrays->layout->offsets[t];
        if (arrays->half && (is_linear(node->op) || (is_conv(node->op) && x->nr_dims == 4)))
            return half_at(arrays->half, at);
        return arrays->params + at;
    case NP_ROLE_GRAD:
        at = arrays->layout->offsets[param];
        if (arrays->half_grads && x->nr_dims == 4)
            return half_at(arrays->half_grads, at);
        return arrays->grads + at;
    default: return (char *)program->arena + program->memory.offsets[t];
    }
}

/* LINEAR's and CONV's operands as their files want them: ins, then out 0. */
static int bind_call(struct np_cuda_program *program, struct np_cuda_call *call, struct np_err *err)
{
    const struct np_op_node *node = call->node;
    void *all[4] = {0};
    int n = 0;

    for (int i = 0; i < node->nr_ins; i++)
        call->p[i] = node->ins[i] < 0 ? NULL : operand(program, node, node->ins[i]);
    for (int i = 0; i < node->nr_outs; i++)
        call->p[node->nr_ins + i] =
            node->outs[i] < 0 ? NULL : operand(program, node, node->outs[i]);
    if (!call->conv && !call->linear)
        return 0;
    for (int i = 0; i < node->nr_ins; i++)
        if (i < 2 || call->linear || np_cuda_conv_pattern(call->conv) == NP_CONV_BIAS ||
            np_cuda_conv_pattern(call->conv) == NP_CONV_BIAS_RELU)
            all[n++] = call->p[i];
    all[n] = call->p[node->nr_ins];
    return call->conv ? np_cuda_conv_bind(call->conv, all, program->workspace, err)
                      : np_cuda_linear_bind(call->linear, all, program->workspace, err);
}

int np_cuda_program_bind(
    struct np_cuda_program *program, void *arena, void *workspace, struct np_err *err)
{
    int code = 0;

    program->arena = arena;
    program->workspace = workspace;
    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++)
        code = bind_call(program, &program->calls[n], err);
    return code;
}

/* --- choosing plans -------------------------------------------------------------------------- */

/* Milliseconds of one run of the taken plan, at best; < 0: it failed. */
static float time_plan(struct np_cuda_program *program, struct np_cuda_conv *conv,
    cudaEvent_t events[2], struct np_err *err)
{
    cudaStream_t stream = program->cuda->streams[NP_STREAM_COMPUTE];
    float best = -1;

    for (int trial = 0; trial <= NR_TRIALS; trial++) { /* the first one loads */
        cudaError_t status = cudaEventRecord(events[0], stream);
        float ms = 0;

        if (status == cudaSuccess && np_cuda_conv_run(conv, err) < 0) {
            cudaGetLastError(); /* not to be found by who looks for kernels' errors */
            return -1;
        }
        if (status == cudaSuccess)
            status = cudaEventRecord(events[1], stream);
        if (status == cudaSuccess)
            status = cudaEventSynchronize(events[1]);
        if (status == cudaSuccess)
            status = cudaEventElapsedTime(&ms, events[0], events[1]);
        if (np_cuda_check(NULL, status, "to time it", err) < 0)
            return -1;
        if (trial > 0 && (best < 0 || ms < best))
            best = ms;
    }
    return best;
}

/* Takes the fastest plan; one that fails is passed over. */
static int time_plans(struct np_cuda_program *program, struct np_cuda_conv *conv,
    cudaEvent_t events[2], struct np_err *err)
{
    float best = -1;
    int fastest = -1;
    struct np_err why = {0};

    for (int i = 0; i < np_cuda_conv_plans(conv); i++) {
        float ms;

        np_cuda_conv_take(conv, i);
        ms = time_plan(program, conv, events, &why);
        if (ms >= 0 && (fastest < 0 || ms < best)) {
            best = ms;
            fastest = i;
        }
    }
    if (fastest < 0)
        return np_err_set(err, -EIO, "none of cuDNN's plans runs: %s", why.text);
    np_cuda_conv_take(conv, fastest);
    return fastest;
}

static int tune_call(struct np_cuda_program *program, struct np_cuda_call *call,
    struct np_engines *engines, cudaEvent_t events[2], int *timed, struct np_err *err)
{
    char key[NP_ENGINE_KEY];
    int plan;

    np_engine_key(
        program->graph, call->node, np_conv_patterns[np_cuda_conv_pattern(call->conv)], key);
    plan = np_engines_find(engines, key);
    if (plan >= 0 && plan < np_cuda_conv_plans(call->conv)) {
        np_cuda_conv_take(call->conv, plan);
        return 0;
    }
    plan = np_cuda_conv_plans(call->conv) > 1 ? time_plans(program, call->conv, events, err) : 0;
    if (plan < 0) {
        np_err_context(err, "%s", call->node->name);
        return plan;
    }
    ++*timed;
    return np_engines_put(engines, key, plan, err);
}

int np_cuda_program_tune(
    struct np_cuda_program *program, struct np_engines *engines, int *ret_timed, struct np_err *err)
{
    cudaStream_t stream = program->cuda->streams[NP_STREAM_COMPUTE];
    cudaEvent_t events[2] = {NULL, NULL};
    int code = 0, timed = 0;

    if (cudaEventCreate(&events[0]) != cudaSuccess || cudaEventCreate(&events[1]) != cudaSuccess)
        code = np_err_set(err, -EIO, "no event to time cuDNN's plans with");
    /* Small numbers everywhere: zeros would be faster than what is real. */
    if (code == 0)
        cudaMemsetAsync(program->arena, 0x3c, program->memory.arena_bytes, stream);
    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++)
        if (program->calls[n].conv)
            code = tune_call(program, &program->calls[n], engines, events, &timed, err);
    for (int i = 0; i < 2; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    *ret_timed += timed;
    return code;
}

int np_cuda_program_queue(struct np_cuda_program *program, struct np_err *err)
{
    int code = 0;

    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++) {
        const struct np_cuda_call *call = &program->calls[n];

        code = np_cuda_call_queue(program, call, err);
        if (code < 0)
            np_err_context(err, "%s", call->node->name);
    }
    /* Gradients of convolutions, which come as halves, join the others. */
    if (code == 0 && program->arrays.half_grads &&
        program->graph->nr_nodes > program->graph->nr_forward)
        np_cuda_cast(program->cuda->streams[NP_STREAM_COMPUTE], program->dtype,
            program->arrays.half_grads, NP_CUDA_F32, program->arrays.grads,
            program->arrays.layout->nr_convs);
    return code;
}

const void *np_cuda_program_tensor(const struct np_cuda_program *program, int t)
{
    return (const char *)program->arena + program->memory.offsets[t];
}

const struct np_graph *np_cuda_program_graph(const struct np_cuda_program *program)
{
    return program->graph;
}

const char *np_cuda_program_call(const struct np_cuda_program *program, int node)
{
    const struct np_cuda_call *call = &program->calls[node];

    return call->conv && call->node->op == NP_OP_CONV
               ? np_conv_patterns[np_cuda_conv_pattern(call->conv)]
               : np_cuda_lowerings[call->node->op].name;
}
