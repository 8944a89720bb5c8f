#include "loader/reader_buffer.h"

#include <errno.h>
#include <sys/mman.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"

#define BUFFER_BYTES (8u << 20)
#define LARGE_BYTES  (128u << 20) /* limit of all large records; one record may exceed it */
/* Reads take whole blocks, and decoders may read 64 bytes behind a record. */
#define AROUND (2 * NP_IO_BLOCK)

int np_buffers_new(struct np_buffers *buffers, int nr, size_t max_bytes, struct np_err *err)
{
    const size_t bytes = max_bytes < BUFFER_BYTES ? max_bytes : BUFFER_BYTES;

    *buffers = (struct np_buffers){
        .nr = nr, .buffer_bytes = (bytes + AROUND + NP_IO_BLOCK - 1) / NP_IO_BLOCK * NP_IO_BLOCK};
    buffers->memory = np_try_reserve(buffers->buffer_bytes * (size_t)nr, err);
    return buffers->memory ? 0 : np_err_context(err, "%d reads in flight (lower loader.depth)", nr);
}

void np_buffers_free(struct np_buffers *buffers)
{
    if (buffers->memory)
        munmap(buffers->memory, buffers->buffer_bytes * (size_t)buffers->nr);
}

bool np_buffers_full(const struct np_buffers *buffers)
{
    return buffers->large_bytes >= LARGE_BYTES;
}

int np_buffer_take(struct np_buffers *buffers, int number, uint64_t offset, size_t bytes,
    struct np_buffer *buffer, struct np_err *err)
{
    uint8_t *memory = buffers->memory + (size_t)number * buffers->buffer_bytes;

    np_buffer_release(buffers, buffer);
    if (bytes > buffers->buffer_bytes - AROUND) {
        memory = buffer->large = np_try_reserve(bytes + AROUND, err);
        if (!memory)
            return -ENOMEM;
        buffer->large_bytes = bytes + AROUND;
        buffers->large_bytes += buffer->large_bytes;
    }
    buffer->data = memory + offset % NP_IO_BLOCK;
    return 0;
}

void np_buffer_release(struct np_buffers *buffers, struct np_buffer *buffer)
{
    if (!buffer->large_bytes)
        return;
    munmap(buffer->large, buffer->large_bytes);
    buffers->large_bytes -= buffer->large_bytes;
    buffer->large_bytes = 0;
}
