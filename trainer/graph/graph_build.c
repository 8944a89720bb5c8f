/* `model:`, `blocks:` and `loss:` -> the forward graph, and the resolved form of a list of
 * layers. Config time, one thread. */
#include <assert.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/layers.h"

/* --- the graph ----------------------------------------------------------------------------- */

static struct np_mix mix_of(const struct np_graph_input *input)
{
    struct np_mix mix = input->mix;

    mix.seed = input->seed;
    mix.height = input->height;
    mix.width = input->width;
    return mix;
}

static struct np_graph *start_graph(const struct np_graph_input *input)
{
    struct np_graph *graph = np_alloc(sizeof(*graph));
    const int dims[] = {input->batch, input->height, input->width, input->channels};
    int node;

    graph->batch = input->batch;
    graph->classes = input->classes;
    graph->logits = graph->loss = graph->correct = graph->top5 = -1;
    graph->images = np_graph_tensor(graph, "images", NP_ROLE_INPUT, NP_U8, 4, dims);
    graph->labels = np_graph_tensor(graph, "labels", NP_ROLE_INPUT, NP_I32, 1, dims);
    graph->input = np_graph_tensor(graph, "input", NP_ROLE_ACTIVATION, input->precision, 4, dims);
    node = np_graph_node(graph, NP_OP_INPUT, "input", 0);
    np_graph_in(graph, node, graph->images);
    np_graph_out(graph, node, graph->input);
    for (int c = 0; c < input->channels; c++) {
        graph->nodes[node].attrs.mean[c] = input->mean[c];
        graph->nodes[node].attrs.std[c] = input->std[c];
    }
    graph->nodes[node].attrs.mix = mix_of(input);
    return graph;
}

static void check_output(struct np_graph *graph, int output, bool guessed,
    const struct np_node *model, struct np_report *report)
{
    const int *dims = graph->tensors[output].dims;
    const struct np_node *last = model->items[model->nr_items - 1];

    if (guessed)
        graph->classes = dims[3];
    if (dims[1] != 1 || dims[2] != 1 || dims[3] != graph->classes)
        np_report_add(report, last->line, last->column,
            "the model gives %dx%dx%d, but there are %d classes: its last layer should be "
            "linear: {out: classes}",
            dims[1], dims[2], dims[3], graph->classes);
}

struct np_graph *np_graph_build(const struct np_node *model, const struct np_node *blocks,
    const struct np_node *loss, const struct np_graph_input *input, struct np_report *report)
{
    int before = report->nr_errs + report->nr_dropped, output;
    struct np_graph *graph;

    assert(input->channels >= 1 && input->channels <= 4 && input->classes >= 1);
    /* Of the images alone; each layer checks its own output. */
    if ((double)input->batch * input->height * input->width * input->channels >=
        (double)NP_MAX_ELEMENTS) {
        np_report_add(report, model->line, model->column,
            "a batch of %d images of %dx%dx%d is too large", input->batch, input->height,
            input->width, input->channels);
        return NULL;
    }
    graph = start_graph(input);
    output = np_blocks_expand(graph, model, blocks, input, report);
    if (output >= 0 && report->nr_errs + report->nr_dropped == before)
        check_output(graph, output, input->classes_guessed, model, report);
    np_loss_add(graph, output, loss, input, report);
    graph->nr_forward = graph->nr_nodes;
    if (report->nr_errs + report->nr_dropped > before) {
        np_graph_free(graph);
        return NULL;
    }
    return graph;
}

/* --- the resolved form --------------------------------------------------------------------- */

/* Options as written, and defaults for missing ones; `$` stays, nothing is calculated. */
static struct np_node *layer_options(const struct np_layer *layer, const struct np_node *args)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
    static const char *const common[] = {"name", "from", "when"};

    for (int i = 0; i < 3; i++) {
        const struct np_node *given = np_node_get(args, common[i]);

        if (given)
            np_node_add(map, common[i], np_node_copy(given));
    }
    if (args && args->kind == NP_NODE_LIST) /* add: [a, b] */
        np_node_add(map, "from", np_node_copy(args));
    for (const struct np_option *option = layer->options; option->key; option++) {
        const struct np_node *given = np_node_get(args, option->key);

        if (given || option->fallback)
            np_node_add(map, option->key,
                given ? np_node_copy(given) : np_node_scalar(option->fallback, 0, 0));
    }
    return map;
}

static struct np_node *block_options(const struct np_node *args)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);

    for (int i = 0; i < args->nr_items; i++) {
        const struct np_node *item = args->items[i];

        np_node_add(map, item->key,
            strcmp(item->key, "layers") == 0 ? np_graph_model_node(item) : np_node_copy(item));
    }
    return map;
}

struct np_node *np_graph_model_node(const struct np_node *model)
{
    struct np_node *list;

    if (!model || model->kind != NP_NODE_LIST)
        return np_node_copy(model);
    list = np_node_new(NP_NODE_LIST, 0, 0);
    for (int i = 0; i < model->nr_items; i++) {
        const struct np_layer *layer;
        const struct np_node *args = NULL;
        const char *name = NULL;
        struct np_node *options = NULL, *item;

        if (np_node_named(model->items[i], &name, &args)) {
            if ((layer = np_layer_find(name)))
                options = layer_options(layer, args);
            else if (strcmp(name, "block") == 0 && args && args->kind == NP_NODE_MAP)
                options = block_options(args);
        }
        if (!options) {
            np_node_add(list, NULL, np_node_copy(model->items[i]));
        } else if (options->nr_items == 0) {
            np_node_free(options);
            np_node_add(list, NULL, np_node_scalar(name, 0, 0));
        } else {
            item = np_node_new(NP_NODE_MAP, 0, 0);
            np_node_add(item, name, options);
            np_node_add(list, NULL, item);
        }
    }
    return list;
}
