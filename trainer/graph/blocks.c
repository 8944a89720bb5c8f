/* Expands lists of layers into nodes. A scope is the list being expanded: the prefix of its names,
 * its input, the parameters it sees. A layer with a mistake gives no tensor (-1); layers that read
 * it are still checked as far as possible without shapes, so that one run finds all mistakes. */
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "loader/base/mem.h"
#include "trainer/graph/block_scope.h"

#define MAX_DEPTH   32  /* blocks in blocks */
#define MAX_SCANNED 256 /* blocks searched for another block's name */

static int add_list(struct np_builder *b, const struct np_scope *scope, const struct np_node *list);

/* --- one layer ----------------------------------------------------------------------------- */

/* "dropout: expected options, like dropout: {rate: 0.5}" */
static void expected_options(struct np_builder *b, const char *name, const struct np_node *raw)
{
    const struct np_layer *layer = np_layer_find(name);
    const struct np_option *table = layer ? layer->options : np_block_options;

    np_report_add(NP_AT(raw), "%s: expected options, like %s: {%s: %.40s}", name, name,
        table[0].key ? table[0].key : np_layer_common[0].key,
        raw->kind == NP_NODE_SCALAR ? raw->text : "...");
}

/* Calculates options, name, inputs and `when`. item->good: all of them are known. */
static void read_item(struct np_builder *b, const struct np_scope *scope,
    const struct np_node *node, const struct np_node *raw, int index, int max_ins,
    const char *layer, int previous, struct np_item *ret_item)
{
    bool unknown = false;
    struct np_item item = {.node = node, .raw = raw, .known = true};

    if (raw && raw->kind == NP_NODE_SCALAR && !raw->text[0] && !raw->quoted)
        item.raw = raw = NULL; /* "relu:" */
    if (raw && raw->kind == NP_NODE_MAP && raw->nr_items > NP_MAX_KEYS) {
        np_report_add(NP_AT(node), "%s: more than %d keys", layer, NP_MAX_KEYS);
        item.known = false;
        item.raw = raw = NULL;
    } else if (raw && raw->kind != NP_NODE_MAP && !(raw->kind == NP_NODE_LIST && max_ins > 1)) {
        expected_options(b, layer, raw);
        item.known = false;
        item.raw = raw = NULL;
    }
    if (raw && raw->kind == NP_NODE_MAP) {
        item.args = np_blocks_calculate(b, scope, raw, &unknown);
        item.known = item.args != NULL && !unknown;
    }
    item.good = item.known;
    item.name = np_blocks_full_name(b, scope, np_node_get(raw, "name"), index);
    item.good &= item.name != NULL;
    if (!item.name)
        item.name = np_format("%s%d", scope->prefix, index);
    item.good &= np_blocks_find_inputs(b, scope, &item, max_ins, layer, previous) == 0;
    item.absent = np_node_is(np_node_get(item.args, "when"), "0");
    for (int i = 0; i < item.nr_ins; i++)
        item.good &= item.ins[i] >= 0;
    *ret_item = item;
}

