/* The memory of batches on the GPU: copies into it, and the program's streams that use it. */
#include <errno.h>

#include "trainer/cuda/rows/format_cuda.h"
#include "trainer/cuda/rows/rows_cuda.h"

/* --- buffers ------------------------------------------------------------------------------------ */

void np_rows_free_buffer(struct np_gpu_buffer *buffer)
{
    if (!np_rows_foreign(buffer->gpu)) {
        for (int i = 0; i < buffer->nr_events; i++)
            cudaEventDestroy(buffer->users[i].done);
        if (buffer->ready)
            cudaEventDestroy(buffer->ready);
        cudaFree(buffer->images);
    }
    pthread_mutex_destroy(&buffer->lock);
    np_free(buffer->users);
    np_free(buffer);
}

static int rows_new(struct np_gpu *gpu, struct np_gpu_buffer **ret_buffer, struct np_err *err)
{
    const size_t bytes = (size_t)gpu->config.shape.rows * np_batch_row_bytes(&gpu->config.shape);
    struct np_gpu_buffer *buffer = np_try_alloc(sizeof(*buffer), err);
    const int device = np_rows_enter(gpu);
    int code = -ENOMEM;

    if (buffer) {
        buffer->gpu = gpu;
        pthread_mutex_init(&buffer->lock, NULL);
        code = np_rows_error(
            gpu, cudaMalloc(&buffer->images, bytes), "device memory for a batch", err);
    }
    if (!code)
        code = np_rows_error(
            gpu, cudaEventCreateWithFlags(&buffer->ready, cudaEventDisableTiming), "an event", err);
    if (code && buffer) {
        np_rows_free_buffer(buffer);
    } else if (buffer) {
        buffer->next = gpu->buffers;
        *ret_buffer = gpu->buffers = buffer;
    }
    np_rows_leave(gpu, device);
    return code;
}

static void *rows_images(const struct np_gpu_buffer *buffer)
{
    return buffer->images;
}

/* What follows on our stream waits for the programs' work on the buffer. */
static int follow_users(struct np_gpu_buffer *buffer, struct np_err *err)
{
    struct np_gpu *gpu = buffer->gpu;
    int code = 0;

    for (int i = 0; !code && i < buffer->nr_users; i++)
        code = np_rows_error(gpu, cudaStreamWaitEvent(gpu->stream, buffer->users[i].done, 0),
            "to wait for a stream of the program", err);
    if (!code)
        buffer->nr_users = 0;
    return code;
}

static int queue_format(struct np_gpu_buffer *buffer, int rows, struct np_err *err)
{
    const struct np_gpu *gpu = buffer->gpu;
    const struct np_batch_shape *shape = &gpu->config.shape;
    static const int type_bytes[] = {1, 4, 2, 2}; /* by enum np_row_type */
    const struct np_cuda_format format = {gpu->staging, buffer->images, gpu->words, rows,
        shape->height * shape->width, shape->channels, type_bytes[shape->format.type],
        shape->format.planar};

    np_cuda_format_rows(gpu->stream, &format);
    return np_rows_error(gpu, cudaGetLastError(), "a kernel that formats rows", err);
}

/* Bad rows that were not replaced are 0 in any format. */
static int blank_rows(
    struct np_gpu_buffer *buffer, const struct np_row *about, int rows, struct np_err *err)
{
    const size_t row_bytes = np_batch_row_bytes(&buffer->gpu->config.shape);
    int code = 0;

    for (int r = 0; !code && r < rows; r++)
        if (about[r].sample == UINT64_MAX)
            code = np_rows_error(buffer->gpu,
                cudaMemsetAsync((char *)buffer->images + (size_t)r * row_bytes, 0, row_bytes,
                    buffer->gpu->stream),
                "to blank a row", err);
    return code;
}

static int queue_copy(
    struct np_gpu *gpu, void *to, const uint8_t *from, int rows, struct np_err *err)
{
    const size_t row_bytes =
        np_rows_pixel_bytes(&gpu->config.shape) / (size_t)gpu->config.shape.rows;
    int code = np_rows_error(gpu,
        cudaMemcpyAsync(to, from, (size_t)rows * row_bytes, cudaMemcpyHostToDevice, gpu->stream),
        "a copy to the GPU", err);

    if (!code)
        code = np_rows_error(gpu,
            cudaEventRecord(gpu->copies[gpu->nr_copies % NP_ROWS_COPIES], gpu->stream),
            "to record an event", err);
    return code;
}

static int queue_all(
    struct np_gpu_buffer *buffer, const struct np_batch_memory *from, int rows, struct np_err *err)
{
    struct np_gpu *gpu = buffer->gpu;
    int code = gpu->staging ? 0 : follow_users(buffer, err);

