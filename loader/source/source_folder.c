/* A folder of image files. A sample's class is the first folder below the root, or below the
 * literal folders at the start of `match`, as in torchvision's ImageFolder; files in deeper folders
 * belong to it too. With `labels` a table names the samples and their classes instead, or with
 * `synsets`, too, a list numbers the class of each sample. Files are listed in byte order within
 * each folder, which folders.c reads ahead. One thread walks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "loader/base/mem.h"
#include "loader/source/files.h"
#include "loader/source/folders.h"
#include "loader/source/label_list.h"
#include "loader/source/label_table.h"
#include "loader/source/source_scan.h"

#define MAX_DEPTH 32
#define PREFETCH  32   /* subfolders of a folder that are read ahead */
#define MAX_PATH  4094 /* of root, '/', name: the size of np_extent's buffer */

struct walk {
    const struct np_source_options *options;
    const struct np_source_progress *progress;
    struct np_index *index;
    struct np_err *err;
    const char *root;
    struct np_folders *folders;
    struct np_label_table *table; /* NULL: none; without a list folders are classes */
    struct np_label_list *list;
    char name[MAX_PATH + 2]; /* of the current entry, below root */
    size_t class_at;         /* bytes of name before the class */
    uint64_t nr_reported;    /* files, to progress */
    uint64_t nr_skipped;
    char skipped[256]; /* the first of them */
    struct {
        dev_t device;
        ino_t inode;
    } above[MAX_DEPTH]; /* current folders: a link back to one is a loop */
};

static int fail(struct walk *walk, int code, const char *what)
{
    return np_err_set(
        walk->err, code, "%s/%s: %s: %s", walk->root, walk->name, what, strerror(-code));
}

/* The class of the current file, by name. -1: none; -ENOMEM or another errno below -1. */
static int label_of(struct walk *walk)
{
    char class_name[MAX_PATH + 2];
    const char *from = walk->name + walk->class_at, *slash = strchr(from, '/');

    if (!slash)
        return -1;
    memcpy(class_name, from, (size_t)(slash - from));
    class_name[slash - from] = '\0';
    return np_index_add_class(walk->index, class_name, walk->root, walk->err);
}

/* n: files found, or entries examined in a folder that is being read. Reports the larger. */
static void report_count(void *context, uint64_t n)
{
    struct walk *walk = context;
    const struct np_source_progress *progress = walk->progress;

    if (n <= walk->nr_reported || !progress || !progress->count)
        return;
    walk->nr_reported = n;
    progress->count(progress->context, progress->path, n);
}

static bool is_hidden(const char *name)
{
    const char *slash = strrchr(name, '/');

    return (slash ? slash[1] : name[0]) == '.';
}

static int add_file(struct walk *walk, uint64_t file_bytes)
{
    const uint32_t bytes = file_bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)file_bytes;
    struct np_record record = {.bytes = bytes, .inner_bytes = bytes};
    const char *match = walk->options->match;
    int label, code;

    if (!np_is_image_name(walk->name)) {
        if (!is_hidden(walk->name) && !np_is_index_name(walk->name) && walk->nr_skipped++ == 0)
            snprintf(walk->skipped, sizeof(walk->skipped), "%.255s", walk->name);
        return 0;
    }
    if (match && *match && !np_match(match, walk->name))
        return 0;
    if (walk->table) {
        const char *class_name = np_label_table_find(walk->table, walk->name);

        if (!class_name)
            return 0;
        label = np_index_add_class(walk->index, class_name, walk->root, walk->err);
    } else if (walk->list) {
        const char *class_name = np_label_list_next(walk->list, walk->name, walk->err);

        label = class_name ? np_index_add_class(walk->index, class_name, walk->root, walk->err)
                           : -EINVAL;
    } else {
        label = label_of(walk);
    }
    if (label < -1)
        return label;
    record.no_label = label < 0;
    record.label = label < 0 ? 0 : (uint32_t)label;
    code = np_index_add(walk->index, &record, walk->name, walk->root, walk->err);
    if (np_index_samples(walk->index) % 256 == 0)
        report_count(walk, np_index_samples(walk->index));
    return code;
}

