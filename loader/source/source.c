/* The list of sources, and the options of a set. Config time. */
#include "loader/source/source.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "loader/base/path.h"
#include "loader/base/mem.h"
#include "loader/base/remote.h"

#define AT(field) offsetof(struct np_source_options, field)

const struct np_source *const np_sources[] = {
    &np_source_folder,
    &np_source_tar,
    &np_source_cifar10,
    &np_source_idx,
    &np_source_synth,
    NULL,
};

const char *const np_label_types[] = {"class", "multi", "value", NULL};

const struct np_option np_source_option_table[] = {
    {"source", NP_OPT_STRING, AT(source), NULL, 0, 0, NULL,
        "The set's format: `folder` (image files, one folder per class), `tar` (also .tar.gz, "
        ".tar.zst, WebDataset), `cifar10` (its binary version), `idx` (as MNIST), `synth` (shapes, "
        "drawn on demand)."},
    {"path", NP_OPT_STRING, AT(path), "", 0, 0, NULL,
        "The set's file or folder; a glob may name several shards. `tar`: also objects of servers, "
        "`s3://BUCKET/train-{000..999}.tar`, `gs://...` or `https://...` (docs/REMOTE.md). "
        "`${NAME}` "
        "and "
        "`${NAME:-default}` are environment variables; a relative path is looked up in the "
        "config's folder, then in the working directory."},
    {"labels", NP_OPT_STRING, AT(labels), "", 0, 0, NULL,
        "`idx`: the file of labels; by default `path` with `labels-idx1` in place of "
        "`images-idx3`. `folder`, `tar`: a table of image files (below `path`, or members of the "
        "archives) and their classes, which then decide instead of the folders: CSV, TSV, or text "
        "with blanks. Images that are not in the table are left out, and a name in it may lack its "
        "extension."},
    {"columns", NP_OPT_STRING, AT(columns), "", 0, 0, NULL,
        "`folder`, `tar`: the names of two columns of the table `labels`, files and classes, such "
        "as `\"image_id,breed\"`; by default its first two columns, with or without a line of "
        "names. With another `label_type` there may be several columns of labels: "
        "`\"image_id,x,y\"`. `tar` without `labels`: the field of the label in the .json beside "
        "each image of a WebDataset (instead of a .cls), such as `label`, or several: `\"x,y\"`. "
        "An image whose field is null is in no class."},
    {"synsets", NP_OPT_STRING, AT(synsets), "", 0, 0, NULL,
        "`folder`: a file with a class in the first word of each line, as ImageNet's "
        "`n01440764 tench, Tinca tinca`. `labels` is then the ground truth of ImageNet's "
        "validation set: line i is the number of the class of image i, in byte order of the names; "
        "1 is the first line of `synsets`."},
    {"label_type", NP_OPT_WORD, AT(label_type), "class", 0, 0, "class|multi|value",
        "`folder`, `tar`: what the label of an image is; with `labels`, or JSON `columns`. "
        "`class`: one class. `multi`: any "
        "number of classes, in one column as a list (`cat|dog`; in JSON also a list of texts), or "
        "in a column of 0 and 1 for each class; it needs the loss `bce`. `value`: a number, or one "
        "in each of several columns, for "
        "the losses `mse`, `l1` and `huber`. All sets have the same."},
    {"separator", NP_OPT_STRING, AT(separator), "", 0, 0, NULL,
        "`label_type: multi`: the character between the classes of a list; by default `|`. Blanks "
        "around names do not count."},
    {"match", NP_OPT_STRING, AT(match), "", 0, 0, NULL,
        "`folder`, `tar`: use only images whose name below the folder or in the archive matches "
        "this glob; `*` also matches `/`."},
    {"unlabelled", NP_OPT_WORD, AT(unlabelled), "refuse", 0, 0, "refuse|skip",
        "`folder`, `tar`: what to do with samples in no class. `refuse`: the run does not start, "
        "and the error has their number and the first one's name; `skip`: they are left out, and "
        "their number is printed."},
    {"samples", NP_OPT_INT, AT(samples), "10000", 1, 4294967295.0, NULL,
        "`synth`: number of pictures."},
    {"size", NP_OPT_INT, AT(size), "32", 8, 1024, NULL, "`synth`: height and width in pixels."},
    {"seed", NP_OPT_INT, AT(seed), "1", 0, 0, NULL, "`synth`: another seed, other pictures."},
    {"cache_dir", NP_OPT_STRING, AT(cache_dir), "", 0, 0, NULL,
        "The cache folder for indexes and unpacked archives; nothing is written beside the data. "
        "By default `$XDG_CACHE_HOME/nnpipe` or `~/.cache/nnpipe`."},
    NP_OPTIONS_END,
};

const struct np_source *np_source_find(const char *name)
{
    for (int i = 0; np_sources[i]; i++)
        if (strcmp(np_sources[i]->name, name) == 0)
            return np_sources[i];
    return NULL;
}

static bool is_set(const char *option)
{
    return option && *option;
}

