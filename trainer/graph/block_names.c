/* Names of layers, and finding a layer's inputs by them. Config time, one thread. */
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/graph/block_scope.h"

/* Returns the slot of name, or the free slot for it. FNV-1a: there are many similar names. */
static int *find_slot(const struct np_builder *b, const char *name)
{
    uint32_t hash = 2166136261u;

    for (const char *at = name; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    for (hash ^= hash >> 16;; hash++) {
        int *slot = &b->slots[hash % NP_NAME_SLOTS];

        if (*slot == 0 || strcmp(b->outputs[*slot - 1].name, name) == 0)
            return slot;
    }
}

static const struct np_output *find_output(const struct np_builder *b, const char *name)
{
    int slot = *find_slot(b, name);

    return slot ? &b->outputs[slot - 1] : NULL;
}

void np_blocks_add_output(
    struct np_builder *b, char *name, int tensor, const struct np_node *node, const char *layer)
{
    const struct np_output *twice = find_output(b, name);

    if (twice)
        np_report_add(NP_AT(node), "the name '%s' is taken by the layer in line %d", name,
            twice->node->line % NP_LINE_FILE);
    np_grow(&b->outputs, &b->outputs_room, (size_t)b->nr_outputs + 1, sizeof(*b->outputs));
    b->outputs[b->nr_outputs] = (struct np_output){name, tensor, node, layer};
    *find_slot(b, name) = ++b->nr_outputs; /* of two equal names the later one is found */
}

/* Finds the name's tensor as seen from scope: in its list, then in the lists around it. */
static bool resolve(
    const struct np_builder *b, const struct np_scope *scope, const char *name, int *ret_tensor)
{
    if (strcmp(name, "input") == 0) {
        *ret_tensor = scope->input;
        return true;
    }
    for (; scope; scope = scope->parent) {
        char *full = np_format("%s%s", scope->prefix, name);
        const struct np_output *output = find_output(b, full);

        np_free(full);
        if (output) {
            *ret_tensor = output->tensor;
            return true;
        }
    }
    return false;
}

static int unknown_from(
    struct np_builder *b, const struct np_scope *scope, const struct np_node *node)
{
    const char *words[256], *nearest;
    size_t prefix = strlen(scope->prefix);
    int n = 0;

    words[n++] = "input";
    for (int i = b->nr_outputs - 1; i >= 0 && n < 255; i--)
        if (strncmp(b->outputs[i].name, scope->prefix, prefix) == 0 &&
            !strchr(b->outputs[i].name + prefix, '.'))
            words[n++] = b->outputs[i].name + prefix;
    words[n] = NULL;
    nearest = np_nearest(node->text, words);
    np_report_add(NP_AT(node), "from: no layer before this one is named '%.80s'%s%s%s", node->text,
        nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    return -EINVAL;
}

char *np_blocks_full_name(
    struct np_builder *b, const struct np_scope *scope, const struct np_node *node, int index)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

    if (!node)
        return np_format("%s%d", scope->prefix, index);
    if (node->kind != NP_NODE_SCALAR || !*node->text || strlen(node->text) > NP_MAX_NAME ||
        strspn(node->text, good) != strlen(node->text)) {
        np_report_add(
            NP_AT(node), "name: expected letters, digits, _ and -, at most %d", NP_MAX_NAME);
        return NULL;
    }
    if (strcmp(node->text, "input") == 0) {
        np_report_add(
            NP_AT(node), "name: 'input' is the name of the list's input; choose another name");
        return NULL;
    }
    return np_format("%s%s", scope->prefix, node->text);
}

int np_blocks_find_inputs(struct np_builder *b, const struct np_scope *scope, struct np_item *item,
    int max_ins, const char *layer, int previous)
{
    const struct np_node *from =
        item->raw && item->raw->kind == NP_NODE_LIST ? item->raw : np_node_get(item->raw, "from");
    bool list = from && from->kind == NP_NODE_LIST;
    int n = list ? from->nr_items : 1, code = 0;

    if (max_ins > 1 && (!list || n < 2 || n > max_ins)) {
        np_report_add(NP_AT(from ? from : item->node),
            "%s: needs the layers that it joins, at most %d: %s: [a, b]", layer, max_ins, layer);
        return -EINVAL;
    }
    if (max_ins == 1 && list) {
        np_report_add(NP_AT(from), "%s: reads one layer; add and concat join several", layer);
        return -EINVAL;
    }
    item->nr_ins = n;
    if (!from)
        item->ins[0] = previous;
    for (int i = 0; from && i < n; i++) {
        const struct np_node *one = list ? from->items[i] : from;

        if (one->kind != NP_NODE_SCALAR) {
            np_report_add(NP_AT(one), "from: expected the name of a layer");
            code = -EINVAL;
        } else if (!resolve(b, scope, one->text, &item->ins[i])) {
            code = unknown_from(b, scope, one);
        }
    }
    return code;
}
