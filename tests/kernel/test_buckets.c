/* The parts in which gradients are handed to the other processes. */
#include <string.h>

#include "loader/base/mem.h"
#include "tests/kernel/made_graphs.h"
#include "tests/kernel/small_nets.h"
#include "tests/test.h"
#include "trainer/cpu/buckets.h"
#include "trainer/plan.h"

static struct np_graph *with_gradients(struct np_graph *graph)
{
    cr_assert_eq(np_autodiff(graph, NULL), 0);
    return graph;
}

/* A group for each `a_group` nodes. */
static void check(const struct np_graph *graph, int a_group)
{
    int *groups = np_alloc_array((size_t)graph->nr_nodes, sizeof(*groups));
    unsigned char *seen = np_alloc_array(graph->nr_params, 1);
    const int nr_groups = (graph->nr_nodes + a_group - 1) / a_group;
    struct np_buckets made;

    for (int n = 0; n < graph->nr_nodes; n++)
        groups[n] = n / a_group;
    np_buckets_make(graph, groups, nr_groups, &made);
    for (int b = 0; b < made.nr; b++) {
        const struct np_bucket *bucket = &made.buckets[b];

        cr_assert(bucket->first + bucket->n <= graph->nr_params && bucket->group < nr_groups);
        cr_assert(b == 0 || bucket->group >= made.buckets[b - 1].group);
        for (uint64_t i = 0; i < bucket->n; i++)
            cr_assert_eq(seen[bucket->first + i]++, 0, "element %llu twice",
                (unsigned long long)(bucket->first + i));
        for (int n = 0; n < graph->nr_nodes; n++) {
            const struct np_op_node *node = &graph->nodes[n];

            for (int i = 0; i < node->nr_ins + node->nr_outs; i++) {
                const int t = i < node->nr_ins ? node->ins[i] : node->outs[i - node->nr_ins];
                const struct np_tensor *tensor = t < 0 ? NULL : &graph->tensors[t];

                if (tensor && tensor->role == NP_ROLE_GRAD && tensor->offset >= bucket->first &&
                    tensor->offset < bucket->first + bucket->n)
                    cr_assert(groups[n] <= bucket->group, "node %d still uses bucket %d", n, b);
            }
        }
    }
    for (uint64_t i = 0; i < graph->nr_params; i++)
        cr_assert_eq(seen[i], 1, "element %llu in no bucket", (unsigned long long)i);
    np_buckets_fini(&made);
    np_free(seen);
    np_free(groups);
}

Test(buckets, each_gradient_is_handed_over_once_and_after_its_last_use)
{
    struct np_graph *small = with_gradients(net_resnet(4, 8, 1, 8, 10, NP_F32)),
                    *plain = with_gradients(net_plain(4, 16, 10, NP_F32));

    check(small, 1);
    check(small, 5);
    check(plain, 1);
    check(plain, 1000);
    np_graph_free(small);
    np_graph_free(plain);
}

/* Convolutions without batchnorm: one plain group. */
static struct np_graph *convolutions(void)
{
    static const char text[] =
        "model: [{conv: {name: a, out: 64, kernel: 3}}, relu, "
        "{conv: {name: b, out: 256, kernel: 3}}, relu, {conv: {name: c, out: 256, kernel: 3}}, "
        "relu, {conv: {name: d, out: 256, kernel: 3}}, relu, global_avgpool, "
        "{linear: {out: classes}}]";

    return with_gradients(made_good_graph(text, (struct made){2, 12, 12, 3, 10, NP_F32}));
}

/* The names of the nodes at which np_buckets_ends() ends a group, one after the other. */
static void ends_of(const struct np_graph *graph, const int *groups, char *ret_names)
{
    bool *ends = np_alloc_array((size_t)graph->nr_nodes, sizeof(*ends));

    np_buckets_ends(graph, groups, ends);
    *ret_names = '\0';
    for (int n = 0; n < graph->nr_nodes; n++)
        if (ends[n])
            strcat(ret_names, graph->nodes[n].name);
    np_free(ends);
}

Test(buckets, a_group_ends_where_gradients_are_worth_a_message)
{
    struct np_graph *graph = convolutions();
    int *groups = np_alloc_array((size_t)graph->nr_nodes, sizeof(*groups)), nr = 0;
    char names[80];

    /* 590,080 elements each; the linear layer's go with d's, b's 147,712 with a's, the last ones */
    ends_of(graph, groups, names);
    cr_assert_str_eq(names, "dc");
    /* Groups that end there by themselves need no other end. */
    for (int n = 0; n < graph->nr_nodes; n++) {
        groups[n] = nr;
        nr += np_op_is_wgrad(graph->nodes[n].op);
    }
    ends_of(graph, groups, names);
    cr_assert_str_eq(names, "");
    np_free(groups);
    np_graph_free(graph);
}

Test(buckets, each_end_of_a_group_lets_a_bucket_go_and_frees_memory)
{
    struct np_graph *graph = convolutions();
    int *groups = np_alloc_array((size_t)graph->nr_nodes, sizeof(*groups)), nr = 0;
    bool *ends = np_alloc_array((size_t)graph->nr_nodes, sizeof(*ends));
    struct np_memory plain, split;
    struct np_buckets made;

    np_memory_plan(graph, groups, &plain);
    np_buckets_ends(graph, groups, ends);
    for (int n = 0; n < graph->nr_nodes; n++) {
        groups[n] = nr;
        nr += ends[n];
    }
    np_buckets_make(graph, groups, nr + 1, &made);
    cr_assert_eq(made.nr, 3);
    for (int b = 0; b < made.nr; b++)
        cr_assert_eq(made.buckets[b].group, b);
    np_memory_plan(graph, groups, &split);
    cr_assert_lt(split.arena_bytes, plain.arena_bytes);
    np_memory_fini(&plain);
    np_memory_fini(&split);
    np_buckets_fini(&made);
    np_free(ends);
    np_free(groups);
    np_graph_free(graph);
}

Test(buckets, the_last_layers_of_a_large_net_go_first)
{
    /* 11 M parameters */
    struct np_graph *graph = with_gradients(net_resnet(1, 8, 2, 128, 10, NP_F32));
    int *groups = np_alloc_array((size_t)graph->nr_nodes, sizeof(*groups));
    struct np_buckets made;

    check(graph, 3);
    for (int n = 0; n < graph->nr_nodes; n++)
        groups[n] = n;
    np_buckets_make(graph, groups, graph->nr_nodes, &made);
    cr_assert(made.nr >= 5 && made.nr <= 40, "%d", made.nr);
    cr_assert_eq(made.buckets[0].first + made.buckets[0].n, graph->nr_params);
    cr_assert_eq(made.buckets[made.nr - 1].first, 0);
    cr_assert_lt(made.buckets[0].group, made.buckets[made.nr - 1].group);
    np_buckets_fini(&made);
    np_free(groups);
    np_graph_free(graph);
}
