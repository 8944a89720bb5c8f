/* A tree of scalars, lists and mappings with their places: a config between its parser
 * (loader/base/yaml.h) and the option tables. One owner, freed whole. */
#ifndef NP_NODE_H
#define NP_NODE_H

#include <stdbool.h>
#include <stddef.h>

#include "loader/base/err.h"

enum np_node_kind { NP_NODE_SCALAR, NP_NODE_LIST, NP_NODE_MAP };

struct np_node {
    enum np_node_kind kind;
    int line, column;         /* of the value, 1-based, see NP_LINE_FILE; 0: a default; < 0: `-o` */
    int key_line, key_column; /* of its key, when it stands in a mapping */
    char *key;                /* owned; NULL outside a mapping */
    char *text;               /* owned; scalars only */
    bool quoted;              /* scalars: written in quotes */
    bool real;                /* scalars of JSON: a number with a fraction or an exponent, 1e3 */
    struct np_node **items;   /* owned; lists and mappings, in file order */
    int nr_items;
    size_t room; /* of items */
};

/* These end the process where there is no memory (loader/base/mem.h): for what our own code writes
 * down. */
struct np_node *np_node_new(enum np_node_kind kind, int line, int column);
struct np_node *np_node_scalar(const char *text, int line, int column);
struct np_node *np_node_copy(const struct np_node *node); /* deep */
/* Appends child, which node owns from now on; key (copied) for mappings, else NULL. */
void np_node_add(struct np_node *node, const char *key, struct np_node *child);
/* For parsers, which follow what a file or a request holds. NULL: out of memory. text: copied, NULL
 * where there is none. */
struct np_node *np_node_try(
    enum np_node_kind kind, const char *text, int line, int column, struct np_err *err);
/* -ENOMEM, also where child is NULL since its own np_node_try() failed; child is freed then. */
int np_node_try_add(
    struct np_node *node, const char *key, struct np_node *child, struct np_err *err);
void np_node_remove(struct np_node *node, int index);
void np_node_free(struct np_node *node);

const struct np_node *np_node_get(const struct np_node *map, const char *key); /* or NULL */
bool np_node_is(const struct np_node *node, const char *text); /* scalar equal to text */
/* The scalar under key; "" if map is NULL, no mapping or lacks the key, and for JSON's null. */
const char *np_node_text(const struct np_node *map, const char *key);
bool np_node_is_empty(const struct np_node *node); /* `key:` with nothing after it */

/* "flip", "flip: 0.5", "{conv: {out: 3}}": a name with optional arguments. For a
 * scalar *ret_args is NULL, for a mapping of one key its value. False otherwise. */
bool np_node_named(
    const struct np_node *node, const char **ret_name, const struct np_node **ret_args);

#endif
