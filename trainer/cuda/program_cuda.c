/* Looks up a node's operands once, at bind; calls_cuda.c queues its kernels, tune_cuda.c chooses
 * cuDNN's plans. */
#include "trainer/cuda/program_cuda.h"

#include <errno.h>

#include "trainer/recompute.h"

#define MAX_PLANS 12  /* of cuDNN's plans timed for a convolution */
#define SUM_PLANS 3   /* with sums: each takes a second to compile */
#define ALIGNED   256 /* bytes: places in the workspace */

static const struct np_fusions fusions = {.bn_relu = true,
    .bn_add_relu = true,
    .conv_relu = true,
    .linear_relu = true,
    .add_relu = true,
    .relu_pool = true,
    .relu_dropout = true,
    .bn_gradient = true};

static bool is_conv(enum np_op op)
{
    return op == NP_OP_CONV || op == NP_OP_CONV_DGRAD || op == NP_OP_CONV_WGRAD;
}

static bool is_linear(enum np_op op)
{
    return op == NP_OP_LINEAR || op == NP_OP_LINEAR_DGRAD || op == NP_OP_LINEAR_WGRAD;
}

static uint64_t scratch_of(const struct np_cuda_program *program, const struct np_op_node *node)
{
    bool sums =
        node->op == NP_OP_BN_STATS || node->op == NP_OP_BN_REDUCE ||
        ((node->op == NP_OP_CONV_WGRAD || node->op == NP_OP_LINEAR_WGRAD) && node->nr_outs > 1);
    int t = node->op == NP_OP_BN_STATS ? node->ins[0] : node->nr_ins > 1 ? node->ins[1] : -1;

    return sums ? np_cuda_channel_scratch(np_cuda_rows(program, t), np_cuda_channels(program, t))
                : np_cuda_token_scratch(program, node);
}

static int prepare_call(struct np_cuda_program *program, const struct np_cuda_parts *parts,
    struct np_cuda_call *call, struct np_err *err)
{
    const struct np_op_node *node = call->node;
    const struct np_cuda *cuda = program->cuda;

    call->scratch_bytes = scratch_of(program, node);
    if (is_conv(node->op)) {
        const struct np_conv_request request = {
            program->graph, node, &program->rules, parts->known, MAX_PLANS};

        return np_cuda_conv_new(parts->convs, &request, &call->conv, err);
    }
    if (is_linear(node->op)) {
        if (call->scratch_bytes < NP_LINEAR_WORKSPACE)
            call->scratch_bytes = NP_LINEAR_WORKSPACE;
        /* No cuBLASLt when plans are made for a GPU that is only described. */
        return cuda->cublaslt ? np_cuda_linear_new(&cuda->libs.cublaslt, cuda->cublaslt,
                                    program->graph, node, program->rules.tf32, &call->linear, err)
                              : 0;
    }
    return np_cuda_lowerings[node->op].run
               ? 0
               : np_err_set(err, -ENOTSUP, "%s: the CUDA device has no %s", node->name,
                     np_op_names[node->op]);
}

/* Returns the plain convolution that wrote x: without bias and relu, so that its sums are x's. */
static struct np_cuda_call *writer_of(struct np_cuda_program *program, int x)
{
    for (int n = 0; n < program->graph->nr_forward; n++) {
        const struct np_op_node *node = &program->graph->nodes[n];

        if (node->op == NP_OP_CONV && node->outs[0] == x && node->nr_ins == 2 &&
            !node->attrs.relu && !program->calls[n].summing)
            return &program->calls[n];
    }
    return NULL;
}

/* Takes a batchnorm's statistics from the convolution before it, if cuDNN offers both as one
 * kernel, until np_cuda_program_tune() finds that two are faster. Never in f32: sums of unshifted
 * squares lose more precision than f32's tolerances allow. */
static int pair_call(struct np_cuda_program *program, const struct np_cuda_parts *parts,
    struct np_cuda_call *stats, struct np_err *err)
{
    struct np_cuda_call *conv = writer_of(program, stats->node->ins[0]);
    int pitch = np_cuda_pitch(np_cuda_channels(program, stats->node->ins[0])), code;
    struct np_err why = {0};

