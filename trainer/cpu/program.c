/* Groups, chunks and lanes: the executor of the CPU device. A group is the longest sequence of
 * calls in which no call reads a sum over rows of an earlier call of the group, and at most one
 * bucket of gradients becomes complete; its calls run chunk by chunk, so that a chunk's tensors stay
 * in the core's cache from call to call. In a run with train.lanes a lane's sums for gradients go
 * into a tree (tree.h) as soon as the lane is done. */
#include "trainer/cpu/program.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/stat.h"
#include "trainer/comm.h"
#include "trainer/cpu/buckets.h"
#include "trainer/cpu/lanes_cpu.h"
#include "trainer/cpu/tree.h"

#define CACHE_BYTES     (1u << 20)  /* share of a core's caches for a chunk's tensors */
#define FINISH_IN_PLACE (64u << 10) /* bytes; smaller partials are not worth a second thread */

struct call {
    const struct np_op_node *node;
    struct np_prepared made;
    struct np_operands operands;
    void *shared;
    size_t partial_at;    /* in its lane's sums; with leaf(), in its thread's */
    void **partials;      /* (nr_lanes) */
    struct np_tree *tree; /* the sums of the lanes; NULL: finish() has them apart */
    bool whole_lane;      /* one run per lane, after the group's chunks */
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
    bool in_lanes;         /* of the run, not of threads */
    void **scratch;        /* one per pool thread */
    char **sums;           /* one per lane: the partials of the current group */
    char **thread_sums;    /* one per pool thread: partials with leaf() */
    float *trees;          /* vectors of the current group's trees */
    struct np_join join;   /* of batchnorm, with comm */
    struct np_comm *comm;  /* of joins; NULL: batchnorm averages over this process's rows */
    struct np_comm *peers; /* who sum the gradients; NULL: one process, or an evaluation */
    struct np_buckets buckets;
    struct np_block *block;
    char *arena;
    bool begun; /* the calls have begun with the present weights */
    /* of the current run */
    struct np_step_info info;
    const struct group *group;
    struct np_err *err;
    int code; /* of joins */
};

/* --- groups -------------------------------------------------------------------------------- */

/* True: the node's outputs are complete only after finish(): sums over rows, or products for all
 * lanes. */
