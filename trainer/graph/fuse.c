/* Rewrites pairs of nodes that a device runs as one. Forward nodes are fused together with their
 * backward nodes: a backward node may still need the tensor between the forward ones, so a pair
 * is fused only when nothing else reads that tensor. Runs once, at start. */
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/graph/graph.h"

/* Returns the only node that reads tensor, if it is a forward node with this operation, or -1. */
static int only_reader(const struct np_graph *graph, int tensor, enum np_op op)
{
    int found = -1;

    if (graph->logits == tensor)
        return -1;
    for (int n = 0; n < graph->nr_nodes; n++)
        for (int i = 0; i < graph->nodes[n].nr_ins; i++)
            if (graph->nodes[n].ins[i] == tensor) {
                if (found >= 0 || n >= graph->nr_forward || graph->nodes[n].op != op)
                    return -1;
                found = n;
            }
    return found;
}

/* Marks a node to be dropped: no outputs and no inputs. */
static void kill(struct np_graph *graph, int n)
{
    graph->nodes[n].nr_ins = graph->nodes[n].nr_outs = 0;
}

/* -1: there is none. */
static int backward_of(const struct np_graph *graph, int n, enum np_op op)
{
    for (int i = graph->nr_forward; i < graph->nr_nodes; i++)
        if (graph->nodes[i].op == op && graph->nodes[i].forward == n && graph->nodes[i].nr_outs)
            return i;
    return -1;
}

/* BN -> z -> RELU -> y becomes BN(relu) -> y. In the backward pass RELU_DGRAD(dy, y) -> dz is
 * dropped; BN_REDUCE and BN_DGRAD take dy and mask it by the sign, which they recompute. */
static void fuse_bn_relu(struct np_graph *graph, int bn)
{
    int relu = only_reader(graph, graph->nodes[bn].outs[0], NP_OP_RELU);

    if (relu < 0)
        return;
    int relu_back = backward_of(graph, relu, NP_OP_RELU_DGRAD);
    int reduce = backward_of(graph, bn, NP_OP_BN_REDUCE);
    int dgrad = backward_of(graph, bn, NP_OP_BN_DGRAD);
    if (relu_back >= 0) {
        int dz = graph->nodes[relu_back].outs[0], dy = graph->nodes[relu_back].ins[0];

        if (reduce < 0 || graph->nodes[reduce].ins[0] != dz)
            return; /* dz is part of a sum, so the relu's gradient is needed */
        np_graph_redirect(graph, dz, dy);
        graph->nodes[reduce].attrs.relu = true;
        if (dgrad >= 0)
            graph->nodes[dgrad].attrs.relu = true;
        kill(graph, relu_back);
    }
    graph->nodes[bn].attrs.relu = true;
    graph->nodes[bn].outs[0] = graph->nodes[relu].outs[0];
    kill(graph, relu);
}

/* BN -> z; ADD(z, other) -> s; RELU -> y becomes BN(add: other, relu) -> y at the ADD's place. In
 * the backward pass RELU_DGRAD(dy, y) -> ds, read as dz and as d other, becomes: BN_REDUCE(dy, ...,
 * y), BN_DGRAD(dy, ..., y) -> dx, d other. */
static bool fuse_backward_add(struct np_graph *graph, int bn, int relu, int y)
{
    int relu_back = backward_of(graph, relu, NP_OP_RELU_DGRAD);
    int reduce = backward_of(graph, bn, NP_OP_BN_REDUCE);
    int dgrad = backward_of(graph, bn, NP_OP_BN_DGRAD), ds, dy;

    if (relu_back < 0)
        return reduce < 0; /* no backward pass: the forward may fuse */
    if (reduce < 0 || dgrad < 0 || graph->nodes[reduce].ins[0] != graph->nodes[relu_back].outs[0])
        return false;
    ds = graph->nodes[relu_back].outs[0];
    dy = graph->nodes[relu_back].ins[0];
    /* BN_DGRAD makes ds again as its second output, so nodes that read ds must come after it. */
    for (int n = relu_back + 1; n < dgrad; n++)
        for (int i = 0; i < graph->nodes[n].nr_ins; i++)
            if (n != reduce && graph->nodes[n].ins[i] == ds)
                return false;
    graph->nodes[reduce].ins[0] = graph->nodes[dgrad].ins[0] = dy;
    graph->nodes[reduce].attrs.relu = graph->nodes[dgrad].attrs.relu = true;
    np_graph_in(graph, reduce, y);
    np_graph_in(graph, dgrad, y);
    kill(graph, relu_back);
    np_graph_out(graph, dgrad, ds);
    return true;
}

