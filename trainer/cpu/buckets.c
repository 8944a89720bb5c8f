/* Gradients lie in the order of the layers, and the backward pass fills them from the end: so a bucket
 * grows from the end of the array towards its beginning, until it is worth a message. */
#include "trainer/cpu/buckets.h"

#include <stdlib.h>

#include "loader/base/mem.h"

#define WORTH (256u * 1024) /* elements: what comm_sums.c sends at once */

static int by_place(const void *a, const void *b)
{
    const uint64_t x = ((const struct np_bucket *)a)->first,
                   y = ((const struct np_bucket *)b)->first;

    return (x > y) - (x < y);
}

static int by_group(const void *a, const void *b)
{
    const struct np_bucket *x = a, *y = b;

    return x->group != y->group ? (x->group > y->group) - (x->group < y->group)
                                : (x->first < y->first) - (x->first > y->first);
}

/* A gradient's last group: its element of `last` by tensor. */
static void find_last(const struct np_graph *graph, const int *groups, int *last)
{
    for (int t = 0; t < graph->nr_tensors; t++)
        last[t] = -1;
    for (int n = 0; n < graph->nr_nodes; n++) {
        const struct np_op_node *node = &graph->nodes[n];

        for (int i = 0; i < node->nr_ins + node->nr_outs; i++) {
            const int t = i < node->nr_ins ? node->ins[i] : node->outs[i - node->nr_ins];

            if (t >= 0 && groups[n] > last[t])
                last[t] = groups[n];
        }
    }
}

/* One for each gradient, in the order of their places. Returns their number. */
static int list(
    const struct np_graph *graph, const int *last, int nr_groups, struct np_bucket *ret_list)
{
    int nr = 0;

    for (int t = 0; t < graph->nr_tensors; t++)
        if (graph->tensors[t].role == NP_ROLE_GRAD)
            ret_list[nr++] = (struct np_bucket){graph->tensors[t].offset,
                np_tensor_elements(&graph->tensors[t]), last[t] < 0 ? nr_groups - 1 : last[t]};
    qsort(ret_list, (size_t)nr, sizeof(*ret_list), by_place);
    return nr;
}

void np_buckets_make(
    const struct np_graph *graph, const int *groups, int nr_groups, struct np_buckets *ret_buckets)
{
    int *last = np_alloc_array((size_t)graph->nr_tensors + 1, sizeof(*last));
    struct np_bucket *grads = np_alloc_array((size_t)graph->nr_tensors + 1, sizeof(*grads)),
                     *buckets = np_alloc_array((size_t)graph->nr_tensors + 1, sizeof(*buckets));
    uint64_t end = graph->nr_params;
    int nr = 0, group = 0;

    find_last(graph, groups, last);
    const int nr_grads = list(graph, last, nr_groups, grads);
    for (int i = nr_grads; i > 0; i--) {
        const struct np_bucket *grad = &grads[i - 1];

        if (grad->group > group)
            group = grad->group;
        if (end - grad->first < WORTH && i > 1)
            continue;
        const uint64_t first = i == 1 ? 0 : grad->first;
        buckets[nr++] = (struct np_bucket){first, end - first, group};
        end = first;
        group = 0;
    }
    if (nr_grads == 0 && end > 0)
        buckets[nr++] = (struct np_bucket){0, end, nr_groups - 1};
    qsort(buckets, (size_t)nr, sizeof(*buckets), by_group);
    np_free(grads);
    np_free(last);
    *ret_buckets = (struct np_buckets){buckets, nr};
}

/* Does the group of this node go on to another layer's work? */
static bool goes_on(const struct np_graph *graph, const int *groups, int node)
{
    for (int n = node + 1; n < graph->nr_nodes; n++)
        if (groups[n] == groups[node] && np_op_is_wgrad(graph->nodes[n].op))
            return true;
    return false;
}

void np_buckets_ends(const struct np_graph *graph, const int *groups, bool *ret_ends)
{
    int *nodes = np_alloc_array((size_t)graph->nr_nodes + 1, sizeof(*nodes));
    struct np_buckets buckets;

    for (int n = 0; n < graph->nr_nodes; n++) {
        nodes[n] = n;
        ret_ends[n] = false;
    }
    np_buckets_make(graph, nodes, graph->nr_nodes, &buckets);
    for (int b = 0; b < buckets.nr; b++)
        ret_ends[buckets.buckets[b].group] = goes_on(graph, groups, buckets.buckets[b].group);
    np_buckets_fini(&buckets);
    np_free(nodes);
}

void np_buckets_fini(struct np_buckets *buckets)
{
    np_free(buckets->buckets);
    *buckets = (struct np_buckets){0};
}
