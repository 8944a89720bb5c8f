#include "daemon/run/run_change.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/base/yaml.h"
#include "trainer/graph/graph.h"

#define NR_DIALS 5
#define PATH     80

/* --- values of a tree ---------------------------------------------------------------------- */

/* The keys that may be changed, for the config's optimizer. */
static void dials_of(const struct np_node *config, char paths[NR_DIALS][PATH])
{
    const struct np_node *optimizer = np_node_get(config, "optimizer");
    const char *kind = optimizer && optimizer->kind == NP_NODE_MAP && optimizer->nr_items == 1
                           ? optimizer->items[0]->key
                           : "";

    snprintf(paths[0], PATH, "optimizer.%s.lr", kind);
    snprintf(paths[1], PATH, "optimizer.%s.weight_decay", kind);
    snprintf(paths[2], PATH, "schedule");
    snprintf(paths[3], PATH, "train.epochs");
    snprintf(paths[4], PATH, "train.steps");
}

/* The mapping that holds the last key of a path, and that key; NULL if missing. */
static struct np_node *parent_of(struct np_node *node, const char *path, const char **ret_key)
{
    for (const char *dot; node && (dot = strchr(path, '.')); path = dot + 1) {
        char key[PATH];

        snprintf(key, sizeof(key), "%.*s", (int)(dot - path), path);
        node = node->kind == NP_NODE_MAP ? (struct np_node *)np_node_get(node, key) : NULL;
    }
    *ret_key = path;
    return node && node->kind == NP_NODE_MAP ? node : NULL;
}

static const struct np_node *value_at(const struct np_node *config, const char *path)
{
    const char *key;
    const struct np_node *parent = parent_of((struct np_node *)config, path, &key);

    return parent ? np_node_get(parent, key) : NULL;
}

/* Takes ownership of value. */
static bool put(struct np_node *config, const char *path, struct np_node *value)
{
    const char *key;
    struct np_node *parent = parent_of(config, path, &key);

    for (int i = 0; parent && i < parent->nr_items; i++)
        if (strcmp(parent->items[i]->key, key) == 0) {
            np_node_remove(parent, i);
            np_node_add(parent, key, value);
            return true;
        }
    np_node_free(value);
    return false;
}

/* As YAML, on one line. np_free. */
static char *text_of(const struct np_node *value)
{
    char *text = value->kind == NP_NODE_SCALAR ? NULL : np_node_yaml(value, NULL);

    if (!text)
        return np_strdup(value->text ? value->text : "");
    for (size_t bytes = strlen(text); bytes > 0 && text[bytes - 1] == '\n';)
        text[--bytes] = '\0';
    return text;
}

static bool same_value(const struct np_node *a, const struct np_node *b)
{
    char *left = text_of(a), *right = text_of(b);
    const bool same = strcmp(left, right) == 0;

    np_free(left);
    np_free(right);
    return same;
}

/* --- the list ------------------------------------------------------------------------------ */

void np_changes_open(struct np_changes *changes, const struct np_node *list)
{
    changes->list =
        list && list->kind == NP_NODE_LIST ? np_node_copy(list) : np_node_new(NP_NODE_LIST, 0, 0);
    changes->nr_new = 0;
}

void np_changes_close(struct np_changes *changes)
{
    np_node_free(changes->list);
    *changes = (struct np_changes){0};
}

static const char *word_of(const struct np_node *entry, const char *key)
{
    const struct np_node *word = entry->kind == NP_NODE_MAP ? np_node_get(entry, key) : NULL;

    return word && word->kind == NP_NODE_SCALAR ? word->text : NULL;
}

static struct np_node *parse(const char *text)
{
    struct np_report report;
    struct np_node *value = NULL;

    np_report_init(&report, NULL);
    if (np_yaml_parse(text, strlen(text), &value, &report) < 0) {
        np_node_free(value);
        value = NULL;
    }
    np_report_fini(&report);
    return value;
}

int np_changes_apply(const struct np_changes *changes, struct np_node *config, struct np_err *err)
{
    for (int i = 0; i < changes->list->nr_items; i++) {
        const char *key = word_of(changes->list->items[i], "key"),
                   *to = word_of(changes->list->items[i], "to");
        struct np_node *value = key && to ? parse(to) : NULL;

        if (!value || !put(config, key, value))
            return np_err_set(err, -EBADMSG,
                "the checkpoint's change number %d, of '%.80s', cannot be read", i + 1,
                key ? key : "");
    }
    return 0;
}