    if (!code)
        code = queue_copy(
            gpu, gpu->staging ? (void *)gpu->staging : buffer->images, from->images, rows, err);
    if (!code && gpu->staging)
        code = follow_users(buffer, err);
    if (!code && gpu->staging)
        code = queue_format(buffer, rows, err);
    if (!code)
        code = blank_rows(buffer, from->about, rows, err);
    if (!code)
        code = np_rows_error(
            gpu, cudaEventRecord(buffer->ready, gpu->stream), "to record an event", err);
    return code;
}

static int rows_fill(struct np_gpu_buffer *buffer, const struct np_batch_memory *from, int rows,
    uint64_t *ret_copy, struct np_err *err)
{
    struct np_gpu *gpu = buffer->gpu;
    const cudaError_t fault = (cudaError_t)atomic_load(&gpu->fault);
    int device, code;

    if (fault != cudaSuccess)
        return np_rows_error(gpu, fault, "a stream of the program, when a batch was released", err);
    device = np_rows_enter(gpu);
    code = queue_all(buffer, from, rows, err);
    np_rows_leave(gpu, device);
    if (!code)
        *ret_copy = gpu->nr_copies++;
    return code;
}

/* --- the program's streams ---------------------------------------------------------------------- */

/* Is it this stream, as the calling thread means it? */
static bool is_stream(const struct np_rows_user *user, cudaStream_t stream)
{
    return user->stream == stream &&
           (stream != cudaStreamPerThread || pthread_equal(user->thread, pthread_self()));
}

/* The stream on which the calling thread records an event behind the user's work. The default stream
 * of another thread has no handle here, but the legacy one waits for it. */
static cudaStream_t stream_of(const struct np_rows_user *user)
{
    return is_stream(user, user->stream) ? user->stream : cudaStreamLegacy;
}

/* Under the lock. */
static int remember(struct np_gpu_buffer *buffer, cudaStream_t stream, struct np_err *err)
{
    const int n = buffer->nr_users;
    int code = 0;

    buffer->used = true;
    for (int i = 0; i < n; i++)
        if (is_stream(&buffer->users[i], stream))
            return 0;
    if (n == buffer->nr_events) {
        if (np_try_grow(&buffer->users, &buffer->users_room, (size_t)n + 1, sizeof(*buffer->users),
                err) < 0)
            return -ENOMEM;
        code = np_rows_error(buffer->gpu,
            cudaEventCreateWithFlags(&buffer->users[n].done, cudaEventDisableTiming), "an event",
            err);
        if (!code)
            buffer->nr_events++;
    }
    if (!code) {
        buffer->users[n].stream = stream;
        buffer->users[n].thread = pthread_self();
        buffer->nr_users++;
    }
    return code;
}

static int rows_use(struct np_gpu_buffer *buffer, void *stream, struct np_err *err)
{
    const struct np_gpu *gpu = buffer->gpu;
    int device, code;

    if (np_rows_foreign(gpu))
        return np_err_set(err, -ECHILD, "this batch belongs to process %d", (int)gpu->pid);
    device = np_rows_enter(gpu);
    pthread_mutex_lock(&buffer->lock);
    code = remember(buffer, stream, err);
    /* Also for a known handle: another stream may have it now. */
    if (!code)
        code = np_rows_error(gpu, cudaStreamWaitEvent(stream, buffer->ready, 0),
            "to make a stream of the program wait", err);
    pthread_mutex_unlock(&buffer->lock);
    np_rows_leave(gpu, device);
    return code;
}

/* An event that cannot be recorded (a stream of another GPU) is replaced by a wait. */
static void rows_release(struct np_gpu_buffer *buffer)
{
    struct np_gpu *gpu = buffer->gpu;
    int device;

    /* A buffer that was taken and not filled has events of its last use, which still count: the
     * streams may be gone. */
    if (!buffer->used || np_rows_foreign(gpu))
        return;
    buffer->used = false;
    device = np_rows_enter(gpu);
    for (int i = 0; i < buffer->nr_users; i++) {
        const struct np_rows_user *user = &buffer->users[i];
        cudaError_t status = cudaEventRecord(user->done, stream_of(user));

        if (status != cudaSuccess && status != cudaErrorCudartUnloading) {
            cudaGetLastError();
            status = cudaStreamSynchronize(stream_of(user));
        }
        if (status != cudaSuccess && status != cudaErrorCudartUnloading) {
            cudaGetLastError();
            atomic_store(&gpu->fault, (int)status);
        }
    }
    np_rows_leave(gpu, device);
}

const struct np_gpu_buffer_ops np_rows_buffers = {
    .new = rows_new,
    .images = rows_images,
    .fill = rows_fill,
    .use = rows_use,
    .release = rows_release,
};
