/* The layer table: what may stand in `model:` and in a block. A layer is one row: its options,
 * and how it becomes nodes. Config time, one thread. */
#ifndef NP_LAYERS_H
#define NP_LAYERS_H

#include "loader/base/choice.h"
#include "loader/base/option.h"
#include "trainer/graph/graph.h"

#define NP_MAX_LAYERS   10000        /* of a model, blocks expanded; also the most nodes */
#define NP_MAX_ELEMENTS (1ull << 31) /* of a tensor, and of all parameters */

/* Where a layer stands while it becomes nodes. */
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
    size_t object_bytes; /* of the struct that options describe */
    int max_ins;         /* 1; or more for what joins, which then needs two */
    /* Required. Appends nodes and returns the tensor the layer gives (an input, where there is
     * nothing to do), or -1 with the mistake in report. */
    int (*add)(const struct np_layer_site *site, const void *object);
    const char *help; /* one sentence for docs/CONFIG.md */
};

extern const struct np_layer *const np_layers[]; /* NULL-ended */
/* Keys that every layer takes beside its own (`name`, `from`, `when`), and those of `block`. Only
 * for docs: blocks.c reads them itself. */
extern const struct np_option np_layer_common[];
extern const struct np_option np_block_options[];
extern const struct np_choice np_loss_choices[]; /* ends with a NULL name */

const struct np_layer *np_layer_find(const char *name); /* or NULL */
/* A mistake of the layer as a whole: "conv 'layer2.0.conv1': " and the text. Returns -1. */
int np_layer_mistake(const struct np_layer_site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The loss and its three outputs behind the logits. */
int np_loss_add(
    struct np_graph *graph, int logits, const struct np_node *loss, struct np_report *report);

#endif
