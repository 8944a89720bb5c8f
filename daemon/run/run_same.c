/* See run_same.h. */
#include "daemon/run/run_same.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/json.h"

/* Key paths that change no weight. Precision and compute lanes are kept by the checkpoint's facts;
 * the training set may lie anywhere, the facts tell it by its names and labels. */
static const char *const free_keys[] = {"name", "runs", "device", "precision", "checkpoint",
    "data.test", "data.val", "data.classes", "data.train.path", "data.train.labels",
    "data.train.cache_dir", "loader.readers", "loader.io", "loader.depth", "loader.prefetch",
    "loader.cache", "loader.bad_samples", "loader.test_augment", "train.eval_every",
    "train.threads", "train.history", NULL};
/* May grow where the schedule allows it. */
static const char *const growing_keys[] = {"train.epochs", "train.steps", NULL};

struct comparison {
    bool extends;
    char *why;
    size_t why_bytes;
    char path[512];
};

static bool among(const char *const *words, const char *word)
{
    for (; *words; words++)
        if (strcmp(*words, word) == 0)
            return true;
    return false;
}

static void show(const struct np_node *node, char *text, size_t text_bytes)
{
    if (!node)
        snprintf(text, text_bytes, "absent");
    else if (node->kind == NP_NODE_SCALAR)
        snprintf(text, text_bytes, "%s", node->text);
    else
        snprintf(text, text_bytes, "a %s of %d", node->kind == NP_NODE_LIST ? "list" : "mapping",
            node->nr_items);
}

static bool differ(
    struct comparison *c, const struct np_node *then, const struct np_node *now, const char *more)
{
    char a[160], b[160];

    show(then, a, sizeof(a));
    show(now, b, sizeof(b));
    snprintf(c->why, c->why_bytes, "%s was %s and is %s%s", c->path, a, b, more);
    return false;
}

static bool compare_growing(
    struct comparison *c, const struct np_node *then, const struct np_node *now)
{
    if (then && now && strcmp(then->text, now->text) == 0)
        return true;
    if (!then || !now)
        return differ(c, then, now, "");
    if (atof(now->text) < atof(then->text))
        return differ(c, then, now, ": a run can be made longer, not shorter");
    if (!c->extends)
        return differ(c, then, now, ": this schedule depends on the length of the run");
    return true;
}

static bool compare(struct comparison *c, const struct np_node *then, const struct np_node *now);

static bool compare_child(
    struct comparison *c, const char *key, const struct np_node *then, const struct np_node *now)
{
    size_t used = strlen(c->path);
    bool same = true;

    snprintf(c->path + used, sizeof(c->path) - used, "%s%s", used ? "." : "", key);
    if (among(growing_keys, c->path))
        same = compare_growing(c, then, now);
    else if (!among(free_keys, c->path))
        same = compare(c, then, now);
    c->path[used] = '\0';
    return same;
}

static bool compare_lists(
    struct comparison *c, const struct np_node *then, const struct np_node *now)
{
    if (then->nr_items != now->nr_items)
        return differ(c, then, now, "");
    for (int i = 0; i < then->nr_items; i++) {
        char number[16];
        snprintf(number, sizeof(number), "%d", i);
        if (!compare_child(c, number, then->items[i], now->items[i]))
            return false;
    }
    return true;
}

static bool compare(struct comparison *c, const struct np_node *then, const struct np_node *now)
{
    if (!then || !now || then->kind != now->kind)
        return then == now || differ(c, then, now, "");
    if (then->kind == NP_NODE_SCALAR)
        return strcmp(then->text, now->text) == 0 || differ(c, then, now, "");
    if (then->kind == NP_NODE_LIST)
        return compare_lists(c, then, now);
    for (int i = 0; i < then->nr_items; i++)
        if (!compare_child(
                c, then->items[i]->key, then->items[i], np_node_get(now, then->items[i]->key)))
            return false;
    for (int i = 0; i < now->nr_items; i++) /* what is new */
        if (!np_node_get(then, now->items[i]->key) &&
            !compare_child(c, now->items[i]->key, NULL, now->items[i]))
            return false;
    return true;
}

bool np_config_same(const struct np_node *then, const struct np_node *now, bool extends, char *why,
    size_t why_bytes)
{
    struct comparison c = {.extends = extends, .why = why, .why_bytes = why_bytes};

    return compare(&c, then, now);
}
