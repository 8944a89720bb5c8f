/* Expands lists of layers into nodes. A scope is one list under way: where its names begin, what
 * it reads, which parameters it sees. A layer with a mistake gives no tensor (-1); what reads it
 * is then checked as far as that goes without shapes, so that one run finds all mistakes. */
#include "trainer/blocks.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/expr.h"
#include "trainer/layers.h"

#define MAX_DEPTH  32 /* blocks in blocks */
#define MAX_KEYS   64 /* of one layer */
#define MAX_TEXT   256
#define MAX_NAME   64  /* one part of a full name */
#define UNKNOWN    "?" /* the value of $in behind a layer with a mistake */
#define NR_REPEATS 1000

struct scope {
    const struct scope *parent; /* the list this one stands in */
    const struct scope *outer;  /* whose parameters it sees too: `layers:`; else NULL */
    const char *prefix;         /* of its names: "layer1.0."; "" at the top */
    const char *block;          /* `use:`; NULL: a list without a name */
    const struct np_node *args; /* the block's, calculated */
    int repetition, depth;
    int input; /* tensor the list reads */
};

struct output { /* what has a name */
    char *name;
    int tensor;
    const struct np_node *node;
    const char *layer;
};

struct builder {
    struct np_graph *graph;
    const struct np_graph_input *input;
    const struct np_node *blocks;
    struct np_report *report; /* everybody's */
    struct np_report mine;    /* of the layer at hand, merged when it is done */
    int first_mistake;        /* in report: what stands before is not ours */
    struct output *outputs;
    int nr_outputs, nr_layers;
    bool *used; /* (blocks->nr_items) */
    bool unknown;
    char channels[16]; /* $in as text */
};

static int add_list(struct builder *b, const struct scope *scope, const struct np_node *list);

/* --- mistakes ------------------------------------------------------------------------------ */

/* A block used ten times has its mistakes once: what is at a place known from before is dropped. */
static void merge_mistakes(struct builder *b)
{
    int known = b->report->nr_errs;

    for (int i = 0; i < b->mine.nr_errs; i++) {
        const struct np_err *err = &b->mine.errs[i];
        bool twice = false;

        for (int j = b->first_mistake; j < known && !twice; j++)
            twice =
                b->report->errs[j].line == err->line && b->report->errs[j].column == err->column;
        if (!twice)
            np_report_add(b->report, err->line, err->column, "%s", err->text);
    }
    np_report_fini(&b->mine);
}

static int mistakes(const struct builder *b)
{
    return b->report->nr_errs + b->report->nr_dropped + b->mine.nr_errs;
}

#define AT(node) &b->mine, (node)->line, (node)->column

/* --- parameters ---------------------------------------------------------------------------- */