char np_source_separator(const struct np_source_options *options)
{
    return is_set(options->separator) ? *options->separator : '|';
}

struct np_node *np_source_label_names(const struct np_source_options *options)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);
    const char *at = is_set(options->columns) ? options->columns : NULL;

    if (at && is_set(options->labels))
        at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    at = at ? at : "value";
    do { /* a class has one column, whose name may have commas */
        const size_t bytes = options->label_type == NP_LABEL_CLASS ? strlen(at) : strcspn(at, ",");
        char *name = np_format("%.*s", (int)bytes, at);
        struct np_node *item = np_node_scalar(name, 0, 0);

        item->quoted = true;
        np_node_add(list, NULL, item);
        np_free(name);
        at += bytes + (at[bytes] == ',');
    } while (*at);
    return list;
}

/* --- checks ---------------------------------------------------------------------------------- */

/* An empty name, or one twice. */
static void check_columns(
    const struct np_source_options *options, const struct np_node *at, struct np_report *report)
{
    const char *const columns = at && options->columns ? options->columns : "";

    for (const char *name = columns; *name; name += strcspn(name, ",")) {
        name += name > columns;
        const size_t bytes = strcspn(name, ",");
        bool twice = false;

        for (const char *other = columns; other < name; other += strcspn(other, ",") + 1)
            twice |= strcspn(other, ",") == bytes && memcmp(other, name, bytes) == 0;
        if (bytes == 0 || twice) {
            np_report_add(report, at->line, at->column, "columns: %s%.*s%s",
                twice ? "'" : "an empty name", (int)bytes, name, twice ? "' is there twice" : "");
            return;
        }
    }
}

/* Labels that are no classes are in a table, or in JSON. */
static void check_type(const struct np_source_options *options, const struct np_node *node,
    bool has_fields, struct np_report *report)
{
    const struct np_node *type = np_node_get(node, "label_type");
    const struct np_node *separator = np_node_get(node, "separator");
    const bool has_labels = is_set(options->labels) || (has_fields && is_set(options->columns));

    if (options->label_type != NP_LABEL_CLASS && (!has_labels || is_set(options->synsets)))
        np_report_add(report, type->line, type->column,
            "label_type: %s needs `labels`, a table of images and labels%s",
            np_label_types[options->label_type],
            has_fields                 ? ", or `columns`, fields of .json members"
            : is_set(options->synsets) ? ", without `synsets`"
                                       : "");
    if (!separator || !is_set(options->separator))
        return;
    if (options->label_type != NP_LABEL_MULTI)
        np_report_add(report, separator->line, separator->column,
            "separator: it is for the lists of `label_type: multi`");
    else if (strlen(options->separator) != 1 || *options->separator == '"' ||
             (*options->separator & 0x80))
        np_report_add(report, separator->line, separator->column,
            "separator: expected one ASCII character that is no quote");
}

void np_source_check_labels(const struct np_source_options *options, const struct np_node *node,
    bool has_fields, struct np_report *report)
{
    const struct np_node *at = np_node_get(node, "columns");
    const bool has_table = is_set(options->labels), has_columns = at && is_set(options->columns);

    if (has_columns && !has_table && !has_fields)
        np_report_add(
            report, at->line, at->column, "columns: they need `labels`, the table's file");
    else if (has_columns && has_table && !strchr(options->columns, ','))
        np_report_add(report, at->line, at->column,
            "columns: expected two names with a comma, that of the files and that of the classes");
    if (options->label_type != NP_LABEL_CLASS)
        check_columns(options, at, report);
    check_type(options, node, has_fields, report);
}

static bool has_word(const char *text, const char *word)
{
    const size_t bytes = strlen(word);

    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        if ((at == text || at[-1] == ' ') && (at[bytes] == ' ' || at[bytes] == '\0'))
            return true;
    return false;
}

static void report_unknown(const struct np_node *node, const char *name, struct np_report *report)
{
    const struct np_node *at = np_node_get(node, "source");
    const char *names[sizeof(np_sources) / sizeof(np_sources[0])];
    char suggestion[200];
    int i;

    for (i = 0; np_sources[i]; i++)
        names[i] = np_sources[i]->name;
    names[i] = NULL;
    np_suggest(name, names, "there are", suggestion, sizeof(suggestion));
    np_report_add(report, at->line, at->column, "source: there is no '%s'%s", name, suggestion);
}

static bool is_option(const char *key)
{
    for (int i = 0; np_source_option_table[i].key; i++)
        if (strcmp(np_source_option_table[i].key, key) == 0)
            return true;
    return false;
}

/* True for {path: DIR} alone. An unknown key may be `source` misspelt; it is reported as
 * unknown. */
static bool lacks_source(const struct np_node *node)
{
    bool lacks = node->kind == NP_NODE_MAP && !np_node_get(node, "source");

    for (int i = 0; lacks && i < node->nr_items; i++)
        lacks = is_option(node->items[i]->key);
    return lacks;
}

