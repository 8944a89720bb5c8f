/* The plugin of libnnpipe: loader/rows_gpu.h over the CUDA runtime. One stream carries copies and
 * kernels, one batch after the other:
 *
 *     copy to the staging memory, event `copied`, wait for the buffer's last users, format into the
 *     buffer, event `ready`
 *
 * so the host's memory is free again although the buffer may still be in use. The program shares the
 * GPU's primary context with us, whichever copy of the runtime it is linked with, so its streams are
 * handles for us, too. It may have another current device: `enter` and `leave` change it for the
 * time of a call.
 *
 * When a process exits, the runtime refuses calls (cudaErrorCudartUnloading): the GPU's memory is
 * then gone anyway, and nothing is done. The same holds for a child of fork(). */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "build_id.h"
#include "loader/base/mem.h"
#include "loader/rows_gpu.h"
#include "trainer/cuda/gpu_cuda.h"
#include "trainer/cuda/rows/format_cuda.h"

#define NR_COPIES 16 /* more than the caller has pinned batches */

const struct np_rows_plugin *np_plugin_rows(void);

struct pinned {
    void *memory;
    struct pinned *next;
};

struct np_gpu {
    pid_t pid; /* set once */
    struct np_gpu_config config;
    cudaStream_t stream;
    uint32_t *words;   /* device, (channels, 256) */
    uint8_t *staging;  /* device, u8 (rows, height, width, channels); NULL: rows need no format */
    _Atomic int fault; /* a cudaError_t of release() */

    /* the calling thread of fill(), one at a time */
    cudaEvent_t copies[NR_COPIES];
    uint64_t nr_copies;
    struct pinned *pinned;
    struct np_gpu_buffer *buffers;
};

struct np_gpu_buffer {
    struct np_gpu *gpu;
    struct np_gpu_buffer *next;
    void *images; /* device */
    cudaEvent_t ready;
    pthread_mutex_t lock; /* over users, while the buffer has owners */
    struct user {
        cudaStream_t stream;
        cudaEvent_t done; /* recorded by release() */
    } * users;
    int nr_users; /* since the last fill() */
    int nr_events;
    size_t users_room;
};

/* --- the current device ------------------------------------------------------------------------- */

/* The calling thread's device, to be given to leave(). */
static int enter(const struct np_gpu *gpu)
{
    int device = gpu->config.ordinal;

    if (cudaGetDevice(&device) != cudaSuccess)
        cudaGetLastError();
    if (device != gpu->config.ordinal)
        cudaSetDevice(gpu->config.ordinal);
    return device;
}

static void leave(const struct np_gpu *gpu, int device)
{
    if (device != gpu->config.ordinal && cudaSetDevice(device) != cudaSuccess)
        cudaGetLastError();
}

static bool is_foreign(const struct np_gpu *gpu)
{
    return getpid() != gpu->pid;
}

static int check(const struct np_gpu *gpu, cudaError_t status, const char *what, struct np_err *err)
{
    int code = np_cuda_check(NULL, status, what, err);

    if (code < 0)
        np_err_context(err, "cuda:%d", gpu->config.ordinal);
    return code;
}

/* --- opening ------------------------------------------------------------------------------------ */

static int rows_check(int ordinal, struct np_err *err)
{
    struct cudaDeviceProp props;
    int n = 0, code = np_cuda_count(&n, err);

    if (code < 0)
        np_err_context(err, "cuda:%d", ordinal);
    else
        code = np_cuda_usable(ordinal, n, &props, err);
    return code;
}

static size_t pixels_bytes(const struct np_batch_shape *shape)
{
    return (size_t)shape->rows * (size_t)shape->height * (size_t)shape->width *
           (size_t)shape->channels;
}

static bool needs_format(const struct np_batch_shape *shape)
{
    return shape->format.type != NP_ROW_U8 || shape->format.planar;
}

static int make_parts(struct np_gpu *gpu, struct np_err *err)
{
    const struct np_gpu_config *config = &gpu->config;
    const size_t words_bytes = (size_t)config->shape.channels * sizeof(*config->words);
    int code =
        check(gpu, cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking), "a stream", err);

    for (int i = 0; !code && i < NR_COPIES; i++)
        code = check(gpu, cudaEventCreateWithFlags(&gpu->copies[i], cudaEventDisableTiming),
            "an event", err);
    if (code || !needs_format(&config->shape))
        return code;
    code = check(gpu, cudaMalloc((void **)&gpu->words, words_bytes), "device memory", err);
    if (!code)
        code = check(gpu,
            cudaMemcpyAsync(
                gpu->words, config->words, words_bytes, cudaMemcpyHostToDevice, gpu->stream),
            "a copy to the GPU", err);
    if (!code)
        code = check(gpu, cudaMalloc((void **)&gpu->staging, pixels_bytes(&config->shape)),
            "device memory for a batch of pixels", err);
    return code;
}

/* Until no work that is queued uses a buffer or pinned memory. */
static void wait_for_all(const struct np_gpu *gpu)
{
    for (const struct np_gpu_buffer *buffer = gpu->buffers; buffer; buffer = buffer->next)
        for (int i = 0; i < buffer->nr_users; i++)
            cudaStreamWaitEvent(gpu->stream, buffer->users[i].done, 0);
    cudaStreamSynchronize(gpu->stream);
}