static bool reserved_key(const char *key)
{
    static const char *const keys[] = {
        "use", "layers", "repeat", "name", "from", "when", "in", "input", NULL};

    for (int i = 0; keys[i]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* The value of a block's own parameter in this repetition, or NULL. */
static const char *own_param(const struct scope *scope, const char *name, size_t length)
{
    for (int i = 0; scope->args && i < scope->args->nr_items; i++) {
        const struct np_node *item = scope->args->items[i];

        if (strlen(item->key) != length || memcmp(item->key, name, length) != 0 ||
            reserved_key(item->key))
            continue;
        if (item->kind == NP_NODE_SCALAR)
            return item->text;
        int last = item->nr_items - 1;
        return item->items[scope->repetition < last ? scope->repetition : last]->text;
    }
    return NULL;
}

struct lookup {
    struct builder *b;
    const struct scope *scope;
};

static const char *param_of(void *context, const char *name, size_t length)
{
    struct lookup *lookup = context;
    struct builder *b = lookup->b;

    if (length == 2 && memcmp(name, "in", 2) == 0) {
        int t = lookup->scope->input;

        b->unknown |= t < 0;
        if (t < 0)
            return UNKNOWN;
        snprintf(b->channels, sizeof(b->channels), "%d", b->graph->tensors[t].dims[3]);
        return b->channels;
    }
    for (const struct scope *s = lookup->scope; s; s = s->outer) {
        const char *text = own_param(s, name, length);

        b->unknown |= text && strcmp(text, UNKNOWN) == 0;
        if (text)
            return text;
    }
    return NULL;
}

/* A scalar with its $ replaced; NULL: it cannot be known, with a mistake unless an earlier one is
 * the reason. */
static struct np_node *calculate(
    struct builder *b, const struct scope *scope, const struct np_node *node, bool always)
{
    struct lookup lookup = {b, scope};
    struct np_err err = {0};
    struct np_node *result;
    char text[24];
    int64_t value;

    if (strlen(node->text) > MAX_TEXT) {
        np_report_add(AT(node), "longer than %d characters", MAX_TEXT);
        return NULL;
    }
    if (!always && !strchr(node->text, '$'))
        return np_node_copy(node);
    b->unknown = false;
    if (!always && np_expr_is_param(node->text)) { /* any text, not only numbers */
        const char *given = param_of(&lookup, node->text + 1, strlen(node->text + 1));

        if (given) {
            result = np_node_copy(node);
            free(result->text);
            result->text = strdup(given);
            return result;
        }
    }
    if (np_expr_eval(node->text, param_of, &lookup, &value, &err) < 0) {
        if (!b->unknown)
            np_report_add(AT(node), "%s", err.text);
        else
            return np_node_scalar(UNKNOWN, node->line, node->column);
        return NULL;
    }
    snprintf(text, sizeof(text), "%lld", (long long)value);
    result = np_node_scalar(text, node->line, node->column);
    result->key_line = node->key_line;
    result->key_column = node->key_column;
    return result;
}

/* A layer's options with every $ calculated; lists below `layers:` and `from:` stay as they are.
 * *ret_unknown: a value depends on a layer that has a mistake. NULL: a mistake. */
static struct np_node *calculate_args(
    struct builder *b, const struct scope *scope, const struct np_node *args, bool *ret_unknown)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, args->line, args->column);
    int before = mistakes(b);

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
            *ret_unknown |= value && strcmp(value->text, UNKNOWN) == 0;
        } else if (item->kind == NP_NODE_LIST && item->nr_items <= NR_REPEATS) {
            if (item->nr_items == 0)
                np_report_add(AT(item), "%s: an empty list", item->key);
            value = np_node_new(NP_NODE_LIST, item->line, item->column);
            for (int j = 0; j < item->nr_items; j++) {
                struct np_node *part = item->items[j]->kind == NP_NODE_SCALAR
                                           ? calculate(b, scope, item->items[j], false)
                                           : NULL;

                if (item->items[j]->kind != NP_NODE_SCALAR)
                    np_report_add(AT(item->items[j]), "%s: expected a plain value", item->key);
                if (part)
                    np_node_add(value, NULL, part);
                *ret_unknown |= part && strcmp(part->text, UNKNOWN) == 0;
            }
        } else {
            np_report_add(AT(item), "%s: expected a plain value", item->key);
        }
        if (value) {
            np_node_add(map, item->key, value);
            value->key_line = item->key_line;
            value->key_column = item->key_column;
        }
    }
    if (mistakes(b) > before) {
        np_node_free(map);
        return NULL;
    }
    return map;
}

/* --- names --------------------------------------------------------------------------------- */

static struct output *find_output(const struct builder *b, const char *name)
{
    for (int i = b->nr_outputs - 1; i >= 0; i--)
        if (strcmp(b->outputs[i].name, name) == 0)
            return &b->outputs[i];
    return NULL;
}

/* Takes name. tensor -1: not known. */
static void add_output(
    struct builder *b, char *name, int tensor, const struct np_node *node, const char *layer)
{
    const struct output *twice = find_output(b, name);

    if (twice)
        np_report_add(
            AT(node), "the name '%s' is taken by the layer in line %d", name, twice->node->line);
    if ((b->nr_outputs & (b->nr_outputs - 1)) == 0) {
        size_t room = b->nr_outputs ? 2 * (size_t)b->nr_outputs : 1;
        struct output *outputs = realloc(b->outputs, room * sizeof(*outputs));

        if (!outputs)
            abort();
        b->outputs = outputs;
    }
    b->outputs[b->nr_outputs++] = (struct output){name, tensor, node, layer};
}

/* The name's tensor as seen from scope: in its list, then in those around it. */
static bool resolve(
    const struct builder *b, const struct scope *scope, const char *name, int *ret_tensor)
{
    if (strcmp(name, "input") == 0) {
        *ret_tensor = scope->input;
        return true;
    }
    for (; scope; scope = scope->parent) {
        char *full = np_format("%s%s", scope->prefix, name);
        const struct output *output = full ? find_output(b, full) : NULL;

        np_free(full);
        if (output) {
            *ret_tensor = output->tensor;
            return true;
        }
    }
    return false;
}

