/* The layer table: the layers that `model:` and blocks may contain. A layer is one row: its
 * options, and the function that turns it into nodes. Config time, one thread. */
#ifndef NP_LAYERS_H
#define NP_LAYERS_H

#include "loader/base/option.h"
#include "trainer/graph/graph.h"

#define NP_MAX_LAYERS   10000        /* of a model, blocks expanded; also the maximum of nodes */
#define NP_MAX_ELEMENTS (1ull << 31) /* of a tensor, and of all parameters */

/* A layer's place in the network while it becomes nodes. */
struct np_layer_site {
    struct np_graph *graph;
    const struct np_graph_input *input;
    const char *layer;                /* "conv" */
    const char *name;                 /* full: "layer1.0.conv1" */
    const struct np_node *node;       /* for line and column */
    int ins[NP_MAX_OPERANDS], nr_ins; /* tensors it reads */
    struct np_report *report;
};

struct np_layer {
    const char *name;
    const struct np_option *options;
    size_t object_bytes; /* size of the struct that options describe */
    int max_ins;         /* 1; more for layers that join inputs, which then need at least two */
    /* Required. Appends nodes and returns the layer's output tensor (an input if there is
     * nothing to do), or -1 with the mistake in report. */
    int (*add)(const struct np_layer_site *site, const void *object);
    const char *help; /* one sentence for docs/CONFIG.md */
};

extern const struct np_layer *const np_layers[]; /* NULL-ended */
/* Keys that every layer takes besides its own (`name`, `from`, `when`), and those of `block`.
 * Only for docs: blocks.c reads them itself. */
extern const struct np_option np_layer_common[];
extern const struct np_option np_block_options[];
extern const struct np_choice np_loss_choices[]; /* ends with a NULL name */

const struct np_layer *np_layer_find(const char *name); /* or NULL */
/* Reports a mistake of the layer as a whole: "conv 'layer2.0.conv1': " and the text. Returns -1. */
int np_layer_mistake(const struct np_layer_site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends the loss and its three outputs after the logits. */
int np_loss_add(
    struct np_graph *graph, int logits, const struct np_node *loss, struct np_report *report);

/* Appends the layers of `model` after graph->input, with the lists of `blocks`. Returns the last
 * layer's tensor, or -1 with every mistake in report. blocks.c */
int np_blocks_expand(struct np_graph *graph, const struct np_node *model,
    const struct np_node *blocks, const struct np_graph_input *input, struct np_report *report);

#endif
