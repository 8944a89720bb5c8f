/* Reads safetensors: checks the header to the last byte at open, reads tensors on request. The
 * opener owns the file; any thread. */
#include "trainer/checkpoint/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

#define MAX_HEADER 100000000u /* bytes, as in the format's own library */

/* --- one tensor's entry ----------------------------------------------------------------------- */

static bool read_count(const json_t *value, uint64_t *ret_count)
{
    *ret_count = (uint64_t)json_integer_value(value);
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

static int parse_shape(const struct np_st_file *file, const json_t *shape,
    struct np_st_tensor *tensor, uint64_t *ret_elements, struct np_err *err)
{
    uint64_t elements = 1, size;

    if (!json_is_array(shape) || json_array_size(shape) > NP_ST_MAX_DIMS)
        return np_err_set(err, -EBADMSG, "%s: %s: shape is not a list of at most %d sizes",
            file->name, tensor->name, NP_ST_MAX_DIMS);
    tensor->nr_dims = (int)json_array_size(shape);
    for (int i = 0; i < tensor->nr_dims; i++) {
        if (!read_count(json_array_get(shape, (size_t)i), &size) ||
            __builtin_mul_overflow(elements, size, &elements))
            return np_err_set(err, -EBADMSG, "%s: %s: size %d of its shape is impossible",
                file->name, tensor->name, i);
        tensor->dims[i] = (int64_t)size;
    }
    *ret_elements = elements;
    return 0;
}

static int parse_offsets(const struct np_st_file *file, const json_t *offsets, uint64_t data_start,
    struct np_st_tensor *tensor, struct np_err *err)
{
    uint64_t first, last, data_bytes = file->nr_bytes - data_start;

    if (json_array_size(offsets) != 2 || !read_count(json_array_get(offsets, 0), &first) ||
        !read_count(json_array_get(offsets, 1), &last) || last < first)
        return np_err_set(
            err, -EBADMSG, "%s: %s: data_offsets are not [begin, end]", file->name, tensor->name);
    if (last > data_bytes)
        return np_err_set(err, -EBADMSG,
            "%s: %s: ends at byte %" PRIu64 ", the data at %" PRIu64 ": the file is truncated",
            file->name, tensor->name, last, data_bytes);
    tensor->offset = data_start + first;
    tensor->bytes = last - first;
    return 0;
}

static int parse_tensor(const struct np_st_file *file, const char *name, const json_t *entry,
    uint64_t data_start, struct np_st_tensor *tensor, struct np_err *err)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    uint64_t elements = 0, bytes;

    tensor->name = name;
    tensor->dtype = dtype;
    if (!dtype || np_st_dtype_bytes(dtype) == 0)
        return np_err_set(err, -EBADMSG, "%s: %s: dtype %s is not known", file->name, name,
            dtype ? dtype : "is missing or");
    int code = parse_shape(file, json_object_get(entry, "shape"), tensor, &elements, err);
    if (code == 0)
        code = parse_offsets(file, json_object_get(entry, "data_offsets"), data_start, tensor, err);
    if (code < 0)
        return code;
    if (__builtin_mul_overflow(elements, np_st_dtype_bytes(dtype), &bytes) ||
        bytes != tensor->bytes)
        return np_err_set(err, -EBADMSG,
            "%s: %s: its shape and dtype do not match its %" PRIu64 " bytes", file->name, name,
            tensor->bytes);
    return 0;
}

/* --- the header ---------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct np_st_tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) /* an empty tensor before its neighbour at the same offset */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Every byte after the header belongs to exactly one tensor. */
static int check_cover(const struct np_st_file *file, uint64_t data_start, struct np_err *err)
{
    uint64_t at = data_start;

    for (int i = 0; i < file->n; i++) {
        const struct np_st_tensor *tensor = &file->tensors[i];
        if (tensor->offset != at)
            return np_err_set(err, -EBADMSG, "%s: %s: its bytes %s", file->name, tensor->name,
                tensor->offset < at ? "overlap the tensor before it" : "leave a gap before them");
        at += tensor->bytes;
    }
    if (at != file->nr_bytes)
        return np_err_set(err, -EBADMSG, "%s: %" PRIu64 " bytes after the last tensor", file->name,
            file->nr_bytes - at);
    return 0;
}

static int check_metadata(const struct np_st_file *file, json_t *metadata, struct np_err *err)
{
    if (!json_is_object(metadata))
        return np_err_set(err, -EBADMSG, "%s: __metadata__ is not a mapping", file->name);
    for (void *at = json_object_iter(metadata); at; at = json_object_iter_next(metadata, at))
        if (!json_is_string(json_object_iter_value(at)))
            return np_err_set(err, -EBADMSG, "%s: __metadata__: %s is not text", file->name,
                json_object_iter_key(at));
    return 0;
}

static int parse_entries(struct np_st_file *file, uint64_t data_start, struct np_err *err)
{
    json_t *root = file->names;

    file->tensors = np_try_array(json_object_size(root), sizeof(*file->tensors), err);
    if (!file->tensors)
        return np_err_context(err, "%s", file->name);
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *name = json_object_iter_key(at);
        json_t *entry = json_object_iter_value(at);
        int code = strcmp(name, "__metadata__") == 0 ? check_metadata(file, entry, err)
                                                     : parse_tensor(file, name, entry, data_start,
                                                           &file->tensors[file->n++], err);
        if (code < 0)
            return code;
    }
    qsort(file->tensors, (size_t)file->n, sizeof(*file->tensors), by_place);
    const int code = np_st_sort_names(file, err);
    return code < 0 ? code : check_cover(file, data_start, err);
}

static void free_header(void *header)
{
    json_decref(header);
}

int np_st_parse(struct np_st_file *file, struct np_err *err)
{
    uint8_t start[9] = {0};
    uint64_t header_bytes = 0;
    json_error_t why;

    if (file->nr_bytes < 8)
        return np_err_set(err, -EBADMSG, "%s: %" PRIu64 " bytes are not a safetensors file",
            file->name, file->nr_bytes);
    int code = np_st_read_at(file, 0, start, file->nr_bytes < 9 ? 8 : 9, err);
    if (code < 0)
        return code;
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | start[i];
    if (header_bytes > MAX_HEADER || header_bytes > file->nr_bytes - 8 || header_bytes < 2 ||
        start[8] != '{')
        return np_err_set(err, -EBADMSG,
            "%s: not a safetensors file, or truncated: a header of %" PRIu64 " bytes in a file of "
            "%" PRIu64,
            file->name, header_bytes, file->nr_bytes);
    char *header = np_try_alloc(header_bytes, err);

    if (!header)
        return np_err_context(err, "%s", file->name);
    code = np_st_read_at(file, 8, header, header_bytes, err);
    if (code == 0)
        file->names = json_loadb(header, (size_t)header_bytes, JSON_REJECT_DUPLICATES, &why);
    file->free_names = free_header;
    np_free(header);
    if (code == 0 && !file->names)
        code = np_err_set(err, -EBADMSG, "%s: its header is damaged at byte %d: %s", file->name,
            why.position + 8, why.text);
    return code == 0 ? parse_entries(file, 8 + header_bytes, err) : code;
}

int np_st_open(const char *path, struct np_st_file **ret_file, struct np_err *err)
{
    struct np_st_file *file = NULL;
    int code = np_st_open_raw(path, &file, err);

    if (code == 0)
        code = np_st_parse(file, err);
    if (code < 0)
        np_st_close(file);
    else
        *ret_file = file;
    return code;
}
