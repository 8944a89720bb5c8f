#include "loader/base/config_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/path.h"
#include "loader/base/yaml.h"

#define MAX_READ (16u << 20) /* above the limit of np_yaml_parse(), whose error has the size */

/* --- merging --------------------------------------------------------------------------------- */

static int find(const struct np_node *map, const char *key)
{
    for (int i = 0; i < map->nr_items; i++)
        if (strcmp(map->items[i]->key, key) == 0)
            return i;
    return -1;
}

/* True: the nearer file replaces this mapping whole. */
static bool is_choice(const char *path, const struct np_node *base, const struct np_node *own)
{
    static const char *const choices[] = {
        "optimizer", "schedule", "loss", "device", "loader.shuffle", "loader.cache", NULL};
    static const char *const sets[] = {"data.train", "data.test", "data.val", NULL};
    const struct np_node *source = np_node_get(own, "source"), *was = np_node_get(base, "source");

    for (int i = 0; choices[i]; i++)
        if (strcmp(path, choices[i]) == 0)
            return true;
    for (int i = 0; sets[i]; i++)
        if (strcmp(path, sets[i]) == 0)
            return source && was && source->text && !np_node_is(was, source->text);
    return false;
}

static void drop_excluded(const char *path, struct np_node *base, const struct np_node *own)
{
    static const struct {
        const char *path, *key, *other;
    } pairs[] = {
        {"train", "epochs", "steps"},
        {"train", "steps", "epochs"},
        {"data", "split", "val"},
        {"data", "val", "split"},
        {"data", "fold", "val"},
        {"data", "val", "fold"},
        {"data", "fold", "split"},
        {"data", "split", "fold"},
    };

    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        const struct np_node *given = np_node_get(own, pairs[i].key);
        const int other = find(base, pairs[i].other);

        if (strcmp(path, pairs[i].path) == 0 && given && !np_node_is(given, "0") && other >= 0 &&
            !np_node_get(own, pairs[i].other))
            np_node_remove(base, other);
    }
}

/* Merges own into base, and frees own. path: of both mappings; "": the top level. */
static void merge(struct np_node *base, struct np_node *own, const char *path)
{
    char below[256];

    drop_excluded(path, base, own);
    for (int i = 0; i < own->nr_items; i++) {
        struct np_node *item = own->items[i];
        const int at = find(base, item->key);
        struct np_node *was = at < 0 ? NULL : base->items[at];

        snprintf(below, sizeof(below), "%s%s%s", path, *path ? "." : "", item->key);
        const bool whole = !was || was->kind != NP_NODE_MAP || is_choice(below, was, item);
        if (!was) {
            np_node_add(base, item->key, item);
        } else if (!whole && item->kind == NP_NODE_MAP) {
            merge(was, item, below);
        } else if (!whole && np_node_is_empty(item)) {
            np_node_free(item);
        } else {
            base->items[at] = item;
            np_node_free(was);
        }
    }
    own->nr_items = 0;
    np_node_free(own);
}

static bool uses(const struct np_node *node, const char *name)
{
    if (node->key && strcmp(node->key, "use") == 0 && np_node_is(node, name))
        return true;
    for (int i = 0; i < node->nr_items; i++)
        if (uses(node->items[i], name))
            return true;
    return false;
}

static bool is_used(const struct np_node *model, const struct np_node *blocks, const char *name)
{
    for (int i = 0; i < blocks->nr_items; i++)
        if (strcmp(blocks->items[i]->key, name) != 0 && uses(blocks->items[i], name))
            return true;
    return uses(model, name);
}

/* Removes the blocks of a base that only the replaced model used, since an unused block is a
 * mistake. */
static void drop_blocks(struct np_node *root)
{
    const struct np_node *model = np_node_get(root, "model");
    const int at = find(root, "blocks");
    struct np_node *blocks = at < 0 ? NULL : root->items[at];

    if (!model || !blocks || blocks->kind != NP_NODE_MAP)
        return;
    for (int i = 0; i < blocks->nr_items; i++) {
        const struct np_node *block = blocks->items[i];

        if (block->line / NP_LINE_FILE > model->line / NP_LINE_FILE &&
            !is_used(model, blocks, block->key)) {
            np_node_remove(blocks, i);
            i = -1; /* only this block may have used an earlier block */
        }
    }
    if (blocks->nr_items == 0)
        np_node_remove(root, at);
}

/* --- places and paths of a base -------------------------------------------------------------- */

static void add_to_lines(struct np_node *node, int more)
{
    node->line += more;
    node->key_line += node->key_line ? more : 0;
    for (int i = 0; i < node->nr_items; i++)
        add_to_lines(node->items[i], more);
}

