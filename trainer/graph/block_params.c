/* Mistakes and parameters of blocks: calculates `$out*4` in a layer's options, and checks that a
 * block gets the parameters it uses. Config time, one thread. */
#include <stdio.h>
#include <string.h>

#include "trainer/graph/block_scope.h"
#include "trainer/graph/expr.h"

#define MAX_TEXT 256

/* --- mistakes ------------------------------------------------------------------------------ */

void np_blocks_merge(struct np_builder *b)
{
    int known = b->report->nr_errs;

    for (int i = 0; i < b->mine.nr_errs; i++) {
        const struct np_err *err = &b->mine.errs[i];
        bool twice = false;

        for (int j = b->first_mistake; j < known && !twice; j++)
            twice = b->report->errs[j].line == err->line &&
                    b->report->errs[j].column == err->column &&
                    strcmp(b->report->errs[j].file, err->file) == 0;
        if (!twice)
            np_report_take(b->report, err);
    }
    np_report_fini(&b->mine);
    b->mine.file = b->report->file;
    b->mine.files = b->report->files;
}

int np_blocks_mistakes(const struct np_builder *b)
{
    return b->report->nr_errs + b->report->nr_dropped + b->mine.nr_errs;
}

/* --- parameters ---------------------------------------------------------------------------- */

/* True: a key of `block` itself, or the reserved name `in`. */
static bool reserved(const char *key)
{
    static const char *const keys[] = {
        "use", "layers", "repeat", "name", "from", "when", "in", "input", NULL};

    for (int i = 0; keys[i]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* Returns the value of a block's own parameter in this repetition, or NULL. */
static const char *own_param(const struct np_scope *scope, const char *name, size_t length)
{
    for (int i = 0; scope->args && i < scope->args->nr_items; i++) {
        const struct np_node *item = scope->args->items[i];

        if (strlen(item->key) != length || memcmp(item->key, name, length) != 0 ||
            reserved(item->key))
            continue;
        if (item->kind == NP_NODE_SCALAR)
            return item->text;
        int last = item->nr_items - 1;
        return item->items[scope->repetition < last ? scope->repetition : last]->text;
    }
    return NULL;
}

struct lookup {
    struct np_builder *b;
    const struct np_scope *scope;
};

static const char *param_of(void *context, const char *name, size_t length)
{
    struct lookup *lookup = context;
    struct np_builder *b = lookup->b;

    if (length == 2 && memcmp(name, "in", 2) == 0) {
        int t = lookup->scope->input;

        b->unknown |= t < 0;
        if (t < 0)
            return NP_UNKNOWN;
        snprintf(b->channels, sizeof(b->channels), "%d", b->graph->tensors[t].dims[3]);
        return b->channels;
    }
    for (const struct np_scope *s = lookup->scope; s; s = s->outer) {
        const char *text = own_param(s, name, length);

        b->unknown |= text && strcmp(text, NP_UNKNOWN) == 0;
        if (text)
            return text;
    }
    return NULL;
}

/* Returns a scalar with its $ replaced; NP_UNKNOWN: it depends on a layer with a mistake; NULL: a
 * mistake. */
static struct np_node *calculate(
    struct np_builder *b, const struct np_scope *scope, const struct np_node *node, bool always)
{
    struct lookup lookup = {b, scope};
    struct np_err err = {0};
    const char *given = NULL;
    char text[24];
    int64_t value;

    if (strlen(node->text) > MAX_TEXT) {
        np_report_add(NP_AT(node), "longer than %d characters", MAX_TEXT);
        return NULL;
    }
    if (!always && !strchr(node->text, '$'))
        return np_node_copy(node);
    b->unknown = false;
    if (!always && np_expr_is_param(node->text)) /* any text, not only numbers */
        given = param_of(&lookup, node->text + 1, strlen(node->text + 1));
    if (!given && np_expr_eval(node->text, param_of, &lookup, &value, &err) < 0) {
        if (b->unknown)
            return np_node_scalar(NP_UNKNOWN, node->line, node->column);
        np_report_add(NP_AT(node), "%s", err.text);
        return NULL;
    }
    if (!given)
        snprintf(text, sizeof(text), "%lld", (long long)value);
    struct np_node *result = np_node_scalar(given ? given : text, node->line, node->column);
    result->key_line = node->key_line;
    result->key_column = node->key_column;
    result->quoted = given && node->quoted;
    return result;
}

struct np_node *np_blocks_calculate(struct np_builder *b, const struct np_scope *scope,
    const struct np_node *args, bool *ret_unknown)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, args->line, args->column);
    int before = np_blocks_mistakes(b);

    map->key_line = args->key_line;
    map->key_column = args->key_column;
    *ret_unknown = false;
    for (int i = 0; i < args->nr_items; i++) {
        const struct np_node *item = args->items[i];
        struct np_node *value = NULL;

        if (strcmp(item->key, "layers") == 0 || strcmp(item->key, "from") == 0 ||
            strcmp(item->key, "name") == 0) {
            continue;
        } else if (item->kind == NP_NODE_SCALAR) {
            value = calculate(b, scope, item, strcmp(item->key, "when") == 0);
            *ret_unknown |= value && strcmp(value->text, NP_UNKNOWN) == 0;
        } else if (item->kind == NP_NODE_LIST && item->nr_items <= NP_MAX_REPEATS) {
            if (item->nr_items == 0)
                np_report_add(NP_AT(item), "%s: an empty list", item->key);
            value = np_node_new(NP_NODE_LIST, item->line, item->column);
            for (int j = 0; j < item->nr_items; j++) {
                struct np_node *part = item->items[j]->kind == NP_NODE_SCALAR
                                           ? calculate(b, scope, item->items[j], false)
                                           : NULL;

                if (item->items[j]->kind != NP_NODE_SCALAR)
                    np_report_add(NP_AT(item->items[j]), "%s: expected a plain value", item->key);
                if (part)
                    np_node_add(value, NULL, part);
                *ret_unknown |= part && strcmp(part->text, NP_UNKNOWN) == 0;
            }
        } else {
            np_report_add(NP_AT(item), "%s: expected a plain value", item->key);
        }
        if (value) {
            np_node_add(map, item->key, value);
            value->key_line = item->key_line;
            value->key_column = item->key_column;
        }
    }
    if (np_blocks_mistakes(b) > before) {
        np_node_free(map);
        return NULL;
    }
    return map;
}

