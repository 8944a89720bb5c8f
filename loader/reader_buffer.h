/* The memory for reads: a buffer for each read in flight. A larger record has memory of its own
 * until its row is made, so that one large picture does not keep memory for ever. Reader thread. */
#ifndef NP_READER_BUFFER_H
#define NP_READER_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_buffers {
    uint8_t *memory; /* (nr, buffer_bytes); a page takes memory once it is written */
    int nr;
    size_t buffer_bytes;
    size_t large_bytes; /* in use by large records */
};

struct np_buffer {
    uint8_t *data; /* a block of the disk (NP_IO_BLOCK) may be read around the record's bytes */
    uint8_t *large;
    size_t large_bytes; /* 0: data is in the buffer */
};

/* max_bytes: size of the largest record. -ENOMEM. */
int np_buffers_new(struct np_buffers *buffers, int nr, size_t max_bytes, struct np_err *err);
void np_buffers_free(struct np_buffers *buffers);
/* True: large records take so much memory that the reader should take no more tickets. */
bool np_buffers_full(const struct np_buffers *buffers);
/* Releases the buffer's earlier memory and gives it memory for `bytes` bytes, whose address has the
 * same remainder by NP_IO_BLOCK as offset, the record's place in its file. number: of the buffer, 0
 * to nr - 1. -ENOMEM. */
int np_buffer_take(struct np_buffers *buffers, int number, uint64_t offset, size_t bytes,
    struct np_buffer *buffer, struct np_err *err);
void np_buffer_release(struct np_buffers *buffers, struct np_buffer *buffer);

#endif