/* A path that cannot be resolved stays: it is a mistake only if no nearer file replaces it. */
static int resolve(struct np_node *map, const char *key, const char *folder, struct np_err *err)
{
    const int at = map && map->kind == NP_NODE_MAP ? find(map, key) : -1;
    struct np_node *node = at < 0 ? NULL : map->items[at];
    struct np_err why = {0};

    if (!node || node->kind != NP_NODE_SCALAR || !*node->text)
        return 0;
    char *path = np_resolve_path(node->text, folder, &why);
    if (path) {
        np_free(node->text);
        node->text = path;
        node->quoted = true;
    } else if (why.code == -ENOMEM) {
        *err = why;
    }
    return err->code;
}

static int resolve_paths(struct np_node *root, const char *folder, struct np_err *err)
{
    static const char *const sets[] = {"train", "test", "val"};
    static const char *const keys[] = {"path", "labels", "cache_dir"};
    const int at = find(root, "data");
    struct np_node *data = at < 0 ? NULL : root->items[at];
    int code = resolve(data, "classes", folder, err);

    for (size_t s = 0; data && data->kind == NP_NODE_MAP && s < 3; s++) {
        const int set = find(data, sets[s]);

        for (size_t k = 0; code == 0 && set >= 0 && k < 3; k++)
            code = resolve(data->items[set], keys[k], folder, err);
    }
    return code;
}

/* --- files ----------------------------------------------------------------------------------- */

/* A config and its bases, the nearest first. */
struct chain {
    struct np_config_file *file;
    struct np_report *report;
    struct np_node *roots[NP_MAX_BASES + 1];
    char *opened[NP_MAX_BASES + 1]; /* real paths; NULL: standard input */
    int nr;
};

char *np_config_folder(const char *path, struct np_err *err)
{
    char whole[PATH_MAX], above[PATH_MAX], *slash;

    if (strcmp(path, "-") != 0 && realpath(path, whole)) {
        slash = strrchr(whole, '/');
        *(slash == whole ? slash + 1 : slash) = '\0';
        return np_try_strdup(whole, err);
    }
    snprintf(above, sizeof(above), "%s", path);
    if ((slash = strrchr(above, '/'))) {
        slash[slash == above] = '\0';
        if (realpath(above, whole))
            return np_try_strdup(whole, err);
    }
    return np_try_strdup(getcwd(whole, sizeof(whole)) ? whole : ".", err);
}

/* The name for messages: relative to the file with the `base`, if that leads to the opened file,
 * else absolute. */
static char *name_of(const char *from, const char *text, const char *opened, struct np_err *err)
{
    const char *slash = strrchr(from, '/');
    char real[PATH_MAX];
    char *name = *text == '/' || !slash
                     ? np_try_strdup(text, err)
                     : np_try_format(err, "%.*s/%s", (int)(slash - from), from, text);

    if (!name || (realpath(name, real) && strcmp(real, opened) == 0))
        return name;
    np_free(name);
    return np_try_strdup(opened, err);
}

static int refuse(struct chain *chain, const struct np_node *at, const char *text, const char *why)
{
    return np_report_add(chain->report, at->line, at->column, "base: %s: %s", text, why);
}

static int no_memory(struct chain *chain, const struct np_err *err)
{
    np_report_add(chain->report, 0, 0, "%s", err->text);
    chain->report->no_memory = true;
    return -ENOMEM;
}

static int parse_base(struct chain *chain, const char *text, size_t bytes)
{
    const int n = chain->nr;
    const char *file = chain->report->file;
    struct np_err err = {0};

    chain->report->file = chain->file->bases[n - 1];
    int code = np_yaml_parse(text, bytes, &chain->roots[n], chain->report);
    if (code == 0 && chain->roots[n]->kind != NP_NODE_MAP)
        code = np_report_add(chain->report, 1, 1, "expected a mapping, as every config is");
    chain->report->file = file;
    if (code < 0)
        return code;
    char *folder = np_config_folder(chain->opened[n], &err);
    add_to_lines(chain->roots[n], n * NP_LINE_FILE);
    code = folder ? resolve_paths(chain->roots[n], folder, &err) : -ENOMEM;
    np_free(folder);
    chain->nr++;
    return code < 0 ? no_memory(chain, &err) : 0;
}

/* Reads the base that the last file names at `at`. path: of the last file. */
static int open_base(struct chain *chain, const struct np_node *at, const char *path)
{
    const int n = chain->nr;
    char real[PATH_MAX], *text = NULL;
    uint64_t bytes = 0;
    struct np_err err = {0};
    char *folder = np_config_folder(n == 1 ? path : chain->opened[n - 1], &err);
    char *expanded = np_expand(at->text, &err);
    char *whole = !folder || !expanded ? NULL
                  : *expanded == '/'   ? np_try_strdup(expanded, &err)
                                       : np_try_format(&err, "%s/%s", folder, expanded);
    int code;

    if (whole && !realpath(whole, real))
        np_err_set(&err, -errno, "%s", strerror(errno));
    for (int i = 0; !err.code && i < n; i++)
        if (chain->opened[i] && strcmp(chain->opened[i], real) == 0)
            np_err_set(&err, -ELOOP, "it builds on this file itself");
    if (!err.code && (chain->opened[n] = np_try_strdup(real, &err)))
        chain->file->bases[n - 1] = name_of(path, expanded, real, &err);
    if (!err.code && (code = np_read_file(real, MAX_READ, &text, &bytes, NULL)) < 0)
        np_err_set(&err, code, "%s", strerror(-code));
    code = err.code ? refuse(chain, at, at->text, err.text) : parse_base(chain, text, bytes);
    np_free(text);
    np_free(folder);
    np_free(expanded);
    np_free(whole);
    return code;
}

