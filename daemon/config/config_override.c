#include "daemon/config/config_override.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/nearest.h"
#include "loader/base/option.h"
#include "loader/base/text.h"
#include "loader/base/yaml.h"
#include "trainer/graph/layers.h"
#include "trainer/optim.h"
#include "trainer/schedule.h"

#define MAX_KEY   256 /* of a whole path, bytes */
#define MAX_DEPTH 32

static void set_place(struct np_node *node, int line)
{
    node->line = node->key_line = line;
    for (int i = 0; i < node->nr_items; i++)
        set_place(node->items[i], line);
}

/* Turns a name without arguments into a mapping `name: {}`, so that a path can continue below it:
 * `loss: cross_entropy`, then -o loss.cross_entropy.label_smoothing=0.1; an empty value into {}. */
static bool open_scalar(struct np_node *node, const char *key)
{
    if (node->text[0] && strcmp(node->text, key) != 0)
        return false;
    node->kind = NP_NODE_MAP;
    if (node->text[0])
        np_node_add(node, key, np_node_new(NP_NODE_MAP, node->line, node->column));
    free(node->text);
    node->text = NULL;
    return true;
}

static int list_item(
    const struct np_node *list, const char *key, int line, struct np_report *report)
{
    int64_t i;

    if (!np_text_int(key, 0, list->nr_items - 1, &i))
        return np_report_add(report, line, 0,
            "'%s' is not an item of this list; it has items 0 to %d", key, list->nr_items - 1);
    return (int)i;
}

/* The child of node under key; adds an empty one to a mapping without it. */
static struct np_node *child_of(
    struct np_node *node, const char *key, int line, struct np_report *report)
{
    if (node->kind == NP_NODE_LIST) {
        int i = list_item(node, key, line, report);
        return i < 0 ? NULL : node->items[i];
    }
    if (node->kind == NP_NODE_SCALAR && !open_scalar(node, key)) {
        np_report_add(report, line, 0, "there is no '%s' in '%s'", key, node->text);
        return NULL;
    }
    struct np_node *child = (struct np_node *)np_node_get(node, key); /* the tree is ours */
    if (!child) {
        child = np_node_new(NP_NODE_MAP, line, 1);
        child->key_line = line;
        child->key_column = 1;
        np_node_add(node, key, child);
    }
    return child;
}

/* Moves value into node, which keeps its key. */
static void put_value(struct np_node *node, struct np_node *value)
{
    char *key = node->key;

    for (int i = 0; i < node->nr_items; i++)
        np_node_free(node->items[i]);
    free(node->items);
    free(node->text);
    *node = *value;
    node->key = key;
    free(value);
}

static struct np_node *parse_value(const char *text, int line, struct np_report *report)
{
    struct np_report own;
    struct np_node *value = NULL;

    np_report_init(&own, NULL);
    if (*text == '\0')
        value = np_node_scalar("", line, 1);
    else
        np_yaml_parse(text, strlen(text), &value, &own);
    for (int i = 0; i < own.nr_errs; i++)
        np_report_add(report, line, own.errs[i].column, "%s", own.errs[i].text);
    if (own.nr_errs) {
        np_node_free(value);
        value = NULL;
    }
    np_report_fini(&own);
    return value;
}

/* --- one name with its options ------------------------------------------------------------- */

/* Sections such as `optimizer: {sgd: {...}}`, whose keys depend on the choice. */
static const struct section {
    const char *key;
    const struct np_choice *choices;
    const char *fallback; /* the choice if the config has none */
} sections[] = {
    {"optimizer", np_optim_choices, "sgd"},
    {"schedule", np_schedule_choices, "constant"},
    {"loss", np_loss_choices, "cross_entropy"},
    {NULL, NULL, NULL},
};

/* The choice's key called word, here or in other trainers; NULL: none. */
static const char *key_of(const struct np_choice *choice, const char *word)
{
    for (const struct np_option *option = choice->table; option->key; option++) {
        const char *name = option->key;

        if (strcmp(name, word) == 0)
            return name;
        for (int i = 0; (name = np_alias(word, i)); i++)
            if (strcmp(strrchr(name, '.') ? strrchr(name, '.') + 1 : name, option->key) == 0)
                return option->key;
    }
    return NULL;
}

/* Refuses -o optimizer.adamw.lr=V if the config has sgd. rest: "lr" or "". */
static int other_choice(const struct section *section, const struct np_choice *have,
    const struct np_choice *want, const char *rest, const char *value, int line,
    struct np_report *report)
{
    char all[300], own[200] = "";