static void report_unused_keys(
    const struct np_node *node, const struct np_source *source, struct np_report *report)
{
    for (int i = 0; i < node->nr_items; i++) {
        const struct np_node *item = node->items[i];

        if (is_option(item->key) && strcmp(item->key, "source") != 0 &&
            strcmp(item->key, "cache_dir") != 0 && !has_word(source->keys, item->key))
            np_report_add(report, item->key_line, item->key_column,
                "%s: the source %s does not have this key (it has: %s)", item->key, source->name,
                source->keys);
    }
}

static void resolve(char **text, const struct np_node *node, const char *key,
    const char *config_dir, struct np_report *report)
{
    const struct np_node *at = np_node_get(node, key);
    struct np_err err = {0};
    char *resolved;

    if (!*text || !**text)
        return;
    resolved = np_resolve_path(*text, config_dir, &err);
    if (!resolved) {
        np_report_add(report, at ? at->line : node->line, at ? at->column : node->column, "%s: %s",
            key, err.text);
        report->no_memory |= err.code == -ENOMEM;
        return;
    }
    np_free(*text);
    *text = resolved;
}

/* Only the archives of `tar` may be objects of servers. */
static void check_urls(
    const struct np_source_options *options, const struct np_node *node, struct np_report *report)
{
    const struct {
        const char *key, *text;
    } texts[] = {{"labels", options->labels}, {"synsets", options->synsets},
        {"cache_dir", options->cache_dir}};
    const struct np_node *at = np_node_get(node, "path");
    struct np_err err = {0};
    struct np_paths paths = {NULL, 0};

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        const struct np_node *other = np_node_get(node, texts[i].key);

        if (other && is_set(texts[i].text) && np_is_url(texts[i].text))
            np_report_add(report, other->line, other->column,
                "%s: it must lie on this machine: only the archives of a `tar` may be URLs",
                texts[i].key);
    }
    if (!at || !is_set(options->path) || !np_is_url(options->path))
        return;
    if (strcmp(options->source, "tar") != 0)
        np_report_add(report, at->line, at->column,
            "path: a URL is for the source `tar`; the source %s needs files of this machine "
            "(`nnpipe "
            "data pack` makes archives)",
            options->source);
    else if (np_paths_find(options->path, &paths, &err))
        np_report_add(report, at->line, at->column, "path: %s", err.text);
    np_paths_fini(&paths);
}

int np_source_parse(const struct np_node *node, const char *config_dir,
    struct np_source_options *ret_options, struct np_report *report)
{
    struct np_source_options options = {0};
    const int errs_before = report->nr_errs + report->nr_dropped;
    const struct np_source *source;

    if (lacks_source(node)) {
        np_report_add(report, node->line, node->column,
            "source: the key is missing; it is the format of the set: folder, tar, cifar10, idx or "
            "synth");
        goto bad;
    }
    if (np_options_parse(np_source_option_table, node, "the set", NULL, &options, report) ||
        !options.source)
        goto bad;
    source = np_source_find(options.source);
    if (!source) {
        report_unknown(node, options.source, report);
        goto bad;
    }
    report_unused_keys(node, source, report);
    if (has_word(source->keys, "path") && (!options.path || !*options.path))
        np_report_add(report, node->line, node->column,
            "path: the key is missing; it is the file or folder of the %s", source->name);
    resolve(&options.path, node, "path", config_dir, report);
    check_urls(&options, node, report);
    resolve(&options.labels, node, "labels", config_dir, report);
    resolve(&options.synsets, node, "synsets", config_dir, report);
    resolve(&options.cache_dir, node, "cache_dir", config_dir, report);
    if (source->check)
        source->check(&options, node, report);
    if (report->nr_errs + report->nr_dropped != errs_before)
        goto bad;
    *ret_options = options;
    return 0;
bad:
    np_source_options_fini(&options);
    return -EINVAL;
}

void np_source_options_fini(struct np_source_options *options)
{
    np_options_fini(np_source_option_table, options);
    memset(options, 0, sizeof(*options));
}

/* Only the keys that the source reads: np_source_parse() rejects others. `unlabelled` only if it is
 * not the default, so that configs of runs older than the key stay equal. */
struct np_node *np_source_options_node(const struct np_source_options *options)
{
    const struct np_source *source = np_source_find(options->source);
    struct np_node *map = np_options_node(np_source_option_table, options);

    for (int i = map->nr_items; source && i-- > 0;) {
        const struct np_node *item = map->items[i];
        bool empty = item->kind == NP_NODE_SCALAR &&
                     (item->text[0] == '\0' ||
                         (strcmp(item->key, "unlabelled") == 0 && np_node_is(item, "refuse")) ||
                         (strcmp(item->key, "label_type") == 0 && np_node_is(item, "class")));
        if (strcmp(item->key, "source") != 0 && !(strcmp(item->key, "cache_dir") == 0 && !empty) &&
            !(has_word(source->keys, item->key) && !empty))
            np_node_remove(map, i);
    }
    return map;
}