static void free_buffer(struct np_gpu_buffer *buffer)
{
    if (!is_foreign(buffer->gpu)) {
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

static void free_device(struct np_gpu *gpu)
{
    for (const struct pinned *pinned = gpu->pinned; pinned; pinned = pinned->next)
        cudaHostUnregister(pinned->memory);
    for (int i = 0; i < NR_COPIES; i++)
        if (gpu->copies[i])
            cudaEventDestroy(gpu->copies[i]);
    cudaFree(gpu->words);
    cudaFree(gpu->staging);
    if (gpu->stream)
        cudaStreamDestroy(gpu->stream);
    cudaGetLastError();
}

static void rows_close(struct np_gpu *gpu)
{
    const bool foreign = is_foreign(gpu);
    const int device = foreign ? -1 : enter(gpu);

    if (!foreign && gpu->stream)
        wait_for_all(gpu);
    for (struct np_gpu_buffer *buffer = gpu->buffers, *next; buffer; buffer = next) {
        next = buffer->next;
        free_buffer(buffer);
    }
    if (!foreign) {
        free_device(gpu);
        leave(gpu, device);
    }
    for (struct pinned *pinned = gpu->pinned, *next; pinned; pinned = next) {
        next = pinned->next;
        np_free(pinned);
    }
    np_free(gpu);
}

static int rows_open(
    const struct np_gpu_config *config, struct np_gpu **ret_gpu, struct np_err *err)
{
    struct np_gpu *gpu = np_try_alloc(sizeof(*gpu), err);
    int device, code;

    if (!gpu)
        return -ENOMEM;
    gpu->pid = getpid();
    gpu->config = *config;
    device = enter(gpu);
    code = make_parts(gpu, err);
    leave(gpu, device);
    if (code)
        rows_close(gpu);
    else
        *ret_gpu = gpu;
    return code;
}

/* --- pinned memory ------------------------------------------------------------------------------ */

static int cannot_pin(
    const struct np_gpu *gpu, size_t bytes, cudaError_t status, struct np_err *err)
{
    struct rlimit limit = {0};
    char max[64] = "no limit";

    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        snprintf(max, sizeof(max), "%llu KiB", (unsigned long long)limit.rlim_cur >> 10);
    cudaGetLastError();
    return np_err_set(err, -ENOMEM,
        "cuda:%d: CUDA cannot pin %zu MiB: %s: %s; the limit of locked memory is %s (ulimit -l; a "
        "container: --ulimit memlock=-1); a smaller loader.batch or loader.prefetch needs less",
        gpu->config.ordinal, bytes >> 20, cudaGetErrorName(status), cudaGetErrorString(status),
        max);
}

static int rows_pin(struct np_gpu *gpu, void *memory, size_t bytes, struct np_err *err)
{
    struct pinned *pinned = np_try_alloc(sizeof(*pinned), err);
    cudaError_t status;
    int device;

    if (!pinned)
        return -ENOMEM;
    device = enter(gpu);
    status = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
    leave(gpu, device);
    if (status != cudaSuccess) {
        np_free(pinned);
        return cannot_pin(gpu, bytes, status, err);
    }
    *pinned = (struct pinned){memory, gpu->pinned};
    gpu->pinned = pinned;
    return 0;
}

static int rows_copied(struct np_gpu *gpu, uint64_t copy, struct np_err *err)
{
    const cudaError_t status = cudaEventQuery(gpu->copies[copy % NR_COPIES]);

    if (status == cudaErrorNotReady) {
        cudaGetLastError(); /* a runtime may keep it */
        return 0;
    }
    return status == cudaSuccess ? 1 : check(gpu, status, "a copy to the GPU", err);
}

/* --- buffers ------------------------------------------------------------------------------------ */

static int rows_new(struct np_gpu *gpu, struct np_gpu_buffer **ret_buffer, struct np_err *err)
{
    const size_t bytes = (size_t)gpu->config.shape.rows * np_batch_row_bytes(&gpu->config.shape);
    struct np_gpu_buffer *buffer = np_try_alloc(sizeof(*buffer), err);
    const int device = enter(gpu);
    int code = -ENOMEM;

    if (buffer) {
        buffer->gpu = gpu;
        pthread_mutex_init(&buffer->lock, NULL);
        code = check(gpu, cudaMalloc(&buffer->images, bytes), "device memory for a batch", err);
    }
    if (!code)
        code = check(
            gpu, cudaEventCreateWithFlags(&buffer->ready, cudaEventDisableTiming), "an event", err);
    if (code && buffer) {
        free_buffer(buffer);
    } else if (buffer) {
        buffer->next = gpu->buffers;
        *ret_buffer = gpu->buffers = buffer;
    }
    leave(gpu, device);
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
        code = check(gpu, cudaStreamWaitEvent(gpu->stream, buffer->users[i].done, 0),
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
    return check(gpu, cudaGetLastError(), "a kernel that formats rows", err);
}

/* Bad rows that were not replaced are 0 in any format. */
static int blank_rows(
    struct np_gpu_buffer *buffer, const struct np_row *about, int rows, struct np_err *err)
{
    const size_t row_bytes = np_batch_row_bytes(&buffer->gpu->config.shape);
    int code = 0;

    for (int r = 0; !code && r < rows; r++)
        if (about[r].sample == UINT64_MAX)
            code = check(buffer->gpu,
                cudaMemsetAsync((char *)buffer->images + (size_t)r * row_bytes, 0, row_bytes,
                    buffer->gpu->stream),
                "to blank a row", err);
    return code;
}

static int queue_copy(
    struct np_gpu *gpu, void *to, const uint8_t *from, int rows, struct np_err *err)
{
    const size_t row_bytes = pixels_bytes(&gpu->config.shape) / (size_t)gpu->config.shape.rows;
    int code = check(gpu,
        cudaMemcpyAsync(to, from, (size_t)rows * row_bytes, cudaMemcpyHostToDevice, gpu->stream),
        "a copy to the GPU", err);

    if (!code)
        code = check(gpu, cudaEventRecord(gpu->copies[gpu->nr_copies % NR_COPIES], gpu->stream),
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
        code = check(gpu, cudaEventRecord(buffer->ready, gpu->stream), "to record an event", err);
    return code;
}

static int rows_fill(struct np_gpu_buffer *buffer, const struct np_batch_memory *from, int rows,
    uint64_t *ret_copy, struct np_err *err)
{
    struct np_gpu *gpu = buffer->gpu;
    const cudaError_t fault = (cudaError_t)atomic_load(&gpu->fault);
    int device, code;

    if (fault != cudaSuccess)
        return check(gpu, fault, "a stream of the program, when a batch was released", err);
    device = enter(gpu);
    code = queue_all(buffer, from, rows, err);
    leave(gpu, device);
    if (!code)
        *ret_copy = gpu->nr_copies++;
    return code;
}

/* --- the program's streams ---------------------------------------------------------------------- */

/* Under the lock. */
static int remember(struct np_gpu_buffer *buffer, cudaStream_t stream, struct np_err *err)
{
    const int n = buffer->nr_users;
    int code = 0;

    for (int i = 0; i < n; i++)
        if (buffer->users[i].stream == stream)
            return 0;
    if (n == buffer->nr_events) {
        if (np_try_grow(&buffer->users, &buffer->users_room, (size_t)n + 1, sizeof(*buffer->users),
                err) < 0)
            return -ENOMEM;
        code = check(buffer->gpu,
            cudaEventCreateWithFlags(&buffer->users[n].done, cudaEventDisableTiming), "an event",
            err);
        if (!code)
            buffer->nr_events++;
    }
    if (!code)
        buffer->users[buffer->nr_users++].stream = stream;
    return code;
}

static int rows_use(struct np_gpu_buffer *buffer, void *stream, struct np_err *err)
{
    const struct np_gpu *gpu = buffer->gpu;
    int device, code;

    if (is_foreign(gpu))
        return np_err_set(err, -ECHILD, "this batch belongs to process %d", (int)gpu->pid);
    device = enter(gpu);
    pthread_mutex_lock(&buffer->lock);
    code = remember(buffer, stream, err);
    /* Also for a known handle: another stream may have it now. */
    if (!code)
        code = check(gpu, cudaStreamWaitEvent(stream, buffer->ready, 0),
            "to make a stream of the program wait", err);
    pthread_mutex_unlock(&buffer->lock);
    leave(gpu, device);
    return code;
}

/* An event that cannot be recorded (a stream of another GPU) is replaced by a wait. */
static void rows_release(struct np_gpu_buffer *buffer)
{
    struct np_gpu *gpu = buffer->gpu;
    int device;

    if (buffer->nr_users == 0 || is_foreign(gpu))
        return;
    device = enter(gpu);
    for (int i = 0; i < buffer->nr_users; i++) {
        const struct user *user = &buffer->users[i];
        cudaError_t status = cudaEventRecord(user->done, user->stream);

        if (status != cudaSuccess && status != cudaErrorCudartUnloading) {
            cudaGetLastError();
            status = cudaStreamSynchronize(user->stream);
        }
        if (status != cudaSuccess && status != cudaErrorCudartUnloading) {
            cudaGetLastError();
            atomic_store(&gpu->fault, (int)status);
        }
    }
    leave(gpu, device);
}

/* --- the plugin --------------------------------------------------------------------------------- */

static const struct np_gpu_ops gpu_ops = {
    .check = rows_check,
    .open = rows_open,
    .close = rows_close,
    .pin = rows_pin,
    .copied = rows_copied,
};
static const struct np_gpu_buffer_ops buffer_ops = {
    .new = rows_new,
    .images = rows_images,
    .fill = rows_fill,
    .use = rows_use,
    .release = rows_release,
};
static const struct np_rows_plugin plugin = {
    .contract = NP_CONTRACT,
    .build = NP_COMMIT,
    .gpu = &gpu_ops,
    .buffers = &buffer_ops,
};

const struct np_rows_plugin *np_plugin_rows(void)
{
    return &plugin;
}