/* 1: the base of the last file was read; 0: it has none. */
static int follow(struct chain *chain, const char *path)
{
    struct np_node *root = chain->roots[chain->nr - 1];
    const int at = root->kind == NP_NODE_MAP ? find(root, "base") : -1;
    int code;

    if (at < 0)
        return 0;
    const struct np_node *node = root->items[at];
    chain->file->has_base = true;
    if (node->kind != NP_NODE_SCALAR || !*node->text)
        return np_report_add(chain->report, node->line, node->column,
            "base: expected the name of a config that this one builds on");
    if (chain->nr > NP_MAX_BASES)
        return refuse(chain, node, node->text, "more than 16 files, each built on the next");
    code = open_base(chain, node, chain->nr == 1 ? path : chain->file->bases[chain->nr - 2]);
    np_node_remove(root, at);
    return code < 0 ? code : 1;
}

int np_config_file_parse(const char *text, size_t bytes, const char *path,
    struct np_config_file *ret_file, struct np_report *report)
{
    struct chain chain = {.file = ret_file, .report = report, .nr = 1};
    struct np_err err = {0};
    char real[PATH_MAX];
    int code, more = 1;

    *ret_file = (struct np_config_file){0};
    report->files = (const char *const *)ret_file->bases;
    if (strcmp(path, "-") != 0 && realpath(path, real) &&
        !(chain.opened[0] = np_try_strdup(real, &err)))
        return no_memory(&chain, &err);
    code = np_yaml_parse(text, bytes, &chain.roots[0], report);
    while (chain.roots[0] && (more = follow(&chain, path)) > 0)
        ;
    if (more == 0) {
        ret_file->root = chain.roots[chain.nr - 1];
        for (int i = chain.nr - 2; i >= 0; i--)
            merge(ret_file->root, chain.roots[i], "");
        if (chain.nr > 1)
            drop_blocks(ret_file->root);
    }
    for (int i = 0; i <= NP_MAX_BASES; i++) {
        if (more < 0)
            np_node_free(chain.roots[i]);
        np_free(chain.opened[i]);
    }
    return more < 0 ? more : code;
}

int np_config_file_read(const char *path, struct np_config_file *ret_file, struct np_report *report)
{
    char *text = NULL;
    uint64_t bytes = 0;
    int code =
        np_read_file(strcmp(path, "-") == 0 ? "/dev/stdin" : path, MAX_READ, &text, &bytes, NULL);

    *ret_file = (struct np_config_file){0};
    if (code < 0)
        np_report_add(report, 0, 0, "cannot be read: %s", strerror(-code));
    else
        code = np_config_file_parse(text, bytes, path, ret_file, report);
    np_free(text);
    return code;
}

void np_config_file_fini(struct np_config_file *file)
{
    np_node_free(file->root);
    for (int i = 0; i < NP_MAX_BASES; i++)
        np_free(file->bases[i]);
    *file = (struct np_config_file){0};
}

/* --- places of a printed tree ----------------------------------------------------------------- */

/* The node of `from` whose twin in `printed` has its value or key at this place. */
static const struct np_node *twin_at(
    const struct np_node *from, const struct np_node *printed, int line, int column)
{
    if ((printed->line == line && printed->column == column) ||
        (printed->key_line == line && printed->key_column == column))
        return from;
    for (int i = 0; i < from->nr_items && i < printed->nr_items; i++) {
        const struct np_node *found = twin_at(from->items[i], printed->items[i], line, column);

        if (found)
            return found;
    }
    return NULL;
}

bool np_config_file_place(const struct np_config_file *file, const char *path, const char *printed,
    int line, int column, char *place, size_t place_bytes)
{
    struct np_report report;
    struct np_node *tree = NULL;
    const struct np_node *found = NULL;

    np_report_init(&report, path);
    if (line > 0 && np_yaml_parse(printed, strlen(printed), &tree, &report) == 0)
        found = twin_at(file->root, tree, line, column);
    np_node_free(tree);
    np_report_fini(&report);
    if (!found)
        return false;
    const int at = found->key_line ? found->key_line : found->line, nr = at / NP_LINE_FILE;
    snprintf(place, place_bytes, "%s:%d:%d", nr ? file->bases[nr - 1] : path, at % NP_LINE_FILE,
        found->key_line ? found->key_column : found->column);
    return true;
}
