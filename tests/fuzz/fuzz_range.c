/* Hostile bytes as the beginning of a file in a range cache, and as its account. A header is accepted only if it is
 * the one of the object asked for, byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/range_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Input: the object's size, the length of its URL, URL, version, and what is to be the file. */
static void check_head(const uint8_t *data, size_t n)
{
    char url[256], version[9];
    struct np_range_name name = {url, version, 0};
    struct np_range_layout layout;
    const size_t nr_url = n > 9 ? data[8] : 0;
    void *head;

    if (n < 9 + nr_url + 8)
        return;
    memcpy(&name.bytes, data, 8);
    memcpy(url, data + 9, nr_url);
    url[nr_url] = '\0';
    memcpy(version, data + 9 + nr_url, 8);
    version[8] = '\0';
    data += 9 + nr_url + 8;
    n -= 9 + nr_url + 8;
    if (np_range_layout(&name, &layout, NULL))
        return;
    if (layout.data_offset % 4096 || layout.map_offset % 8 ||
        layout.map_offset + 8 * layout.nr_blocks > layout.data_offset ||
        np_range_head_new(&name, &head, NULL))
        abort();
    if (np_range_head_check(&name, &layout, data, n, layout.file_bytes, NULL) == 0 &&
        (n != layout.map_offset || memcmp(data, head, n) != 0))
        abort();
    for (size_t i = 0; i < layout.map_offset && i < n; i++) /* near a right one */
        ((uint8_t *)head)[i] ^= data[i];
    for (size_t i = 0; i < n && i < layout.map_offset; i++)
        if (data[i]) {
            if (np_range_head_check(
                    &name, &layout, head, layout.map_offset, layout.file_bytes, NULL) == 0)
                abort();
            break;
        }
    np_free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t again[NP_RANGE_ACCOUNT_BYTES];
    char *copy = n ? np_alloc(n) : NULL; /* of just this size, for the sanitizers */
    uint64_t used;

    if (copy)
        memcpy(copy, data, n);
    if (copy && np_range_account_decode(copy, n, &used)) {
        np_range_account_encode(used, again);
        if (memcmp(again, copy, sizeof(again)) != 0)
            abort();
    }
    np_free(copy);
    check_head(data, n);
    return 0;
}
