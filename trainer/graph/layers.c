/* The layer table and helpers for its rows: names, tensors and nodes of a layer at its site, the
 * keys that every layer takes, and the loss. Config time, one thread. */
#include "trainer/graph/layers.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "trainer/graph/layer_site.h"

#define MAX_NAME 4096

const struct np_layer *const np_layers[] = {&np_layer_conv, &np_layer_linear, &np_layer_batchnorm,
    &np_layer_relu, &np_layer_maxpool, &np_layer_avgpool, &np_layer_global_avgpool,
    &np_layer_dropout, &np_layer_flatten, &np_layer_add, &np_layer_concat, NULL};

const struct np_layer *np_layer_find(const char *name)
{
    for (int i = 0; np_layers[i]; i++)
        if (strcmp(np_layers[i]->name, name) == 0)
            return np_layers[i];
    return NULL;
}

/* --- keys for docs ------------------------------------------------------------------------- */

const struct np_option np_layer_common[] = {
    {"name", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "The layer's name; default: its index in its list, as in a torch Sequential. Together with "
        "the names of the blocks "
        "around it, it names its parameters."},
    {"from", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "Its input: the name of an earlier layer, or `input`, the input of the list that it is in; "
        "default: the layer before it. add and concat take a list of at least two."},
    {"when", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "A condition, as `$in != $out`; where it does not hold, the layer is left out: its input "
        "passes "
        "unchanged under its name."},
    NP_OPTIONS_END,
};

const struct np_option np_block_options[] = {
    {"use", NP_OPT_NODE, 0, NULL, 0, 0, NULL, "Name of a list in `blocks:`."},
    {"layers", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "Or the list itself; it also sees the parameters around it."},
    {"repeat", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "Number of repetitions (1 to 1000), named .0, .1 and so on; a parameter that is a list "
        "then gives "
        "one value each time, the last one stays. Other keys are parameters: `out: 64` makes "
        "`$out` in the block 64. Numbers are calculated: `$out*4`. `$in` is the number of "
        "channels the block reads."},
    NP_OPTIONS_END,
};

/* --- common -------------------------------------------------------------------------------- */

int np_layer_mistake(const struct np_layer_site *site, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    np_report_add(site->report, site->node->line, site->node->column, "%s '%s': %s", site->layer,
        site->name, text);
    return -1;
}

struct np_shape np_site_shape(const struct np_layer_site *site, int tensor)
{
    const int *dims = site->graph->tensors[tensor].dims;

    return (struct np_shape){dims[1], dims[2], dims[3]};
}

/* "layer.suffix"; truncation cannot happen: names are at most MAX_NAME - 64 long. */
int np_site_tensor(const struct np_layer_site *site, const char *suffix, enum np_role role,
    enum np_dtype dtype, int nr_dims, const int *dims)
{
    char name[MAX_NAME];

    snprintf(name, sizeof(name), "%s%s%s", site->name, *suffix ? "." : "", suffix);
    return np_graph_tensor(site->graph, name, role, dtype, nr_dims, dims);
}

int np_site_activation(const struct np_layer_site *site, struct np_shape s)
{
    const int dims[] = {site->graph->batch, s.h, s.w, s.c};
    /* Rows first: h * w * c alone may be past 2^64 only when each is past 2^21. */
    double elements = (double)dims[0] * s.h * s.w * s.c;

    if (elements >= (double)NP_MAX_ELEMENTS)
        return np_layer_mistake(site,
            "its output, a batch of %d times %dx%dx%d, has 2^31 elements or more; make batch, "
            "image or layer smaller",
            dims[0], s.h, s.w, s.c);
    return np_site_tensor(site, "", NP_ROLE_ACTIVATION, site->input->precision, 4, dims);
}

int np_site_node(const struct np_layer_site *site, enum np_op op)
{
    return np_graph_node(site->graph, op, site->name, site->node->line);
}

int np_site_simple(const struct np_layer_site *site, enum np_op op, struct np_shape s)
{
    int y = np_site_activation(site, s), node;

    if (y < 0)
        return -1;
    node = np_site_node(site, op);
    np_graph_in(site->graph, node, site->ins[0]);
    np_graph_out(site->graph, node, y);
    return node;
}

int np_site_output(const struct np_layer_site *site, int node)
{
    return node < 0 ? -1 : site->graph->nodes[node].outs[0];
}

/* --- windows ------------------------------------------------------------------------------- */

/* Output size along one side, as torch: floor((size + 2 pad - reach) / stride) + 1. */
static int slide(const struct np_window *w, int size, int kernel)
{
    return (size + 2 * w->pad - w->dilation * (kernel - 1) - 1) / w->stride + 1;
}

int np_site_window(
    const struct np_layer_site *site, const struct np_window *w, struct np_shape *ret_shape)
{
    struct np_shape x = np_site_shape(site, site->ins[0]);
    int reach = w->dilation * (w->kernel_h - 1) + 1;
    char padded[32] = "", dilated[32] = "";

    if (x.h + 2 * w->pad >= reach && x.w + 2 * w->pad >= reach) {
        ret_shape->h = slide(w, x.h, w->kernel_h);
        ret_shape->w = slide(w, x.w, w->kernel_w);
        return 0;
    }
    if (w->pad)
        snprintf(padded, sizeof(padded), " with pad %d", w->pad);
    if (w->dilation > 1)
        snprintf(dilated, sizeof(dilated), " with dilation %d", w->dilation);
    return np_layer_mistake(site, "input %dx%d%s is smaller than kernel %dx%d%s", x.h, x.w, padded,
        w->kernel_h, w->kernel_w, dilated);
}

/* --- the loss ------------------------------------------------------------------------------ */

struct loss {
    double label_smoothing;
};
static const struct np_option cross_entropy_options[] = {
    {"label_smoothing", NP_OPT_SHARE, offsetof(struct loss, label_smoothing), "0", 0, 0.999, NULL,
        "Share of the target spread evenly over all classes (arXiv:1512.00567, section 7). The "
        "reported test loss includes it."},
    NP_OPTIONS_END,
};
const struct np_choice np_loss_choices[] = {
    {"cross_entropy", cross_entropy_options, "Softmax and negative log-likelihood of the class."},
    {NULL, NULL, NULL},
};

int np_loss_add(
    struct np_graph *graph, int logits, const struct np_node *node, struct np_report *report)
{
    static const char *const outs[] = {"loss", "correct", "top5"};
    const struct np_node *args = NULL;
    struct loss loss = {0};
    int *const numbers[] = {&graph->loss, &graph->correct, &graph->top5};
    int kind = np_choice_find(np_loss_choices, node, "loss", "cross_entropy", &args, report), op;

    if (kind < 0)
        return kind;
    int code = np_options_parse(
        np_loss_choices[kind].table, args, np_loss_choices[kind].name, NULL, &loss, report);
    if (code < 0 || logits < 0)
        return code;
    op = np_graph_node(graph, NP_OP_CROSS_ENTROPY, "loss", node ? node->line : 0);
    graph->nodes[op].attrs.label_smoothing = loss.label_smoothing;
    graph->logits = logits;
    np_graph_in(graph, op, logits);
    np_graph_in(graph, op, graph->labels);
    for (int i = 0; i < 3; i++) {
        *numbers[i] = np_graph_tensor(graph, outs[i], NP_ROLE_SAVED, NP_F32, 1, &graph->batch);
        np_graph_out(graph, op, *numbers[i]);
    }
    return 0;
}
