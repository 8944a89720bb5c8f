/* The file that keeps the sizes of a set's pictures in the cache folder: little-endian; struct
 * np_sizes_header, then struct np_size for each sample in order. Any thread. */
#ifndef NP_LIB_SIZES_FILE_H
#define NP_LIB_SIZES_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

#define NP_SIZES_MAGIC   "NPSIZES\n"
#define NP_SIZES_VERSION 1

/* mtime_ns and bytes: of the picture's file when its header was read; both 0: not read. */
struct np_size {
    uint64_t mtime_ns;
    uint32_t bytes;
    uint16_t width, height; /* 0 x 0: not a picture that can be decoded */
};

struct np_sizes_header {
    char magic[8];
    uint32_t version, unused;
    uint64_t set; /* np_entries_set() */
    uint64_t nr;  /* samples */
    uint64_t sum; /* XXH3 of all that follows, and of this header with 0 here */
};

/* Sets the sum of a header with nr sizes behind it. */
void np_sizes_seal(struct np_sizes_header *header);
/* Copies the sizes of such a file into sizes, (nr). -EBADMSG: damaged, or of another set; sizes is
 * unchanged. */
int np_sizes_parse(
    const void *file, size_t file_bytes, uint64_t set, uint64_t nr, struct np_size *sizes);

#endif
