/* One sample's bytes after another, for what is no pipeline: packing, checking, describing. */
#ifndef NP_FETCH_H
#define NP_FETCH_H

#include "loader/source/source.h"

struct np_fetch;
/* index is borrowed. One thread. */
int np_fetch_open(const struct np_index *index, struct np_fetch **ret_fetch, struct np_err *err);
/* Bytes of a sample, unpacked; the fetch's own until its next call. A drawn sample's are its
 * number. Blocks on the disk. -EBADMSG: the sample is bad (short, damaged frame, wrong CRC where
 * the index has one); other codes: the file cannot be read. The text is the reason alone. */
int np_fetch_get(struct np_fetch *fetch, uint64_t sample, const uint8_t **ret_bytes,
    uint32_t *ret_nr_bytes, struct np_err *err);
void np_fetch_close(struct np_fetch *fetch);

#endif
