/* IDX, MNIST's format: a file of images (big-endian 0x00000803, count, height, width, bytes) and
 * one of labels (0x00000801, count, bytes); either may be .gz. One thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/source/source_scan.h"
#include "loader/source/unpack.h"

#define IMAGES_MAGIC 0x00000803u
#define LABELS_MAGIC 0x00000801u
#define IMAGES_HEAD  16u
#define LABELS_HEAD  8u

struct idx {
    char *path; /* of .gz: the unpacked copy in the cache */
    struct np_scan_file file;
    uint32_t counts[3];
};

static uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static void idx_fini(struct idx *idx)
{
    if (idx->file.fd >= 0)
        close(idx->file.fd);
    np_free(idx->path);
}

static int open_plain(const struct np_source_options *options, struct np_index *index,
    const char *path, const struct np_source_progress *progress, struct idx *idx,
    struct np_err *err)
{
    enum np_wrapping wrapping;
    char *cache = NULL;
    int code = np_unpack_sniff(path, &wrapping, err);

    if (code)
        return code;
    if (wrapping == NP_WRAPPING_NONE)
        code = (idx->path = np_try_strdup(path, err)) ? 0 : -ENOMEM;
    else {
        code = np_cache_dir(options, &cache, err);
        if (!code)
            code = np_unpack(path, cache, progress, &idx->path, err);
        np_free(cache);
    }
    return code ? code : np_scan_open(index, idx->path, &idx->file, err);
}

static int read_header(
    struct idx *idx, uint32_t magic, int nr_counts, const char *what, struct np_err *err)
{
    uint8_t head[IMAGES_HEAD];
    int code;

    code = np_scan_read(&idx->file, idx->path, 0, head, 4 + 4 * (size_t)nr_counts, err);
    if (code)
        return code;
    if (get_u32(head) != magic)
        return np_err_set(err, -EBADMSG, "%s: not an IDX file of %s: it begins with %08x, not %08x",
            idx->path, what, get_u32(head), magic);
    for (int i = 0; i < nr_counts; i++)
        idx->counts[i] = get_u32(head + 4 + 4 * i);
    return 0;
}

static int add_all(struct np_index *index, const struct idx *images, const uint8_t *labels,
    const int *classes, const struct np_source_progress *progress, struct np_err *err)
{
    const uint32_t each = images->counts[1] * images->counts[2];

    for (uint32_t i = 0; i < images->counts[0]; i++) {
        const uint64_t offset = IMAGES_HEAD + (uint64_t)i * each;
        const uint64_t rest = images->file.bytes > offset ? images->file.bytes - offset : 0;
        const uint32_t there = rest < each ? (uint32_t)rest : each;
        const struct np_record record = {.offset = there ? offset : 0,
            .bytes = there,
            .inner_bytes = there,
            .file = (uint32_t)images->file.number,
            .label = (uint32_t)classes[labels[i]]};
        char name[16];
        int code;

        snprintf(name, sizeof(name), "%05u", i);
        code = np_index_add(index, &record, name, images->path, err);
        if (code)
            return code;
        np_source_count(progress, index);
    }
    return 0;
}

static int check_images(const struct idx *images, const struct idx *labels,
    const struct np_source_progress *progress, struct np_err *err)
{
    const uint64_t each = (uint64_t)images->counts[1] * images->counts[2];
    const uint64_t want = IMAGES_HEAD + each * images->counts[0];

    if (images->counts[1] == 0 || images->counts[2] == 0 || images->counts[1] > 65500 ||
        images->counts[2] > 65500)
        return np_err_set(err, -EBADMSG, "%s: images of %u x %u pixels", images->path,
            images->counts[2], images->counts[1]);
    if (images->counts[0] != labels->counts[0])
        return np_err_set(err, -EBADMSG, "%s has %u images, but %s has %u labels", images->path,
            images->counts[0], labels->path, labels->counts[0]);
    if (images->counts[0] > images->file.bytes)
        return np_err_set(err, -EBADMSG,
            "%s: its header says %u images, but the file has %llu bytes", images->path,
            images->counts[0], (unsigned long long)images->file.bytes);
    if (images->file.bytes > want)
        return np_err_set(err, -EBADMSG, "%s: %llu bytes more than its header says", images->path,
            (unsigned long long)(images->file.bytes - want));
    if (images->file.bytes < want)
        np_source_note(progress,
            "%s is truncated to %llu of %llu bytes; the last whole image is %lld", images->path,
            (unsigned long long)images->file.bytes, (unsigned long long)want,
            (long long)((images->file.bytes - IMAGES_HEAD) / each) - 1);
    return 0;
}

