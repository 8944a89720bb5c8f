/* The samples of a tar archive. A sample's class is the first folder below those that all samples
 * of the set share, or below the literal folders at the start of `match`: as when the archive is
 * unpacked and listed as a folder. If members with the extension `cls` are among the first (a
 * WebDataset), the class is the number in the .cls of the sample's group. With `columns` the label is
 * in the .json of the group; with `labels` in a table, and the archives are not looked at as groups.
 *
 * WebDataset's groups: the first dot of a name's last part separates key and extension; neighbours
 * with the same key are a group; groups end with the archive; top-level __names__ are ignored.
 * Called by source_tar.c. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <xxhash.h>

#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "loader/source/source_tar_list.h"

#define MAX_CLS_BYTES 32
#define MAX_JSON      (16u << 20)
#define BLANKS        " \t\r\n\v\f"
#define MAX_CLS       1000000 /* class numbers are below this */
#define MAX_FILLED    65536   /* unused class numbers below this are classes too */
#define NO_CLASS      (-1)

void np_tar_scan_skip(struct np_tar_scan *scan, const char *name)
{
    if (scan->nr_skipped++ == 0)
        snprintf(scan->skipped, sizeof(scan->skipped), "%.255s", name);
}

/* --- samples ------------------------------------------------------------- */

/* Sets the record's extent. -EXDEV: the member crosses the edge of a frame. */
static int place(
    struct np_tar_scan *scan, const struct np_tar_member *member, struct np_record *record)
{
    memset(record, 0, sizeof(*record));
    record->file = (uint32_t)scan->file.number;
    if (member->bytes > UINT32_MAX)
        return np_err_set(scan->err, -EFBIG,
            "%s: the member '%s' has %llu bytes; the maximum is 4 GiB", scan->path, member->name,
            (unsigned long long)member->bytes);
    record->bytes = record->inner_bytes = (uint32_t)member->bytes;
    if (!scan->table)
        record->offset = member->bytes ? member->data_offset : 0;
    else if (member->bytes) {
        const uint64_t number = np_seek_table_find(scan->table, member->data_offset);
        const struct np_seek_frame *frame = &scan->table->frames[number];

        record->inner_offset = (uint32_t)(member->data_offset - frame->content);
        if (member->bytes > frame->content_bytes - record->inner_offset)
            return -EXDEV;
        record->offset = frame->offset;
        record->bytes = frame->bytes;
        record->packing = NP_PACKING_ZSTD;
    }
    return 0;
}

static int add(struct np_tar_scan *scan, struct np_record *record, const char *name, int label)
{
    int code;

    record->no_label = label < 0;
    record->label = label < 0 ? 0 : (uint32_t)label;
    code = np_index_add(scan->index, record, name, scan->path, scan->err);
    np_source_count(scan->progress, scan->index);
    return code;
}

static bool is_wanted(const struct np_tar_scan *scan, const char *name)
{
    const char *match = scan->options->match;

    return !match || !*match || np_match(match, name);
}

void np_tar_scan_link(struct np_tar_scan *scan, const char *name)
{
    if (np_is_image_name(name) && is_wanted(scan, name) && scan->nr_links++ == 0)
        snprintf(scan->link, sizeof(scan->link), "%.255s", name);
}

/* --- WebDataset ---------------------------------------------------------- */

/* The first *ret_key_bytes of name are the key. NULL: it belongs to no group. */
static const char *extension_of(const char *name, size_t *ret_key_bytes)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    const char *dot = strchr(base, '.');
    const size_t bytes = strlen(name);

    if (!dot || dot == base)
        return NULL;
    if (!slash && bytes > 4 && strncmp(name, "__", 2) == 0 && dot - base > 3 && dot[-1] == '_' &&
        dot[-2] == '_')
        return NULL;
    *ret_key_bytes = (size_t)(dot - name);
    return dot + 1;
}

int np_tar_scan_last_label(const struct np_tar_scan *scan)
{
    const uint64_t n = np_index_samples(scan->index);
    const struct np_record *last = n ? np_index_record(scan->index, n - 1) : NULL;

    return last && !last->no_label ? (int)last->label : NO_CLASS;
}