    if (!conv || program->rules.deterministic ||
        (program->dtype == NP_CUDA_F32 && !program->rules.tf32))
        return 0;
    const struct np_conv_request request = {
        program->graph, conv->node, &program->rules, parts->known, SUM_PLANS};
    code = np_cuda_conv_stats_new(parts->convs, &request, &conv->summing, &why);
    if (code < 0)
        return code == -ENOTSUP ? 0 : np_err_set(err, code, "%s", why.text);
    conv->sums = true;
    conv->reader = stats;
    stats->source = conv;
    conv->sums_at = program->sums_bytes;
    program->sums_bytes += (4 * (uint64_t)pitch * sizeof(float) + ALIGNED - 1) / ALIGNED * ALIGNED;
    return 0;
}

/* The gradient of a cross-entropy comes from the same launch as the loss. Nothing runs between the
 * two nodes, so that its place is free by then. */
static void pair_loss(struct np_cuda_program *program)
{
    const int loss = program->graph->nr_forward - 1, back = loss + 1;

    if (loss < 0 || back >= program->graph->nr_nodes ||
        program->graph->nodes[loss].op != NP_OP_CROSS_ENTROPY ||
        program->graph->nodes[back].op != NP_OP_CROSS_ENTROPY_DGRAD)
        return;
    program->calls[loss].reader = &program->calls[back];
    program->calls[back].source = &program->calls[loss];
}

int np_cuda_program_new(const struct np_cuda_parts *parts, const struct np_graph *graph,
    const struct np_cuda_arrays *arrays, const struct np_dnn_rules *rules,
    struct np_cuda_program **ret_program, struct np_err *err)
{
    struct np_cuda_program *program = np_alloc(sizeof(*program));
    int code = 0;

    program->cuda = parts->cuda;
    program->arrays = *arrays;
    program->rules = *rules;
    program->rules.runtime = parts->cuda->libs.nvrtc_library.handle != NULL;
    program->graph = np_cuda_graph(graph);
    program->dtype = (enum np_cuda_dtype)graph->tensors[graph->input].dtype;
    np_fuse(program->graph, &fusions);
    np_recompute_as(program->graph, parts->options);
    np_memory_plan(program->graph, NULL, &program->memory);
    program->calls = np_alloc_array((size_t)program->graph->nr_nodes, sizeof(*program->calls));
    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++) {
        program->calls[n].node = &program->graph->nodes[n];
        code = prepare_call(program, parts, &program->calls[n], err);
    }
    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++)
        if (program->graph->nodes[n].op == NP_OP_BN_STATS)
            code = pair_call(program, parts, &program->calls[n], err);
    pair_loss(program);
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
        np_cuda_conv_free(program->calls[n].summing);
        np_cuda_linear_free(program->calls[n].linear);
    }
    np_free(program->calls);
    np_memory_fini(&program->memory);
    np_graph_free(program->graph);
    np_free(program);
}

/* Of one call at a time. */
static uint64_t call_bytes(const struct np_cuda_program *program)
{
    uint64_t max = 0;

    for (int n = 0; n < program->graph->nr_nodes; n++) {
        const struct np_cuda_call *call = &program->calls[n];
        const uint64_t bytes[] = {call->scratch_bytes,
            call->conv ? np_cuda_conv_workspace(call->conv) : 0,
            call->summing ? np_cuda_conv_workspace(call->summing) : 0};

        for (int i = 0; i < 3; i++)
            max = bytes[i] > max ? bytes[i] : max;
    }
    return (max + ALIGNED - 1) / ALIGNED * ALIGNED;
}

uint64_t np_cuda_program_workspace_bytes(const struct np_cuda_program *program)
{
    return call_bytes(program) + program->sums_bytes;
}

/* --- operands -------------------------------------------------------------------------------- */

static void *half_at(void *array, uint64_t element)
{
    return (uint16_t *)array + element;
}

/* Returns the parameter whose gradient this tensor is. */
static int param_of(const struct np_graph *graph, int grad)
{
    for (int t = 0; t < graph->nr_tensors; t++)
        if (graph->tensors[t].role == NP_ROLE_PARAM && graph->tensors[t].grad == grad)
            return t;
    return -1;
}

