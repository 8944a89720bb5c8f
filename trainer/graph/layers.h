/* The layer table: the layers that `model:` and blocks may contain. A layer is one row: its
 * options, and the function that turns it into nodes. Config time, one thread. */
#ifndef NP_LAYERS_H
#define NP_LAYERS_H

#include "trainer/graph/layer_site.h"

extern const struct np_layer *const np_layers[]; /* NULL-ended */
/* Keys of every layer besides its own (`name`, `from`, `when`), and those of `block`. Only for
 * docs: blocks.c reads them itself. */
extern const struct np_option np_layer_common[];
extern const struct np_option np_block_options[];
extern const struct np_choice np_loss_choices[]; /* ends with a NULL name */

const struct np_layer *np_layer_find(const char *name); /* or NULL */
/* Appends the loss and its three outputs after the logits. losses.c */
int np_loss_add(struct np_graph *graph, int logits, const struct np_node *loss,
    const struct np_graph_input *input, struct np_report *report);

/* Appends the layers of `model` after graph->input, with the lists of `blocks`. Returns the last
 * layer's tensor, or -1 with every mistake in report. blocks.c */
int np_blocks_expand(struct np_graph *graph, const struct np_node *model,
    const struct np_node *blocks, const struct np_graph_input *input, struct np_report *report);

#endif
