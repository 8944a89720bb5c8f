/* What a config says of its network, and the graph that comes of it. Knows no data: what is not known
 * of them is guessed. One thread, before a run. */
#ifndef NP_NETWORK_H
#define NP_NETWORK_H

#include "loader/loader_options.h"
#include "trainer/graph/graph.h"

/* Borrowed, all of it. */
struct np_network {
    const struct np_node *model, *blocks, *loss; /* blocks, loss: NULL where not given */
    const struct np_loader_options *loader;      /* batch, channels, mean, std */
    const struct np_source_options *train;       /* what is guessed depends on it */
    int64_t seed;
};

/* What np_graph_build() takes. */
void np_network_input(const struct np_network *network, int height, int width, int classes,
    enum np_dtype precision, struct np_graph_input *ret_input);
/* NULL: mistakes in report. */
struct np_graph *np_network_build(
    const struct np_network *network, const struct np_graph_input *input, struct np_report *report);
/* Values for what is 0, by the kind of data; true: text says which were guessed. */
#define NP_GUESS_TEXT 96
bool np_network_guess(const struct np_network *network, int *height, int *width, int *classes,
    char text[NP_GUESS_TEXT]);
/* The model's mistakes, for images and classes known, or guessed where 0. No data, no device. */
int np_network_check(
    const struct np_network *network, int height, int width, int classes, struct np_report *report);

#endif
