#include "trainer/graph/views.h"

#include <assert.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/graph/graph.h"

const char *const np_tta_names[] = {"none", "flip", "flip_shift", NULL};

/* Moves the newest node before the loss, which is the last node of an evaluation graph. */
static void put_before_loss(struct np_graph *eval)
{
    struct np_op_node *last = &eval->nodes[eval->nr_nodes - 1], node = *last;

    assert(np_op_is_loss(last[-1].op));
    last[0] = last[-1];
    last[-1] = node;
}

void np_graph_views(struct np_graph *eval, enum np_tta tta)
{
    if (tta == NP_TTA_NONE)
        return;
    const int logits = eval->logits, nr_dims = eval->tensors[logits].nr_dims;
    int dims[4];

    memcpy(dims, eval->tensors[logits].dims, sizeof(dims));
    const int mean = np_graph_tensor(
        eval, "views", NP_ROLE_ACTIVATION, eval->tensors[logits].dtype, nr_dims, dims);
    const int sum = np_graph_tensor(eval, "views' sum", NP_ROLE_SAVED, NP_F32, nr_dims, dims);

    np_graph_redirect(eval, logits, mean);
    const int node = np_graph_node(eval, NP_OP_VIEWS, "views", 0);
    np_graph_in(eval, node, logits);
    np_graph_out(eval, node, mean);
    np_graph_out(eval, node, sum);
    eval->nodes[node].attrs.tta = eval->nodes[0].attrs.tta = tta; /* 0: NP_OP_INPUT */
    put_before_loss(eval);
    eval->nr_forward = eval->nr_nodes;
}

int np_graph_nr_views(const struct np_graph *graph)
{
    return graph->nr_nodes > 0 ? np_tta_views(graph->nodes[0].attrs.tta) : 1; /* of NP_OP_INPUT */
}
