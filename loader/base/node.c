#include "loader/base/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"

static struct np_node *fill(struct np_node *node, enum np_node_kind kind, int line, int column)
{
    node->kind = kind;
    node->line = line;
    node->column = column;
    return node;
}

/* Takes key. items has space for the child. */
static void append(struct np_node *node, char *key, struct np_node *child)
{
    if (key) {
        np_free(child->key);
        child->key = key;
    }
    node->items[node->nr_items++] = child;
}

struct np_node *np_node_new(enum np_node_kind kind, int line, int column)
{
    return fill(np_alloc(sizeof(struct np_node)), kind, line, column);
}

struct np_node *np_node_scalar(const char *text, int line, int column)
{
    struct np_node *node = np_node_new(NP_NODE_SCALAR, line, column);

    node->text = np_strdup(text);
    return node;
}

void np_node_add(struct np_node *node, const char *key, struct np_node *child)
{
    np_grow(&node->items, &node->room, (size_t)node->nr_items + 1, sizeof(*node->items));
    append(node, np_strdup(key), child); /* key may be the child's own key */
}

struct np_node *np_node_try(
    enum np_node_kind kind, const char *text, int line, int column, struct np_err *err)
{
    struct np_node *node = np_try_alloc(sizeof(*node), err);

    if (node && text && !(node->text = np_try_strdup(text, err))) {
        np_free(node);
        node = NULL;
    }
    return node ? fill(node, kind, line, column) : NULL;
}

int np_node_try_add(
    struct np_node *node, const char *key, struct np_node *child, struct np_err *err)
{
    char *copy = NULL;

    if (!child)
        return -ENOMEM;
    if (np_try_grow(
            &node->items, &node->room, (size_t)node->nr_items + 1, sizeof(*node->items), err) < 0 ||
        (key && !(copy = np_try_strdup(key, err)))) {
        np_node_free(child);
        return -ENOMEM;
    }
    append(node, copy, child);
    return 0;
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
    copy->key = np_strdup(node->key);
    copy->text = np_strdup(node->text);
    for (int i = 0; i < node->nr_items; i++)
        np_node_add(copy, node->items[i]->key, np_node_copy(node->items[i]));
    return copy;
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
    np_free(node->items);
    np_free(node->key);
    np_free(node->text);
    np_free(node);
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

void np_node_drop_zero(struct np_node *map, const char *key)
{
    for (int i = 0; i < map->nr_items; i++)
        if (strcmp(map->items[i]->key, key) == 0 && np_node_is(map->items[i], "0")) {
            np_node_remove(map, i);
            return;
        }
}

bool np_node_is(const struct np_node *node, const char *text)
{
    return node && node->kind == NP_NODE_SCALAR && strcmp(node->text, text) == 0;
}

const char *np_node_text(const struct np_node *map, const char *key)
{
    const struct np_node *node = np_node_get(map, key);

    return node && node->kind == NP_NODE_SCALAR ? node->text : "";
}

bool np_node_is_empty(const struct np_node *node)
{
    return np_node_is(node, "") && !node->quoted;
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

static void walk(const struct np_node *node, const char *path,
    void (*each)(void *context, const char *path, const char *text), void *context)
{
    char below[512];

    if (node->kind == NP_NODE_SCALAR) {
        each(context, path, node->text);
        return;
    }
    if (node->nr_items == 0)
        each(context, path, node->kind == NP_NODE_LIST ? "[]" : "{}");
    for (int i = 0; i < node->nr_items; i++) {
        const struct np_node *item = node->items[i];

        if (item->key)
            snprintf(below, sizeof(below), "%s%s%s", path, *path ? "." : "", item->key);
        else
            snprintf(below, sizeof(below), "%s.%d", path, i);
        walk(item, below, each, context);
    }
}

void np_node_leaves(const struct np_node *node,
    void (*each)(void *context, const char *path, const char *text), void *context)
{
    walk(node, "", each, context);
}