static void add_text(struct np_node *entry, const char *key, const struct np_node *value)
{
    char *text = text_of(value);
    struct np_node *word = np_node_scalar(text, 0, 0);

    word->quoted = true;
    np_node_add(entry, key, word);
    np_free(text);
}

static void add_change(struct np_changes *changes, const char *path, const struct np_node *from,
    const struct np_node *to, bool reset)
{
    struct np_node *entry = np_node_new(NP_NODE_MAP, 0, 0), *key = np_node_scalar(path, 0, 0);

    key->quoted = true;
    np_node_add(entry, "key", key);
    add_text(entry, "from", from);
    add_text(entry, "to", to);
    if (reset)
        np_node_add(entry, "reset", np_node_scalar("true", 0, 0));
    np_node_add(changes->list, NULL, entry);
    changes->nr_new++;
}

/* --- changes of this start ----------------------------------------------------------------- */

/* Is one of the two paths the other, or above it? */
static bool related(const char *text, const char *path)
{
    size_t n = strcspn(text, "="), m = strlen(path), least = n < m ? n : m;

    return strncmp(text, path, least) == 0 &&
           (n == m || (n < m ? path[least] : text[least]) == '.');
}

static bool given(const struct np_overrides *overrides, const char *path)
{
    for (int i = 0; overrides && i < overrides->nr_texts; i++)
        if (related(overrides->texts[i], path))
            return true;
    return false;
}

void np_changes_merge(struct np_changes *changes, const struct np_node *began,
    struct np_node *in_force, struct np_node *now, const struct np_overrides *overrides, bool reset)
{
    char paths[NR_DIALS][PATH];

    dials_of(in_force, paths);
    for (int i = 0; i < NR_DIALS; i++) {
        const char *path = paths[i];
        const struct np_node *first = value_at(began, path), *then = value_at(in_force, path);
        const struct np_node *mine = value_at(now, path);
        bool anew = reset && strcmp(path, "schedule") == 0;

        if (!first || !then || !mine)
            continue; /* np_config_same() reports it */
        bool differs = !same_value(mine, then), as_begun = same_value(mine, first);
        bool wished = given(overrides, path) || (reset && !as_begun);
        if (differs && as_begun && !wished) {
            put(now, path, np_node_copy(then));
            mine = then;
            differs = false;
        }
        if (!anew && !(differs && wished))
            continue;
        add_change(changes, path, then, mine, anew);
        put(in_force, path, np_node_copy(mine));
    }
}

void np_changes_settle(struct np_changes *changes, uint64_t step)
{
    struct np_node *list = changes->list;
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)step);
    for (int i = 0; list && i < list->nr_items; i++) {
        struct np_node *entry = list->items[i];

        if (np_node_number(entry, "step", 1e300) <= (double)step)
            continue;
        if (!put(entry, "step", np_node_scalar(text, 0, 0)))
            np_node_add(entry, "step", np_node_scalar(text, 0, 0));
    }
}

uint64_t np_changes_schedule_start(const struct np_changes *changes)
{
    uint64_t start = 0;

    for (int i = 0; changes->list && i < changes->list->nr_items; i++)
        if (np_node_is(np_node_get(changes->list->items[i], "reset"), "true"))
            start = (uint64_t)np_node_number(changes->list->items[i], "step", 0);
    return start;
}

bool np_changes_text(const struct np_changes *changes, int i, char *text, size_t text_bytes)
{
    if (!changes->list || i >= changes->list->nr_items)
        return false;
    const struct np_node *entry = changes->list->items[i];
    const char *key = word_of(entry, "key"), *from = word_of(entry, "from"),
               *to = word_of(entry, "to");
    bool same = from && to && strcmp(from, to) == 0;

    snprintf(text, text_bytes, "from step %.0f on: %s %s%s%s%s", np_node_number(entry, "step", 0),
        key ? key : "", to ? to : "", same ? "" : ", was ", same || !from ? "" : from,
        np_node_get(entry, "reset") ? "; the schedule begins anew at this step" : "");
    return true;
}

int np_changes_take(const struct np_node *resolved, struct np_config *config, struct np_err *err)
{
    const struct np_node *train = np_node_get(resolved, "train");
    struct np_schedule_options schedule;
    struct np_optim_options optim;
    struct np_report report;

    np_report_init(&report, NULL);
    int code = np_optim_parse(np_node_get(resolved, "optimizer"), &optim, &report);
    if (code == 0)
        code = np_schedule_parse(np_node_get(resolved, "schedule"), &schedule, &report);
    if (code < 0)
        np_err_set(err, code, "the run's changes: %s",
            report.nr_errs ? report.errs[0].text : "they cannot be read");
    np_report_fini(&report);
    if (code < 0)
        return code;
    config->optim.lr = optim.lr;
    config->optim.weight_decay = optim.weight_decay;
    np_schedule_fini(&config->schedule);
    config->schedule = schedule;
    config->run.epochs = np_node_number(train, "epochs", 0);
    config->run.steps = (int64_t)np_node_number(train, "steps", 0);
    return 0;
}

