/* np_weights_open() and np_weights_load() on hostile bytes of torch.save(): they refuse, or every
 * tensor lies within the bytes; and the pickle alone. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/pickle.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/checkpoint/weights_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct np_tensor tensors[] = {
    {.name = "fc.weight", .role = NP_ROLE_PARAM, .dims = {2, 3}, .nr_dims = 2},
    {.name = "fc.bias", .role = NP_ROLE_PARAM, .dims = {2}, .nr_dims = 1, .offset = 6},
    {.name = "bn.running_mean", .role = NP_ROLE_BUFFER, .dims = {2}, .nr_dims = 1},
};
static const struct np_graph graph = {
    .tensors = tensors, .nr_tensors = 3, .nr_params = 8, .nr_buffers = 2};

static void check_tensor(const struct np_st_file *file, const struct np_st_tensor *tensor)
{
    const uint64_t size = np_st_dtype_bytes(tensor->dtype);
    uint64_t last = 0, elements = 1;
    struct np_err err = {0};

    assert(tensor->offset <= file->nr_bytes && tensor->bytes <= file->nr_bytes - tensor->offset);
    assert(np_st_find(file, tensor->name) == tensor);
    for (int d = 0; d < tensor->nr_dims; d++) {
        elements *= (uint64_t)tensor->dims[d];
        last += ((uint64_t)tensor->dims[d] - 1) * (uint64_t)tensor->strides[d];
    }
    if (size > 0 && tensor->strided)
        assert(elements > 0 && (last + 1) * size == tensor->bytes);
    else if (size > 0)
        assert(elements * size == tensor->bytes);
    uint8_t *copy = malloc(tensor->bytes + 1);
    assert(np_st_read(file, tensor, 0, copy, tensor->bytes, &err) == 0);
    free(copy);
}

static void open_file(const char *path)
{
    struct np_st_file *file = NULL;
    struct np_err err = {0};
    const int code = np_weights_open(path, &file, &err);

    assert((code == 0) == (file != NULL) && (code == 0) == (err.code == 0));
    assert(code == 0 || err.text[0] != '\0');
    for (int i = 0; code == 0 && i < file->n; i++)
        check_tensor(file, &file->tensors[i]);
    np_st_close(file);
}

static void load_file(const char *path)
{
    struct np_weights_table *table = NULL;
    float params[8] = {0}, buffers[2] = {0};
    struct np_err err = {0};
    const int code = np_weights_load(path, &graph, params, buffers, &table, &err);

    assert((code == 0) == (table != NULL));
    if (code == 0) {
        char *text = np_weights_table_text(table);
        assert(*text != '\0');
        np_free(text);
    }
    np_weights_table_free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct np_pickle pickle;
    struct np_err err = {0};
    char path[40];
    size_t used = 0;

    assert(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    open_file(path);
    load_file(path);
    close(fd);
    /* a zip file's pickle stands behind its local header */
    const uint8_t *start = bytes > 0 ? memchr(data, 0x80, bytes) : NULL;
    if (start && np_pickle_parse(start, bytes - (size_t)(start - data), &pickle, &used, &err) == 0)
        assert(pickle.root != NULL && used <= bytes);
    if (start)
        np_pickle_fini(&pickle);
    return 0;
}
