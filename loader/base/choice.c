/* One of several named things: finds the name, suggests the nearest one, and gives the
 * normal form back. Config time, one thread; the options themselves are option.c's. */
#include "loader/base/choice.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_CHOICES 32

static int find_name(const struct np_choice *choices, const char *name)
{
    for (int i = 0; choices[i].name != NULL; i++)
        if (strcmp(choices[i].name, name) == 0)
            return i;
    return -EINVAL;
}

/* "optimizer: 'lr' is a key of sgd: optimizer: {sgd: {lr: ...}}": the name in the middle is missing. */
static bool report_key(const struct np_choice *choices, const struct np_node *node,
    const char *what, struct np_report *report)
{
    const char *key = node->kind == NP_NODE_MAP && node->nr_items ? node->items[0]->key : NULL;

    for (int i = 0; key != NULL && choices[i].name != NULL; i++)
        for (const struct np_option *option = choices[i].table; option->key; option++)
            if (strcmp(option->key, key) == 0) {
                np_report_add(report, node->line, node->column,
                    "%s: '%s' is a key of %s: %s: {%s: {%s: ...}}", what, key, choices[i].name,
                    what, choices[i].name, key);
                return true;
            }
    return false;
}

/* "`sdg` is not known; did you mean `sgd`? (sgd, adamw)" */
static void report_unknown(const struct np_choice *choices, const struct np_node *node,
    const char *what, const char *name, struct np_report *report)
{
    const char *words[MAX_CHOICES + 1] = {NULL};
    char list[256] = "";
    size_t used = 0;

    for (int i = 0; i < MAX_CHOICES && choices[i].name != NULL; i++) {
        words[i] = choices[i].name;
        int wrote =
            snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "", choices[i].name);
        used += (size_t)wrote < sizeof(list) - used ? (size_t)wrote : 0;
    }
    const char *near = name != NULL ? np_meant(name, words) : NULL;
    if (name == NULL)
        np_report_add(report, node->line, node->column,
            "%s: should be a name, or one name with its options, of: %s", what, list);
    else
        np_report_add(report, node->line, node->column, "%s: `%s` is not known%s%s%s (%s)", what,
            name, near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "", list);
}

int np_choice_find(const struct np_choice *choices, const struct np_node *node, const char *what,
    const char *fallback, const struct np_node **ret_args, struct np_report *report)
{
    const char *name = NULL;
    const struct np_node *args = NULL;

    if (node == NULL) {
        *ret_args = NULL;
        int found = find_name(choices, fallback);
        assert(found >= 0);
        return found;
    }
    int found =
        np_node_named(node, &name, &args) && name != NULL ? find_name(choices, name) : -EINVAL;
    if (found < 0 && !report_key(choices, node, what, report))
        report_unknown(choices, node, what, name, report);
    if (found >= 0)
        *ret_args = args;
    return found;
}

struct np_node *np_choice_node(const struct np_choice *choice, const void *object)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
    struct np_node *options = np_options_node(choice->table, object);

    if (map == NULL || options == NULL) {
        np_node_free(map);
        np_node_free(options);
        return NULL;
    }
    np_node_add(map, choice->name, options);
    return map;
}
