#include "trainer/cpu/lanes_cpu.h"

#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/stat.h"
#include "trainer/comm.h"
#include "trainer/cpu/kernels.h"

bool np_lanes_on(const struct np_plan_options *options)
{
    return options->parts > 1;
}

int np_lanes_own(const struct np_plan_options *options)
{
    return np_lanes_on(options) ? options->parts / np_comm_world(options->comm) : 1;
}

/* Rows of this process in a group. */
static int over_rows(const struct np_graph *graph, const struct np_plan_options *options)
{
    return options->batchnorm_over > 0 ? options->batchnorm_over : graph->batch;
}

/* Groups that batchnorm averages over, in all processes. */
static int nr_groups(const struct np_graph *graph, const struct np_plan_options *options)
{
    const int own = graph->batch / over_rows(graph, options);

    return options->batchnorm_over > 0 ? own * np_comm_world(options->comm) : own;
}

static int check(
    const struct np_graph *graph, const struct np_plan_options *options, struct np_err *err)
{
    const int lane = graph->batch / np_lanes_own(options), rows = over_rows(graph, options);

    if (rows > graph->batch)
        return np_err_set(err, -EINVAL,
            "train.batchnorm_over: %d rows are more than a process has (%d)", rows, graph->batch);
    if (rows < lane ? lane % rows != 0 : rows % lane != 0 || np_lanes_own(options) % (rows / lane))
        return np_err_set(err, -EINVAL,
            "train.batchnorm_over: groups of %d rows are neither whole lanes (%d rows) nor a part "
            "of one",
            rows, lane);
    return 0;
}

/* A statistic of each group, in place of the one of the batch. */
static int add_groups(struct np_graph *graph, const char *name, int groups, int c)
{
    return np_graph_tensor(graph, name, NP_ROLE_SAVED, NP_F32, 3, (const int[]){1, groups, c});
}

static void replace(struct np_graph *graph, int from, int to)
{
    for (int n = 0; n < graph->nr_nodes; n++) {
        struct np_op_node *node = &graph->nodes[n];

        for (int i = 0; i < node->nr_ins; i++)
            node->ins[i] = node->ins[i] == from ? to : node->ins[i];
    }
}

/* mean and inv_std of each group. */
static void widen_stats(struct np_graph *graph, int stats, int groups)
{
    for (int o = 0; o < 2; o++) {
        const int old = graph->nodes[stats].outs[o];
        const int c = (int)np_tensor_elements(&graph->tensors[old]);
        const int wide = add_groups(graph, graph->nodes[stats].name, groups, c);

        graph->nodes[stats].outs[o] = wide;
        replace(graph, old, wide);
    }
}

/* The gradient of x reads the sums of each group, the optimizer those of this process. */
static void widen_sums(struct np_graph *graph, int reduce, int groups)
{
    for (int o = 0; o < 2; o++) {
        const int old = graph->nodes[reduce].outs[o];
        const int c = (int)np_tensor_elements(&graph->tensors[old]);
        const int wide = add_groups(graph, graph->nodes[reduce].name, groups, c);

        np_graph_out(graph, reduce, wide);
        for (int n = 0; n < graph->nr_nodes; n++)
            for (int i = 6; graph->nodes[n].op == NP_OP_BN_DGRAD && i < 8; i++)
                if (graph->nodes[n].ins[i] == old)
                    graph->nodes[n].ins[i] = wide;
    }
}

int np_lanes_prepare(
    struct np_graph *graph, const struct np_plan_options *options, struct np_err *err)
{
    const int rows = over_rows(graph, options), groups = graph->batch / rows;

    if (!np_lanes_on(options))
        return 0;
    if (check(graph, options, err) < 0)
        return -EINVAL;
    for (int n = 0; n < graph->nr_nodes; n++) {
        struct np_attrs *attrs = &graph->nodes[n].attrs;
        const bool all = options->batchnorm_over == NP_OVER_ALL;

        attrs->lane_rows = graph->batch / np_lanes_own(options);
        attrs->over_rows = rows;
        attrs->over_all_rows = rows * (all ? np_comm_world(options->comm) : 1);
        if (graph->nodes[n].op == NP_OP_BN_STATS)
            widen_stats(graph, n, groups);
        else if (graph->nodes[n].op == NP_OP_BN_REDUCE)
            widen_sums(graph, n, groups);
    }
    return 0;
}

/* --- steps ---------------------------------------------------------------------------------- */

void np_cpu_lanes_init(
    struct np_cpu_lanes *lanes, const struct np_graph *graph, const struct np_plan_options *options)
{
    *lanes = (struct np_cpu_lanes){
        .nr = np_lanes_on(options) ? np_lanes_own(options) : 0,
        .over = options->batchnorm_over,
        .nr_groups = nr_groups(graph, options),
        .comm = np_lanes_on(options) ? options->comm : NULL,
        .block = options->block,
    };
}

