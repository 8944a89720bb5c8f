/* The parts in which gradients are handed to the other processes. */
#include <string.h>

#include "loader/base/mem.h"
#include "tests/kernel/made_graphs.h"
#include "tests/kernel/small_nets.h"
#include "tests/test.h"
#include "trainer/cpu/buckets.h"

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
