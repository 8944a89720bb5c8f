#include "tests/kernel/small_nets.h"

#include <stdio.h>
#include <stdlib.h>

struct maker {
    struct np_graph *graph;
    enum np_dtype dtype;
    int layer;
};

static int activation(struct maker *m, int h, int w, int c)
{
    return np_graph_tensor(
        m->graph, "y", NP_ROLE_ACTIVATION, m->dtype, 4, (int[]){m->graph->batch, h, w, c});
}

static const int *dims(struct maker *m, int tensor)
{
    return m->graph->tensors[tensor].dims;
}

static int values(struct maker *m, const char *what, enum np_role role, enum np_init init,
    int nr_dims, const int *d, int fan_in)
{
    char name[64];
    int tensor;

    snprintf(name, sizeof(name), "%d.%s", m->layer, what);
    tensor = np_graph_tensor(m->graph, name, role, NP_F32, nr_dims, d);
    m->graph->tensors[tensor].init = init;
    m->graph->tensors[tensor].fan_in = fan_in;
    m->graph->tensors[tensor].fan_out = d[0] * (nr_dims > 2 ? d[2] * d[3] : 1);
    return tensor;
}

/* A node of the layer; its attributes are set by the caller. */
static struct np_op_node *node_of(struct maker *m, enum np_op op, const int *ins, int nr_ins)
{
    char name[32];
    int node;

    snprintf(name, sizeof(name), "layer %d", m->layer);
    node = np_graph_node(m->graph, op, name, 0);
    for (int i = 0; i < nr_ins; i++)
        np_graph_in(m->graph, node, ins[i]);
    return &m->graph->nodes[node];
}

static void out(struct maker *m, int tensor)
{
    np_graph_out(m->graph, m->graph->nr_nodes - 1, tensor);
}

static int conv(struct maker *m, int x, int c, int kernel, int stride, bool bias)
{
    int in = dims(m, x)[3], pad = kernel / 2, ins[3] = {x}, y;
    int h = (dims(m, x)[1] - 1) / stride + 1, w = (dims(m, x)[2] - 1) / stride + 1;

    m->layer++;
    ins[1] = values(m, "weight", NP_ROLE_PARAM, NP_INIT_KAIMING_NORMAL, 4,
        (int[]){c, in, kernel, kernel}, in * kernel * kernel);
    if (bias)
        ins[2] = values(
            m, "bias", NP_ROLE_PARAM, NP_INIT_FAN_IN_UNIFORM, 1, (int[]){c}, in * kernel * kernel);
    y = activation(m, h, w, c);
    node_of(m, NP_OP_CONV, ins, 2 + bias)->attrs.window =
        (struct np_window)NP_SQUARE(kernel, stride, pad, 1, 1);
    out(m, y);
    return y;
}

static int batchnorm(struct maker *m, int x)
{
    int c = dims(m, x)[3], stats[3] = {x}, apply[5] = {x}, y;
    struct np_attrs attrs = {.momentum = 0.1, .eps = 1e-5};

    m->layer++;
    stats[1] = values(m, "running_mean", NP_ROLE_BUFFER, NP_INIT_ZERO, 1, &c, c);
    stats[2] = values(m, "running_var", NP_ROLE_BUFFER, NP_INIT_ONE, 1, &c, c);
    apply[1] = np_graph_tensor(m->graph, "mean", NP_ROLE_SAVED, NP_F32, 1, &c);
    apply[2] = np_graph_tensor(m->graph, "inv_std", NP_ROLE_SAVED, NP_F32, 1, &c);
    apply[3] = values(m, "weight", NP_ROLE_PARAM, NP_INIT_ONE, 1, &c, c);
    apply[4] = values(m, "bias", NP_ROLE_PARAM, NP_INIT_ZERO, 1, &c, c);
    y = activation(m, dims(m, x)[1], dims(m, x)[2], c);
    c = 0;
    node_of(m, NP_OP_BN_STATS, stats, 3)->attrs = attrs;
    out(m, apply[1]);
    out(m, apply[2]);
    node_of(m, NP_OP_BN_APPLY, apply, 5)->attrs = attrs;
    out(m, y);
    return y;
}

/* An operation with one output of this shape and no parameters. */
static int simple(struct maker *m, enum np_op op, const int *ins, int nr_ins, int h, int w, int c)
{
    int y = activation(m, h, w, c);

    m->layer++;
    node_of(m, op, ins, nr_ins);
    out(m, y);
    return y;
}

static int relu(struct maker *m, int x)
{
    return simple(m, NP_OP_RELU, &x, 1, dims(m, x)[1], dims(m, x)[2], dims(m, x)[3]);
}