/* Appends an entry's name to the name of its folder, which has `used` bytes. */
static int step_to(struct walk *walk, size_t used, const char *base, const char *end)
{
    if (strlen(walk->root) + 1 + used + strlen(base) + strlen(end) > MAX_PATH)
        return fail(walk, -ENAMETOOLONG, "a path below it");
    stpcpy(stpcpy(walk->name + used, base), end);
    return 0;
}

/* Adds the folder to the index with its mtime, which changes when a file is added or removed. */
static int stamp(struct walk *walk, const struct np_folder *folder, int depth)
{
    const struct stat *st = &folder->st;

    for (int i = 0; i < depth; i++)
        if (walk->above[i].device == st->st_dev && walk->above[i].inode == st->st_ino)
            return fail(walk, -ELOOP, "a link leads back to a folder above");
    walk->above[depth].device = st->st_dev;
    walk->above[depth].inode = st->st_ino;
    return np_index_add_file(walk->index, folder->path, st, walk->err) < 0 ? -ENOMEM : 0;
}

/* The subfolders of a folder in order; other threads read the next ones ahead. */
struct below {
    const struct np_folder *above;
    struct np_folder *asked[PREFETCH]; /* a ring: nr_asked of them, the next one at `first` */
    int first, nr_asked;
    int next;
};

static bool is_entered(const struct np_folder_entry *entry)
{
    return entry->is_folder && *entry->name != '.';
}

static int ask_ahead(struct walk *walk, struct below *below)
{
    for (; below->next < below->above->nr_entries && below->nr_asked < PREFETCH; below->next++) {
        const struct np_folder_entry *entry = &below->above->entries[below->next];
        struct np_folder *folder;
        char *path;

        if (!is_entered(entry))
            continue;
        path = np_try_format(walk->err, "%s/%s", below->above->path, entry->name);
        folder = path ? np_folders_ask(walk->folders, path, walk->err) : NULL;
        np_free(path);
        if (!folder)
            return -ENOMEM;
        below->asked[(below->first + below->nr_asked++) % PREFETCH] = folder;
    }
    return 0;
}

static int enter(struct walk *walk, struct np_folder *folder, size_t used, int depth);

static int enter_next(struct walk *walk, struct below *below, size_t used, int depth)
{
    struct np_folder *folder = below->asked[below->first];
    int code;

    below->first = (below->first + 1) % PREFETCH;
    below->nr_asked--;
    code = ask_ahead(walk, below);
    if (!code)
        code = enter(walk, folder, used, depth);
    np_folders_drop(walk->folders, folder);
    return code;
}

static int visit(struct walk *walk, struct below *below, const struct np_folder_entry *entry,
    size_t used, int depth)
{
    int code = step_to(walk, used, entry->name, entry->is_folder ? "/" : "");

    if (code)
        return code;
    if (entry->code && !np_extent_is_bad(walk->index, entry->code))
        return fail(walk, entry->code, "cannot read its size");
    if (entry->code) /* a dangling link, for example: becomes a bad sample when read */
        return add_file(walk, 0);
    if (is_entered(entry) && walk->list) /* its images' place among the others is not clear */
        return np_err_set(walk->err, -EINVAL,
            "%s/%s: a folder; with `synsets` all images lie in one folder, in the order of the "
            "numbers in %s",
            walk->root, walk->name, walk->options->labels);
    if (is_entered(entry))
        return enter_next(walk, below, used + strlen(entry->name) + 1, depth);
    return entry->is_file ? add_file(walk, entry->bytes) : 0;
}

/* The first `used` bytes of walk->name are the folder's name, with a '/' at the end. */
static int enter(struct walk *walk, struct np_folder *folder, size_t used, int depth)
{
    struct below below = {.above = folder};
    int code;

    if (depth == MAX_DEPTH)
        return fail(walk, -ELOOP, "folders lie over 32 deep");
    np_folders_wait(walk->folders, folder);
    code = folder->code ? fail(walk, folder->code, folder->what) : stamp(walk, folder, depth);
    if (!code)
        code = ask_ahead(walk, &below);
    for (int i = 0; !code && i < folder->nr_entries; i++)
        code = visit(walk, &below, &folder->entries[i], used, depth + 1);
    for (; below.nr_asked; below.nr_asked--, below.first = (below.first + 1) % PREFETCH)
        np_folders_drop(walk->folders, below.asked[below.first]);
    walk->name[used] = '\0';
    return code;
}

