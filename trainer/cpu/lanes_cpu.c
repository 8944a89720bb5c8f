#include "trainer/cpu/lanes_cpu.h"

#include <errno.h>

#include "loader/base/mem.h"
#include "trainer/comm.h"

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

int np_lanes_groups(const struct np_graph *graph, const struct np_plan_options *options)
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
