/* Lists of layers -> nodes: names, inputs, parameters, repetition. The grammar is in
 * docs/CONFIG.md, its help texts in layers.c. Config time, one thread. */
#ifndef NP_BLOCKS_H
#define NP_BLOCKS_H

#include "trainer/graph/graph.h"

/* Appends the layers of `model` after graph->input. Returns the last layer's tensor, or -1 with
 * every mistake in report. */
int np_blocks_expand(struct np_graph *graph, const struct np_node *model,
    const struct np_node *blocks, const struct np_graph_input *input, struct np_report *report);

#endif
