/* `-o key.path=value`: changes to the node tree before it is checked. The value is YAML
 * (flow style where it is more than a word); a list's items are named by number. */
#include "daemon/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/option.h"

#define MAX_KEY   256 /* of a whole path, bytes */
#define MAX_DEPTH 32

static void set_place(struct np_node *node, int line)
{
    node->line = node->key_line = line;
    for (int i = 0; i < node->nr_items; i++)
        set_place(node->items[i], line);
}

/* A word that stands for a name without arguments becomes `word: {}`, so that a path can go on
 * below it: `loss: cross_entropy`, then -o loss.cross_entropy.label_smoothing=0.1. An empty value
 * becomes an empty mapping. */
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
    char *end;
    long i = strtol(key, &end, 10);

    if (end == key || *end || i < 0 || i >= list->nr_items) {
        np_report_add(report, line, 0, "'%s' is no item of this list; it has 0 to %d", key,
            list->nr_items - 1);
        return -EINVAL;
    }
    return (int)i;
}

/* The child of node called key; mappings get an empty one where it is missing. */
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

/* node takes the value's place and keeps its own key. */
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

int np_config_override(struct np_node *root, const char *text, int index, struct np_report *report)
{
    char path[MAX_KEY], *rest = path;
    const char *equals = strchr(text, '=');
    int line = -1 - index, depth = 0;

    if (!equals || equals == text) {
        np_report_add(report, line, 0, "expected KEY=VALUE");
        return -EINVAL;
    }
    if ((size_t)(equals - text) >= sizeof(path)) {
        np_report_add(report, line, 0, "the key is longer than %d bytes", MAX_KEY - 1);
        return -EINVAL;
    }
    memcpy(path, text, (size_t)(equals - text));
    path[equals - text] = '\0';
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
