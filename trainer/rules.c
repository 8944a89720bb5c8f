#include "trainer/rules.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"

#define MAX_PATTERN 256 /* characters */

/* --- tables -------------------------------------------------------------------------------- */

#define AT(field) offsetof(struct np_freeze, field)
const struct np_option np_freeze_table[] = {
    {"names", NP_OPT_NODE, AT(names), NULL, 0, 0, NULL,
        "Required. Patterns of the parameters' names, or one pattern."},
    {"until", NP_OPT_NODE, AT(until_node), NULL, 0, 0, NULL,
        "When they thaw: `{epoch: 3}` or `{step: 500}`; default: never. Their first update is the "
        "first one that begins at or after it."},
    {"from", NP_OPT_NODE, AT(from_node), NULL, 0, 0, NULL,
        "Instead of `until`: they learn at first, and are frozen in updates that begin at or after "
        "it. Their batchnorms go on as before."},
    {"batchnorm", NP_OPT_BOOL, AT(batchnorm), "true", 0, 0, NULL,
        "A batchnorm whose weight and bias are frozen normalises by its running statistics and "
        "leaves them as they are, as after torch's `eval()` or with Keras' `trainable = False`; "
        "`false`: it uses and collects those of the batches, as with torch's `requires_grad = "
        "False` alone."},
    NP_OPTIONS_END,
};
const struct np_option np_until_table[] = {
    {"epoch", NP_OPT_FLOAT, AT(epoch), "0", 0, 1e6, NULL, "Epochs that are done by then."},
    {"step", NP_OPT_INT, AT(step), "0", 0, 1e12, NULL, "Steps that are done by then."},
    NP_OPTIONS_END,
};

#undef AT
#define AT(field) offsetof(struct np_own_rule, field)
const struct np_option np_own_rule_table[] = {
    {"names", NP_OPT_NODE, AT(names), NULL, 0, 0, NULL,
        "Required. Patterns of the parameters' names, or one pattern."},
    {"lr", NP_OPT_FLOAT, AT(lr), "1", 0, 1e6, NULL, "Factor on the learning rate."},
    {"decay", NP_OPT_FLOAT, AT(decay), "1", 0, 1e6, NULL,
        "Factor on `weight_decay`; above 0 it also decays what `decay_all: false` leaves out."},
    NP_OPTIONS_END,
};

/* --- parsing ------------------------------------------------------------------------------- */

static bool check_pattern(const struct np_node *node, const char *key, struct np_report *report)
{
    if (node->kind == NP_NODE_SCALAR && node->text[0] && strlen(node->text) <= MAX_PATTERN)
        return true;
    np_report_add(report, node->line, node->column,
        "%s: expected a pattern of parameters' names, like 'layer1.*'", key);
    return false;
}

static void check_names(const struct np_node *names, const struct np_node *at, const char *key,
    struct np_report *report)
{
    if (!names)
        np_report_add(report, at->line, at->column, "%s.names: the key is missing", key);
    else if (names->kind != NP_NODE_LIST)
        check_pattern(names, key, report);
    else
        for (int i = 0; i < names->nr_items; i++)
            if (!check_pattern(names->items[i], key, report))
                return;
}

static void parse_freeze(
    const struct np_node *node, struct np_freeze *freeze, struct np_report *report)
{
    freeze->batchnorm = true;
    freeze->names = node;
    if (node->kind == NP_NODE_MAP) {
        freeze->names = NULL;
        if (np_options_parse(np_freeze_table, node, "freeze", NULL, freeze, report) < 0)
            return;
    }
    check_names(freeze->names, node, "freeze", report);
    const struct np_node *time = freeze->until_node ? freeze->until_node : freeze->from_node;
    const char *key = freeze->until_node ? "until" : "from";

    if (freeze->until_node && freeze->from_node)
        np_report_add(report, freeze->from_node->line, freeze->from_node->column,
            "freeze.from: there is `until`, too; make two entries of it, for different names");
    else if (time && np_options_parse(np_until_table, time, key, NULL, freeze, report) == 0 &&
             (freeze->epoch > 0) == (freeze->step > 0))
        np_report_add(
            report, time->line, time->column, "freeze.%s: expected {epoch: 3} or {step: 500}", key);
}

