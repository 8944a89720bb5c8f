/* Sets that the program names itself: files with labels, or pixels in memory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/lib/lib.h"
#include "loader/lib/lib_spread.h"
#include "loader/pixels/codec.h"
#include "loader/source/entries_file.h"
#include "loader/source/source.h"

static int by_value(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

/* The index numbers its classes 0, 1, ...: finds which labels there are, in order. */
static int find_labels(
    const int64_t *labels, uint64_t n, int64_t **ret_values, int *ret_nr, struct np_err *err)
{
    int64_t *values = np_try_array(n, sizeof(*values), err);
    uint64_t nr = 0;

    if (!values)
        return -ENOMEM;
    memcpy(values, labels, n * sizeof(*values));
    qsort(values, n, sizeof(*values), by_value);
    for (uint64_t i = 0; i < n; i++)
        if (values[i] >= 0 && (nr == 0 || values[nr - 1] != values[i]))
            values[nr++] = values[i];
    if (nr > NP_MAX_CLASSES || (nr && values[nr - 1] > INT32_MAX)) {
        np_free(values);
        return np_err_set(err, -E2BIG, "labels above %d, or more than %d of them, are too many",
            INT32_MAX, NP_MAX_CLASSES);
    }
    *ret_values = values;
    *ret_nr = (int)nr;
    return 0;
}

static int add_classes(struct nnp_data *data, const int64_t *values, int nr, struct np_err *err)
{
    char name[24];

    np_index_set_numbered(data->index);
    data->labels = np_try_array((size_t)nr + 1, sizeof(*data->labels), err);
    if (!data->labels)
        return -ENOMEM;
    for (int i = 0; i < nr; i++) {
        int code;

        snprintf(name, sizeof(name), "%lld", (long long)values[i]);
        code = np_index_add_class(data->index, name, "the program's labels", err);
        if (code < 0)
            return code;
        data->labels[i] = (int32_t)values[i];
    }
    return 0;
}

static void set_label(struct np_record *record, const int64_t *values, int nr, int64_t label)
{
    const int64_t *found =
        label < 0 ? NULL : bsearch(&label, values, (size_t)nr, sizeof(*values), by_value);

    record->no_label = !found;
    record->label = found ? (uint32_t)(found - values) : 0;
}

/* An empty index with the classes of these labels. */
static int new_data(const int64_t *labels, uint64_t n, struct nnp_data **ret_data,
    int64_t **ret_values, int *ret_nr, struct np_err *err)
{
    struct nnp_data *data = np_try_alloc(sizeof(*data), err);
    int code = data ? 0 : -ENOMEM;

    if (!code && !(data->index = np_index_new(err)))
        code = -ENOMEM;
    if (!code)
        code = find_labels(labels, n, ret_values, ret_nr, err);
    if (!code)
        code = add_classes(data, *ret_values, *ret_nr, err);
    *ret_data = data;
    return code;
}

static struct nnp_data *done(
    struct nnp_data *data, int code, const struct np_err *err, char *error, size_t error_bytes)
{
    if (!code)
        return data;
    nnp_data_free(data);
    snprintf(error, error_bytes, "%s", err->text);
    return NULL;
}

struct listing {
    const char *root;
    const char *const *paths;
    const int64_t *labels;
    uint64_t nr_samples;
    uint32_t *bytes; /* of each file */
};

/* For np_spread(). A file that is missing is a bad sample when its turn comes, as in the program's
 * own loader. */
static int examine(void *context, uint64_t first, uint64_t end, struct np_err *err)
{
    const struct listing *listing = context;
    char whole[4096];
    struct stat st;

    for (uint64_t i = first; i < end; i++) {
        if (snprintf(whole, sizeof(whole), "%s/%s", listing->root, listing->paths[i]) >=
            (int)sizeof(whole))
            return np_err_set(err, -ENAMETOOLONG, "%.200s/%.200s: a path of over %zu bytes",
                listing->root, listing->paths[i], sizeof(whole) - 1);
        if (stat(whole, &st) < 0)
            st.st_size = 0;
        listing->bytes[i] = st.st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)st.st_size;
    }
    return 0;
}

