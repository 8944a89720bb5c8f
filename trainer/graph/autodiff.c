/* Reverse mode on the graph: walks the forward nodes backwards and appends, for each, the nodes
 * that turn the gradient of its output into those of its inputs and parameters. A tensor that
 * several nodes read gets the sum. Runs once, at start. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "loader/base/mem.h"
#include "trainer/graph/graph.h"

struct tape {
    struct np_graph *graph;
    bool *wanted; /* (forward tensors) does it depend on a parameter that is trained? */
    int *grads;   /* (forward tensors) gradient so far, or -1 */
};

/* False: frozen in all updates. */
static bool trained(const struct np_graph *graph, int t)
{
    return graph->tensors[t].role == NP_ROLE_PARAM && graph->tensors[t].rule.thaw != NP_NEVER;
}

static void find_wanted(struct tape *tape)
{
    const struct np_graph *graph = tape->graph;

    for (int n = 0; n < graph->nr_forward; n++) {
        const struct np_op_node *node = &graph->nodes[n];
        bool wanted = false;

        for (int i = 0; i < node->nr_ins; i++)
            wanted |= trained(graph, node->ins[i]) || tape->wanted[node->ins[i]];
        for (int o = 0; o < node->nr_outs; o++)
            tape->wanted[node->outs[o]] |= wanted;
    }
}

/* --- building blocks ------------------------------------------------------------------------ */

static int new_grad(struct tape *tape, int t, enum np_role role)
{
    struct np_graph *graph = tape->graph;
    const struct np_tensor like = graph->tensors[t];
    char name[256];
    int grad;

    snprintf(name, sizeof(name), "d %.240s", like.name);
    grad = np_graph_tensor(graph, name, role, like.dtype, like.nr_dims, like.dims);
    graph->tensors[grad].offset = like.offset; /* same offset in the flat array of gradients */
    return grad;
}

static int backward_node(struct tape *tape, enum np_op op, int forward)
{
    const struct np_op_node from = tape->graph->nodes[forward];
    int node = np_graph_node(tape->graph, op, from.name, from.line);

    tape->graph->nodes[node].attrs = from.attrs;
    tape->graph->nodes[node].forward = forward;
    return node;
}

/* Adds the gradient from one reader of t; from the second reader on, t's gradient is the sum. */
static void arrives(struct tape *tape, int t, int grad)
{
    struct np_graph *graph = tape->graph;
    int node, sum;

    if (!tape->wanted[t])
        return;
    if (tape->grads[t] < 0) {
        tape->grads[t] = grad;
        return;
    }
    sum = new_grad(tape, t, NP_ROLE_ACTIVATION);
    node = np_graph_node(graph, NP_OP_ADD, graph->tensors[t].name, 0);
    np_graph_in(graph, node, tape->grads[t]);
    np_graph_in(graph, node, grad);
    np_graph_out(graph, node, sum);
    tape->grads[t] = sum;
}

/* The node gives the gradient of parameter t; parameters have one reader. */
static void out_param(struct tape *tape, int node, int t)
{
    int grad = new_grad(tape, t, NP_ROLE_GRAD);

    assert(tape->graph->tensors[t].grad < 0);
    tape->graph->tensors[t].grad = grad;
    np_graph_out(tape->graph, node, grad);
}

/* Adds a node op(ins...) -> gradient of activation t. */
static void send_back(
    struct tape *tape, enum np_op op, int forward, int t, const int *ins, int nr_ins)
{
    int node, grad;

    if (!tape->wanted[t])
        return;
    node = backward_node(tape, op, forward);
    for (int i = 0; i < nr_ins; i++)
        np_graph_in(tape->graph, node, ins[i]);
    grad = new_grad(tape, t, NP_ROLE_ACTIVATION);
    np_graph_out(tape->graph, node, grad);
    arrives(tape, t, grad);
}

/* --- the rules ------------------------------------------------------------------------------ */

static void weight_gradient(struct tape *tape, int n, int dy, enum np_op wgrad)
{
    const struct np_op_node node = tape->graph->nodes[n];
    const bool bias = node.nr_ins > 2 && trained(tape->graph, node.ins[2]);
    int back;

    if (!bias && !trained(tape->graph, node.ins[1]))
        return;
    back = backward_node(tape, wgrad, n);
    np_graph_in(tape->graph, back, node.ins[0]);
    np_graph_in(tape->graph, back, dy);
    out_param(tape, back, node.ins[1]); /* of a frozen weight, for its bias: no update reads it */
    if (bias)
        out_param(tape, back, node.ins[2]);
}

/* conv, linear and scale: x, weight, [bias] -> y. The gradient of the weights first: dy is still in
 * cache. */
static void weighted(struct tape *tape, int n, int dy, enum np_op wgrad, enum np_op dgrad)
{
    const struct np_op_node node = tape->graph->nodes[n];

    weight_gradient(tape, n, dy, wgrad);
    send_back(tape, dgrad, n, node.ins[0], (const int[]){dy, node.ins[1]}, 2);
}

