/* Unpacks a .gz or .zst file that cannot be read in place into the cache folder, once. */
#ifndef NP_UNPACK_H
#define NP_UNPACK_H

#include "loader/source/source.h"

enum np_wrapping { NP_WRAPPING_NONE, NP_WRAPPING_GZIP, NP_WRAPPING_ZSTD };

/* Detects a file's compression from its first bytes. */
int np_unpack_sniff(const char *path, enum np_wrapping *ret_wrapping, struct np_err *err);
/* Finds the unpacked copy of path in cache_dir/unpacked (same path, size and mtime), or writes it:
 * checks the free space, writes a temporary file and renames it when it is whole, removes older
 * copies of the same path and leftovers of killed processes. Blocks on the disk; reports through
 * progress. *ret_path: np_free. -EBADMSG: the file is damaged; -EAGAIN: progress->no_unpack is set
 * and there is no copy. A truncated file is unpacked as far as possible, and reported in a note. */
int np_unpack(const char *path, const char *cache_dir, const struct np_source_progress *progress,
    char **ret_path, struct np_err *err);

#endif