static void fuse_bn_add_relu(struct np_graph *graph, int bn)
{
    int z = graph->nodes[bn].outs[0], add = only_reader(graph, z, NP_OP_ADD);

    if (add < 0)
        return;
    int relu = only_reader(graph, graph->nodes[add].outs[0], NP_OP_RELU);
    if (relu < 0 || !fuse_backward_add(graph, bn, relu, graph->nodes[relu].outs[0]))
        return;
    /* The fused node takes the ADD's place in the order: its other operand is computed by then. */
    struct np_op_node *node = &graph->nodes[add];
    np_graph_in(graph, bn, node->ins[node->ins[0] == z]);
    node->op = graph->nodes[bn].op;
    node->attrs = graph->nodes[bn].attrs;
    node->attrs.relu = true;
    node->nr_ins = graph->nodes[bn].nr_ins;
    memcpy(node->ins, graph->nodes[bn].ins, sizeof(node->ins));
    node->outs[0] = graph->nodes[relu].outs[0];
    for (int n = graph->nr_forward; n < graph->nr_nodes; n++)
        if (graph->nodes[n].forward == bn)
            graph->nodes[n].forward = add;
    kill(graph, bn);
    kill(graph, relu);
}

/* OP -> z -> RELU -> y becomes OP(relu) -> y; RELU_DGRAD(dy, y) stays: it reads only y. */
static void fuse_relu(struct np_graph *graph, int n)
{
    int relu = only_reader(graph, graph->nodes[n].outs[0], NP_OP_RELU);

    if (relu < 0)
        return;
    graph->nodes[n].attrs.relu = true;
    graph->nodes[n].outs[0] = graph->nodes[relu].outs[0];
    kill(graph, relu);
}

/* --- gradients ------------------------------------------------------------------------------- */

/* RELU -> x, MAXPOOL(x) -> y: MAXPOOL_DGRAD(dy) -> dx, RELU_DGRAD(dx, x) becomes MAXPOOL_DGRAD(dy, y),
 * because the x that a window chose is its y. op: this one, or DROPOUT_DGRAD, whose y is positive where it kept a
 * positive x. */
static void fuse_relu_before(struct np_graph *graph, int relu_back, enum np_op op)
{
    const int dx = graph->nodes[relu_back].ins[0], x = graph->nodes[relu_back].ins[1];
    int back = -1;

    for (int n = graph->nr_forward; n < graph->nr_nodes; n++) {
        const struct np_op_node *node = &graph->nodes[n];

        if (node->op == op && node->nr_outs && node->outs[0] == dx)
            back = n;
        for (int i = 0; i < node->nr_ins; i++)
            if (node->ins[i] == dx && n != relu_back)
                return;
    }
    if (back < 0 || graph->nodes[graph->nodes[back].forward].ins[0] != x)
        return;
    np_graph_in(graph, back, graph->nodes[graph->nodes[back].forward].outs[0]);
    graph->nodes[back].attrs.relu = true;
    graph->nodes[back].outs[0] = graph->nodes[relu_back].outs[0];
    kill(graph, relu_back);
}

/* RELU(x) -> y, DROPOUT(y) -> z becomes DROPOUT(relu, x) -> z, if nothing else reads y. */
static void fuse_relu_dropout(struct np_graph *graph, int relu)
{
    const int drop = only_reader(graph, graph->nodes[relu].outs[0], NP_OP_DROPOUT);

    if (drop < 0)
        return;
    graph->nodes[drop].ins[0] = graph->nodes[relu].ins[0];
    graph->nodes[drop].attrs.relu = true;
    kill(graph, relu);
}

/* Returns the ADD of two gradients that writes tensor, if no node but these two reads it, or -1. */
static int sum_for(const struct np_graph *graph, int tensor, int reduce, int dgrad)
{
    int found = -1;

    for (int n = graph->nr_forward; n < graph->nr_nodes; n++) {
        const struct np_op_node *node = &graph->nodes[n];

        if (node->op == NP_OP_ADD && node->nr_outs && node->outs[0] == tensor)
            found = n;
        for (int i = 0; i < node->nr_ins; i++)
            if (node->ins[i] == tensor && n != reduce && n != dgrad)
                return -1;
    }
    return found;
}

/* BN_REDUCE reads the bits of y > 0, which the forward node writes, instead of y. */
static void take_mask(struct np_graph *graph, int reduce)
{
    const int apply = graph->nodes[reduce].forward, y = graph->nodes[reduce].ins[6];
    const struct np_tensor like = graph->tensors[y];
    int dims[4], last = like.nr_dims - 1, mask;
    char name[256];

    if (like.dims[last] % 8 != 0)
        return;
    memcpy(dims, like.dims, sizeof(dims));
    dims[last] /= 8;
    snprintf(name, sizeof(name), "%.240s > 0", like.name);
    mask = np_graph_tensor(graph, name, NP_ROLE_SAVED, NP_U8, like.nr_dims, dims);
    np_graph_out(graph, apply, mask);
    graph->nodes[reduce].ins[6] = mask;
}

