/* Hostile bytes through the tar walker, with checksums made right on half of the inputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/source/tar.h"

struct bytes {
    const uint8_t *data;
    size_t n;
};

static int64_t read_bytes(
    void *context, uint64_t offset, void *buffer, size_t bytes, struct np_err *err)
{
    const struct bytes *from = context;
    const size_t there = offset < from->n ? from->n - (size_t)offset : 0;

    (void)err;
    bytes = bytes < there ? bytes : there;
    if (bytes)
        memcpy(buffer, from->data + offset, bytes);
    return (int64_t)bytes;
}

static void make_sums(uint8_t *data, size_t n)
{
    for (size_t at = 0; at + NP_TAR_BLOCK <= n; at += NP_TAR_BLOCK) {
        unsigned sum = 0;
        char text[8];

        if (memcmp(data + at + 257, "ustar", 5) != 0)
            continue;
        memset(data + at + 148, ' ', 8);
        for (size_t i = 0; i < NP_TAR_BLOCK; i++)
            sum += data[at + i];
        snprintf(text, sizeof(text), "%06o", sum);
        memcpy(data + at + 148, text, 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct np_tar_member member;
    uint8_t *copy = malloc(n + 1);
    struct bytes bytes = {copy, n};
    struct np_tar tar;
    uint64_t last = 0;

    memcpy(copy, data, n);
    if (n % 2)
        make_sums(copy, n);
    if (np_tar_init(&tar, "fuzz", read_bytes, &bytes, NULL))
        abort();
    while (np_tar_next(&tar, &member, NULL) > 0) {
        if (member.data_offset > n || member.bytes > n - member.data_offset ||
            member.data_offset <= last)
            abort(); /* a member beyond the end, or no progress */
        last = member.data_offset;
    }
    np_tar_fini(&tar);
    free(copy);
    return 0;
}