/* For a truncated sample: any class of the set. */
static int take_last_label(struct np_tar_scan *scan)
{
    if (np_index_samples(scan->index) == 0)
        scan->follows = true;
    return np_tar_scan_last_label(scan);
}

/* A sample that the archive's end truncates: it is bad, and never trained on. */
static void make_empty(struct np_record *record)
{
    *record = (struct np_record){.file = record->file};
}

static int end_group(struct np_tar_scan *scan)
{
    struct np_tar_group *group = &scan->group;
    int label = NO_CLASS, code = 0;

    if (group->open && group->has_image) {
        if (!*group->label && scan->tar.truncated) {
            make_empty(&group->record);
            label = take_last_label(scan);
        }
        if (*group->label) {
            label = np_index_add_class(scan->index, group->label, scan->path, scan->err);
            if (label < 0)
                return label;
        }
        code = add(scan, &group->record, group->name, label);
    } else if (group->open && *group->label && (!scan->options->match || !*scan->options->match))
        np_tar_scan_skip(scan, group->key);
    group->open = group->has_image = false;
    return code;
}

static int begin_group(struct np_tar_scan *scan, const char *name, size_t key_bytes)
{
    struct np_tar_group *group = &scan->group;
    int code;

    if (group->open && strncmp(group->key, name, key_bytes) == 0 && group->key[key_bytes] == '\0')
        return 0;
    code = end_group(scan);
    if (code)
        return code;
    memcpy(group->key, name, key_bytes);
    group->key[key_bytes] = '\0';
    group->open = true;
    group->nr_extensions = 0;
    *group->label = '\0';
    return 0;
}

static int check_twice(struct np_tar_scan *scan, const char *extension)
{
    struct np_tar_group *group = &scan->group;
    const uint64_t hash = XXH64(extension, strlen(extension), 0);

    for (int i = 0; i < group->nr_extensions; i++)
        if (group->extensions[i] == hash)
            return np_err_set(scan->err, -EBADMSG,
                "%s: the group '%s' has two members with the extension '%s' (the second at offset "
                "%llu)",
                scan->path, group->key, extension, (unsigned long long)scan->member.header_offset);
    if (group->nr_extensions < NP_TAR_MAX_GROUP)
        group->extensions[group->nr_extensions++] = hash;
    return 0;
}

static int take_cls(struct np_tar_scan *scan)
{
    const struct np_tar_member *member = &scan->member;
    char text[MAX_CLS_BYTES + 1] = {0};
    const char *end;
    int64_t got, cls = -1;

    if (member->truncated)
        return 0; /* its image counts as unlabelled */
    got = member->bytes > MAX_CLS_BYTES ? 0
                                        : scan->tar.read(scan->tar.context, member->data_offset,
                                              text, member->bytes, scan->err);
    if (got < 0)
        return (int)got;
    end = np_text_int_end(text + strspn(text, BLANKS), &cls);
    if (!end || end[strspn(end, BLANKS)] || cls < 0 || cls >= MAX_CLS)
        return np_err_set(scan->err, -EBADMSG,
            "%s: the member '%s' at offset %llu is not a class number from 0 to %d", scan->path,
            member->name, (unsigned long long)member->data_offset, MAX_CLS - 1);
    if (cls > scan->max_cls)
        scan->max_cls = cls;
    snprintf(scan->group.label, sizeof(scan->group.label), "%lld", (long long)cls);
    return 0;
}

static int read_json(struct np_tar_scan *scan, char **ret_label)
{
    const struct np_tar_member *member = &scan->member;
    char *text;
    int64_t got;

    if (member->bytes > MAX_JSON)
        return np_err_set(scan->err, -EFBIG, "over %u MiB", MAX_JSON >> 20);
    if (!(text = np_try_alloc(member->bytes + 1, scan->err)))
        return -ENOMEM;
    got = scan->tar.read(scan->tar.context, member->data_offset, text, member->bytes, scan->err);
    if (got >= 0)
        got = np_label_of_json(text, (size_t)got, scan->fields, ret_label, scan->err);
    np_free(text);
    return (int)got;
}

static int take_json(struct np_tar_scan *scan)
{
    const struct np_tar_member *member = &scan->member;
    char *label = NULL;
    int code = member->truncated ? 0 : read_json(scan, &label); /* as a truncated .cls */

    if (code < 0)
        return np_err_context(scan->err, "%s: the member '%s' at offset %llu", scan->path,
            member->name, (unsigned long long)member->data_offset);
    if (label)
        snprintf(scan->group.label, sizeof(scan->group.label), "%s", label);
    np_free(label);
    return 0;
}