static bool has_maps(const struct np_node *list)
{
    for (int i = 0; i < list->nr_items; i++)
        if (list->items[i]->kind == NP_NODE_MAP)
            return true;
    return false;
}

/* A pattern, a mapping or a list of patterns is one entry; a list with mappings is several. */
static void parse_freezes(
    const struct np_node *node, struct np_rules *rules, struct np_report *report)
{
    const bool several = node->kind == NP_NODE_LIST && has_maps(node);

    if (node->kind == NP_NODE_LIST && node->nr_items == 0)
        return;
    rules->nr_freezes = several ? node->nr_items : 1;
    rules->freezes = np_alloc_array((size_t)rules->nr_freezes, sizeof(*rules->freezes));
    for (int i = 0; i < rules->nr_freezes; i++)
        parse_freeze(several ? node->items[i] : node, &rules->freezes[i], report);
}

static void parse_own(const struct np_node *node, struct np_rules *rules, struct np_report *report)
{
    const bool list = node->kind == NP_NODE_LIST;

    rules->nr_own = list ? node->nr_items : 1;
    rules->own = np_alloc_array((size_t)rules->nr_own + 1, sizeof(*rules->own));
    for (int i = 0; i < rules->nr_own; i++) {
        const struct np_node *item = list ? node->items[i] : node;

        if (item->kind != NP_NODE_MAP)
            np_report_add(report, item->line, item->column,
                "params: expected {names: [...], lr: 10, decay: 0}");
        else if (np_options_parse(
                     np_own_rule_table, item, "params", NULL, &rules->own[i], report) == 0)
            check_names(rules->own[i].names, item, "params", report);
    }
}

int np_rules_parse(const struct np_node *freeze, const struct np_node *params,
    struct np_rules *rules, struct np_report *report)
{
    const int before = report->nr_errs + report->nr_dropped;

    *rules = (struct np_rules){.layer_decay = 1};
    if (freeze)
        parse_freezes(freeze, rules, report);
    if (params)
        parse_own(params, rules, report);
    return report->nr_errs + report->nr_dropped == before ? 0 : -EINVAL;
}

void np_rules_fini(struct np_rules *rules)
{
    np_free(rules->freezes);
    np_free(rules->own);
    *rules = (struct np_rules){.layer_decay = 1};
}

/* --- the resolved forms -------------------------------------------------------------------- */

static struct np_node *names_node(const struct np_node *names)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);
    const bool one = names->kind == NP_NODE_SCALAR;

    for (int i = 0; i < (one ? 1 : names->nr_items); i++) {
        struct np_node *pattern = np_node_copy(one ? names : names->items[i]);

        np_free(pattern->key);
        pattern->key = NULL;
        pattern->quoted = true; /* may begin with a * */
        np_node_add(list, NULL, pattern);
    }
    return list;
}

/* {names: [...], and the other options of the table} */
static struct np_node *entry_node(
    const struct np_node *names, const struct np_option *table, const void *object)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0), *all = np_options_node(table, object);

    np_node_add(map, "names", names_node(names));
    for (int i = 0; i < all->nr_items; i++)
        if (!np_node_get(map, all->items[i]->key))
            np_node_add(map, all->items[i]->key, np_node_copy(all->items[i]));
    np_node_free(all);
    return map;
}

static struct np_node *until_node(const struct np_freeze *freeze)
{
    struct np_node *until = np_options_node(np_until_table, freeze);

    np_node_remove(until, freeze->epoch > 0); /* the one that is not given */
    return until;
}

struct np_node *np_freeze_node(const struct np_rules *rules)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);

    for (int i = 0; i < rules->nr_freezes; i++) {
        struct np_freeze freeze = rules->freezes[i];
        struct np_node *entry;

        freeze.until_node = freeze.from_node = NULL;
        entry = entry_node(freeze.names, np_freeze_table, &freeze);
        if (rules->freezes[i].until_node)
            np_node_add(entry, "until", until_node(&freeze));
        if (rules->freezes[i].from_node)
            np_node_add(entry, "from", until_node(&freeze));
        np_node_add(list, NULL, entry);
    }
    return list;
}

