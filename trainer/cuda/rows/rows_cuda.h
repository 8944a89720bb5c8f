/* The inside of libnnpipe's plugin.
 *
 * The program shares the GPU's primary context with us, whichever copy of the runtime it is linked
 * with, so its streams are handles for us, too. It may have another current device, which is changed
 * for the time of a call.
 *
 * When a process exits, the runtime refuses calls (cudaErrorCudartUnloading): the GPU's memory is then
 * gone anyway, and nothing is done. The same holds for a child of fork(). */
#ifndef NP_ROWS_CUDA_H
#define NP_ROWS_CUDA_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/rows_gpu.h"

#define NP_ROWS_COPIES 16 /* more than the caller has pinned batches */

struct np_pinned {
    void *memory;
    struct np_pinned *next;
};

struct np_gpu {
    pid_t pid; /* set once */
    struct np_gpu_config config;
    cudaStream_t stream;
    uint32_t *words;   /* device, (channels, 256) */
    uint8_t *staging;  /* device, u8 (rows, height, width, channels); NULL: rows need no format */
    _Atomic int fault; /* a cudaError_t of release() */

    /* the calling thread of fill(), one at a time */
    cudaEvent_t copies[NP_ROWS_COPIES];
    uint64_t nr_copies;
    struct np_pinned *pinned;
    struct np_gpu_buffer *buffers;
};

struct np_gpu_buffer {
    struct np_gpu *gpu;
    struct np_gpu_buffer *next;
    void *images; /* device */
    cudaEvent_t ready;
    pthread_mutex_t lock; /* over users, while the buffer has owners */
    struct np_rows_user {
        cudaStream_t stream;
        pthread_t thread; /* of cudaStreamPerThread, which is another stream in each */
        cudaEvent_t done; /* recorded by release() */
    } * users;
    int nr_users; /* since the last fill() */
    bool used;    /* since the last release() */
    int nr_events;
    size_t users_room;
};

/* Makes the GPU the calling thread's device; returns the device before, for np_rows_leave(). */
int np_rows_enter(const struct np_gpu *gpu);
void np_rows_leave(const struct np_gpu *gpu, int device);
bool np_rows_foreign(const struct np_gpu *gpu); /* another process opened it */
/* As np_cuda_check(), with the GPU's name. */
int np_rows_error(
    const struct np_gpu *gpu, cudaError_t status, const char *what, struct np_err *err);
size_t np_rows_pixel_bytes(const struct np_batch_shape *shape); /* of a batch, u8 */

/* buffers_cuda.c */
extern const struct np_gpu_buffer_ops np_rows_buffers;
void np_rows_free_buffer(struct np_gpu_buffer *buffer);

#endif