/* Convolutions and products in half precision read half-precision parameters, and convolutions
 * write half-precision gradients; everything else is f32. */
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

/* Operands in the order of linear_cuda.h and conv_cuda.h: ins, then out 0. */
static int bind_call(struct np_cuda_program *program, struct np_cuda_call *call, struct np_err *err)
{
    const struct np_op_node *node = call->node;
    void *all[NP_CONV_OPERANDS] = {0};
    int n = 0, code, pitch;
    float *sums;

    for (int i = 0; i < node->nr_ins; i++)
        call->p[i] = node->ins[i] < 0 ? NULL : operand(program, node, node->ins[i]);
    for (int i = 0; i < node->nr_outs; i++)
        call->p[node->nr_ins + i] =
            node->outs[i] < 0 ? NULL : operand(program, node, node->outs[i]);
    if (!call->conv && !call->linear)
        return 0;
    for (int i = 0; i < node->nr_ins; i++)
        if (i < 2 || call->linear || call->conv->shape->pattern == NP_CONV_BIAS ||
            call->conv->shape->pattern == NP_CONV_BIAS_RELU)
            all[n++] = call->p[i];
    all[n++] = call->p[node->nr_ins];
    if (call->linear)
        return np_cuda_linear_bind(call->linear, all, program->workspace, err);
    code = np_cuda_conv_bind(call->conv, all, program->workspace, err);
    if (code < 0 || !call->summing)
        return code;
    sums = (float *)((char *)program->workspace + program->workspace_bytes + call->sums_at);
    pitch = np_cuda_pitch(np_cuda_channels(program, node->outs[0]));
    all[n] = call->sum = sums;
    all[n + 1] = call->square_sum = sums + pitch;
    call->spare[0] = sums + 2 * pitch;
    call->spare[1] = sums + 3 * pitch;
    return np_cuda_conv_bind(call->summing, all, program->workspace, err);
}

int np_cuda_program_bind(
    struct np_cuda_program *program, void *arena, void *workspace, struct np_err *err)
{
    int code = 0;

    program->arena = arena;
    program->workspace = workspace;
    program->workspace_bytes = call_bytes(program);
    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++)
        code = bind_call(program, &program->calls[n], err);
    return code;
}

/* --- running it ------------------------------------------------------------------------------- */

/* Queues a node's calls. In a capture a library may make a forbidden call, which breaks the
 * capture without an error: so the capture is checked after each node. */
static int queue_call(
    struct np_cuda_program *program, const struct np_cuda_call *call, struct np_err *err)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int code = np_cuda_call_queue(program, call, err);

    cudaStreamIsCapturing(program->cuda->streams[NP_STREAM_COMPUTE], &status);
    if (code == 0 && status == cudaStreamCaptureStatusInvalidated)
        code = np_err_set(
            err, -EIO, "%s makes a call that a capture forbids", np_cuda_call_name(call));
    if (code < 0)
        np_err_context(err, "%s%s", call->node->name,
            status == cudaStreamCaptureStatusNone ? "" : ": cannot be captured in a CUDA graph");
    return code;
}

void np_cuda_program_cast(struct np_cuda_program *program)
{
    if (program->arrays.half_grads)
        np_cuda_cast(program->cuda->streams[NP_STREAM_COMPUTE], program->dtype,
            program->arrays.half_grads, NP_CUDA_F32, program->arrays.grads,
            program->arrays.layout->nr_convs);
}

int np_cuda_program_queue(struct np_cuda_program *program, struct np_err *err)
{
    cudaStream_t stream = program->cuda->streams[NP_STREAM_COMPUTE];
    int code = 0;

    if (program->sums_bytes > 0) /* what convolutions add to: other programs use that memory, too */
        np_cuda_zero(stream, (float *)((char *)program->workspace + program->workspace_bytes),
            (int)(program->sums_bytes / sizeof(float)));
    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++) {
        code = queue_call(program, &program->calls[n], err);
        if (code == 0 && program->after)
            code = program->after(program->after_context, n, err);
    }
    if (code == 0 && !program->after && !program->leaves_halves &&
        program->graph->nr_nodes > program->graph->nr_forward)
        np_cuda_program_cast(program);
    return code;
}