struct np_node *np_own_rules_node(const struct np_rules *rules)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);

    for (int i = 0; i < rules->nr_own; i++)
        np_node_add(list, NULL, entry_node(rules->own[i].names, np_own_rule_table, &rules->own[i]));
    return list;
}

/* --- patterns ------------------------------------------------------------------------------ */

/* Does the pattern match the name, or the name of a layer or block above it? */
static bool matches(const char *pattern, const char *name)
{
    char part[512];

    for (const char *end = name; end; end = strchr(end + 1, '.')) {
        if (end == name)
            continue;
        snprintf(part, sizeof(part), "%.*s", (int)(end - name), name);
        if (fnmatch(pattern, part, FNM_NOESCAPE) == 0)
            return true;
    }
    return fnmatch(pattern, name, FNM_NOESCAPE) == 0;
}

/* Words for a suggestion: the parameters' layers and blocks. Freed by the caller with its words. */
static char **words_of(const struct np_graph *graph)
{
    char **words = np_alloc_array((size_t)graph->nr_tensors + 1, sizeof(*words));
    int n = 0;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const char *name = graph->tensors[t].name;
        const int bytes = (int)strcspn(name, ".");

        if (graph->tensors[t].role == NP_ROLE_PARAM &&
            (n == 0 || strncmp(words[n - 1], name, (size_t)bytes) != 0 || words[n - 1][bytes]))
            words[n++] = np_format("%.*s", bytes, name);
    }
    return words;
}

static void no_match(
    const struct np_graph *graph, const struct np_node *pattern, struct np_report *report)
{
    char **words = words_of(graph), word[64], text[512];

    snprintf(word, sizeof(word), "%.*s", (int)strcspn(pattern->text, ".*?["), pattern->text);
    np_suggest(word, (const char *const *)words, "the model has", text, sizeof(text));
    np_report_add(report, pattern->line, pattern->column, "'%.80s' matches no parameter%s",
        pattern->text, text);
    for (int i = 0; words[i]; i++)
        np_free(words[i]);
    np_free(words);
}

/* Marks the parameters that the names match: hit, (nr_tensors). */
static void find_hits(
    const struct np_graph *graph, const struct np_node *names, bool *hit, struct np_report *report)
{
    const int n = names->kind == NP_NODE_LIST ? names->nr_items : 1;

    memset(hit, 0, (size_t)graph->nr_tensors * sizeof(*hit));
    for (int i = 0; i < n; i++) {
        const struct np_node *pattern = names->kind == NP_NODE_LIST ? names->items[i] : names;
        bool any = false;

        for (int t = 0; t < graph->nr_tensors; t++)
            if (graph->tensors[t].role == NP_ROLE_PARAM &&
                matches(pattern->text, graph->tensors[t].name))
                hit[t] = any = true;
        if (!any)
            no_match(graph, pattern, report);
    }
}

/* --- applying ------------------------------------------------------------------------------ */

/* Clark et al. 2020 (ELECTRA, arXiv:2003.10555), layer-wise: layer_decay^(layers above). A layer is
 * an entry of `model:` with parameters. */
static void decay_layers(double layer_decay, struct np_graph *graph)
{
    double factor = 1;
    int above = -1;

    for (int t = graph->nr_tensors - 1; t >= 0; t--) {
        struct np_tensor *tensor = &graph->tensors[t];

        if (tensor->role != NP_ROLE_PARAM)
            continue;
        if (above >= 0 && tensor->entry != above)
            factor *= layer_decay;
        above = tensor->entry;
        tensor->rule.lr = factor;
    }
}

static void apply_own(
    const struct np_rules *rules, struct np_graph *graph, bool *hit, struct np_report *report)
{
    struct np_rule *first = np_alloc_array((size_t)graph->nr_tensors, sizeof(*first));

    for (int t = 0; t < graph->nr_tensors; t++)
        first[t] = graph->tensors[t].rule;
    for (int i = 0; i < rules->nr_own; i++) {
        find_hits(graph, rules->own[i].names, hit, report);
        for (int t = 0; t < graph->nr_tensors; t++)
            if (hit[t]) {
                graph->tensors[t].rule.lr = first[t].lr * rules->own[i].lr;
                graph->tensors[t].rule.decay = rules->own[i].decay;
            }
    }
    np_free(first);
}

