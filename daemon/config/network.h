/* Builds the graph of a config's model, without its data: an unknown image size or class count
 * is guessed. One thread, before a run. */
#ifndef NP_NETWORK_H
#define NP_NETWORK_H

#include "loader/loader_options.h"
#include "trainer/graph/graph.h"

/* Borrows from the config. */
struct np_network {
    const struct np_node *model, *blocks, *loss; /* blocks, loss: NULL where not given */
    const struct np_loader_options *loader;      /* batch, channels, mean, std */
    const struct np_source_options *train;       /* guesses depend on its source */
    int64_t seed;
};

/* Fills the input of np_network_build(). height and width in pixels. */
void np_network_input(const struct np_network *network, int height, int width, int classes,
    enum np_dtype precision, struct np_graph_input *ret_input);
/* The caller frees the graph. NULL: report has the mistakes. */
struct np_graph *np_network_build(
    const struct np_network *network, const struct np_graph_input *input, struct np_report *report);
/* Guesses values that are 0, by the kind of data. True: it guessed, and text names the guesses. */
#define NP_GUESS_TEXT 96
bool np_network_guess(const struct np_network *network, int *height, int *width, int *classes,
    char text[NP_GUESS_TEXT]);
/* Checks the model for this image size and class count, guessed where 0. -EINVAL: report has the
 * mistakes. */
int np_network_check(
    const struct np_network *network, int height, int width, int classes, struct np_report *report);

#endif
