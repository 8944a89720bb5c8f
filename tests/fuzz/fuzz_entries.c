/* Hostile bytes as the coded entries of a picture: what is decoded lies inside the file, and is coded to
 * the same bytes again. */
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/source/entries_code.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct np_picture_entries entries;
    static uint8_t *coded;
    static size_t room;
    size_t nr_bytes;
    uint32_t file_bytes;

    if (n < 4)
        return 0;
    memcpy(&file_bytes, data, 4);
    if (np_entries_decode(data + 4, n - 4, file_bytes, &entries, NULL) < 0)
        return 0;
    for (int part = 0; part <= entries.mcus_down; part++) {
        uint32_t offset, bytes;

        np_entries_part(&entries, part, &offset, &bytes);
        if (offset > file_bytes || bytes > file_bytes - offset)
            abort();
    }
    if (np_entries_encode(&entries, &coded, &room, &nr_bytes, NULL) < 0 || nr_bytes != n - 4 ||
        memcmp(coded, data + 4, nr_bytes) != 0)
        abort();
    return 0;
}
