/* Hostile bytes as an index file with right checksums; all of an accepted index must be usable. */
#include <stdlib.h>
#include <string.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/source/index_file.h"

static void sign(uint8_t *bytes, size_t n)
{
    struct np_index_header header;

    if (n < sizeof(header))
        return;
    memcpy(&header, bytes, sizeof(header));
    for (int s = 0; s < NP_NR_SECTIONS; s++)
        if (header.sections[s].offset <= n &&
            header.sections[s].bytes <= n - header.sections[s].offset)
            header.sections[s].crc =
                np_crc32c(0, bytes + header.sections[s].offset, header.sections[s].bytes);
    header.header_crc = 0;
    header.header_crc = np_crc32c(0, &header, sizeof(header));
    memcpy(bytes, &header, sizeof(header));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *whole = np_alloc(n);
    struct np_index *index;
    char name[NP_MAX_NAME + 1];

    memcpy(whole, data, n);
    sign(whole, n);
    if (np_index_parse(whole, n, "fuzz", &index, NULL))
        return 0;
    for (uint64_t i = 0; i < np_index_samples(index); i++) {
        const struct np_record record = np_index_get(index, i);

        if (np_index_name(index, i, name, sizeof(name)) < 1 || record.bytes > index->max_extent)
            abort();
        if (!record.no_label && !index->classes[record.label])
            abort();
        if (index->raw.kind != NP_RAW_SYNTH && !index->root && !index->paths[record.file])
            abort();
    }
    np_index_free(index);
    return 0;
}