static int unknown_from(struct builder *b, const struct scope *scope, const struct np_node *node)
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
    np_report_add(AT(node), "from: no layer before this one is named '%.80s'%s%s%s", node->text,
        nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    return -EINVAL;
}

/* The layer's own name, or its index in the list. Caller frees; NULL: a mistake. */
static char *full_name(
    struct builder *b, const struct scope *scope, const struct np_node *node, int index)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

    if (!node)
        return np_format("%s%d", scope->prefix, index);
    if (node->kind != NP_NODE_SCALAR || !*node->text || strlen(node->text) > MAX_NAME ||
        strspn(node->text, good) != strlen(node->text)) {
        np_report_add(AT(node), "name: expected letters, digits, _ and -, at most %d", MAX_NAME);
        return NULL;
    }
    if (strcmp(node->text, "input") == 0) {
        np_report_add(AT(node), "name: 'input' is what the list reads; choose another name");
        return NULL;
    }
    return np_format("%s%s", scope->prefix, node->text);
}

/* --- one layer ----------------------------------------------------------------------------- */

/* What every layer has, beside its own options. */
struct item {
    const struct np_node *node; /* as it stands in the list */
    const struct np_node *raw;  /* options as written, or NULL */
    struct np_node *args;       /* calculated; NULL: none, or a mistake */
    char *name;                 /* full */
    int ins[NP_MAX_OPERANDS], nr_ins;
    bool known;  /* args can be looked at */
    bool absent; /* `when` does not hold */
    bool good;   /* all of it could be had, the inputs too */
};

/* Fills ins: `from:`, or the layer before. */
static int find_inputs(struct builder *b, const struct scope *scope, struct item *item, int max_ins,
    const char *layer, int previous)
{
    const struct np_node *from =
        item->raw && item->raw->kind == NP_NODE_LIST ? item->raw : np_node_get(item->raw, "from");
    bool list = from && from->kind == NP_NODE_LIST;
    int n = list ? from->nr_items : 1, code = 0;

    if (max_ins > 1 && (!list || n < 2 || n >= max_ins)) {
        np_report_add(AT(from ? from : item->node),
            "%s: needs what it joins, %d layers at most: %s: [a, b]", layer, max_ins - 1, layer);
        return -EINVAL;
    }
    if (max_ins == 1 && list) {
        np_report_add(AT(from), "%s: reads one layer; add and concat join several", layer);
        return -EINVAL;
    }
    item->nr_ins = n;
    if (!from)
        item->ins[0] = previous;
    for (int i = 0; from && i < n; i++) {
        const struct np_node *one = list ? from->items[i] : from;

        if (one->kind != NP_NODE_SCALAR) {
            np_report_add(AT(one), "from: expected the name of a layer");
            code = -EINVAL;
        } else if (!resolve(b, scope, one->text, &item->ins[i])) {
            code = unknown_from(b, scope, one);
        }
    }
    return code;
}

/* Options calculated, name, inputs, `when`. item->good: all of it could be had. */
static void read_item(struct builder *b, const struct scope *scope, const struct np_node *node,
    const struct np_node *raw, int index, int max_ins, const char *layer, int previous,
    struct item *ret_item)
{
    bool unknown = false;
    struct item item = {.node = node, .raw = raw, .known = true};

    if (raw && raw->kind == NP_NODE_SCALAR && !raw->text[0] && !raw->quoted)
        item.raw = raw = NULL; /* "relu:" */
    if (raw && raw->kind == NP_NODE_MAP && raw->nr_items > MAX_KEYS) {
        np_report_add(AT(node), "%s: more than %d keys", layer, MAX_KEYS);
        item.known = false;
        item.raw = raw = NULL;
    } else if (raw && raw->kind != NP_NODE_MAP && !(raw->kind == NP_NODE_LIST && max_ins > 1)) {
        np_report_add(AT(raw), "%s: expected options, like %s: {key: value}", layer, layer);
        item.known = false;
        item.raw = raw = NULL;
    }
    if (raw && raw->kind == NP_NODE_MAP) {
        item.args = calculate_args(b, scope, raw, &unknown);
        item.known = item.args != NULL && !unknown;
    }
    item.good = item.known;
    item.name = full_name(b, scope, np_node_get(raw, "name"), index);
    item.good &= item.name != NULL;
    if (!item.name)
        item.name = np_format("%s%d", scope->prefix, index);
    if (!item.name)
        abort();
    item.good &= find_inputs(b, scope, &item, max_ins, layer, previous) == 0;
    item.absent = np_node_is(np_node_get(item.args, "when"), "0");
    for (int i = 0; i < item.nr_ins; i++)
        item.good &= item.ins[i] >= 0;
    *ret_item = item;
}