/* ADD(dy, dy2) -> sum is dropped: BN_REDUCE reads both. Where it adds, or masks by y, it also writes
 * the result g, which BN_DGRAD reads as its dy: so that has nothing to mask, and need not write the
 * d other of fuse_backward_add(), which is g. */
static void fuse_bn_gradient(struct np_graph *graph, int reduce)
{
    const int dgrad = backward_of(graph, graph->nodes[reduce].forward, NP_OP_BN_DGRAD);
    const bool by_y = graph->nodes[reduce].nr_ins > 6;
    int add, g;

    if (dgrad < 0)
        return;
    g = graph->nodes[reduce].ins[0];
    add = sum_for(graph, g, reduce, dgrad);
    if (!by_y && add < 0)
        return;
    if (by_y) {
        take_mask(graph, reduce);
        g = graph->nodes[dgrad].outs[1];
        graph->nodes[dgrad].nr_ins = 8;
        graph->nodes[dgrad].nr_outs = 1;
    }
    if (add >= 0) {
        graph->nodes[reduce].ins[0] = graph->nodes[add].ins[0];
        np_graph_in(graph, reduce, graph->nodes[add].ins[1]);
        graph->nodes[reduce].attrs.joins = true;
        kill(graph, add);
    }
    np_graph_out(graph, reduce, g);
    graph->nodes[dgrad].ins[0] = g;
    graph->nodes[dgrad].attrs.relu = false;
}

static void fuse_mask(struct np_graph *graph, int relu_back, const struct np_fusions *fusions)
{
    if (graph->nodes[relu_back].nr_outs && fusions->relu_pool)
        fuse_relu_before(graph, relu_back, NP_OP_MAXPOOL_DGRAD);
    if (graph->nodes[relu_back].nr_outs && fusions->relu_dropout)
        fuse_relu_before(graph, relu_back, NP_OP_DROPOUT_DGRAD);
}

/* Removes the dropped nodes and renumbers the references to nodes. */
static void sweep(struct np_graph *graph)
{
    int *moved = np_alloc_array((size_t)graph->nr_nodes, sizeof(*moved)), kept = 0, forward = 0;

    for (int n = 0; n < graph->nr_nodes; n++) {
        struct np_op_node *node = &graph->nodes[n];

        moved[n] = node->nr_outs ? kept : -1;
        if (!node->nr_outs) {
            np_free(node->name);
            continue;
        }
        forward += n < graph->nr_forward;
        graph->nodes[kept++] = *node;
    }
    for (int n = 0; n < kept; n++)
        if (graph->nodes[n].forward >= 0)
            graph->nodes[n].forward = moved[graph->nodes[n].forward];
    graph->nr_nodes = kept;
    graph->nr_forward = forward;
    np_free(moved);
}

void np_fuse(struct np_graph *graph, const struct np_fusions *fusions)
{
    for (int n = 0; n < graph->nr_forward; n++) {
        enum np_op op = graph->nodes[n].op;
        bool bn = op == NP_OP_BN_APPLY || op == NP_OP_BN_EVAL;

        if (!graph->nodes[n].nr_outs || graph->nodes[n].attrs.relu)
            continue;
        if (bn && graph->nodes[n].nr_ins == 5 && fusions->bn_relu)
            fuse_bn_relu(graph, n);
        if (bn && graph->nodes[n].nr_outs && !graph->nodes[n].attrs.relu &&
            graph->nodes[n].nr_ins == 5 && fusions->bn_add_relu)
            fuse_bn_add_relu(graph, n);
        else if ((op == NP_OP_CONV && fusions->conv_relu) ||
                 (op == NP_OP_LINEAR && fusions->linear_relu) ||
                 (op == NP_OP_ADD && fusions->add_relu))
            fuse_relu(graph, n);
    }
    for (int n = graph->nr_forward; n < graph->nr_nodes; n++)
        if (graph->nodes[n].op == NP_OP_BN_REDUCE && graph->nodes[n].nr_outs == 2 &&
            fusions->bn_gradient)
            fuse_bn_gradient(graph, n);
        else if (graph->nodes[n].op == NP_OP_RELU_DGRAD)
            fuse_mask(graph, n, fusions);
    for (int n = 0; n < graph->nr_forward; n++)
        if (graph->nodes[n].op == NP_OP_RELU && graph->nodes[n].nr_outs && fusions->relu_dropout)
            fuse_relu_dropout(graph, n);
    sweep(graph);
}