/* Adds all files to the index. values: the nr labels that there are, in order. */
static int add_files(struct nnp_data *data, struct listing *listing, const int64_t *values, int nr,
    struct np_err *err)
{
    int code = np_spread(listing->nr_samples, examine, listing, err);

    for (uint64_t i = 0; !code && i < listing->nr_samples; i++) {
        struct np_record record = {.bytes = listing->bytes[i], .inner_bytes = listing->bytes[i]};

        set_label(&record, values, nr, listing->labels[i]);
        code = np_index_add(data->index, &record, listing->paths[i], listing->root, err);
    }
    if (!code && !(data->index->root = np_try_strdup(listing->root, err)))
        code = -ENOMEM;
    return code ? code : np_index_finish(data->index, err);
}

/* The place in the cache folder for sizes and entries of the pictures. An empty file there, until
 * sizes are known, has the time of the last use. Without a place, or on a failure, nothing is
 * kept. */
static int find_place(struct nnp_data *data, const char *root)
{
    char whole[PATH_MAX];
    struct np_err err = {0};
    const char *real = realpath(root, whole) ? whole : root;
    char *place = np_source_place(XXH64(real, strlen(real), np_entries_set(data->index)), &err);
    int fd = -1;

    if (place && np_make_parent(place, &err) == 0)
        fd = open(place, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) {
        futimens(fd, NULL);
        close(fd);
    } else {
        np_free(place);
        place = NULL;
    }
    data->index->cached = place;
    return err.code == -ENOMEM ? -ENOMEM : 0;
}

struct class_names {
    struct nnp_data *data;
    const char *const *names;
    int nr;
};

/* For np_recover(): nodes are small memory, which ends the process where there is none. */
static int take_classes(void *context)
{
    const struct class_names *classes = context;

    classes->data->classes = np_node_new(NP_NODE_LIST, 0, 0);
    for (int i = 0; i < classes->nr; i++)
        np_node_add(classes->data->classes, NULL, np_node_scalar(classes->names[i], 0, 0));
    return 0;
}

struct nnp_data *nnp_data_files(const char *root, const char *const *paths, const int64_t *labels,
    uint64_t nr_samples, const char *const *classes, int nr_classes, char *error,
    size_t error_bytes)
{
    struct nnp_data *data = NULL;
    struct np_err err = {0};
    int64_t *values = NULL;
    struct listing listing = {
        root, paths, labels, nr_samples, np_try_array(nr_samples, sizeof(uint32_t), &err)};
    int nr = 0, code = listing.bytes ? 0 : -ENOMEM;

    if (!code)
        code = new_data(labels, nr_samples, &data, &values, &nr, &err);
    if (!code)
        code = add_files(data, &listing, values, nr, &err);
    np_free(values);
    np_free(listing.bytes);
    if (!code && find_place(data, root) < 0)
        code = np_err_set(&err, -ENOMEM, "out of memory for the place of a set's sizes");
    if (!code && np_recover(take_classes, &(struct class_names){data, classes, nr_classes}) < 0)
        code = np_err_set(&err, -ENOMEM, "out of memory for the names of %d classes", nr_classes);
    return done(data, code, &err, error, error_bytes);
}

static int add_archives(
    struct nnp_data *data, const char *const *paths, uint64_t nr_paths, struct np_err *err)
{
    char whole[PATH_MAX];
    struct stat st;

    for (uint64_t i = 0; i < nr_paths; i++) {
        if (!realpath(paths[i], whole) || stat(whole, &st) < 0)
            return np_err_set(err, -errno, "%s: %s", paths[i], strerror(errno));
        const int code = np_index_add_file(data->index, whole, &st, err);
        if (code < 0)
            return code;
    }
    return 0;
}

