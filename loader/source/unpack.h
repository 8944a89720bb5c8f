/* A .gz or .zst file unpacked once into the cache folder, for what cannot be read in place. */
#ifndef NP_UNPACK_H
#define NP_UNPACK_H

#include "loader/source/source.h"

enum np_wrapping { NP_WRAPPING_NONE, NP_WRAPPING_GZIP, NP_WRAPPING_ZSTD };

/* What a file is packed as, by its first bytes. */
int np_unpack_sniff(const char *path, enum np_wrapping *ret_wrapping, struct np_err *err);
/* The unpacked copy of path: the one in cache_dir/unpacked when it is of the file as it is now
 * (path, size, mtime), else it is written there: free space looked at first, without a name or under
 * another one until it is whole, older copies of the same path and what killed processes left removed.
 * Blocks on the disk; says what it does through progress. *ret_path: np_free. -EBADMSG: the bytes are
 * damaged; -EAGAIN: progress->no_unpack, and there is no copy. A file
 * that ends early is unpacked as far as it goes, and said to be torn. */
int np_unpack(const char *path, const char *cache_dir, const struct np_source_progress *progress,
    char **ret_path, struct np_err *err);

#endif