static int add(struct maker *m, int a, int b)
{
    return simple(m, NP_OP_ADD, (int[]){a, b}, 2, dims(m, a)[1], dims(m, a)[2], dims(m, a)[3]);
}

static int linear(struct maker *m, int x, int c)
{
    int in = dims(m, x)[3], ins[3] = {x}, y;

    m->layer++;
    ins[1] = values(m, "weight", NP_ROLE_PARAM, NP_INIT_FAN_IN_UNIFORM, 2, (int[]){c, in}, in);
    ins[2] = values(m, "bias", NP_ROLE_PARAM, NP_INIT_FAN_IN_UNIFORM, 1, (int[]){c}, in);
    y = activation(m, 1, 1, c);
    node_of(m, NP_OP_LINEAR, ins, 3);
    out(m, y);
    return y;
}

static int residual(struct maker *m, int x, int c, int stride)
{
    int y = relu(m, batchnorm(m, conv(m, x, c, 3, stride, false))), other = x;

    y = batchnorm(m, conv(m, y, c, 3, 1, false));
    if (stride != 1 || dims(m, x)[3] != c)
        other = batchnorm(m, conv(m, x, c, 1, stride, false));
    return relu(m, add(m, y, other));
}

static struct maker start(int batch, int side, int classes, enum np_dtype dtype)
{
    struct maker m = {calloc(1, sizeof(struct np_graph)), dtype, 0};
    struct np_graph *graph = m.graph;
    struct np_attrs *attrs;

    graph->batch = batch;
    graph->classes = classes;
    graph->images =
        np_graph_tensor(graph, "images", NP_ROLE_INPUT, NP_U8, 4, (int[]){batch, side, side, 3});
    graph->labels = np_graph_tensor(graph, "labels", NP_ROLE_INPUT, NP_I32, 1, &batch);
    graph->input = activation(&m, side, side, 3);
    attrs = &node_of(&m, NP_OP_INPUT, &graph->images, 1)->attrs;
    for (int i = 0; i < 4; i++) {
        attrs->mean[i] = 0.5f;
        attrs->std[i] = 0.25f;
    }
    out(&m, graph->input);
    return m;
}

static struct np_graph *finish(struct maker *m, int logits)
{
    struct np_graph *graph = m->graph;
    int *const outs[] = {&graph->loss, &graph->correct, &graph->top5};

    graph->logits = logits;
    m->layer++;
    node_of(m, NP_OP_CROSS_ENTROPY, (int[]){logits, graph->labels}, 2)->attrs.label_smoothing = 0.1;
    for (int i = 0; i < 3; i++) {
        *outs[i] = np_graph_tensor(graph, "loss", NP_ROLE_SAVED, NP_F32, 1, &graph->batch);
        out(m, *outs[i]);
    }
    graph->nr_forward = graph->nr_nodes;
    return graph;
}

struct np_graph *net_resnet(
    int batch, int side, int blocks, int width, int classes, enum np_dtype dtype)
{
    struct maker m = start(batch, side, classes, dtype);
    int y = relu(&m, batchnorm(&m, conv(&m, m.graph->input, width, 3, 1, false)));

    for (int stage = 0; stage < 3; stage++)
        for (int b = 0; b < blocks; b++)
            y = residual(&m, y, width << stage, stage > 0 && b == 0 ? 2 : 1);
    y = simple(&m, NP_OP_GLOBAL_AVGPOOL, &y, 1, 1, 1, width << 2);
    return finish(&m, linear(&m, y, classes));
}

struct np_graph *net_plain(int batch, int side, int classes, enum np_dtype dtype)
{
    struct maker m = start(batch, side, classes, dtype);
    int y = relu(&m, conv(&m, m.graph->input, 12, 5, 1, true)), pooled, argmax, half = side / 2;

    pooled = activation(&m, half, half, 12);
    argmax =
        np_graph_tensor(m.graph, "argmax", NP_ROLE_SAVED, NP_U8, 4, (int[]){batch, half, half, 12});
    m.layer++;
    node_of(&m, NP_OP_MAXPOOL, &y, 1)->attrs.window = (struct np_window)NP_SQUARE(2, 2, 0, 1, 1);
    out(&m, pooled);
    out(&m, argmax);
    y = relu(&m, conv(&m, pooled, 20, 3, 1, true));
    m.layer++;
    pooled = activation(&m, half, half, 20);
    node_of(&m, NP_OP_DROPOUT, &y, 1)->attrs = (struct np_attrs){.rate = 0.3, .seed = 7};
    out(&m, pooled);
    y = simple(&m, NP_OP_FLATTEN, &pooled, 1, 1, 1, half * half * 20);
    y = relu(&m, linear(&m, y, 40));
    return finish(&m, linear(&m, y, classes));
}
