/* Width and height of each picture of a set, read from the headers once and kept in the cache
 * folder. */
#ifndef NP_LIB_SIZES_H
#define NP_LIB_SIZES_H

#include "loader/base/err.h"
#include "loader/source/index.h"

struct np_sizes;
/* Reads the headers of the pictures, and no more of them, on several threads. In a set with a file
 * for each sample a picture whose file has the size and mtime of the last time is not read again,
 * if index->cached names a place to keep them. *ret_sizes: NULL if the set has one size. A picture
 * that cannot be read has size 0 x 0. Blocks on the disk. -ENOMEM. */
int np_sizes_read(const struct np_index *index, struct np_sizes **ret_sizes, struct np_err *err);
void np_sizes_free(struct np_sizes *sizes);
/* sizes NULL: the set's one size. */
void np_sizes_get(const struct np_sizes *sizes, const struct np_index *index, uint64_t sample,
    int32_t *ret_width, int32_t *ret_height);
uint64_t np_sizes_nr_read(const struct np_sizes *sizes); /* headers that np_sizes_read() has read */

#endif