static int take_group_member(struct np_tar_scan *scan)
{
    struct np_tar_group *group = &scan->group;
    const struct np_tar_member *member = &scan->member;
    char extension[128];
    size_t key_bytes;
    const char *tail = extension_of(member->name, &key_bytes);
    int code;

    if (!tail) {
        np_tar_scan_skip(scan, member->name);
        return 0;
    }
    for (size_t i = 0; i < sizeof(extension); i++)
        extension[i] = (char)tolower((unsigned char)(i <= strlen(tail) ? tail[i] : '\0'));
    extension[sizeof(extension) - 1] = '\0';
    code = begin_group(scan, member->name, key_bytes);
    if (!code)
        code = check_twice(scan, extension);
    if (code)
        return code;
    if (strcmp(extension, scan->fields ? "json" : "cls") == 0)
        return scan->fields ? take_json(scan) : take_cls(scan);
    if (strchr(extension, '.') || !np_is_image_name(member->name) || !is_wanted(scan, member->name))
        return 0;
    if (group->has_image)
        return np_err_set(scan->err, -EBADMSG,
            "%s: the group '%s' has two images; choose one with `match: \"*.%s\"`", scan->path,
            group->key, extension);
    strcpy(group->name, member->name);
    group->has_image = true;
    return place(scan, member, &group->record);
}

/* --- class folders ------------------------------------------------------- */

bool np_tar_scan_is_cls(const char *name)
{
    size_t key_bytes;
    const char *extension = extension_of(name, &key_bytes);

    return extension && strcasecmp(extension, "cls") == 0;
}

static int take_plain_member(struct np_tar_scan *scan)
{
    const struct np_tar_member *member = &scan->member;
    struct np_record record;
    int code;

    if (!scan->labels && np_tar_scan_is_cls(member->name) && !strchr(member->name, '/'))
        return np_err_set(scan->err, -EBADMSG,
            "%s: '%s' is a WebDataset label, but the first members of the set have none; all "
            "archives of a set must be of the same kind",
            scan->path, member->name);
    if (!np_is_image_name(member->name)) {
        np_tar_scan_skip(scan, member->name);
        return 0;
    }
    if (!is_wanted(scan, member->name) ||
        (scan->labels && !np_label_table_has(scan->labels, member->name)))
        return 0;
    code = place(scan, member, &record);
    return code ? code : add(scan, &record, member->name, NO_CLASS);
}

/* Returns the length of the folders that all samples share. */
static size_t shared_folders(const struct np_index *index, char folders[NP_MAX_NAME + 1])
{
    struct np_index_names names;
    size_t shared = 0;

    for (np_index_names_begin(index, &names); np_index_names_next(&names);) {
        const char *name = names.name, *slash = strrchr(name, '/');
        size_t bytes = slash ? (size_t)(slash - name) + 1 : 0, same = 0;

        if (names.sample == 0) {
            memcpy(folders, name, bytes);
            shared = bytes;
        }
        bytes = bytes < shared ? bytes : shared;
        while (same < bytes && name[same] == folders[same])
            same++;
        while (same && name[same - 1] != '/')
            same--;
        shared = same;
    }
    return shared;
}

/* True if there are at least two folders below class_at. */
static bool branches(const struct np_index *index, size_t class_at)
{
    char first[NP_MAX_NAME + 1] = "";
    struct np_index_names names;

    for (np_index_names_begin(index, &names); np_index_names_next(&names);) {
        const char *from = names.name + class_at, *slash = strchr(from, '/');

        if (slash && !*first)
            snprintf(first, sizeof(first), "%.*s", (int)(slash - from + 1), from);
        else if (slash && strncmp(first, from, (size_t)(slash - from) + 1) != 0)
            return true;
    }
    return false;
}

/* Offset of the class in a sample's name. If all samples are in one chain of folders, the class is
 * the first folder, as in source_folder.c. */