/* Returns the first update that begins at or after `until` or `from`. */
static uint64_t update_of(const struct np_freeze *freeze, const struct np_rules_time *time)
{
    uint64_t step = (uint64_t)freeze->step;

    if (!freeze->until_node && !freeze->from_node)
        return NP_NEVER;
    if (freeze->epoch > 0)
        step = (uint64_t)ceil(freeze->epoch * time->steps_per_epoch);
    return (step + time->accumulate - 1) / time->accumulate;
}

/* statistics: (nr_tensors) the rules' thaw where batchnorms keep theirs, else 0. */
static void keep_statistics(
    const uint64_t *statistics, const struct np_rules_time *time, struct np_graph *graph)
{
    for (int n = 0; n < graph->nr_nodes; n++) {
        const struct np_op_node *node = &graph->nodes[n];

        if (node->op != NP_OP_BN_APPLY)
            continue;
        uint64_t weight = statistics[node->ins[3]], bias = statistics[node->ins[4]];
        uint64_t thaw = weight < bias ? weight : bias;

        if (thaw != NP_NEVER)
            thaw *= time->accumulate * (time->lanes > 0 ? time->lanes : 1);
        for (int m = 0; m <= n; m++)
            if (m == n ||
                (graph->nodes[m].op == NP_OP_BN_STATS && graph->nodes[m].outs[0] == node->ins[1]))
                graph->nodes[m].attrs.thaw = thaw;
    }
}

static void apply_freezes(const struct np_rules *rules, const struct np_rules_time *time,
    struct np_graph *graph, bool *hit, struct np_report *report)
{
    uint64_t *statistics = np_alloc_array((size_t)graph->nr_tensors, sizeof(*statistics));

    for (int i = 0; i < rules->nr_freezes; i++) {
        const struct np_freeze *freeze = &rules->freezes[i];

        find_hits(graph, freeze->names, hit, report);
        for (int t = 0; t < graph->nr_tensors; t++)
            if (hit[t]) {
                struct np_rule *rule = &graph->tensors[t].rule;

                rule->thaw = freeze->from_node ? 0 : update_of(freeze, time);
                rule->stop = freeze->from_node ? update_of(freeze, time) : 0;
                statistics[t] = freeze->batchnorm ? rule->thaw : 0;
            }
    }
    keep_statistics(statistics, time, graph);
    np_free(statistics);
}

int np_rules_apply(const struct np_rules *rules, const struct np_rules_time *time,
    struct np_graph *graph, struct np_report *report)
{
    const int before = report->nr_errs + report->nr_dropped;
    bool *hit = np_alloc_array((size_t)graph->nr_tensors, sizeof(*hit));
    struct np_rules_count count;

    decay_layers(rules->layer_decay, graph);
    apply_own(rules, graph, hit, report);
    apply_freezes(rules, time, graph, hit, report);
    np_free(hit);
    np_rules_count(graph, &count);
    if (count.params > 0 && count.frozen == count.params && rules->nr_freezes > 0)
        np_report_add(report, rules->freezes[0].names->line, rules->freezes[0].names->column,
            "freeze: it freezes all %d parameters, so there is nothing to train", count.params);
    return report->nr_errs + report->nr_dropped == before ? 0 : -EINVAL;
}

void np_rules_count(const struct np_graph *graph, struct np_rules_count *ret_count)
{
    struct np_rules_count count = {0};

    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];
        const uint64_t elements = np_tensor_elements(tensor), thaw = tensor->rule.thaw;

        if (tensor->role != NP_ROLE_PARAM)
            continue;
        count.params++;
        count.elements += elements;
        count.frozen += thaw == NP_NEVER;
        count.frozen_elements += thaw == NP_NEVER ? elements : 0;
        count.later += thaw > 0 && thaw != NP_NEVER;
        count.stopped += tensor->rule.stop > 0;
        if (thaw != NP_NEVER && thaw > count.thaw)
            count.thaw = thaw;
    }
    for (int n = 0; n < graph->nr_forward; n++)
        count.batchnorms +=
            (graph->nodes[n].op == NP_OP_BN_APPLY || graph->nodes[n].op == NP_OP_BN_EVAL) &&
            graph->nodes[n].attrs.thaw > 0;
    *ret_count = count;
}
