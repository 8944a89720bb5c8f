/* Writes safetensors through an np_io, durably, and hashes the file while writing. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/safetensors.h"

struct writer {
    struct np_io *io;
    int fd;
    uint64_t bytes;
    XXH3_state_t *hash;
};

static int append(struct writer *writer, const void *data, uint64_t bytes, struct np_err *err)
{
    int code = bytes > 0 ? np_io_append(writer->io, writer->fd, data, bytes, err) : 0;

    if (code == 0 && bytes > 0)
        XXH3_64bits_update(writer->hash, data, bytes);
    writer->bytes += bytes;
    return code;
}

/* Larger elements first; otherwise in the given order. */
static int by_element(const void *a, const void *b, void *context)
{
    const struct np_st_tensor *tensors = context;
    int x = *(const int *)a, y = *(const int *)b;
    uint64_t x_bytes = np_st_dtype_bytes(tensors[x].dtype);
    uint64_t y_bytes = np_st_dtype_bytes(tensors[y].dtype);

    if (x_bytes != y_bytes)
        return x_bytes > y_bytes ? -1 : 1;
    return x - y;
}

static json_t *tensor_json(const struct np_st_tensor *tensor, uint64_t first)
{
    json_t *shape = json_array();

    for (int i = 0; i < tensor->nr_dims; i++)
        json_array_append_new(shape, json_integer(tensor->dims[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor->dtype, "shape", shape, "data_offsets",
        (json_int_t)first, (json_int_t)(first + tensor->bytes));
}

/* The header's JSON, padded with blanks so that the data starts at a multiple of 8. np_free;
 * NULL: no memory, or a name that is not UTF-8. */
static char *make_header(const struct np_st_tensor *tensors, const int *order, int n)
{
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt"); /* torch's layouts */
    uint64_t first = 0;
    int code = 0;

    for (int i = 0; i < n && code == 0; i++) {
        const struct np_st_tensor *tensor = &tensors[order[i]];
        code = json_object_set_new(root, tensor->name, tensor_json(tensor, first));
        first += tensor->bytes;
    }
    char *text = code == 0 ? json_dumps(root, JSON_COMPACT) : NULL, *header = NULL;
    json_decref(root);
    if (text)
        header = np_try_format(NULL, "%-*s", (int)((strlen(text) + 7) / 8 * 8), text);
    free(text);
    return header;
}

static int write_all(struct writer *writer, const char *header, const struct np_st_tensor *tensors,
    const int *order, int n, struct np_err *err)
{
    uint64_t length = strlen(header);
    uint8_t prefix[8];

    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)(length >> (8 * i));
    int code = append(writer, prefix, sizeof(prefix), err);
    if (code == 0)
        code = append(writer, header, length, err);
    for (int i = 0; i < n && code == 0; i++)
        code = append(writer, tensors[order[i]].data, tensors[order[i]].bytes, err);
    return code;
}

int np_st_write(struct np_io *io, const char *path, const struct np_st_tensor *tensors, int n,
    uint64_t *ret_bytes, uint64_t *ret_xxh3, struct np_err *err)
{
    struct writer writer = {.io = io, .fd = -1, .hash = XXH3_createState()};
    int *order = np_alloc_array((size_t)n, sizeof(*order));
    char *header = NULL;
    int code;

    for (int i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, (size_t)n, sizeof(*order), by_element, (void *)tensors);
    header = make_header(tensors, order, n);
    if (!header || !writer.hash) {
        code = np_err_set(err, -ENOMEM, "%s: out of memory, or a name that is not UTF-8", path);
        goto out;
    }
    XXH3_64bits_reset(writer.hash);
    code = np_io_create(io, path, &writer.fd, err);
    if (code < 0)
        goto out;
    code = write_all(&writer, header, tensors, order, n, err);
    const int closed = np_io_sync_close(io, writer.fd, err); /* the first error stays */
    code = code < 0 ? code : closed;
    if (code == 0 && ret_bytes)
        *ret_bytes = writer.bytes;
    if (code == 0 && ret_xxh3)
        *ret_xxh3 = XXH3_64bits_digest(writer.hash);
out:
    XXH3_freeState(writer.hash);
    np_free(order);
    np_free(header);
    return code;
}
