/* Groups, chunks and lanes: the executor of the CPU device. A group is the longest sequence of
 * calls in which no call reads a sum over rows of an earlier call of the group; its calls run
 * chunk by chunk, so that a chunk's tensors stay in the core's cache from call to call. */
#include "trainer/cpu/program.h"

#include <assert.h>
#include <errno.h>

#include "loader/base/mem.h"

#define CACHE_BYTES     (1u << 20)  /* share of a core's caches for a chunk's tensors */
#define FINISH_IN_PLACE (64u << 10) /* bytes; smaller partials are not worth a second thread */

struct call {
    const struct np_op_node *node;
    struct np_prepared made;
    struct np_operands operands;
    void *shared;
    size_t partial_at; /* in its lane's sums */
    void **partials;   /* (nr_lanes) */
    bool whole_lane;   /* one run per lane, after the group's chunks */
};

struct group {
    int first_call, nr_calls;
    int chunk_rows;
};

struct np_program {
    const struct np_graph *graph;
    struct np_pool *pool;
    struct np_arrays arrays;
    struct np_memory memory;
    struct call *calls;
    struct group *groups;
    int nr_calls, nr_groups, nr_lanes;
    void **scratch; /* one per pool thread */
    char **sums;    /* one per lane: the partials of the current group */
    char *arena;
    bool begun; /* the calls have begun with the present weights */
    /* of the current run */
    struct np_step_info info;
    const struct group *group;
};

/* --- groups -------------------------------------------------------------------------------- */

static bool is_wgrad(enum np_op op)
{
    return op == NP_OP_CONV_WGRAD || op == NP_OP_LINEAR_WGRAD;
}

/* True: the node's outputs are sums over rows, complete only after finish(). */
static bool crosses_rows(enum np_op op)
{
    return op == NP_OP_BN_STATS || op == NP_OP_BN_REDUCE || is_wgrad(op) ||
           op == NP_OP_NORM_WGRAD || op == NP_OP_SCALE_WGRAD || op == NP_OP_BIAS_WGRAD ||
           op == NP_OP_ROWS_SUM;
}

static bool reads_any(const struct np_op_node *node, const struct np_op_node *writer)
{
    for (int i = 0; i < node->nr_ins; i++)
        for (int o = 0; o < writer->nr_outs; o++)
            if (node->ins[i] >= 0 && node->ins[i] == writer->outs[o])
                return true;
    return false;
}

/* True: node n reads a sum of the group that starts at `first`. Or it normalises: a network whose
 * only sums are gradients of weights would be one group, in which no tensor takes another's place. */
static bool must_wait(const struct np_graph *graph, int first, int n)
{
    enum np_op op = graph->nodes[n].op;

    if (n > first && (op == NP_OP_NORM || op == NP_OP_NORM_WGRAD))
        return true;
    for (int m = first; m < n; m++)
        if (crosses_rows(graph->nodes[m].op) && reads_any(&graph->nodes[n], &graph->nodes[m]))
            return true;
    return false;
}

static uint64_t row_bytes(const struct np_graph *graph, int t)
{
    const struct np_tensor *tensor = t < 0 ? NULL : &graph->tensors[t];

    if (!tensor || tensor->nr_dims < 2 || tensor->dims[0] != graph->batch ||
        tensor->role == NP_ROLE_PARAM || tensor->role == NP_ROLE_GRAD)
        return 0;
    return np_tensor_elements(tensor) / (uint64_t)graph->batch * np_dtype_bytes(tensor->dtype);
}

/* Returns a chunk's rows, such that the largest call's operands fit in the cache. */
static int chunk_rows(const struct np_program *program, const struct group *group, int lane_rows)
{
    uint64_t max = 1;
    int rows;

    for (int c = group->first_call; c < group->first_call + group->nr_calls; c++) {
        const struct np_op_node *node = &program->graph->nodes[c];
        uint64_t bytes = 0;

        if (node->again >= 0)
            continue;
        for (int i = 0; i < node->nr_ins; i++)
            bytes += row_bytes(program->graph, node->ins[i]);
        for (int o = 0; o < node->nr_outs; o++)
            bytes += row_bytes(program->graph, node->outs[o]);
        max = bytes > max ? bytes : max;
    }
    rows = (int)(CACHE_BYTES / max);
    rows = rows < 1 ? 1 : rows > lane_rows ? lane_rows : rows;
    /* Equal chunks: a short last one costs a kernel of its own. */
    return (lane_rows + (lane_rows + rows - 1) / rows - 1) / ((lane_rows + rows - 1) / rows);
}

/* The groups of a graph without the nodes that run again: ret_groups has its groups, ret_of the
 * group of each node. Nodes that run again change no other node's chunks, and have those of their
 * first run: sums over rows, and so the weights, stay the same. */
