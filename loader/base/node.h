/* A tree of scalars, lists and mappings with their places: a config between its parser
 * (loader/base/yaml.h) and the option tables. The tree has one owner, who frees it whole. */
#ifndef NP_NODE_H
#define NP_NODE_H

#include <stdbool.h>
#include <stddef.h>

#include "loader/base/err.h"

enum np_node_kind { NP_NODE_SCALAR, NP_NODE_LIST, NP_NODE_MAP };

struct np_node {
    enum np_node_kind kind;
    int line, column;         /* of the value, 1-based, see NP_LINE_FILE; 0: a default; < 0: `-o` */
    int key_line, key_column; /* of its key in a mapping */
    char *key;                /* owned; NULL outside a mapping */
    char *text;               /* owned; scalars only */
    bool quoted;              /* scalars: in quotes */
    bool real;                /* scalars of JSON: a number with a fraction or an exponent (1e3) */
    struct np_node **items;   /* owned; lists and mappings, in file order */
    int nr_items;
    size_t room; /* of items */
};

/* These end the process if there is no memory (loader/base/mem.h): for trees that our own code
 * makes. */
struct np_node *np_node_new(enum np_node_kind kind, int line, int column);
struct np_node *np_node_scalar(const char *text, int line, int column);
struct np_node *np_node_copy(const struct np_node *node);
/* Appends child, which node then owns; key (copied) for mappings, else NULL. */
void np_node_add(struct np_node *node, const char *key, struct np_node *child);
/* For parsers, because a file or a request decides the size of the tree. NULL: out of memory. text:
 * copied; NULL: none. */
struct np_node *np_node_try(
    enum np_node_kind kind, const char *text, int line, int column, struct np_err *err);
/* -ENOMEM: frees child. A child of NULL is also -ENOMEM, so that the result of np_node_try() needs
 * no check. */
int np_node_try_add(
    struct np_node *node, const char *key, struct np_node *child, struct np_err *err);
void np_node_remove(struct np_node *node, int index);
void np_node_drop_zero(struct np_node *map, const char *key); /* removes the key if it is "0" */
void np_node_free(struct np_node *node);

const struct np_node *np_node_get(const struct np_node *map, const char *key);
bool np_node_is(const struct np_node *node, const char *text);
/* The scalar under key; "": map is NULL or no mapping, or the key is missing or has JSON's null. */
const char *np_node_text(const struct np_node *map, const char *key);
/* Calls each with every scalar below node, and every empty list or mapping ("[]", "{}"), with its
 * path as "optimizer.sgd.lr" or "model.0.conv.out"; both borrowed for the call. */
void np_node_leaves(const struct np_node *node,
    void (*each)(void *context, const char *path, const char *text), void *context);
bool np_node_is_empty(const struct np_node *node); /* `key:` without a value */

/* A name with optional arguments: "flip", "flip: 0.5", "{conv: {out: 3}}". *ret_args: NULL for a
 * scalar, else the value of the mapping's only key. False: another node. */
bool np_node_named(
    const struct np_node *node, const char **ret_name, const struct np_node **ret_args);

#endif