/* Adds all classes up to the largest label, each with its number as name. */
static int add_classes(struct np_index *index, const struct idx *labels, const uint8_t *bytes,
    int classes[256], struct np_err *err)
{
    int max = 0;

    for (uint32_t i = 0; i < labels->counts[0]; i++)
        max = bytes[i] > max ? bytes[i] : max;
    np_index_set_numbered(index);
    for (int i = 0; i <= max; i++) {
        char name[8];

        snprintf(name, sizeof(name), "%d", i);
        classes[i] = np_index_add_class(index, name, labels->path, err);
        if (classes[i] < 0)
            return classes[i];
    }
    return 0;
}

static int scan_pair(struct np_index *index, struct idx *images, struct idx *labels,
    const struct np_source_progress *progress, struct np_err *err)
{
    int classes[256];
    uint8_t *bytes = NULL;
    int code = read_header(images, IMAGES_MAGIC, 3, "images", err);

    if (!code)
        code = read_header(labels, LABELS_MAGIC, 1, "labels", err);
    if (!code)
        code = check_images(images, labels, progress, err);
    if (!code) {
        index->raw =
            (struct np_raw){NP_RAW_HWC, (int)images->counts[1], (int)images->counts[2], 1, 0};
        bytes = np_try_alloc(labels->counts[0], err);
        code = bytes ? 0 : -ENOMEM;
    }
    if (!code)
        code =
            np_scan_read(&labels->file, labels->path, LABELS_HEAD, bytes, labels->counts[0], err);
    if (!code)
        code = add_classes(index, labels, bytes, classes, err);
    if (!code)
        code = add_all(index, images, bytes, classes, progress, err);
    np_free(bytes);
    return code;
}

/* ".../train-images-idx3-ubyte.gz" -> ".../train-labels-idx1-ubyte.gz"; some copies have a '.'
 * before "idx3". NULL: a name of another form, or out of memory. */
static char *labels_beside(const char *path, struct np_err *err)
{
    const char *base = strrchr(path, '/'), *at = strstr(base ? base : path, "images");

    if (!at || (at[6] != '-' && at[6] != '.') || strncmp(at + 7, "idx3", 4) != 0) {
        np_err_set(err, -EINVAL, "%s: give the file of its labels with `labels:`", path);
        return NULL;
    }
    return np_try_format(err, "%.*slabels%cidx1%s", (int)(at - path), path, at[6], at + 11);
}

static int one_path(const char *pattern, char **ret_path, struct np_err *err)
{
    struct np_paths paths;
    int code = np_paths_find(pattern, &paths, err);

    if (code)
        return code;
    if (paths.nr_paths > 1)
        code = np_err_set(
            err, -EINVAL, "%s: matches %d files, but idx reads one", pattern, paths.nr_paths);
    else {
        *ret_path = paths.paths[0];
        paths.paths[0] = NULL;
    }
    np_paths_fini(&paths);
    return code;
}

static int scan(const struct np_source_options *options, struct np_index *index,
    const struct np_source_progress *progress, struct np_err *err)
{
    struct idx images = {.file.fd = -1}, labels = {.file.fd = -1};
    char *images_path = NULL, *labels_path = NULL, *beside = NULL;
    struct np_err why = {0};
    int code = one_path(options->path, &images_path, err);

    if (!code && options->labels && *options->labels)
        code = one_path(options->labels, &labels_path, err);
    else if (!code) {
        beside = labels_beside(images_path, &why);
        code = beside ? one_path(beside, &labels_path, err)
                      : np_err_set(err, why.code, "%s", why.text);
    }
    if (!code)
        code = open_plain(options, index, images_path, progress, &images, err);
    if (!code)
        code = open_plain(options, index, labels_path, progress, &labels, err);
    if (!code)
        code = scan_pair(index, &images, &labels, progress, err);
    np_free(images_path);
    np_free(labels_path);
    np_free(beside);
    idx_fini(&images);
    idx_fini(&labels);
    return code;
}

const struct np_source np_source_idx = {
    .name = "idx",
    .help = "IDX files of images and labels, as MNIST's; also .gz",
    .keys = "path labels",
    .scan = scan,
};