static void plain_groups(const struct np_program *program, struct group *ret_groups, int *ret_of)
{
    const struct np_graph *graph = program->graph;
    const int lane_rows = (graph->batch + program->nr_lanes - 1) / program->nr_lanes;
    int first = 0, nr = 0;

    for (int n = 0; n <= graph->nr_nodes; n++) {
        if (n < graph->nr_nodes && graph->nodes[n].again >= 0)
            continue;
        if (n == graph->nr_nodes || must_wait(graph, first, n)) {
            ret_groups[nr] = (struct group){.first_call = first, .nr_calls = n - first};
            ret_groups[nr].chunk_rows = chunk_rows(program, &ret_groups[nr], lane_rows);
            first = n;
            nr++;
        }
        if (n < graph->nr_nodes)
            ret_of[n] = nr;
    }
}

static void make_groups(struct np_program *program, int *when)
{
    const struct np_graph *graph = program->graph;
    struct group *plain = np_alloc_array((size_t)graph->nr_nodes + 1, sizeof(*plain)),
                 *group = NULL;
    int *of = np_alloc_array((size_t)graph->nr_nodes + 1, sizeof(*of));

    plain_groups(program, plain, of);
    for (int n = 0; n < graph->nr_nodes; n++) {
        const int again = graph->nodes[n].again;

        of[n] = again >= 0 ? of[again] : of[n];
        if (!group || of[n] != of[n - 1] || (again >= 0) != (graph->nodes[n - 1].again >= 0)) {
            group = &program->groups[program->nr_groups++];
            *group = (struct group){.first_call = n, .chunk_rows = plain[of[n]].chunk_rows};
        }
        group->nr_calls++;
        when[n] = program->nr_groups;
    }
    np_free(of);
    np_free(plain);
}

/* --- preparing ----------------------------------------------------------------------------- */

/* A weight gradient is summed once per chunk: if the weights are larger than a chunk, one run
 * over the lane is cheaper. A linear layer reads all its weights for any number of rows, unless a
 * row has several tokens. */
static bool wants_whole_lane(const struct np_graph *graph, const struct np_op_node *node, int rows)
{
    const int *x = graph->tensors[node->ins[0]].dims;
    uint64_t read = 0;

    if (node->op == NP_OP_LINEAR || node->op == NP_OP_LINEAR_DGRAD ||
        node->op == NP_OP_LINEAR_WGRAD)
        return x[1] * x[2] == 1;
    if (node->op != NP_OP_CONV_WGRAD)
        return false;
    for (int i = 0; i < node->nr_ins; i++)
        read += row_bytes(graph, node->ins[i]) * (uint64_t)rows;
    return np_tensor_elements(&graph->tensors[node->outs[0]]) * sizeof(float) > read / 2;
}

static int prepare_call(struct np_program *program, struct call *call, int rows, bool reference,
    struct np_checked *checked, struct np_err *err)
{
    const size_t *shared_bytes = &call->made.needs.shared_bytes;
    int code =
        np_kernel_find(program->graph, call->node, rows, reference, checked, &call->made, err);

    call->partials = np_alloc_array((size_t)program->nr_lanes, sizeof(void *));
    if (code == 0 && *shared_bytes && !(call->shared = np_try_alloc(*shared_bytes, err)))
        code = -ENOMEM;
    return code < 0 ? np_err_context(err, "layer '%s'", call->node->name) : 0;
}

/* Lanes' sums live as long as their group: groups share one block of memory per lane. */
static int place_partials(struct np_program *program, struct np_err *err)
{
    size_t max = 1;

    for (int g = 0; g < program->nr_groups; g++) {
        const struct group *group = &program->groups[g];
        size_t bytes = 0;

        for (int c = group->first_call; c < group->first_call + group->nr_calls; c++) {
            program->calls[c].partial_at = bytes;
            bytes +=
                (program->calls[c].made.needs.partial_bytes + NP_ALIGN - 1) / NP_ALIGN * NP_ALIGN;
        }
        max = bytes > max ? bytes : max;
    }
    for (int lane = 0; lane < program->nr_lanes; lane++) {
        if (!(program->sums[lane] = np_try_alloc(max, err)))
            return np_err_context(err, "the sums of a lane");
        for (int c = 0; c < program->nr_calls; c++)
            program->calls[c].partials[lane] = program->sums[lane] + program->calls[c].partial_at;
    }
    return 0;
}

static int prepare_calls(
    struct np_program *program, bool reference, struct np_checked *checked, struct np_err *err)
{
    const struct np_graph *graph = program->graph;
    int lane_rows = (graph->batch + program->nr_lanes - 1) / program->nr_lanes;
    size_t scratch_bytes = 1;

