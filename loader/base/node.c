/* The node tree. One thread at a time. */
#include "loader/base/node.h"

#include <stdlib.h>
#include <string.h>

/* A config is small and read once at start: running out of memory here is fatal for whoever
 * calls, so allocation failure aborts rather than threading an error through every caller. */
static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

struct np_node *np_node_new(enum np_node_kind kind, int line, int column)
{
    struct np_node *node = must(calloc(1, sizeof(*node)));

    node->kind = kind;
    node->line = line;
    node->column = column;
    return node;
}

struct np_node *np_node_scalar(const char *text, int line, int column)
{
    struct np_node *node = np_node_new(NP_NODE_SCALAR, line, column);

    node->text = must(strdup(text));
    return node;
}

struct np_node *np_node_copy(const struct np_node *node)
{
    struct np_node *copy;

    if (!node)
        return NULL;
    copy = np_node_new(node->kind, node->line, node->column);
    copy->key_line = node->key_line;
    copy->key_column = node->key_column;
    copy->quoted = node->quoted;
    if (node->key)
        copy->key = must(strdup(node->key));
    if (node->text)
        copy->text = must(strdup(node->text));
    for (int i = 0; i < node->nr_items; i++)
        np_node_add(copy, node->items[i]->key, np_node_copy(node->items[i]));
    return copy;
}

void np_node_add(struct np_node *node, const char *key, struct np_node *child)
{
    /* Grows by doubling: the capacity is the power of two at or above nr_items. */
    if ((node->nr_items & (node->nr_items - 1)) == 0) {
        size_t room = node->nr_items ? 2 * (size_t)node->nr_items : 1;

        node->items = must(realloc(node->items, room * sizeof(*node->items)));
    }
    if (key) {
        char *copy = must(strdup(key)); /* key may be child's own */

        free(child->key);
        child->key = copy;
    }
    node->items[node->nr_items++] = child;
}

void np_node_remove(struct np_node *node, int index)
{
    np_node_free(node->items[index]);
    node->nr_items--;
    memmove(node->items + index, node->items + index + 1,
        (size_t)(node->nr_items - index) * sizeof(*node->items));
}

void np_node_free(struct np_node *node)
{
    if (!node)
        return;
    for (int i = 0; i < node->nr_items; i++)
        np_node_free(node->items[i]);
    free(node->items);
    free(node->key);
    free(node->text);
    free(node);
}

const struct np_node *np_node_get(const struct np_node *map, const char *key)
{
    if (!map || map->kind != NP_NODE_MAP)
        return NULL;
    for (int i = 0; i < map->nr_items; i++)
        if (strcmp(map->items[i]->key, key) == 0)
            return map->items[i];
    return NULL;
}

bool np_node_is(const struct np_node *node, const char *text)
{
    return node && node->kind == NP_NODE_SCALAR && strcmp(node->text, text) == 0;
}

bool np_node_named(
    const struct np_node *node, const char **ret_name, const struct np_node **ret_args)
{
    if (node->kind == NP_NODE_SCALAR) {
        *ret_name = node->text;
        *ret_args = NULL;
        return true;
    }
    if (node->kind == NP_NODE_MAP && node->nr_items == 1) {
        *ret_name = node->items[0]->key;
        *ret_args = node->items[0];
        return true;
    }
    return false;
}