static int walk_all(struct walk *walk)
{
    struct np_folder *root = NULL;
    int code;

    walk->folders = np_folders_new(np_listers(walk->options), report_count, walk, walk->err);
    if (walk->folders)
        root = np_folders_ask(walk->folders, walk->root, walk->err);
    code = root ? enter(walk, root, 0, 0) : -ENOMEM;
    np_folders_drop(walk->folders, root);
    np_folders_free(walk->folders);
    return code;
}

static bool is_set(const char *option)
{
    return option && *option;
}

static int read_labels(struct walk *walk)
{
    const struct np_source_options *options = walk->options;

    if (!is_set(options->labels))
        return 0;
    if (is_set(options->synsets))
        return np_label_list_read(options->labels, options->synsets, &walk->list, walk->err);
    const struct np_label_layout layout = {
        options->columns, (enum np_label_type)options->label_type, np_source_separator(options)};
    return np_label_table_read(options->labels, &layout, &walk->table, walk->err);
}

/* Lists the folder's images that the table of labels names, or all of them if there is none. */
static int walk_labels(struct walk *walk)
{
    const int type = walk->options->label_type;
    int code = read_labels(walk);

    if (!code)
        code = walk_all(walk);
    if (!code && walk->list)
        code = np_label_list_check(walk->list, walk->root, walk->err);
    if (!code && walk->table)
        code = np_label_table_check(walk->table, walk->root, walk->err);
    if (!code && walk->table && type == NP_LABEL_CLASS && np_label_table_numbered(walk->table))
        np_index_set_numbered(walk->index);
    np_label_table_free(walk->table);
    np_label_list_free(walk->list);
    return code;
}

/* Synsets beside keys of a table or of folders are a mistake. */
static void check(
    const struct np_source_options *options, const struct np_node *node, struct np_report *report)
{
    const struct np_node *at = np_node_get(node, "synsets");

    np_source_check_labels(options, node, false, report);
    if (!at || !is_set(options->synsets))
        return;
    if (!is_set(options->labels))
        np_report_add(report, at->line, at->column,
            "synsets: they need `labels`, the file with the number of each image's class");
    else if (is_set(options->columns) || is_set(options->match))
        np_report_add(report, at->line, at->column,
            "synsets: the numbers in `labels` are those of all images of the folder, without names "
            "or columns; remove `%s`",
            is_set(options->columns) ? "columns" : "match");
}

static int scan(const struct np_source_options *options, struct np_index *index,
    const struct np_source_progress *progress, struct np_err *err)
{
    struct walk *walk = np_try_alloc(sizeof(*walk), err);
    struct np_paths paths = {NULL, 0};
    struct stat st;
    int code = walk ? np_paths_find(options->path, &paths, err) : -ENOMEM;

    if (!code && (paths.nr_paths != 1 || stat(paths.paths[0], &st) < 0 || !S_ISDIR(st.st_mode)))
        code = np_err_set(err, -ENOTDIR, "%s: not a folder%s; for archives use `source: tar`",
            options->path, paths.nr_paths == 1 ? "" : ", but several files");
    if (!code) {
        walk->options = options;
        walk->progress = progress;
        walk->index = index;
        walk->err = err;
        walk->root = paths.paths[0];
        walk->class_at = np_scan_literal_folders(options->match);
        index->root = np_try_strdup(walk->root, err);
        code = index->root ? walk_labels(walk) : -ENOMEM;
    }
    if (!code && walk->nr_skipped && np_index_samples(index) == 0)
        code = np_err_set(err, -ENODATA,
            "%s: none of its %llu files has the name of an image ('%s')%s", options->path,
            (unsigned long long)walk->nr_skipped, walk->skipped,
            strstr(walk->skipped, ".tar") ? "; for archives give their path: FOLDER/*.tar*" : "");
    if (!code && walk->nr_skipped)
        np_source_note(progress, "%s: %llu files do not have the names of images, the first is %s",
            options->path, (unsigned long long)walk->nr_skipped, walk->skipped);
    np_paths_fini(&paths);
    np_free(walk);
    return code;
}

const struct np_source np_source_folder = {
    .name = "folder",
    .help = "image files, one folder per class",
    .keys = "path match labels columns synsets label_type separator unlabelled",
    .check = check,
    .scan = scan,
};
