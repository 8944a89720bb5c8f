/* Reads the bytes of samples one after another, to pack them, check them or count statistics. One
 * thread. */
#ifndef NP_FETCH_H
#define NP_FETCH_H

#include "loader/source/source.h"

struct np_fetch;
/* index is borrowed. */
int np_fetch_open(const struct np_index *index, struct np_fetch **ret_fetch, struct np_err *err);
/* Returns the unpacked bytes of a sample, valid until the next call; for a drawn sample its number.
 * Blocks on the disk. -EBADMSG: the sample is bad (truncated, a damaged frame, another CRC than in
 * the index); other codes: the file cannot be read. err has the cause, without the name. */
int np_fetch_get(struct np_fetch *fetch, uint64_t sample, const uint8_t **ret_bytes,
    uint32_t *ret_nr_bytes, struct np_err *err);
/* The mtime of the file that np_fetch_get() read last, if each sample is a file of its own. */
uint64_t np_fetch_mtime_ns(const struct np_fetch *fetch);
void np_fetch_close(struct np_fetch *fetch);

#endif