static int add_layer(struct np_builder *b, const struct np_scope *scope,
    const struct np_layer *layer, const struct np_node *node, const struct np_node *raw, int index,
    int previous)
{
    static const char *const others[] = {"name", "from", "when", NULL};
    void *object = np_alloc(layer->object_bytes);
    struct np_item item;
    int tensor = -1;

    read_item(b, scope, node, raw, index, layer->max_ins, layer->name, previous, &item);
    if (item.known) {
        /* A missing key is reported at the layer's place. */
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
    np_blocks_add_output(b, item.name, tensor, node, item.absent ? NULL : layer->name);
    np_options_fini(layer->options, object);
    np_free(object);
    np_node_free(item.args);
    return tensor;
}

/* --- blocks -------------------------------------------------------------------------------- */

/* Returns the list of `use:` or `layers:`; NULL: a mistake. */
static const struct np_node *find_list(struct np_builder *b, const struct np_scope *scope,
    const struct np_item *item, const struct np_node *use, const struct np_node *layers)
{
    const char *words[256];
    const struct np_node *list = layers;
    int n = 0;

    if (!use == !layers) {
        np_report_add(NP_AT(item->node), "block: needs one of use: NAME and layers: [...]");
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

        np_report_add(NP_AT(use), "use: no block '%.64s' in blocks:%s%s%s",
            use->kind == NP_NODE_SCALAR ? use->text : "...", nearest ? "; did you mean '" : "",
            nearest ? nearest : "", nearest ? "'?" : "");
        return NULL;
    }
    if (list->kind != NP_NODE_LIST || list->nr_items == 0) {
        np_report_add(NP_AT(list), "a block is a list of layers");
        return NULL;
    }
    for (const struct np_scope *s = scope; s && use; s = s->parent)
        if (s->block && strcmp(s->block, use->text) == 0) {
            np_report_add(NP_AT(use), "use: block '%.64s' would contain itself", use->text);
            return NULL;
        }
    if (scope->depth == MAX_DEPTH) {
        np_report_add(NP_AT(item->node), "blocks nested deeper than %d", MAX_DEPTH);
        return NULL;
    }
    return list;
}

/* Expands all repetitions; returns the last one's tensor. */
static int repeat_list(struct np_builder *b, const struct np_scope *parent,
    const struct np_item *item, const struct np_node *list, const char *use, int repeat,
    int previous)
{
    for (int r = 0; r < (repeat ? repeat : 1); r++) {
        char *prefix = repeat ? np_format("%s.%d.", item->name, r) : np_format("%s.", item->name);
        struct np_scope scope = {.parent = parent,
            .outer = use ? NULL : parent,
            .prefix = prefix,
            .block = use,
            .args = item->args,
            .repetition = r,
            .depth = parent->depth + 1,
            .input = previous};
        int before = np_blocks_mistakes(b);

        previous = add_list(b, &scope, list);
        if (repeat) {
            np_blocks_add_output(b, np_format("%s.%d", item->name, r), previous, item->node, NULL);
            np_blocks_merge(b);
        }
        np_free(prefix);
        if (np_blocks_mistakes(b) > before) /* the others would repeat it */
            return -1;
    }
    return previous;
}

struct block {
    int64_t repeat;
};
static const struct np_option repeat_option[] = {
    {"repeat", NP_OPT_INT, offsetof(struct block, repeat), "1", 1, NP_MAX_REPEATS, NULL, NULL},
    NP_OPTIONS_END,
};

static int add_block(struct np_builder *b, const struct np_scope *scope, const struct np_node *node,
    const struct np_node *raw, int index, int previous)
{
    const struct np_node *list = NULL, *use = NULL, *repeat;
    struct block block = {0};
    struct np_item item;
    int tensor = -1;

    read_item(b, scope, node, raw, index, 1, "block", previous, &item);
    if (item.args) {
        use = np_node_get(item.args, "use");
        list = find_list(b, scope, &item, use, np_node_get(raw, "layers"));
        if (list)
            np_blocks_check_params(b, &item, list, use ? use->text : NULL);
        if ((repeat = np_node_get(item.args, "repeat")) && strcmp(repeat->text, NP_UNKNOWN) != 0) {
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
    } else if (list &&
               b->mine.nr_errs == 0) { /* even with an unknown input: to find more mistakes */
        tensor = repeat_list(b, scope, &item, list, use ? use->text : NULL, (int)block.repeat,
            item.good ? item.ins[0] : -1);
    }
    np_blocks_add_output(b, item.name, tensor, node, NULL);
    np_node_free(item.args);
    return tensor;
}

/* --- lists --------------------------------------------------------------------------------- */

static int unknown_layer(struct np_builder *b, const struct np_node *node, const char *name)
{
    const char *words[64];
    char suggestion[512];
    int n = 0;

    if (np_node_get(b->blocks, name)) {
        np_report_add(
            NP_AT(node), "no layer '%.64s', but a block: block: {use: %.64s}", name, name);
        return -1;
    }
    while (np_layers[n]) {
        words[n] = np_layers[n]->name;
        n++;
    }
    words[n++] = "block";
    words[n] = NULL;
    np_suggest(name, words, "there are", suggestion, sizeof(suggestion));
    np_report_add(NP_AT(node), "no layer '%.64s'%s", name, suggestion);
    return -1;
}

static int add_item(struct np_builder *b, const struct np_scope *scope, const struct np_node *node,
    int index, int previous)
{
    const char *name = NULL;
    const struct np_node *args = NULL;
    int tensor = -1;

    if (!np_node_named(node, &name, &args) || !*name) {
        if (node->kind == NP_NODE_MAP && node->nr_items > 1)
            np_report_add(&b->mine, node->items[1]->key_line, node->items[1]->key_column,
                "%.64s: a layer is one key; its options go inside: %.64s: {%.64s: ...}",
                node->items[1]->key, node->items[0]->key, node->items[1]->key);
        else
            np_report_add(NP_AT(node), "expected a layer: a name, or a name with options, like "
                                       "conv: {out: 32, kernel: 3}");
    } else if (strcmp(name, "block") == 0) {
        tensor = add_block(b, scope, node, args, index, previous);
    } else if (np_layer_find(name)) {
        tensor = add_layer(b, scope, np_layer_find(name), node, args, index, previous);
    } else {
        unknown_layer(b, node, name);
    }
    np_blocks_merge(b);
    return tensor;
}

static int add_list(struct np_builder *b, const struct np_scope *scope, const struct np_node *list)
{
    int tensor = scope->input;

    for (int i = 0; i < list->nr_items; i++) {
        const int first = b->graph->nr_tensors;

        if (b->nr_layers == NP_MAX_LAYERS || b->graph->nr_nodes >= NP_MAX_LAYERS) {
            np_report_add(NP_AT(list->items[i]), "more than %d layers", NP_MAX_LAYERS);
            np_blocks_merge(b);
            return -1;
        }
        b->nr_layers++;
        tensor = add_item(b, scope, list->items[i], i, tensor);
        for (int t = first; scope->depth == 0 && t < b->graph->nr_tensors; t++)
            b->graph->tensors[t].entry = i;
    }
    return tensor;
}

/* --- unused layers and blocks --------------------------------------------------------------- */

/* Marks the tensors that the output depends on, from the last node back. */
static bool *find_needed(const struct np_graph *graph, int output)
{
    bool *needed = np_alloc((size_t)graph->nr_tensors);

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

static void check_unused(struct np_builder *b, int output)
{
    bool *needed = find_needed(b->graph, output);

    for (int i = 0; i < b->nr_outputs; i++) {
        const struct np_output *o = &b->outputs[i];

        if (o->layer && !needed[o->tensor])
            np_report_add(NP_AT(o->node), "%s '%s': no layer reads its output", o->layer, o->name);
        np_blocks_merge(b);
    }
    np_free(needed);
}

/* True: node contains `use: name`. The file's nesting bounds the recursion. */
static bool uses(const struct np_node *node, const char *name)
{
    if (np_node_is(np_node_get(node, "use"), name))
        return true;
    for (int i = 0; i < node->nr_items; i++)
        if (uses(node->items[i], name))
            return true;
    return false;
}

/* A block counts as used if it was expanded, or if only a mistake prevented that. */
static void check_blocks(struct np_builder *b, const struct np_node *model)
{
    for (int i = 0; b->blocks && i < b->blocks->nr_items; i++) {
        const struct np_node *block = b->blocks->items[i];
        bool used = b->used[i] || uses(model, block->key);

        for (int j = 0; j < b->blocks->nr_items && !used && j < MAX_SCANNED; j++)
            used = j != i && uses(b->blocks->items[j], block->key);
        if (!used)
            np_report_add(b->report, block->key_line, block->key_column,
                "%.64s: this block is never used", block->key);
    }
}

/* `model: resnet18`: names the shipped config with that network. */
static void no_list(const struct np_node *model, struct np_report *report)
{
    static const char *const shipped[] = {"airbench94", "alexnet", "cnn", "convnext_tiny",
        "efficientnet_b0", "mobilenet_v2", "resnet18", "resnet20", "resnet50", "squeezenet",
        "vgg16", "vit_tiny", NULL};
    const char *name = model->kind == NP_NODE_SCALAR ? model->text : "";
    bool known = false;

    for (int i = 0; shipped[i]; i++)
        known |= strcasecmp(shipped[i], name) == 0;
    np_report_add(report, model->line, model->column, "model: expected a list of layers%s%s%s",
        known ? "; configs/" : "", known ? name : "",
        known ? ".yaml has this network: copy its model and blocks" : "");
}

int np_blocks_expand(struct np_graph *graph, const struct np_node *model,
    const struct np_node *blocks, const struct np_graph_input *input, struct np_report *report)
{
    struct np_builder b = {.graph = graph, .input = input, .report = report};
    struct np_scope top = {.prefix = "", .input = graph->input};
    int tensor;

    np_report_init(&b.mine, report->file);
    b.mine.files = report->files;
    b.first_mistake = report->nr_errs;
    if (blocks && blocks->kind != NP_NODE_MAP)
        np_report_add(report, blocks->line, blocks->column,
            "blocks: expected names with lists of layers: {NAME: [...]}");
    else
        b.blocks = blocks;
    if (model->kind != NP_NODE_LIST || model->nr_items == 0) {
        no_list(model, report);
        return -1;
    }
    b.slots = np_alloc_array(NP_NAME_SLOTS, sizeof(*b.slots));
    b.used = b.blocks ? np_alloc((size_t)blocks->nr_items) : NULL;
    tensor = add_list(&b, &top, model);
    if (tensor >= 0 && np_blocks_mistakes(&b) == b.first_mistake)
        check_unused(&b, tensor);
    check_blocks(&b, model);
    for (int i = 0; i < b.nr_outputs; i++)
        np_free(b.outputs[i].name);
    np_free(b.outputs);
    np_free(b.slots);
    np_free(b.used);
    return tensor;
}