/* --- parameters used and given ---------------------------------------------------------------- */

struct names { /* parameters that a block's list uses */
    const char *keys[NP_MAX_KEYS + 1];
    char texts[NP_MAX_KEYS][NP_MAX_NAME + 1];
    int nr_keys;
    const struct np_node *given; /* defined by an inner block */
};

static void found_param(void *context, const char *name, size_t length)
{
    struct names *names = context;

    if (length > NP_MAX_NAME || names->nr_keys == NP_MAX_KEYS ||
        (length == 2 && !memcmp(name, "in", 2)))
        return;
    for (int i = 0; names->given && i < names->given->nr_items; i++)
        if (strlen(names->given->items[i]->key) == length &&
            memcmp(names->given->items[i]->key, name, length) == 0)
            return;
    for (int i = 0; i < names->nr_keys; i++)
        if (strlen(names->texts[i]) == length && memcmp(names->texts[i], name, length) == 0)
            return;
    memcpy(names->texts[names->nr_keys], name, length);
    names->texts[names->nr_keys][length] = '\0';
    names->keys[names->nr_keys] = names->texts[names->nr_keys];
    names->keys[++names->nr_keys] = NULL;
}

/* Recursion is bounded by the nesting of the file. */
static void collect_params(const struct np_node *node, struct names *names)
{
    if (node->kind == NP_NODE_SCALAR)
        np_expr_params(node->text, found_param, names);
    for (int i = 0; i < node->nr_items; i++) {
        const struct np_node *given = names->given;

        if (np_node_get(node, "layers") == node->items[i])
            names->given = node;
        collect_params(node->items[i], names);
        names->given = given;
    }
}

void np_blocks_check_params(
    struct np_builder *b, const struct np_item *item, const struct np_node *list, const char *use)
{
    struct names names = {.keys = {NULL}};
    const char *what = use ? use : "the block";

    collect_params(list, &names);
    for (int i = 0; i < item->args->nr_items; i++) {
        const struct np_node *arg = item->args->items[i];
        bool used = false;

        if (reserved(arg->key) && strncmp(arg->key, "in", 2) != 0)
            continue;
        for (int k = 0; k < names.nr_keys; k++)
            used |= strcmp(names.keys[k], arg->key) == 0;
        if (used)
            continue;
        const char *nearest = np_nearest(arg->key, names.keys);
        np_report_add(&b->mine, arg->key_line, arg->key_column,
            "%.64s: %.64s has no parameter $%.64s%s%s%s", arg->key, what, arg->key,
            nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    for (int k = 0; use && k < names.nr_keys; k++)
        if (!np_node_get(item->args, names.keys[k]))
            np_report_add(
                NP_AT(item->node), "block %.64s needs the parameter '%s'", use, names.keys[k]);
}
