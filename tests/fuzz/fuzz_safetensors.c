/* np_st_open() on hostile bytes: it refuses, or every tensor lies within them. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void parse(const uint8_t *data, size_t bytes)
{
    struct np_st_file *file = NULL;
    struct np_err err = {0};
    uint64_t covered = 0;
    char path[40];
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);

    assert(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int result = np_st_open(path, &file, &err);
    close(fd);
    assert((result == 0) == (file != NULL) && (result == 0) == (err.code == 0));
    if (result < 0) {
        assert(err.text[0] != '\0');
        return;
    }
    for (int i = 0; i < file->n; i++) {
        const struct np_st_tensor *tensor = &file->tensors[i];
        uint64_t elements = 1;
        assert(tensor->offset <= bytes && tensor->bytes <= bytes - tensor->offset);
        assert(np_st_find(file, tensor->name) == tensor);
        for (int d = 0; d < tensor->nr_dims; d++)
            elements *= (uint64_t)tensor->dims[d];
        assert(elements * np_st_dtype_bytes(tensor->dtype) == tensor->bytes);
        uint8_t *copy = malloc(tensor->bytes + 1);
        assert(np_st_read(file, tensor, 0, copy, tensor->bytes, &err) == 0);
        assert(memcmp(copy, data + tensor->offset, tensor->bytes) == 0);
        free(copy);
        covered += tensor->bytes;
    }
    assert(covered < bytes);
    np_st_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    size_t end = bytes;

    parse(data, bytes);
    /* Again with a length that fits the header, which a change of the header rarely leaves. */
    while (end > 8 && data[end - 1] != '}')
        end--;
    if (end <= 8)
        return 0;
    uint8_t *copy = malloc(bytes);
    uint64_t length = end - 8;
    memcpy(copy, data, bytes);
    memcpy(copy, &length, 8);
    parse(copy, bytes);
    free(copy);
    return 0;
}
