/* Fills the store of the entries of a set (loader/source/entries.h) at once, with a thread per
 * CPU. */
#ifndef NP_FILL_ENTRIES_H
#define NP_FILL_ENTRIES_H

#include "loader/source/index.h"

/* Numbers of pictures of a set. */
struct np_filled {
    uint64_t nr_entered; /* all their rows have entries now */
    uint64_t nr_none;    /* can have none: another format, a small file, restart markers */
    uint64_t nr_bad;     /* cannot be read, or their checksum is wrong */
    uint64_t nr_left;    /* the store is full */
    char note[512];      /* as np_entries_note(); "": no problem */
};

/* Reads every picture of the set, and decodes those that lack entries of some rows, without making
 * pixels. max_bytes: as np_entries_open(). Blocks until all is on the disk. -EBUSY: another process
 * writes this store; -EIO: it cannot be written; -EINVAL: the cache folder has no place for this
 * set; -ENOMEM. */
int np_fill_entries(const struct np_index *index, int64_t max_bytes, struct np_filled *ret_filled,
    struct np_err *err);

#endif
