/* Helpers for the layer table's rows: a layer's tensors and nodes at its site. Internal to
 * layers*.c. A function that fails has put a mistake into the site's report. */
#ifndef NP_LAYER_SITE_H
#define NP_LAYER_SITE_H

#include "trainer/graph/layers.h"

/* The shape of an activation without its rows. */
struct np_shape {
    int h, w, c;
};

struct np_shape np_site_shape(const struct np_layer_site *site, int tensor);
/* "layer.suffix" in the graph. */
int np_site_tensor(const struct np_layer_site *site, const char *suffix, enum np_role role,
    enum np_dtype dtype, int nr_dims, const int *dims);
/* Adds an activation; -1: it would be too large. */
int np_site_activation(const struct np_layer_site *site, struct np_shape s);
int np_site_node(const struct np_layer_site *site, enum np_op op);
/* Adds a node from ins[0] to a new activation; returns its number, or -1. */
int np_site_simple(const struct np_layer_site *site, enum np_op op, struct np_shape s);
/* Returns a node's output; -1 for node -1. */
int np_site_output(const struct np_layer_site *site, int node);
/* Fills h and w of ret_shape; -1: the kernel does not fit the input. */
int np_site_window(
    const struct np_layer_site *site, const struct np_window *w, struct np_shape *ret_shape);

/* The rows. */
extern const struct np_layer np_layer_conv, np_layer_linear, np_layer_batchnorm, np_layer_maxpool,
    np_layer_avgpool, np_layer_global_avgpool, np_layer_relu, np_layer_dropout, np_layer_flatten,
    np_layer_add, np_layer_concat;

#endif
