/* A row of the layer table, and helpers for rows: a layer's tensors and nodes at its site.
 * Internal to layer*.c, but for the types. A function that fails has put a mistake into the
 * site's report. */
#ifndef NP_LAYER_SITE_H
#define NP_LAYER_SITE_H

#include "loader/base/option.h"
#include "trainer/graph/graph.h"

#define NP_MAX_LAYERS   10000        /* of a model, blocks expanded; also the maximum of nodes */
#define NP_MAX_ELEMENTS (1ull << 31) /* of a tensor, and of all parameters */
#define NP_MAX_HEAD     128 /* channels of a head of attention: the GPU kernel has so many */

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

/* Reports a mistake of the layer as a whole: "conv 'layer2.0.conv1': " and the text. Returns -1. */
int np_layer_mistake(const struct np_layer_site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

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
/* Fills h and w of ret_shape, rounded up or down; -1: the kernel does not fit the input. */
int np_site_window(const struct np_layer_site *site, const struct np_window *w, bool ceil_mode,
    struct np_shape *ret_shape);

struct np_site_param {
    const char *suffix; /* "weight"; "": the parameter has the layer's own name */
    enum np_role role;  /* of a parameter or buffer */
    enum np_init init;
    float init_value;
    int fan_in, fan_out;
    bool decay;
};
/* Appends a parameter as the node's next input; false: the model would be too large. */
bool np_site_param(const struct np_layer_site *site, int node, const struct np_site_param *param,
    int nr_dims, const int *dims);

/* The rows. */
extern const struct np_layer np_layer_conv, np_layer_linear, np_layer_batchnorm, np_layer_maxpool,
    np_layer_avgpool, np_layer_global_avgpool, np_layer_relu, np_layer_dropout, np_layer_flatten,
    np_layer_add, np_layer_concat, np_layer_relu6, np_layer_leaky_relu, np_layer_sigmoid,
    np_layer_hardsigmoid, np_layer_tanh, np_layer_silu, np_layer_hardswish, np_layer_gelu,
    np_layer_layernorm, np_layer_groupnorm, np_layer_scale, np_layer_class_token, np_layer_position,
    np_layer_attention, np_layer_first_token, np_layer_mul, np_layer_stochastic_depth,
    np_layer_adaptive_avgpool, np_layer_upsample, np_layer_blur, np_layer_conv_transpose;

#endif
