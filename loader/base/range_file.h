/* The file of one remote object in a range cache: a header with the object's name, a map with the
 * checksum of each stored block, and the blocks, each at its place, so that the file is sparse and any
 * stored range is one read. Files are parsed as hostile bytes. Any thread. See range_cache.h. */
#ifndef NP_RANGE_FILE_H
#define NP_RANGE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

/* A photograph of 110 KB lies in two blocks, and a network part of 1 MiB has eight. The map takes
 * 64 bytes a MiB: 10 MB for ImageNet, in each process. */
#define NP_RANGE_BLOCK (128u << 10)

/* A remote object. Another version (strong ETag, or size and Last-Modified) is another object. */
struct np_range_name {
    const char *url, *version;
    uint64_t bytes;
};

#define NP_RANGE_FILE_NAME 64 /* bytes, NUL included */
/* HASH(url)-HASH(version, bytes). The first 33 bytes depend on the URL alone. */
void np_range_file_name(const struct np_range_name *name, char file[NP_RANGE_FILE_NAME]);
bool np_range_is_file_name(const char *file);

struct np_range_layout {
    uint64_t nr_blocks, map_offset; /* map: (nr_blocks) u64, 0: the block is not stored */
    uint64_t data_offset;           /* a multiple of 4096 */
    uint64_t file_bytes;
    uint64_t seed; /* of the blocks' checksums; from the name */
};
/* -EFBIG, -ENAMETOOLONG: the object cannot be cached. */
int np_range_layout(
    const struct np_range_name *name, struct np_range_layout *ret_layout, struct np_err *err);
/* The bytes before the map; np_free. -ENOMEM. */
int np_range_head_new(const struct np_range_name *name, void **ret_head, struct np_err *err);
/* Checks the nr bytes at the beginning of a file, up to the map, and its size. -EBADMSG: damaged, or of another
 * object or version of nnpipe. */
int np_range_head_check(const struct np_range_name *name, const struct np_range_layout *layout,
    const void *bytes, size_t nr, uint64_t file_bytes, struct np_err *err);
/* Of a whole block; never 0. */
uint64_t np_range_sum(uint64_t seed, uint64_t block, const void *data, size_t bytes);

/* The account of a folder. */
#define NP_RANGE_ACCOUNT_BYTES 32
void np_range_account_encode(uint64_t used_bytes, uint8_t account[NP_RANGE_ACCOUNT_BYTES]);
bool np_range_account_decode(const void *account, size_t bytes, uint64_t *ret_used_bytes);

#endif
