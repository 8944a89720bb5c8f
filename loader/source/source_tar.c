/* Tar archives, plain, .gz or .zst, several by glob: every image member is a sample
 * (source_tar_list.c). Plain archives are read in place, and .zst ones that have a seek table and
 * no member across a frame's edge; others are unpacked into the cache, once. All samples of a
 * truncated archive are listed; the last, partial one is a bad sample. The first archive decides
 * the kind of the set; then source_tar_ahead.c lists the others with several threads. */
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/source/source_tar_ahead.h"
#include "loader/source/unpack.h"

#define PEEK_MEMBERS 64 /* examined to tell WebDataset from class folders */

static int64_t read_plain(
    void *context, uint64_t offset, void *buffer, size_t bytes, struct np_err *err)
{
    const struct np_tar_scan *scan = context;

    return np_scan_read_some(&scan->file, scan->path, offset, buffer, bytes, err);
}

static int walk(struct np_tar_scan *scan)
{
    int code;

    while ((code = np_tar_next(&scan->tar, &scan->member, scan->err)) > 0) {
        const struct np_tar_member *member = &scan->member;

        if (member->type == '5')
            continue;
        if (member->sparse)
            return np_err_set(scan->err, -EBADMSG,
                "%s: '%s' at offset %llu is a sparse member; write the archive without --sparse",
                scan->path, member->name, (unsigned long long)member->header_offset);
        if (member->type == '1' || member->type == '2') {
            np_tar_scan_link(scan, member->name);
            continue;
        }
        if (member->type != '0') {
            np_tar_scan_skip(scan, member->name);
            continue;
        }
        code = np_tar_scan_take(scan);
        if (code)
            return code;
    }
    return code ? code : np_tar_scan_end(scan);
}

static int decide(struct np_tar_scan *scan, np_tar_read_fn read, void *context)
{
    int code = np_tar_init(&scan->tar, scan->path, read, context, scan->err);

    for (int i = 0; code >= 0 && !scan->webdataset && i < PEEK_MEMBERS; i++) {
        code = np_tar_next(&scan->tar, &scan->member, scan->err);
        if (code == 0)
            break;
        scan->webdataset =
            code > 0 && scan->member.type == '0' && np_tar_scan_is_cls(scan->member.name);
    }
    np_tar_fini(&scan->tar);
    scan->decided = true;
    return code < 0 ? code : 0;
}

static int walk_with(struct np_tar_scan *scan, np_tar_read_fn read, void *context)
{
    int code = scan->decided ? 0 : decide(scan, read, context);

    if (code)
        return code;
    code = np_tar_init(&scan->tar, scan->path, read, context, scan->err);
    scan->group.open = false;
    scan->shard_first = np_index_samples(scan->index);
    if (!code)
        code = walk(scan);
    np_tar_fini(&scan->tar);
    return code;
}

/* Lists the archive in place, frame by frame. -EXDEV: a member crosses a frame's edge, or a frame
 * is too large. */
static int walk_frames(struct np_tar_scan *scan, const struct np_seek_table *table)
{
    const uint64_t before = np_index_samples(scan->index), skipped = scan->nr_skipped,
                   links = scan->nr_links;
    struct np_seek_reader *reader;
    int code;

    if (table->max_content > NP_SEEK_MAX_CONTENT)
        return -EXDEV;
    code = np_seek_reader_open(scan->file.fd, scan->path, table, &reader, scan->err);
    if (code)
        return code;
    scan->table = table;
    code = walk_with(scan, np_seek_reader_read, reader);
    scan->table = NULL;
    np_seek_reader_free(reader);
    if (code == -EXDEV) {
        np_index_cut(scan->index, before);
        scan->nr_skipped = skipped;
        scan->nr_links = links;
    } else
        np_index_set_max_inner(scan->index, table->max_content);
    return code;
}

static int walk_unpacked(struct np_tar_scan *scan, const char *path)
{
    char *cache = NULL, *copy = NULL;
    int code = np_cache_dir(scan->options, &cache, scan->err);

    if (!code)
        code = np_unpack(path, cache, scan->progress, &copy, scan->err);
    if (!code) {
        np_file_close(scan->file.fd);
        scan->file.fd = -1;
        code = np_scan_open(scan->index, copy, &scan->file, scan->err);
    }
    if (!code)
        code = walk_with(scan, read_plain, scan);
    np_free(cache);
    np_free(copy);
    return code;
}