/* CONV_DGRAD as a layer: x, weight -> y is linear in both, so that its gradients are those two of the
 * three convolutions that it isn't itself, with x in the place of the other's dy. */
static void transposed(struct tape *tape, int n, int dy)
{
    const struct np_op_node node = tape->graph->nodes[n];

    if (trained(tape->graph, node.ins[1])) {
        int back = backward_node(tape, NP_OP_CONV_WGRAD, n);

        np_graph_in(tape->graph, back, dy);
        np_graph_in(tape->graph, back, node.ins[0]);
        out_param(tape, back, node.ins[1]);
    }
    send_back(tape, NP_OP_CONV, n, node.ins[0], (const int[]){dy, node.ins[1]}, 2);
}

/* BN_APPLY: x, mean, inv_std, gamma, beta -> y. Includes the gradients through the statistics, for
 * which it needs those of gamma and beta, even if these are frozen. */
static void batchnorm(struct tape *tape, int n, int dy)
{
    const struct np_op_node node = tape->graph->nodes[n];
    const int *in = node.ins;
    int reduce = backward_node(tape, NP_OP_BN_REDUCE, n);

    np_graph_in(tape->graph, reduce, dy);
    for (int i = 0; i < 5; i++)
        np_graph_in(tape->graph, reduce, in[i]);
    out_param(tape, reduce, in[3]);
    out_param(tape, reduce, in[4]);
    send_back(tape, NP_OP_BN_DGRAD, n, in[0],
        (const int[]){dy, in[0], in[1], in[2], in[3], in[4], tape->graph->tensors[in[3]].grad,
            tape->graph->tensors[in[4]].grad},
        8);
}

/* NORM: x, gamma, beta -> y. Both backward nodes compute the statistics again, from x. */
static void norm(struct tape *tape, int n, int dy)
{
    const struct np_op_node node = tape->graph->nodes[n];

    if (trained(tape->graph, node.ins[1]) || trained(tape->graph, node.ins[2])) {
        int back = backward_node(tape, NP_OP_NORM_WGRAD, n);

        np_graph_in(tape->graph, back, node.ins[0]);
        np_graph_in(tape->graph, back, dy);
        out_param(tape, back, node.ins[1]);
        out_param(tape, back, node.ins[2]);
    }
    send_back(
        tape, NP_OP_NORM_DGRAD, n, node.ins[0], (const int[]){dy, node.ins[0], node.ins[1]}, 3);
}

/* A parameter that is the same for all rows: position or class token; or for all pixels, too: bias. */
static void shared_by_rows(struct tape *tape, int n, int dy)
{
    const struct np_op_node node = tape->graph->nodes[n];

    if (trained(tape->graph, node.ins[1])) {
        int back =
            backward_node(tape, node.op == NP_OP_BIAS ? NP_OP_BIAS_WGRAD : NP_OP_ROWS_SUM, n);

        np_graph_in(tape->graph, back, dy);
        out_param(tape, back, node.ins[1]);
    }
    if (node.op == NP_OP_CLASS_TOKEN)
        send_back(tape, NP_OP_TOKENS, n, node.ins[0], &dy, 1);
    else if (tape->wanted[node.ins[0]])
        arrives(tape, node.ins[0], dy);
}

static void concat(struct tape *tape, int n, int dy)
{
    const struct np_op_node node = tape->graph->nodes[n];
    int back = backward_node(tape, NP_OP_CONCAT_DGRAD, n);
    int grads[NP_MAX_OPERANDS];

    np_graph_in(tape->graph, back, dy);
    for (int i = 0; i < node.nr_ins; i++) {
        grads[i] = new_grad(tape, node.ins[i], NP_ROLE_ACTIVATION);
        np_graph_out(tape->graph, back, grads[i]);
    }
    for (int i = 0; i < node.nr_ins; i++)
        arrives(tape, node.ins[i], grads[i]);
}

/* MUL: a, b -> y. db is summed over the pixels where b is one number for all of them. */
static void multiply(struct tape *tape, int n, int dy)
{
    const struct np_op_node node = tape->graph->nodes[n];
    const int a = node.ins[0], b = node.ins[1], *whole = tape->graph->tensors[a].dims;
    const int *gate = tape->graph->tensors[b].dims;
    const bool all = gate[1] == whole[1] && gate[2] == whole[2];

    send_back(tape, NP_OP_MUL, n, a, (const int[]){dy, b}, 2);
    send_back(tape, all ? NP_OP_MUL : NP_OP_MUL_SUM, n, b, (const int[]){dy, a}, 2);
}