    if (*rest)
        snprintf(all, sizeof(all), "{%s: {%s: %s}}", want->name, rest, value);
    else
        snprintf(all, sizeof(all), "{%s: %s}", want->name, value);
    if (*rest && key_of(have, rest))
        snprintf(
            own, sizeof(own), "-o %s.%s.%s=%s changes it, ", section->key, have->name, rest, value);
    return np_report_add(report, line, 0, "the config's %s is %s; %s-o '%s=%s' replaces it by %s",
        section->key, have->name, own, section->key, all, want->name);
}

/* Checks that the path after the section's key fits the config's choice. */
static int check_choice(const struct section *section, const struct np_node *node, const char *path,
    const char *value, int line, struct np_report *report)
{
    const char *name = section->fallback, *rest = strchr(path, '.');
    const struct np_node *args;
    char word[MAX_KEY];

    snprintf(word, sizeof(word), "%.*s", (int)strcspn(path, "."), path);
    if (node && (!np_node_named(node, &name, &args) || !name))
        return 0; /* reported as a mistake of the file */
    const struct np_choice *have = np_choice_named(section->choices, name);
    const struct np_choice *want = np_choice_named(section->choices, word);
    if (!have || (want && (want == have || !node)))
        return 0;
    if (want)
        return other_choice(section, have, want, rest ? rest + 1 : "", value, line, report);
    const char *key = key_of(have, word);
    if (key)
        return np_report_add(report, line, 0, "'%s' is a key of %s: -o %s.%s.%s=%s", key,
            have->name, section->key, have->name, key, value);
    return np_report_add(report, line, 0,
        "expected -o %s.%s.KEY=VALUE; `nnpipe help config-reference` lists the keys of %s",
        section->key, have->name, have->name);
}

static int check_path(const struct np_node *root, const char *path, const char *value, int line,
    struct np_report *report)
{
    const size_t bytes = strcspn(path, ".");

    for (const struct section *section = sections; path[bytes] && section->key; section++)
        if (strncmp(section->key, path, bytes) == 0 && !section->key[bytes])
            return check_choice(
                section, np_node_get(root, section->key), path + bytes + 1, value, line, report);
    return 0;
}

/* A length in steps on the command line replaces epochs in the file, and the other way round. */
static void replace_length(struct np_node *root, const char *text)
{
    static const char *const other[][2] = {
        {"train.epochs=", "steps"}, {"train.steps=", "epochs"}, {NULL, NULL}};
    struct np_node *train = (struct np_node *)np_node_get(root, "train"); /* the tree is ours */

    for (int o = 0; train && train->kind == NP_NODE_MAP && other[o][0]; o++) {
        const size_t bytes = strlen(other[o][0]);

        if (strncmp(text, other[o][0], bytes) != 0 || strcmp(text + bytes, "0") == 0)
            continue;
        for (int i = train->nr_items; i-- > 0;)
            if (strcmp(train->items[i]->key, other[o][1]) == 0 && train->items[i]->line >= 0)
                np_node_remove(train, i);
    }
}

int np_config_override(struct np_node *root, const char *text, int index, struct np_report *report)
{
    char path[MAX_KEY], *rest = path;
    const char *equals = strchr(text, '=');
    int line = -1 - index, depth = 0;

    if (!equals || equals == text)
        return np_report_add(report, line, 0, "expected KEY=VALUE");
    if ((size_t)(equals - text) >= sizeof(path))
        return np_report_add(report, line, 0, "the key is longer than %d bytes", MAX_KEY - 1);
    memcpy(path, text, (size_t)(equals - text));
    path[equals - text] = '\0';
    if (check_path(root, path, equals + 1, line, report) < 0)
        return -EINVAL;
    struct np_node *value = parse_value(equals + 1, line, report);
    if (!value)
        return -EINVAL;
    struct np_node *node = root;
    while (node && rest) {
        const char *key = strsep(&rest, ".");
        if (*key == '\0' || ++depth > MAX_DEPTH) {
            np_report_add(report, line, 0, *key ? "more than 32 levels" : "an empty key");
            node = NULL;
            break;
        }
        node = child_of(node, key, line, report);
    }
    if (!node) {
        np_node_free(value);
        return -EINVAL;
    }
    set_place(value, line);
    put_value(node, value);
    replace_length(root, text);
    return 0;
}

void np_config_place(const struct np_err *err, const char *const *overrides, int nr_overrides,
    char *text, size_t text_bytes)
{
    int index = -1 - err->line;

    if (err->line < 0 && index < nr_overrides)
        snprintf(
            text, text_bytes, "-o %.*s", (int)strcspn(overrides[index], "="), overrides[index]);
    else if (err->line > 0)
        snprintf(text, text_bytes, "%s:%d:%d", err->file, err->line, err->column);
    else
        snprintf(text, text_bytes, "%s", err->file);
}
