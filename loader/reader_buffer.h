/* The memory into which a reader reads: a buffer for each read in flight, and for a larger record
 * memory of its own until its row is made, so that one large picture does not cost it for ever. */
#ifndef NP_READER_BUFFER_H
#define NP_READER_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_buffers {
    uint8_t *memory; /* (nr, buffer_bytes): takes none before it is written */
    int nr;
    size_t buffer_bytes;
    size_t large_bytes; /* of large records, now */
};

/* A record's place. */
struct np_buffer {
    uint8_t *data; /* a block of the disk (NP_IO_BLOCK) may be read around the record's bytes */
    uint8_t *large;
    size_t large_bytes; /* 0: data is in the buffer */
};

/* max_bytes: of the largest record. -ENOMEM. */
int np_buffers_new(struct np_buffers *buffers, int nr, size_t max_bytes, struct np_err *err);
void np_buffers_free(struct np_buffers *buffers);
/* Is so much memory in use for large records that the reader should take no further tickets? */
bool np_buffers_full(const struct np_buffers *buffers);
/* Gives a record of so many bytes, at this offset of its file, a place with the same remainder by
 * NP_IO_BLOCK. number: of the buffer (0 to nr - 1). Its earlier place is released. -ENOMEM. */
int np_buffer_take(struct np_buffers *buffers, int number, uint64_t offset, size_t bytes,
    struct np_buffer *buffer, struct np_err *err);
void np_buffer_release(struct np_buffers *buffers, struct np_buffer *buffer);

#endif