void np_cpu_lanes_fini(struct np_cpu_lanes *lanes)
{
    np_free(lanes->first_buffers);
    *lanes = (struct np_cpu_lanes){0};
}

int np_cpu_lanes_keep(
    struct np_cpu_lanes *lanes, const float *buffers, uint64_t n, struct np_err *err)
{
    if (!lanes->first_buffers && !(lanes->first_buffers = np_try_array(n + 1, sizeof(float), err)))
        return np_err_context(err, "the running statistics");
    memcpy(lanes->first_buffers, buffers, n * sizeof(float));
    lanes->unapplied = true;
    return 0;
}

static void wait_for(const struct np_cpu_lanes *lanes, const char *what)
{
    if (lanes->comm && lanes->block)
        np_stat_wait(lanes->block, NP_STATE_BLOCKED, what, "the other processes", 0);
}

static void waited(const struct np_cpu_lanes *lanes)
{
    if (lanes->comm && lanes->block)
        np_stat_done(lanes->block);
}

static void add_two(double *left, const double *right, size_t n)
{
    for (size_t i = 0; i < n; i++)
        left[i] += right[i];
}

/* Rows that count, and the sum of labels' weights, of all processes: a binary tree of lanes. */
static int find_class_scale(const struct np_cpu_lanes *lanes, const struct np_graph *graph,
    const int32_t *labels, float *ret_scale, struct np_err *err)
{
    const int rows = graph->batch / lanes->nr;
    double sums[NP_MAX_LANES][2] = {{0}};

    for (int r = 0; r < graph->batch; r++)
        if (labels[r] >= 0) {
            sums[r / rows][0]++;
            sums[r / rows][1] += (double)graph->class_weights[labels[r]];
        }
    for (int step = 1; step < lanes->nr; step *= 2)
        for (int lane = 0; lane + step < lanes->nr; lane += 2 * step)
            add_two(sums[lane], sums[lane + step], 2);
    wait_for(lanes, "class weights");
    const int code = np_comm_join(lanes->comm, sums[0], 2, add_two, err);
    waited(lanes);
    *ret_scale = sums[0][1] > 0 ? (float)(sums[0][0] / sums[0][1]) : 0;
    return code;
}

int np_cpu_lanes_start(const struct np_cpu_lanes *lanes, const struct np_graph *graph,
    const int32_t *labels, struct np_step_info *info, struct np_err *err)
{
    info->first_row = np_comm_rank(lanes->comm) * graph->batch;
    if (!graph->class_weights)
        return 0;
    return find_class_scale(lanes, graph, labels, &info->class_scale, err);
}

/* Have groups of rows, or processes, each moved the running statistics? Else all have moved them
 * alike. */
static bool moved_apart(const struct np_cpu_lanes *lanes)
{
    return lanes->over > 0 || (lanes->over == NP_OVER_PROCESS && lanes->comm);
}

/* Running statistics that a step has moved become the mean over the groups, or those of rank 0. */
static void take_buffers(const struct np_cpu_lanes *lanes, const struct np_graph *graph,
    const float *sums, float *buffers, uint64_t step)
{
    const float groups = lanes->over > 0 ? (float)lanes->nr_groups : 1;

    for (int n = 0; n < graph->nr_forward; n++) {
        const struct np_op_node *node = &graph->nodes[n];

        if (node->op != NP_OP_BN_STATS || step < node->attrs.thaw)
            continue;
        for (int i = 1; i <= 2; i++) {
            const struct np_tensor *tensor = &graph->tensors[node->ins[i]];

            for (uint64_t at = tensor->offset; at < tensor->offset + np_tensor_elements(tensor);
                 at++)
                buffers[at] = sums[at] / groups;
        }
    }
}

int np_cpu_lanes_sum(const struct np_cpu_lanes *lanes, const struct np_graph *graph,
    float *const *arrays, uint64_t step, struct np_err *err)
{
    float *sums = arrays[NP_ARRAY_GRADS] + graph->nr_params, *buffers = arrays[NP_ARRAY_BUFFERS];
    const bool apart = moved_apart(lanes);

    if (apart && lanes->over == NP_OVER_PROCESS && np_comm_rank(lanes->comm) > 0)
        memset(sums, 0, graph->nr_buffers * sizeof(float));
    else if (apart)
        memcpy(sums, buffers, graph->nr_buffers * sizeof(float));
    wait_for(lanes, "gradients");
    np_comm_sum_begin(lanes->comm, sums, apart ? graph->nr_buffers : 0);
    const int code = np_comm_sum_end(lanes->comm, err);
    waited(lanes);
    if (code == 0 && apart)
        take_buffers(lanes, graph, sums, buffers, step);
    return code;
}