    for (int g = 0; g < program->nr_groups; g++) {
        const struct group *group = &program->groups[g];

        for (int c = group->first_call; c < group->first_call + group->nr_calls; c++) {
            struct call *call = &program->calls[c];

            call->whole_lane = wants_whole_lane(graph, call->node, group->chunk_rows);
            int code = prepare_call(program, call, call->whole_lane ? lane_rows : group->chunk_rows,
                reference, checked, err);
            if (code < 0)
                return code;
            if (call->made.needs.scratch_bytes > scratch_bytes)
                scratch_bytes = call->made.needs.scratch_bytes;
        }
    }
    for (int t = 0; t < np_pool_threads(program->pool); t++)
        if (!(program->scratch[t] = np_try_alloc(scratch_bytes, err)))
            return np_err_context(err, "the scratch of a thread");
    return 0;
}

int np_program_new(const struct np_graph *graph, const struct np_plan_options *options,
    struct np_pool *pool, const struct np_arrays *arrays, struct np_checked *checked,
    struct np_program **ret_program, struct np_err *err)
{
    struct np_program *program = np_alloc(sizeof(*program));
    size_t n = (size_t)graph->nr_nodes;
    int *when = np_alloc_array(n + 1, sizeof(*when)), code;

    program->graph = graph;
    program->pool = pool;
    program->arrays = *arrays;
    program->nr_lanes = options->lanes > 0 ? options->lanes : np_pool_threads(pool);
    if (program->nr_lanes > graph->batch)
        program->nr_lanes = graph->batch;
    program->calls = np_alloc_array(n, sizeof(*program->calls));
    program->groups = np_alloc_array(n + 1, sizeof(*program->groups));
    program->scratch = np_alloc_array((size_t)np_pool_threads(pool), sizeof(void *));
    program->sums = np_alloc_array((size_t)program->nr_lanes, sizeof(char *));
    program->nr_calls = graph->nr_nodes;
    for (size_t c = 0; c < n; c++)
        program->calls[c].node = &graph->nodes[c];
    make_groups(program, when);
    np_memory_plan(graph, when, &program->memory);
    code = prepare_calls(program, options->reference, checked, err);
    if (code == 0)
        code = place_partials(program, err);
    if (code == 0)
        *ret_program = program;
    if (code < 0)
        np_program_free(program);
    np_free(when);
    return code;
}

void np_program_free(struct np_program *program)
{
    if (!program)
        return;
    for (int c = 0; c < program->nr_calls; c++) {
        struct call *call = &program->calls[c];

        if (call->made.kernel)
            call->made.kernel->free(call->made.state);
        np_free(call->partials);
        np_free(call->shared);
    }
    for (int t = 0; program->scratch && t < np_pool_threads(program->pool); t++)
        np_free(program->scratch[t]);
    for (int lane = 0; program->sums && lane < program->nr_lanes; lane++)
        np_free(program->sums[lane]);
    np_free(program->sums);
    np_free(program->scratch);
    np_free(program->groups);
    np_free(program->calls);
    np_memory_fini(&program->memory);
    np_free(program);
}

uint64_t np_program_arena_bytes(const struct np_program *program)
{
    return program->memory.arena_bytes;
}

void np_program_weights_changed(struct np_program *program)
{
    if (program)
        program->begun = false;
}

void *np_program_tensor(const struct np_program *program, int t)
{
    const struct np_tensor *tensor = &program->graph->tensors[t];

    switch (tensor->role) {
    case NP_ROLE_PARAM: return program->arrays.params + tensor->offset;
    case NP_ROLE_BUFFER: return program->arrays.buffers + tensor->offset;
    case NP_ROLE_GRAD: return program->arrays.grads + tensor->offset;
    case NP_ROLE_INPUT: return NULL; /* the batch, set by each run */
    default: break;
    }
    if (program->memory.offsets[t] == UINT64_MAX)
        return NULL;
    return program->arena + program->memory.offsets[t];
}

void np_program_set_arena(struct np_program *program, void *arena)
{
    program->arena = arena;
    for (int c = 0; c < program->nr_calls; c++) {
        struct call *call = &program->calls[c];
        const struct np_op_node *node = call->node;

        for (int i = 0; i < node->nr_ins + node->nr_outs; i++) {
            int t = i < node->nr_ins ? node->ins[i] : node->outs[i - node->nr_ins];

            call->operands.ptr[i] = t < 0 ? NULL : np_program_tensor(program, t);
        }
    }
}

static void set_inputs(struct np_program *program, const void *images, const void *labels)
{
    for (int c = 0; c < program->nr_calls; c++) {
        struct call *call = &program->calls[c];

        for (int i = 0; i < call->node->nr_ins; i++) {
            if (call->node->ins[i] == program->graph->images)
                call->operands.ptr[i] = (void *)images;
            else if (call->node->ins[i] == program->graph->labels)
                call->operands.ptr[i] = (void *)labels;
        }
    }
}

/* --- running ------------------------------------------------------------------------------- */