static int differentiate(struct tape *tape, int n, struct np_err *err)
{
    const struct np_op_node node = tape->graph->nodes[n];
    int y = node.outs[0], x = node.ins[0], dy = tape->grads[y];

    if (np_op_is_loss(node.op)) {
        send_back(tape,
            node.op == NP_OP_BCE          ? NP_OP_BCE_DGRAD
            : node.op == NP_OP_REGRESSION ? NP_OP_REGRESSION_DGRAD
                                          : NP_OP_CROSS_ENTROPY_DGRAD,
            n, x, node.ins, 2);
        return 0;
    }
    if (dy < 0 || !tape->wanted[y])
        return 0; /* no parameter before it, or no effect on the loss */
    switch (node.op) {
    case NP_OP_CONV: weighted(tape, n, dy, NP_OP_CONV_WGRAD, NP_OP_CONV_DGRAD); break;
    case NP_OP_CONV_DGRAD: transposed(tape, n, dy); break;
    case NP_OP_LINEAR: weighted(tape, n, dy, NP_OP_LINEAR_WGRAD, NP_OP_LINEAR_DGRAD); break;
    case NP_OP_BN_APPLY: batchnorm(tape, n, dy); break;
    case NP_OP_CONCAT: concat(tape, n, dy); break;
    case NP_OP_ADD: /* both get dy unchanged */
        arrives(tape, node.ins[0], dy);
        arrives(tape, node.ins[1], dy);
        break;
    case NP_OP_RELU: send_back(tape, NP_OP_RELU_DGRAD, n, x, (const int[]){dy, y}, 2); break;
    case NP_OP_ACT: send_back(tape, NP_OP_ACT_DGRAD, n, x, (const int[]){dy, x}, 2); break;
    case NP_OP_MAXPOOL:
        send_back(tape, NP_OP_MAXPOOL_DGRAD, n, x, (const int[]){dy, node.outs[1]}, 2);
        break;
    case NP_OP_AVGPOOL: send_back(tape, NP_OP_AVGPOOL_DGRAD, n, x, &dy, 1); break;
    case NP_OP_GLOBAL_AVGPOOL: send_back(tape, NP_OP_GLOBAL_AVGPOOL_DGRAD, n, x, &dy, 1); break;
    case NP_OP_DROPOUT: send_back(tape, NP_OP_DROPOUT_DGRAD, n, x, &dy, 1); break;
    case NP_OP_RESAMPLE: send_back(tape, NP_OP_RESAMPLE_DGRAD, n, x, &dy, 1); break;
    case NP_OP_MUL: multiply(tape, n, dy); break;
    case NP_OP_DROP_ROWS: send_back(tape, NP_OP_DROP_ROWS_DGRAD, n, x, &dy, 1); break;
    case NP_OP_FLATTEN: send_back(tape, NP_OP_FLATTEN_DGRAD, n, x, &dy, 1); break;
    case NP_OP_NORM: norm(tape, n, dy); break;
    case NP_OP_SCALE: weighted(tape, n, dy, NP_OP_SCALE_WGRAD, NP_OP_SCALE); break;
    case NP_OP_BIAS:
    case NP_OP_POSITION:
    case NP_OP_CLASS_TOKEN: shared_by_rows(tape, n, dy); break;
    case NP_OP_TOKENS: send_back(tape, NP_OP_TOKENS_DGRAD, n, x, &dy, 1); break;
    case NP_OP_ATTENTION:
        send_back(tape, NP_OP_ATTENTION_DGRAD, n, x, (const int[]){dy, x}, 2);
        break;
    default: return np_err_set(err, -EINVAL, "%s has no gradient", np_op_names[node.op]);
    }
    return 0;
}

/* Where no gradient passes, a batchnorm that is frozen for good is the evaluation's, and a pool
 * stores no positions: less work, and the same bits. */
static void simplify(struct tape *tape)
{
    struct np_graph *graph = tape->graph;

    for (int n = 0; n < graph->nr_forward; n++) {
        struct np_op_node *node = &graph->nodes[n];

        if (tape->wanted[node->outs[0]])
            continue;
        if (node->op == NP_OP_BN_APPLY && node->attrs.thaw == NP_NEVER)
            n -= np_graph_use_running(graph, n);
        else if (node->op == NP_OP_MAXPOOL)
            node->nr_outs = 1;
    }
}

/* A parameter that the loss does not depend on is a mistake in the model, not a bug here. */
static int check_all_reached(const struct np_graph *graph, struct np_err *err)
{
    for (int t = 0; t < graph->nr_tensors; t++)
        if (trained(graph, t) && graph->tensors[t].grad < 0)
            return np_err_set(err, -EINVAL,
                "'%s' does not reach the loss: no layer leads from it to the last one",
                graph->tensors[t].name);
    return 0;
}

int np_autodiff(struct np_graph *graph, struct np_err *err)
{
    size_t n = (size_t)graph->nr_tensors;
    struct tape tape = {graph, np_alloc(n * sizeof(bool)), np_alloc_array(n, sizeof(int))};
    int code = 0;

    assert(graph->nr_nodes == graph->nr_forward);
    for (size_t t = 0; t < n; t++)
        tape.grads[t] = -1;
    find_wanted(&tape);
    simplify(&tape);
    for (int i = graph->nr_forward - 1; i >= 0 && code == 0; i--)
        code = differentiate(&tape, i, err);
    if (code == 0)
        code = check_all_reached(graph, err);
    np_free(tape.grads);
    np_free(tape.wanted);
    return code;
}