static int add_layer(struct builder *b, const struct scope *scope, const struct np_layer *layer,
    const struct np_node *node, const struct np_node *raw, int index, int previous)
{
    static const char *const others[] = {"name", "from", "when", NULL};
    void *object = np_alloc(layer->object_bytes);
    struct item item;
    int tensor = -1;

    if (!object)
        abort();
    read_item(b, scope, node, raw, index, layer->max_ins, layer->name, previous, &item);
    if (item.known) {
        /* A missing key is shown where the layer stands. */
        const struct np_node empty = {
            .kind = NP_NODE_MAP, .line = node->line, .column = node->column};

        if (np_options_parse(layer->options, item.args ? item.args : &empty, layer->name, others,
                object, &b->mine) < 0)
            item.good = false;
    }
    if (item.good && item.absent) {
        tensor = item.ins[0];
    } else if (item.good) {
        struct np_layer_site site = {.graph = b->graph,
            .input = b->input,
            .layer = layer->name,
            .name = item.name,
            .node = node,
            .nr_ins = item.nr_ins,
            .report = &b->mine};

        memcpy(site.ins, item.ins, sizeof(site.ins));
        tensor = layer->add(&site, object);
    }
    add_output(b, item.name, tensor, node, item.absent ? NULL : layer->name);
    np_options_fini(layer->options, object);
    np_free(object);
    np_node_free(item.args);
    return tensor;
}

/* --- blocks -------------------------------------------------------------------------------- */

struct names { /* parameters a block's list asks for */
    const char *keys[MAX_KEYS + 1];
    char texts[MAX_KEYS][MAX_NAME + 1];
    int nr_keys;
    const struct np_node *given; /* an inner block's own: not asked for */
};