static void begin_call(void *context, int item, int thread)
{
    struct np_program *program = context;
    struct call *call = &program->calls[item];

    if (call->made.kernel->begin)
        call->made.kernel->begin(call->made.state, &call->operands, call->shared);
}

static void run_rows(struct np_program *program, struct call *call, int lane, int thread,
    int first_row, int nr_rows, bool first_in_lane)
{
    struct np_run run = {.operands = &call->operands,
        .info = &program->info,
        .first_row = first_row,
        .nr_rows = nr_rows,
        .first_in_lane = first_in_lane,
        .scratch = program->scratch[thread],
        .partial = call->partials[lane],
        .shared = call->shared};

    call->made.kernel->run(call->made.state, &run);
}

static int lane_start(const struct np_program *program, int lane)
{
    return np_lane_start(program->graph->batch, program->nr_lanes, lane);
}

static bool may_skip(const struct np_program *program, int first_row, int nr_rows)
{
    const int32_t *labels = program->info.skip;

    for (int r = first_row; labels && r < first_row + nr_rows; r++)
        if (labels[r] >= 0)
            return false;
    return labels != NULL;
}

static void run_chunks(
    struct np_program *program, int lane, int thread, int first_call, int end_call)
{
    int first = lane_start(program, lane), end = lane_start(program, lane + 1);
    int chunk = program->group->chunk_rows;

    for (int row = first; row < end; row += chunk) {
        const int nr_rows = end - row < chunk ? end - row : chunk;

        for (int c = first_call; c < end_call && !may_skip(program, row, nr_rows); c++)
            if (!program->calls[c].whole_lane)
                run_rows(program, &program->calls[c], lane, thread, row, nr_rows, row == first);
    }
}

static void run_whole(struct np_program *program, int lane, int thread, int call)
{
    const int first = lane_start(program, lane), nr_rows = lane_start(program, lane + 1) - first;

    if (!may_skip(program, first, nr_rows))
        run_rows(program, &program->calls[call], lane, thread, first, nr_rows, true);
}

/* Runs all rows of a lane through the current group. A call over the whole lane separates the
 * chunks before it from those after it; gradients of weights have no readers in the group and
 * come last. */
static void run_lane(void *context, int lane, int thread)
{
    struct np_program *program = context;
    int first = program->group->first_call, end = first + program->group->nr_calls, from = first;

    for (int c = first; c < end; c++)
        if (program->calls[c].whole_lane && !is_wgrad(program->calls[c].node->op)) {
            run_chunks(program, lane, thread, from, c);
            run_whole(program, lane, thread, c);
            from = c + 1;
        }
    run_chunks(program, lane, thread, from, end);
    for (int c = first; c < end; c++)
        if (program->calls[c].whole_lane && is_wgrad(program->calls[c].node->op))
            run_whole(program, lane, thread, c);
}

struct finish_job {
    struct np_program *program;
    struct call *call;
    int nr_parts;
};

static void finish_part(void *context, int part, int thread)
{
    struct finish_job *job = context;
    struct np_finish finish = {.operands = &job->call->operands,
        .info = &job->program->info,
        .partials = job->call->partials,
        .nr_lanes = job->program->nr_lanes,
        .batch = job->program->graph->batch,
        .part = part,
        .nr_parts = job->nr_parts};

    job->call->made.kernel->finish(job->call->made.state, &finish);
}

/* A lower bound of the bytes that finish() reads or writes. */
static uint64_t finish_bytes(const struct np_program *program, const struct call *call)
{
    uint64_t bytes = call->made.needs.partial_bytes;

    for (int o = 0; o < call->node->nr_outs; o++)
        bytes += np_tensor_elements(&program->graph->tensors[call->node->outs[o]]) * sizeof(float);
    return bytes;
}

static void finish_group(struct np_program *program, const struct group *group)
{
    for (int c = group->first_call; c < group->first_call + group->nr_calls; c++) {
        struct finish_job job = {program, &program->calls[c], 1};

        if (!job.call->made.kernel->finish)
            continue;
        if (finish_bytes(program, job.call) > FINISH_IN_PLACE)
            job.nr_parts = np_pool_threads(program->pool);
        np_pool_run(program->pool, job.nr_parts, finish_part, &job);
    }
}

void np_program_run(struct np_program *program, const void *images, const void *labels,
    const struct np_step_info *info)
{
    assert(program->arena || program->memory.arena_bytes == 0);
    program->info = *info;
    set_inputs(program, images, labels);
    if (!program->begun)
        np_pool_run(program->pool, program->nr_calls, begin_call, program);
    program->begun = true;
    for (int g = 0; g < program->nr_groups; g++) {
        program->group = &program->groups[g];
        np_pool_run(program->pool, program->nr_lanes, run_lane, program);
        finish_group(program, program->group);
    }
}
