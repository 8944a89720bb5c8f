/* Batches in the memory of a GPU, for libnnpipe: what its plugin (libnnpipe-cuda-rows.so, see
 * trainer/cuda/rows/) does. A row leaves the host as u8 pixels (height, width, channels) in pinned
 * memory; it is copied on a stream of the plugin's own, and a kernel there turns it into the format
 * that the program wants.
 *
 * No call waits for the GPU, unless it says so. A call that can fail returns 0 or a negative errno
 * and fills err: -ENODEV, -ENOMEM, or -EIO, after which the GPU is of no use to the process. */
#ifndef NP_ROWS_GPU_H
#define NP_ROWS_GPU_H

#include "loader/base/err.h"
#include "loader/batch.h"

struct np_gpu;        /* one that is open, for one shape of batches */
struct np_gpu_buffer; /* the memory of one batch there */

struct np_gpu_config {
    int ordinal;                 /* cuda:N */
    struct np_batch_shape shape; /* as the program wants it */
    /* (channels, 256): what a pixel becomes: the bits of a float32, bfloat16 or float16, or a u8 */
    uint32_t words[4][256];
};

/* The GPU and the pinned memory. One thread at a time, in the process that called open. */
struct np_gpu_ops {
    /* Can the GPU be used? Takes no memory there. -ENODEV: why not, and what to install. */
    int (*check)(int ordinal, struct np_err *err);
    /* config is copied. */
    int (*open)(const struct np_gpu_config *config, struct np_gpu **ret_gpu, struct np_err *err);
    /* All buffers are free. Waits until no queued work uses them or pinned memory, then frees
     * everything. In a process that exits, or in a child of fork(), it does nothing to the GPU. */
    void (*close)(struct np_gpu *gpu);
    /* Makes host memory (whole pages) known to the GPU, until close. */
    int (*pin)(struct np_gpu *gpu, void *memory, size_t bytes, struct np_err *err);
    /* Has the copy of this number ended, so that its pinned memory may be written? 1, 0, or an
     * error. */
    int (*copied)(struct np_gpu *gpu, uint64_t copy, struct np_err *err);
};

/* Buffers. new, images and fill: as above. use and release: any thread, also one whose current device is
 * another, several buffers at a time. */
struct np_gpu_buffer_ops {
    int (*new)(struct np_gpu *gpu, struct np_gpu_buffer **ret_buffer, struct np_err *err);
    void *(*images)(const struct np_gpu_buffer *buffer); /* device */
    /* Queues: behind all that release() recorded, `rows` rows of pinned memory into the buffer, and
     * formats them. Rows whose sample is UINT64_MAX become 0. *ret_copy: for copied(). */
    int (*fill)(struct np_gpu_buffer *buffer, const struct np_batch_memory *from, int rows,
        uint64_t *ret_copy, struct np_err *err);
    /* Makes the program's stream wait for fill(), and remembers the stream, which must live until
     * release(). Several owners may call it at a time. */
    int (*use)(struct np_gpu_buffer *buffer, void *stream, struct np_err *err);
    /* The last owner has gone: records an event on each remembered stream. Safe in an exiting
     * process, where it does nothing. An error is reported by the next fill(). */
    void (*release)(struct np_gpu_buffer *buffer);
};

/* The plugin's one symbol: `const struct np_rows_plugin *np_plugin_rows(void)`. */
struct np_rows_plugin {
    const char *contract; /* NP_CONTRACT of its headers; another one is refused */
    const char *build;    /* commit, for messages */
    const struct np_gpu_ops *gpu;
    const struct np_gpu_buffer_ops *buffers;
};

#endif