/* --- comparing configs --------------------------------------------------------------------- */

/* Key paths that change no weight. The checkpoint's facts have precision and compute lanes; the
 * training set may be anywhere, for the facts have a checksum of its names and labels. */
static const char *const free_keys[] = {"name", "runs", "device", "precision", "checkpoint",
    "track", "data.test", "data.val", "data.classes", "data.train.path", "data.train.labels",
    "data.train.cache_dir", "loader.readers", "loader.io", "loader.depth", "loader.prefetch",
    "loader.cache", "loader.entries", "loader.page_cache", "loader.disk_cache",
    "loader.read_timeout", "loader.bad_samples", "loader.share", "loader.test_augment",
    "train.eval_every", "train.tta", "train.threads", "train.best", "train.history",
    "train.recompute", "train.sample_losses", NULL};
/* Of these, the keys on which a plateau schedule and early stopping depend, and theirs that they
 * ignore. */
static const char *const judging_keys[] = {
    "data.test", "data.val", "loader.test_augment", "train.eval_every", "train.tta", NULL};
static const char *const place_keys[] = {"data.test.path", "data.test.labels",
    "data.test.cache_dir", "data.val.path", "data.val.labels", "data.val.cache_dir", NULL};
/* Keys whose values may grow if the schedule allows it. */
static const char *const growing_keys[] = {"train.epochs", "train.steps", NULL};

struct comparison {
    bool extends, judged; /* judged: by evaluations, with plateau or stop */
    bool rises;           /* the averages' decay depends on the run's length */
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
    if (c->rises)
        return differ(c, then, now, ": train.ema.rise depends on the length of the run");
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
    else if (!among(place_keys, c->path) &&
             (!among(free_keys, c->path) || (c->judged && among(judging_keys, c->path))))
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
    for (int i = 0; i < now->nr_items; i++) /* keys that only `now` has */
        if (!np_node_get(then, now->items[i]->key) &&
            !compare_child(c, now->items[i]->key, NULL, now->items[i]))
            return false;
    return true;
}

/* A copy whose layers have every key of today's tables, and train.tta: a key that is newer than the
 * run has its default, by which the run was made. */
static struct np_node *with_all_keys(const struct np_node *config)
{
    struct np_node *copy = np_node_new(NP_NODE_MAP, 0, 0);

    for (int i = 0; i < config->nr_items; i++) {
        const struct np_node *item = config->items[i];
        struct np_node *value = NULL;

        if (strcmp(item->key, "model") == 0)
            value = np_graph_model_node(item);
        else if (strcmp(item->key, "blocks") == 0 && item->kind == NP_NODE_MAP) {
            value = np_node_new(NP_NODE_MAP, 0, 0);
            for (int b = 0; b < item->nr_items; b++)
                np_node_add(value, item->items[b]->key, np_graph_model_node(item->items[b]));
        }
        if (!value)
            value = np_node_copy(item);
        if (strcmp(item->key, "train") == 0 && value->kind == NP_NODE_MAP &&
            !np_node_get(value, "tta"))
            np_node_add(value, "tta", np_node_scalar(np_tta_names[NP_TTA_NONE], 0, 0));
        np_node_add(copy, item->key, value);
    }
    return copy;
}

bool np_config_same(const struct np_node *then, const struct np_node *now, bool extends, char *why,
    size_t why_bytes)
{
    struct comparison c = {.extends = extends,
        .judged = np_node_get(np_node_get(now, "schedule"), "plateau") ||
                  np_node_get(np_node_get(now, "train"), "stop"),
        .rises = np_node_get(np_node_get(np_node_get(now, "train"), "ema"), "rise"),
        .why = why,
        .why_bytes = why_bytes};

    if (then->kind != NP_NODE_MAP || now->kind != NP_NODE_MAP)
        return compare(&c, then, now);
    struct np_node *all_then = with_all_keys(then), *all_now = with_all_keys(now);
    const bool same = compare(&c, all_then, all_now);

    np_node_free(all_then);
    np_node_free(all_now);
    return same;
}