static void found_param(void *context, const char *name, size_t length)
{
    struct names *names = context;

    if (length > MAX_NAME || names->nr_keys == MAX_KEYS || (length == 2 && !memcmp(name, "in", 2)))
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

/* Bounded by the nesting of the file. */
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

/* Keys that the list does not ask for; with `use:` also those it asks for in vain. */
static void check_params(
    struct builder *b, const struct item *item, const struct np_node *list, const char *use)
{
    struct names names = {.keys = {NULL}};
    const char *what = use ? use : "the block";

    collect_params(list, &names);
    for (int i = 0; i < item->args->nr_items; i++) {
        const struct np_node *arg = item->args->items[i];
        bool asked = false;

        if (reserved_key(arg->key) && strncmp(arg->key, "in", 2) != 0)
            continue;
        for (int k = 0; k < names.nr_keys; k++)
            asked |= strcmp(names.keys[k], arg->key) == 0;
        if (asked)
            continue;
        const char *nearest = np_nearest(arg->key, names.keys);
        np_report_add(&b->mine, arg->key_line, arg->key_column,
            "%.64s: %.64s has no parameter $%.64s%s%s%s", arg->key, what, arg->key,
            nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    for (int k = 0; use && k < names.nr_keys; k++)
        if (!np_node_get(item->args, names.keys[k]))
            np_report_add(
                AT(item->node), "block %.64s needs the parameter '%s'", use, names.keys[k]);
}

/* The list of `use:` or `layers:`; NULL: a mistake. */
static const struct np_node *find_list(struct builder *b, const struct scope *scope,
    const struct item *item, const struct np_node *use, const struct np_node *layers)
{
    const char *words[256];
    const struct np_node *list = layers;
    int n = 0;

    if (!use == !layers) {
        np_report_add(AT(item->node), "block: needs one of use: NAME and layers: [...]");
        return NULL;
    }
    for (int i = 0; use && b->blocks && i < b->blocks->nr_items && n < 255; i++) {
        words[n++] = b->blocks->items[i]->key;
        if (np_node_is(use, b->blocks->items[i]->key)) {
            list = b->blocks->items[i];
            b->used[i] = true;
        }
    }
    words[n] = NULL;
    if (!list) {
        const char *nearest =
            use->kind == NP_NODE_SCALAR && n ? np_nearest(use->text, words) : NULL;

        np_report_add(AT(use), "use: no block '%.64s' in blocks:%s%s%s",
            use->kind == NP_NODE_SCALAR ? use->text : "...", nearest ? "; did you mean '" : "",
            nearest ? nearest : "", nearest ? "'?" : "");
        return NULL;
    }
    if (list->kind != NP_NODE_LIST || list->nr_items == 0) {
        np_report_add(AT(list), "a block is a list of layers");
        return NULL;
    }
    for (const struct scope *s = scope; s && use; s = s->parent)
        if (s->block && strcmp(s->block, use->text) == 0) {
            np_report_add(AT(use), "use: block '%.64s' would stand inside itself", use->text);
            return NULL;
        }
    if (scope->depth == MAX_DEPTH) {
        np_report_add(AT(item->node), "blocks nested deeper than %d", MAX_DEPTH);
        return NULL;
    }
    return list;
}

/* All repetitions; the tensor the last one gives. */
static int repeat_list(struct builder *b, const struct scope *parent, const struct item *item,
    const struct np_node *list, const char *use, int repeat, int previous)
{
    for (int r = 0; r < (repeat ? repeat : 1); r++) {
        char *prefix = repeat ? np_format("%s.%d.", item->name, r) : np_format("%s.", item->name);
        struct scope scope = {.parent = parent,
            .outer = use ? NULL : parent,
            .prefix = prefix,
            .block = use,
            .args = item->args,
            .repetition = r,
            .depth = parent->depth + 1,
            .input = previous};
        int before = mistakes(b);

        if (!prefix)
            abort();
        previous = add_list(b, &scope, list);
        if (repeat) {
            add_output(b, np_format("%s.%d", item->name, r), previous, item->node, NULL);
            merge_mistakes(b);
        }
        np_free(prefix);
        if (mistakes(b) > before) /* the others would say the same */
            return -1;
    }
    return previous;
}

struct block {
    int64_t repeat;
};
static const struct np_option repeat_option[] = {
    {"repeat", NP_OPT_INT, offsetof(struct block, repeat), "1", 1, NR_REPEATS, NULL, NULL},
    {NULL, NP_OPT_BOOL, 0, NULL, 0, 0, NULL, NULL},
};

static int add_block(struct builder *b, const struct scope *scope, const struct np_node *node,
    const struct np_node *raw, int index, int previous)
{
    const struct np_node *list = NULL, *use = NULL, *repeat;
    struct block block = {0};
    struct item item;
    int tensor = -1;

    read_item(b, scope, node, raw, index, 1, "block", previous, &item);
    if (item.args) {
        use = np_node_get(item.args, "use");
        list = find_list(b, scope, &item, use, np_node_get(raw, "layers"));
        if (list)
            check_params(b, &item, list, use ? use->text : NULL);
        if ((repeat = np_node_get(item.args, "repeat")) && strcmp(repeat->text, UNKNOWN) != 0) {
            struct np_node *alone = np_node_new(NP_NODE_MAP, node->line, node->column);

            np_node_add(alone, "repeat", np_node_copy(repeat));
            np_options_parse(repeat_option, alone, "block", NULL, &block, &b->mine);
            np_node_free(alone);
        }
    } else if (item.known) {
        find_list(b, scope, &item, NULL, NULL);
    }
    if (item.absent) {
        tensor = item.good ? item.ins[0] : -1;
    } else if (list && b->mine.nr_errs == 0) { /* with an unknown input too: to find more */
        tensor = repeat_list(b, scope, &item, list, use ? use->text : NULL, (int)block.repeat,
            item.good ? item.ins[0] : -1);
    }
    add_output(b, item.name, tensor, node, NULL);
    np_node_free(item.args);
    return tensor;
}

/* --- lists --------------------------------------------------------------------------------- */

static int unknown_layer(struct builder *b, const struct np_node *node, const char *name)
{
    const char *words[64], *nearest;
    int n = 0;

    if (np_node_get(b->blocks, name)) {
        np_report_add(AT(node), "no layer '%.64s', but a block: block: {use: %.64s}", name, name);
        return -1;
    }
    while (np_layers[n]) {
        words[n] = np_layers[n]->name;
        n++;
    }
    words[n++] = "block";
    words[n] = NULL;
    nearest = np_nearest(name, words);
    if (nearest) {
        np_report_add(AT(node), "no layer '%.64s'; did you mean '%s'?", name, nearest);
    } else {
        char all[512] = "";

        for (int i = 0; i < n; i++)
            snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "", words[i]);
        np_report_add(AT(node), "no layer '%.64s'; there are: %s", name, all);
    }
    return -1;
}

static int add_item(struct builder *b, const struct scope *scope, const struct np_node *node,
    int index, int previous)
{
    const char *name = NULL;
    const struct np_node *args = NULL;
    int tensor = -1;

    if (!np_node_named(node, &name, &args) || !*name) {
        if (node->kind == NP_NODE_MAP && node->nr_items > 1)
            np_report_add(&b->mine, node->items[1]->key_line, node->items[1]->key_column,
                "%.64s: a layer is one key; its options stand inside: %.64s: {%.64s: ...}",
                node->items[1]->key, node->items[0]->key, node->items[1]->key);
        else
            np_report_add(AT(node), "expected a layer: a name, or a name with options, like "
                                    "conv: {out: 32, kernel: 3}");
    } else if (strcmp(name, "block") == 0) {
        tensor = add_block(b, scope, node, args, index, previous);
    } else if (np_layer_find(name)) {
        tensor = add_layer(b, scope, np_layer_find(name), node, args, index, previous);
    } else {
        unknown_layer(b, node, name);
    }
    merge_mistakes(b);
    return tensor;
}

static int add_list(struct builder *b, const struct scope *scope, const struct np_node *list)
{
    int tensor = scope->input;

    for (int i = 0; i < list->nr_items; i++) {
        if (b->nr_layers == NP_MAX_LAYERS || b->graph->nr_nodes >= NP_MAX_LAYERS) {
            np_report_add(AT(list->items[i]), "more than %d layers", NP_MAX_LAYERS);
            merge_mistakes(b);
            return -1;
        }
        b->nr_layers++;
        tensor = add_item(b, scope, list->items[i], i, tensor);
    }
    return tensor;
}

/* --- what nobody uses ---------------------------------------------------------------------- */

/* Marks what the output depends on, from the last node back. */
static bool *find_needed(const struct np_graph *graph, int output)
{
    bool *needed = np_alloc((size_t)graph->nr_tensors);

    if (!needed)
        abort();
    needed[output] = true;
    for (int n = graph->nr_nodes - 1; n >= 0; n--) {
        const struct np_op_node *node = &graph->nodes[n];
        bool used = false;

        for (int o = 0; o < node->nr_outs; o++)
            used |= needed[node->outs[o]];
        for (int i = 0; used && i < node->nr_ins; i++)
            needed[node->ins[i]] = true;
    }
    return needed;
}

static void check_unused(struct builder *b, int output)
{
    bool *needed = find_needed(b->graph, output);

    for (int i = 0; i < b->nr_outputs; i++) {
        const struct output *o = &b->outputs[i];

        if (o->layer && !needed[o->tensor])
            np_report_add(AT(o->node), "%s '%s': nothing reads what it gives", o->layer, o->name);
        merge_mistakes(b);
    }
    np_free(needed);
}

static void check_blocks(struct builder *b)
{
    for (int i = 0; b->blocks && i < b->blocks->nr_items; i++)
        if (!b->used[i])
            np_report_add(b->report, b->blocks->items[i]->key_line, b->blocks->items[i]->key_column,
                "%.64s: this block is used nowhere", b->blocks->items[i]->key);
}

int np_blocks_expand(struct np_graph *graph, const struct np_node *model,
    const struct np_node *blocks, const struct np_graph_input *input, struct np_report *report)
{
    struct builder b = {.graph = graph, .input = input, .report = report};
    struct scope top = {.prefix = "", .input = graph->input};
    int tensor;

    np_report_init(&b.mine, report->file);
    b.first_mistake = report->nr_errs;
    if (blocks && blocks->kind != NP_NODE_MAP)
        np_report_add(report, blocks->line, blocks->column,
            "blocks: expected names with lists of layers: {NAME: [...]}");
    else
        b.blocks = blocks;
    if (model->kind != NP_NODE_LIST || model->nr_items == 0) {
        np_report_add(report, model->line, model->column, "model: expected a list of layers");
        return -1;
    }
    b.used = b.blocks ? np_alloc((size_t)blocks->nr_items) : NULL;
    if (b.blocks && blocks->nr_items && !b.used)
        abort();
    tensor = add_list(&b, &top, model);
    if (tensor >= 0 && mistakes(&b) == b.first_mistake)
        check_unused(&b, tensor);
    check_blocks(&b);
    for (int i = 0; i < b.nr_outputs; i++)
        np_free(b.outputs[i].name);
    free(b.outputs);
    np_free(b.used);
    return tensor;
}
