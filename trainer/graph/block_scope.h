/* Shared by the parts of the expansion: the builder, a scope, the current layer. Internal to
 * block*.c. */
#ifndef NP_BLOCK_SCOPE_H
#define NP_BLOCK_SCOPE_H

#include "trainer/graph/layers.h"

#define NP_MAX_KEYS    64 /* of one layer */
#define NP_MAX_NAME    64 /* one part of a full name */
#define NP_MAX_REPEATS 1000
#define NP_NAME_SLOTS  65536 /* three times NP_MAX_LAYERS, each with a repetition's name, fit */
#define NP_UNKNOWN     "?"   /* the text of a value that depends on a layer with a mistake */

/* A list of layers that is being expanded. */
struct np_scope {
    const struct np_scope *parent; /* the list around this one */
    const struct np_scope *outer;  /* `layers:`: also sees this scope's parameters; else NULL */
    const char *prefix;            /* of its names: "layer1.0."; "" at the top */
    const char *block;             /* `use:`; NULL: a list without a name */
    const struct np_node *args;    /* of the block, calculated */
    int repetition, depth;
    int input; /* tensor the list reads */
};

struct np_output { /* a named layer or block */
    char *name;
    int tensor;
    const struct np_node *node;
    const char *layer;
};

struct np_builder {
    struct np_graph *graph;
    const struct np_graph_input *input;
    const struct np_node *blocks;
    struct np_report *report; /* of the caller */
    struct np_report mine;    /* of the current layer, merged when it is done */
    int first_mistake;        /* index in report; earlier entries belong to the caller */
    struct np_output *outputs;
    size_t outputs_room;
    int *slots; /* (NP_NAME_SLOTS) open hash of names: number of the output + 1, or 0 */
    int nr_outputs, nr_layers;
    bool *used; /* (blocks->nr_items) */
    bool unknown;
    char channels[16]; /* $in as text */
};

/* A layer of a list, apart from its own options. */
struct np_item {
    const struct np_node *node; /* as written in the list */
    const struct np_node *raw;  /* options as written, or NULL */
    struct np_node *args;       /* calculated; NULL: none, or a mistake */
    char *name;                 /* full */
    int ins[NP_MAX_OPERANDS], nr_ins;
    bool known;  /* args can be checked */
    bool absent; /* `when` does not hold */
    bool good;   /* complete, inputs included */
};

/* --- mistakes: block_params.c --- */
#define NP_AT(node) &b->mine, (node)->line, (node)->column
/* Moves the current layer's mistakes to the report. A mistake whose place is already there is
 * dropped, so that a block used ten times reports its mistakes once. */
void np_blocks_merge(struct np_builder *b);
int np_blocks_mistakes(const struct np_builder *b);

/* --- parameters: block_params.c --- */
/* Returns a layer's options with every $ calculated, without `layers:`, `from:` and `name:`.
 * *ret_unknown: a value depends on a layer with a mistake. NULL: a mistake. Caller frees. */
struct np_node *np_blocks_calculate(struct np_builder *b, const struct np_scope *scope,
    const struct np_node *args, bool *ret_unknown);
/* Reports keys that the list does not use and, with `use:`, parameters that it uses but does not
 * get. */
void np_blocks_check_params(
    struct np_builder *b, const struct np_item *item, const struct np_node *list, const char *use);

/* --- names: block_names.c --- */
/* Registers name. tensor -1: not known. layer NULL: a block, or a layer whose `when` is false. */
void np_blocks_add_output(
    struct np_builder *b, char *name, int tensor, const struct np_node *node, const char *layer);
/* Returns the layer's own name, or its index in the list. Caller frees; NULL: a mistake. */
char *np_blocks_full_name(
    struct np_builder *b, const struct np_scope *scope, const struct np_node *node, int index);
/* Fills item->ins: `from:`, or the layer before. */
int np_blocks_find_inputs(struct np_builder *b, const struct np_scope *scope, struct np_item *item,
    int max_ins, const char *layer, int previous);

#endif