static int add_extents(struct nnp_data *data, const struct nnp_extent *extents, uint64_t nr_paths,
    uint64_t nr_samples, const int64_t *labels, const int64_t *values, int nr, struct np_err *err)
{
    int code = 0;

    for (uint64_t i = 0; !code && i < nr_samples; i++) {
        const struct nnp_extent *extent = &extents[i];
        char name[24];

        if (extent->file >= nr_paths || extent->bytes > UINT32_MAX ||
            extent->offset > INT64_MAX - UINT32_MAX)
            return np_err_set(err, -EINVAL,
                "sample %llu: file %llu of %llu, %llu bytes at %llu: expected one of the files, "
                "and less than 4 GiB of it",
                (unsigned long long)i, (unsigned long long)extent->file,
                (unsigned long long)nr_paths, (unsigned long long)extent->bytes,
                (unsigned long long)extent->offset);
        struct np_record record = {.offset = extent->offset,
            .bytes = (uint32_t)extent->bytes,
            .inner_bytes = (uint32_t)extent->bytes,
            .file = (uint32_t)extent->file};
        snprintf(name, sizeof(name), "%llu", (unsigned long long)i);
        set_label(&record, values, nr, labels[i]);
        code = np_index_add(data->index, &record, name, "the program's samples", err);
    }
    return code ? code : np_index_finish(data->index, err);
}

struct nnp_data *nnp_data_extents(const char *const *paths, uint64_t nr_paths,
    const struct nnp_extent *extents, const int64_t *labels, uint64_t nr_samples, char *error,
    size_t error_bytes)
{
    struct nnp_data *data = NULL;
    struct np_err err = {0};
    int64_t *values = NULL;
    int nr = 0, code = new_data(labels, nr_samples, &data, &values, &nr, &err);

    if (!code)
        code = add_archives(data, paths, nr_paths, &err);
    if (!code)
        code = add_extents(data, extents, nr_paths, nr_samples, labels, values, nr, &err);
    np_free(values);
    return done(data, code, &err, error, error_bytes);
}

static int check_shape(int height, int width, int channels, struct np_err *err)
{
    if (height >= 1 && width >= 1 && (channels == 1 || channels == 3) &&
        (uint64_t)height * (uint64_t)width <= NP_MAX_PIXELS)
        return 0;
    return np_err_set(err, -EINVAL,
        "pixels of shape (samples, %d, %d, %d): expected (samples, height, width, 1 or 3), and at "
        "most %llu pixels a picture",
        height, width, channels, NP_MAX_PIXELS);
}

struct nnp_data *nnp_data_pixels(const uint8_t *pixels, uint64_t nr_samples, int height, int width,
    int channels, const int64_t *labels, char *error, size_t error_bytes)
{
    const uint32_t bytes = (uint32_t)height * (uint32_t)width * (uint32_t)channels;
    struct nnp_data *data = NULL;
    struct np_err err = {0};
    int64_t *values = NULL;
    int nr = 0, code = check_shape(height, width, channels, &err);

    if (!code)
        code = new_data(labels, nr_samples, &data, &values, &nr, &err);
    for (uint64_t i = 0; !code && i < nr_samples; i++) {
        struct np_record record = {.offset = i * bytes, .bytes = bytes, .inner_bytes = bytes};
        char name[24];

        snprintf(name, sizeof(name), "%llu", (unsigned long long)i);
        set_label(&record, values, nr, labels[i]);
        code = np_index_add(data->index, &record, name, "memory", &err);
    }
    np_free(values);
    if (!code) {
        data->index->memory = pixels;
        data->index->raw = (struct np_raw){
            .kind = NP_RAW_HWC, .height = height, .width = width, .channels = channels};
        code = np_index_finish(data->index, &err);
    }
    return done(data, code, &err, error, error_bytes);
}

void nnp_data_free(struct nnp_data *data)
{
    if (!data)
        return;
    np_index_free(data->index);
    np_free(data->labels);
    np_node_free(data->classes);
    np_free(data);
}