static bool crosses_rows(const struct np_graph *graph, const struct np_op_node *node)
{
    const enum np_op op = node->op;

    return np_linear_waits(graph, node) || op == NP_OP_BN_STATS || op == NP_OP_BN_REDUCE ||
           np_op_is_wgrad(op) || op == NP_OP_NORM_WGRAD || op == NP_OP_SCALE_WGRAD ||
           op == NP_OP_BIAS_WGRAD || op == NP_OP_ROWS_SUM;
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
        if (crosses_rows(graph, &graph->nodes[m]) && reads_any(&graph->nodes[n], &graph->nodes[m]))
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

/* Splits the plain groups where a bucket is complete, in one process, too: then the parts share the
 * memory of tensors and sums. A part has the chunks of the whole group, and so its bits. */
static void make_groups(struct np_program *program, int *when)
{
    const struct np_graph *graph = program->graph;
    struct group *plain = np_alloc_array((size_t)graph->nr_nodes + 1, sizeof(*plain)),
                 *group = NULL;
    int *of = np_alloc_array((size_t)graph->nr_nodes + 1, sizeof(*of));
    bool *ends = np_alloc_array((size_t)graph->nr_nodes + 1, sizeof(*ends));

    plain_groups(program, plain, of);
    np_buckets_ends(graph, of, ends);
    for (int n = 0; n < graph->nr_nodes; n++) {
        const int again = graph->nodes[n].again;

        of[n] = again >= 0 ? of[again] : of[n];
        if (!group || of[n] != of[n - 1] || ends[n - 1] ||
            (again >= 0) != (graph->nodes[n - 1].again >= 0)) {
            group = &program->groups[program->nr_groups++];
            *group = (struct group){.first_call = n, .chunk_rows = plain[of[n]].chunk_rows};
        }
        group->nr_calls++;
        when[n] = program->nr_groups;
    }
    np_free(ends);
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

/* Where a call's partials are: a lane's sums, a thread's, or the vectors of its tree. */
enum place { OF_LANE, OF_THREAD, OF_TREE, NR_PLACES };

static enum place place_of(const struct call *call)
{
    return !call->tree ? OF_LANE : call->made.kernel->leaf ? OF_THREAD : OF_TREE;
}

static int take_sums(char **sums, int n, size_t bytes, struct np_err *err)
{
    for (int i = 0; i < n; i++)
        if (!(sums[i] = np_try_alloc(bytes, err)))
            return np_err_context(err, "the sums of a lane");
    return 0;
}

/* Sums live as long as their group: groups share one block of memory per lane, and per thread. */
static int place_partials(struct np_program *program, struct np_err *err)
{
    size_t max[NR_PLACES] = {1, 1, 1};

    for (int g = 0; g < program->nr_groups; g++) {
        const struct group *group = &program->groups[g];
        size_t bytes[NR_PLACES] = {0};

        for (int c = group->first_call; c < group->first_call + group->nr_calls; c++) {
            size_t *at = &bytes[place_of(&program->calls[c])];

            program->calls[c].partial_at = *at;
            *at +=
                (program->calls[c].made.needs.partial_bytes + NP_ALIGN - 1) / NP_ALIGN * NP_ALIGN;
        }
        for (int i = 0; i < NR_PLACES; i++)
            max[i] = bytes[i] > max[i] ? bytes[i] : max[i];
    }
    if (take_sums(program->sums, program->nr_lanes, max[OF_LANE], err) < 0 ||
        take_sums(program->thread_sums, np_pool_threads(program->pool), max[OF_THREAD], err) < 0)
        return -ENOMEM;
    for (int lane = 0; lane < program->nr_lanes; lane++)
        for (int c = 0; c < program->nr_calls; c++)
            program->calls[c].partials[lane] = program->sums[lane] + program->calls[c].partial_at;
    return 0;
}

/* Floats of a call's tree; 0: its sums are no gradients. */
static size_t tree_floats(const struct np_program *program, const struct call *call)
{
    const size_t n = call->made.needs.leaf_bytes / sizeof(float);

    return !program->in_lanes || n == 0
               ? 0
               : np_tree_floats(program->nr_lanes, n, np_pool_threads(program->pool));
}

/* Makes the trees of the calls whose sums are gradients. Groups share their memory. */
static int plant(struct np_program *program, struct np_err *err)
{
    const int nr_threads = np_pool_threads(program->pool);
    size_t max = 1;

    for (int g = 0; g < program->nr_groups; g++) {
        const struct group *group = &program->groups[g];
        size_t floats = 0;

        for (int c = group->first_call; c < group->first_call + group->nr_calls; c++)
            floats += tree_floats(program, &program->calls[c]);
        max = floats > max ? floats : max;
    }
    if (!(program->trees = np_try_array(max, sizeof(float), err)))
        return np_err_context(err, "the sums of the lanes");
    for (int g = 0; g < program->nr_groups; g++) {
        const struct group *group = &program->groups[g];
        float *room = program->trees;

        for (int c = group->first_call; c < group->first_call + group->nr_calls; c++) {
            struct call *call = &program->calls[c];
            const size_t floats = tree_floats(program, call);

            if (floats > 0)
                call->tree = np_tree_new(program->nr_lanes,
                    call->made.needs.leaf_bytes / sizeof(float), nr_threads, room);
            room += floats;
        }
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

/* Joins a batchnorm's sums with those of the other processes. Trainer thread. */
static void join_all(
    void *context, double *x, size_t n, void (*pair)(double *left, const double *right, size_t n))
{
    struct np_program *program = context;

    if (program->code < 0)
        return;
    if (program->block)
        np_stat_wait(program->block, NP_STATE_BLOCKED, "batchnorm", "the other processes", 0);
    program->code = np_comm_join(program->comm, x, n, pair, program->err);
    if (program->block)
        np_stat_done(program->block);
}

static void take_options(struct np_program *program, const struct np_plan_options *options)
{
    program->in_lanes = np_lanes_on(options);
    program->nr_lanes = program->in_lanes    ? np_lanes_own(options)
                        : options->lanes > 0 ? options->lanes
                                             : np_pool_threads(program->pool);
    if (program->nr_lanes > program->graph->batch)
        program->nr_lanes = program->graph->batch;
    program->block = options->block;
    if (program->in_lanes && options->batchnorm_over == NP_OVER_ALL)
        program->comm = options->comm;
    if (program->in_lanes && program->graph->nr_nodes > program->graph->nr_forward)
        program->peers = options->comm;
    program->join = (struct np_join){join_all, program, np_comm_rank(options->comm) == 0};
}

static void make_buckets(struct np_program *program)
{
    int *groups = np_alloc_array((size_t)program->nr_calls + 1, sizeof(*groups));

    for (int g = 0; g < program->nr_groups; g++)
        for (int c = 0; c < program->groups[g].nr_calls; c++)
            groups[program->groups[g].first_call + c] = g;
    np_buckets_make(program->graph, groups, program->nr_groups, &program->buckets);
    np_free(groups);
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
    take_options(program, options);
    program->calls = np_alloc_array(n, sizeof(*program->calls));
    program->groups = np_alloc_array(n + 1, sizeof(*program->groups));
    program->scratch = np_alloc_array((size_t)np_pool_threads(pool), sizeof(void *));
    program->sums = np_alloc_array((size_t)program->nr_lanes, sizeof(char *));
    program->thread_sums = np_alloc_array((size_t)np_pool_threads(pool), sizeof(char *));
    program->nr_calls = graph->nr_nodes;
    for (size_t c = 0; c < n; c++)
        program->calls[c].node = &graph->nodes[c];
    make_groups(program, when);
    if (program->peers)
        make_buckets(program);
    np_memory_plan(graph, when, &program->memory);
    code = prepare_calls(program, options->reference, checked, err);
    if (code == 0)
        code = plant(program, err);
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
        np_tree_free(call->tree);
        np_free(call->partials);
        np_free(call->shared);
    }
    for (int t = 0; program->scratch && t < np_pool_threads(program->pool); t++)
        np_free(program->scratch[t]);
    for (int t = 0; program->thread_sums && t < np_pool_threads(program->pool); t++)
        np_free(program->thread_sums[t]);
    for (int lane = 0; program->sums && lane < program->nr_lanes; lane++)
        np_free(program->sums[lane]);
    np_free(program->sums);
    np_free(program->thread_sums);
    np_free(program->trees);
    np_free(program->scratch);
    np_free(program->groups);
    np_free(program->calls);
    np_buckets_fini(&program->buckets);
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

/* Gives a call the place for a lane's sums. */
static void begin_sums(struct np_program *program, struct call *call, int lane, int thread)
{
    const enum place place = place_of(call);

    if (place == OF_TREE)
        call->partials[lane] = np_tree_take(call->tree);
    else if (place == OF_THREAD)
        call->partials[lane] = program->thread_sums[thread] + call->partial_at;
}

/* The lane's sums are complete. */
static void end_sums(struct call *call, int lane)
{
    float *sums = call->partials[lane];

    if (!call->tree)
        return;
    if (call->made.kernel->leaf) {
        float *leaf = np_tree_take(call->tree);

        call->made.kernel->leaf(call->made.state, sums, leaf);
        sums = leaf;
    }
    np_tree_put(call->tree, lane, sums);
}

static void run_chunks(
    struct np_program *program, int lane, int thread, int first_call, int end_call)
{
    int first = lane_start(program, lane), end = lane_start(program, lane + 1);
    int chunk = program->group->chunk_rows;

    for (int c = first_call; c < end_call; c++)
        if (!program->calls[c].whole_lane)
            begin_sums(program, &program->calls[c], lane, thread);
    for (int row = first; row < end; row += chunk) {
        const int nr_rows = end - row < chunk ? end - row : chunk;

        for (int c = first_call; c < end_call && !np_may_skip(&program->info, row, nr_rows); c++)
            if (!program->calls[c].whole_lane)
                run_rows(program, &program->calls[c], lane, thread, row, nr_rows, row == first);
    }
    for (int c = first_call; c < end_call; c++)
        if (!program->calls[c].whole_lane)
            end_sums(&program->calls[c], lane);
}

static void run_whole(struct np_program *program, int lane, int thread, int call)
{
    const int first = lane_start(program, lane), nr_rows = lane_start(program, lane + 1) - first;

    begin_sums(program, &program->calls[call], lane, thread);
    if (!np_may_skip(&program->info, first, nr_rows))
        run_rows(program, &program->calls[call], lane, thread, first, nr_rows, true);
    end_sums(&program->calls[call], lane);
}

/* Runs all rows of a lane through the current group. A call over the whole lane separates the
 * chunks before it from those after it; gradients of weights have no readers in the group and
 * come last. */
static void run_lane(void *context, int lane, int thread)
{
    struct np_program *program = context;
    int first = program->group->first_call, end = first + program->group->nr_calls, from = first;

    for (int c = first; c < end; c++)
        if (program->calls[c].whole_lane && !np_op_is_wgrad(program->calls[c].node->op)) {
            run_chunks(program, lane, thread, from, c);
            run_whole(program, lane, thread, c);
            from = c + 1;
        }
    run_chunks(program, lane, thread, from, end);
    for (int c = first; c < end; c++)
        if (program->calls[c].whole_lane && np_op_is_wgrad(program->calls[c].node->op))
            run_whole(program, lane, thread, c);
}

struct finish_job {
    struct np_program *program;
    struct call *call;
    int nr_parts;
    float *root; /* of the call's tree; NULL: it has none */
};

static void finish_part(void *context, int part, int thread)
{
    struct finish_job *job = context;
    struct np_finish finish = {.operands = &job->call->operands,
        .info = &job->program->info,
        .partials = job->root ? (void *const *)&job->root : job->call->partials,
        .nr_lanes = job->root ? 1 : job->program->nr_lanes,
        .batch = job->program->graph->batch,
        .part = part,
        .nr_parts = job->nr_parts,
        .join = job->program->comm ? &job->program->join : NULL,
        .scratch = job->program->scratch[thread]};

    job->call->made.kernel->finish(job->call->made.state, &finish);
}

/* A lower bound of the bytes that finish() reads or writes. */
static uint64_t finish_bytes(const struct np_program *program, const struct call *call)
{
    uint64_t bytes = call->made.needs.partial_bytes;

    if (np_linear_waits(program->graph, call->node))
        bytes += np_tensor_elements(&program->graph->tensors[call->node->ins[1]]) * sizeof(float);
    for (int o = 0; o < call->node->nr_outs; o++)
        bytes += np_tensor_elements(&program->graph->tensors[call->node->outs[o]]) * sizeof(float);
    return bytes;
}

/* A root in the form of leaves has the outputs, one after the other. */
static void take_outputs(
    const struct np_program *program, const struct call *call, const float *root)
{
    const struct np_op_node *node = call->node;

    for (int o = 0; o < node->nr_outs; o++) {
        const uint64_t n =
            node->outs[o] < 0 ? 0 : np_tensor_elements(&program->graph->tensors[node->outs[o]]);

        if (n > 0)
            memcpy(call->operands.ptr[node->nr_ins + o], root, n * sizeof(float));
        root += n;
    }
}

static void finish_call(struct np_program *program, struct call *call)
{
    const bool joins = program->in_lanes &&
                       (call->node->op == NP_OP_BN_STATS || call->node->op == NP_OP_BN_REDUCE);
    struct finish_job job = {program, call, 1, NULL};

    if (!call->made.kernel->finish)
        return;
    if (call->tree)
        job.root = np_tree_root(call->tree);
    if (finish_bytes(program, call) > FINISH_IN_PLACE && !joins) /* which is this thread's */
        job.nr_parts = np_pool_threads(program->pool);
    if (call->made.kernel->leaf && call->tree)
        take_outputs(program, call, job.root);
    else
        np_pool_run(program->pool, job.nr_parts, finish_part, &job);
    if (call->tree)
        np_tree_give(call->tree, job.root);
}

static void finish_group(struct np_program *program, const struct group *group)
{
    for (int c = group->first_call; c < group->first_call + group->nr_calls && program->code == 0;
         c++)
        finish_call(program, &program->calls[c]);
}

/* Hands the gradients that are complete after a group to the other processes, from bucket `next` on.
 * Returns the next one. */
static int hand_over(struct np_program *program, int group, int next)
{
    const struct np_buckets *buckets = &program->buckets;

    for (; next < buckets->nr && buckets->buckets[next].group <= group; next++)
        np_comm_sum_begin(program->peers, program->arrays.grads + buckets->buckets[next].first,
            buckets->buckets[next].n);
    return next;
}

/* An error leaves trees with sums that nobody takes. */
static void clear_trees(struct np_program *program, const struct group *group)
{
    for (int c = group->first_call; c < group->first_call + group->nr_calls; c++)
        np_tree_clear(program->calls[c].tree);
}

int np_program_run(struct np_program *program, const void *images, const void *labels,
    const struct np_step_info *info, struct np_err *err)
{
    assert(program->arena || program->memory.arena_bytes == 0);
    program->info = *info;
    program->err = err;
    program->code = 0;
    set_inputs(program, images, labels);
    if (!program->begun)
        np_pool_run(program->pool, program->nr_calls, begin_call, program);
    program->begun = true;
    for (int g = 0, bucket = 0; g < program->nr_groups && program->code == 0; g++) {
        program->group = &program->groups[g];
        np_pool_run(program->pool, program->nr_lanes, run_lane, program);
        finish_group(program, program->group);
        if (program->code < 0)
            clear_trees(program, program->group);
        else
            bucket = hand_over(program, g, bucket);
    }
    if (program->code < 0 && program->peers)
        np_comm_sum_end(program->peers, NULL); /* so that none is written to any more */
    return program->code;
}