static size_t find_class(const struct np_tar_scan *scan)
{
    const size_t literal = np_scan_literal_folders(scan->options->match);
    char folders[NP_MAX_NAME + 1];
    size_t shared;

    if (literal)
        return literal;
    shared = shared_folders(scan->index, folders);
    return branches(scan->index, shared) ? shared : 0;
}

static int label_folders(struct np_tar_scan *scan)
{
    const size_t class_at = find_class(scan);
    struct np_index_names names;

    for (np_index_names_begin(scan->index, &names); np_index_names_next(&names);) {
        char *from = names.name + class_at;
        char *slash = strchr(from, '/');
        int label = NO_CLASS;

        if (slash && slash > from) {
            *slash = '\0';
            label = np_index_add_class(scan->index, from, scan->options->path, scan->err);
            *slash = '/'; /* the next name is decoded from this one */
            if (label < 0)
                return label;
        }
        np_index_set_label(scan->index, names.sample, label);
    }
    return 0;
}

/* --- a table ------------------------------------------------------------- */

/* All samples are in the table, but those that stand for a truncated end: they are never trained on,
 * and get the label before them. */
static int label_by_table(struct np_tar_scan *scan)
{
    const struct np_source_options *options = scan->options;
    struct np_index_names names;
    int label = NO_CLASS;

    for (np_index_names_begin(scan->index, &names); np_index_names_next(&names);) {
        const char *text = np_label_table_find(scan->labels, names.name);

        if (text)
            label = np_index_add_class(scan->index, text, options->path, scan->err);
        if (text && label < 0)
            return label;
        np_index_set_label(scan->index, names.sample, label);
    }
    if (options->label_type == NP_LABEL_CLASS && np_label_table_numbered(scan->labels))
        np_index_set_numbered(scan->index);
    return np_label_table_check(scan->labels, options->path, scan->err);
}

/* Classes of JSON whose names are all numbers are in their order. */
static int order_classes(struct np_tar_scan *scan)
{
    const struct np_index *index = scan->index;
    bool numbered = scan->fields->type == NP_LABEL_CLASS;
    int64_t number;

    for (int i = 0; numbered && i < index->nr_classes; i++)
        numbered = np_text_int(index->classes[i], 0, INT32_MAX, &number);
    if (numbered)
        np_index_set_numbered(scan->index);
    return 0;
}

/* --- archives ------------------------------------------------------------ */

int np_tar_scan_take(struct np_tar_scan *scan)
{
    return scan->webdataset ? take_group_member(scan) : take_plain_member(scan);
}

/* For an archive that ends inside a header: adds an empty sample, so that the loss is counted. */
static int add_truncated(struct np_tar_scan *scan)
{
    struct np_record record = {.file = (uint32_t)scan->file.number};
    const uint64_t n = np_index_samples(scan->index);
    char last[256], name[NP_TAR_MAX_NAME + 1];

    snprintf(last, sizeof(last), "%.255s", scan->tar.last_name);
    if (n > scan->shard_first) /* in the folder of another sample, to get a class */
        np_index_name(scan->index, n - 1, last, sizeof(last));
    snprintf(name, sizeof(name), "%s (truncated after it, at offset %llu)", last,
        (unsigned long long)scan->tar.offset);
    return add(scan, &record, name, scan->webdataset ? take_last_label(scan) : NO_CLASS);
}

int np_tar_scan_end(struct np_tar_scan *scan)
{
    const struct np_tar *tar = &scan->tar;
    int code = scan->webdataset ? end_group(scan) : 0;

    if (code || !tar->truncated)
        return code;
    np_source_note(scan->progress, "%s is truncated; the last whole member is '%s' at offset %llu",
        scan->path, tar->last_name, (unsigned long long)tar->last_offset);
    return tar->truncated_member ? 0 : add_truncated(scan);
}

int np_tar_scan_classes(struct np_tar_scan *scan)
{
    char text[24];

    if (scan->labels)
        return label_by_table(scan);
    if (!scan->webdataset)
        return label_folders(scan);
    if (scan->fields)
        return order_classes(scan);
    np_index_set_numbered(scan->index);
    for (long i = 0; i <= scan->max_cls && i < MAX_FILLED; i++) {
        snprintf(text, sizeof(text), "%ld", i);
        if (np_index_add_class(scan->index, text, scan->options->path, scan->err) < 0)
            return -ENOMEM;
    }
    return 0;
}
