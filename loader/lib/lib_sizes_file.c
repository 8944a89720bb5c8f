/* See lib_sizes_file.h. */
#include "loader/lib/lib_sizes_file.h"

#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(
    sizeof(struct np_size) == 16 && sizeof(struct np_sizes_header) == 40, "they are the file's");

static uint64_t sum_of(const struct np_sizes_header *header, const void *sizes)
{
    struct np_sizes_header unsealed = *header;

    unsealed.sum = 0;
    return XXH3_64bits_withSeed(
        sizes, header->nr * sizeof(struct np_size), XXH3_64bits(&unsealed, sizeof(unsealed)));
}

void np_sizes_seal(struct np_sizes_header *header)
{
    header->sum = sum_of(header, header + 1);
}

int np_sizes_parse(
    const void *file, size_t file_bytes, uint64_t set, uint64_t nr, struct np_size *sizes)
{
    const uint8_t *behind = (const uint8_t *)file + sizeof(struct np_sizes_header);
    struct np_sizes_header header;

    if (file_bytes < sizeof(header))
        return -EBADMSG;
    memcpy(&header, file, sizeof(header));
    if (memcmp(header.magic, NP_SIZES_MAGIC, sizeof(header.magic)) != 0 ||
        header.version != NP_SIZES_VERSION || header.unused || header.set != set ||
        header.nr != nr || nr > (file_bytes - sizeof(header)) / sizeof(*sizes) ||
        file_bytes != sizeof(header) + nr * sizeof(*sizes) || header.sum != sum_of(&header, behind))
        return -EBADMSG;
    memcpy(sizes, behind, nr * sizeof(*sizes));
    return 0;
}