static int scan_shard(struct np_tar_scan *scan, const char *path)
{
    struct np_seek_table *table = NULL;
    enum np_wrapping wrapping;
    int code = np_scan_open(scan->index, path, &scan->file, scan->err);

    scan->path = path;
    if (!code)
        code = np_unpack_sniff(path, &wrapping, scan->err);
    if (!code && wrapping == NP_WRAPPING_NONE)
        code = walk_with(scan, read_plain, scan);
    else if (!code) {
        code = -EXDEV;
        if (wrapping == NP_WRAPPING_ZSTD &&
            np_seek_table_read(scan->file.fd, path, &table, NULL) == 0)
            code = walk_frames(scan, table);
        if (code == -EXDEV)
            code = walk_unpacked(scan, path);
    }
    np_seek_table_free(table);
    np_file_close(scan->file.fd);
    scan->file.fd = -1;
    return code;
}

static int scan_shards(struct np_tar_scan *scan, const struct np_paths *paths)
{
    struct np_tar_ahead *ahead;
    int i = 1, code = scan_shard(scan, paths->paths[0]);

    if (code)
        return code;
    if (np_listers(scan->options) == 1 || paths->nr_paths <= 2) {
        for (; !code && i < paths->nr_paths; i++)
            code = scan_shard(scan, paths->paths[i]);
        return code;
    }
    ahead = np_tar_ahead_new(scan, paths, i, scan_shard);
    code = ahead ? 0 : -ENOMEM;
    for (; !code && i < paths->nr_paths; i++)
        code = np_tar_ahead_take(ahead);
    np_tar_ahead_free(ahead);
    return code;
}

/* Reads the table of labels, or finds the fields of JSON that have them; *ret_names: np_node_free(). */
static int read_labels(
    struct np_tar_scan *scan, struct np_label_fields *fields, struct np_node **ret_names)
{
    const struct np_source_options *options = scan->options;
    const struct np_label_layout layout = {
        options->columns, (enum np_label_type)options->label_type, np_source_separator(options)};
    const bool has_table = options->labels && *options->labels;

    scan->decided = has_table || (options->columns && *options->columns);
    if (has_table)
        return np_label_table_read(options->labels, &layout, &scan->labels, scan->err);
    if (!scan->decided)
        return 0;
    *ret_names = np_source_label_names(options);
    *fields = (struct np_label_fields){*ret_names, layout.type, layout.separator};
    scan->fields = fields;
    scan->webdataset = true;
    return 0;
}

static int scan_all(const struct np_source_options *options, struct np_index *index,
    const struct np_source_progress *progress, struct np_err *err)
{
    struct np_tar_scan *scan = np_try_alloc(sizeof(*scan), err);
    struct np_label_fields fields;
    struct np_node *names = NULL;
    struct np_paths paths = {NULL, 0};
    int code = scan ? np_paths_find(options->path, &paths, err) : -ENOMEM;

    if (!code) {
        scan->options = options;
        scan->progress = progress;
        scan->index = index;
        scan->err = err;
        scan->file.fd = -1;
        scan->max_cls = -1;
        code = read_labels(scan, &fields, &names);
    }
    if (!code)
        code = scan_shards(scan, &paths);
    if (!code)
        code = np_tar_scan_classes(scan);
    if (!code && scan->nr_skipped && np_index_samples(index) == 0)
        code = np_err_set(err, -ENODATA,
            "%s: none of its %llu members has the name of an image ('%s')", options->path,
            (unsigned long long)scan->nr_skipped, scan->skipped);
    if (!code && scan->nr_skipped)
        np_source_note(progress,
            "%s: %llu members do not have the names of images, the first is '%s'", options->path,
            (unsigned long long)scan->nr_skipped, scan->skipped);
    if (!code && scan->nr_links)
        np_source_note(progress,
            "%s: %llu images are links and left out, the first is '%s'; tar's --hard-dereference "
            "and --dereference store the images instead",
            options->path, (unsigned long long)scan->nr_links, scan->link);
    np_paths_fini(&paths);
    if (scan)
        np_label_table_free(scan->labels);
    np_node_free(names);
    np_free(scan);
    return code;
}

static void check(
    const struct np_source_options *options, const struct np_node *node, struct np_report *report)
{
    np_source_check_labels(options, node, true, report);
}

const struct np_source np_source_tar = {
    .name = "tar",
    .help = "tar archives of images, also .gz and .zst: class folders, or WebDataset",
    .keys = "path match labels columns label_type separator unlabelled",
    .check = check,
    .scan = scan_all,
};
