/* The plugin of libnnpipe: loader/rows_gpu.h over the CUDA runtime. One stream carries copies and
 * kernels, one batch after the other:
 *
 *     copy to the staging memory, event `copied`, wait for the buffer's last users, format into the
 *     buffer, event `ready`
 *
 * so the host's memory is free again although the buffer may still be in use. This file has the GPU,
 * its pinned memory and the table; buffers_cuda.c the rest. */
#include "trainer/cuda/rows/rows_cuda.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "build_id.h"
#include "trainer/cuda/gpu_cuda.h"

const struct np_rows_plugin *np_plugin_rows(void);

/* --- the current device ------------------------------------------------------------------------- */

int np_rows_enter(const struct np_gpu *gpu)
{
    int device = gpu->config.ordinal;

    if (cudaGetDevice(&device) != cudaSuccess)
        cudaGetLastError();
    if (device != gpu->config.ordinal)
        cudaSetDevice(gpu->config.ordinal);
    return device;
}

void np_rows_leave(const struct np_gpu *gpu, int device)
{
    if (device != gpu->config.ordinal && cudaSetDevice(device) != cudaSuccess)
        cudaGetLastError();
}

bool np_rows_foreign(const struct np_gpu *gpu)
{
    return getpid() != gpu->pid;
}

int np_rows_error(
    const struct np_gpu *gpu, cudaError_t status, const char *what, struct np_err *err)
{
    int code = np_cuda_check(NULL, status, what, err);

    if (code < 0)
        np_err_context(err, "cuda:%d", gpu->config.ordinal);
    return code;
}

size_t np_rows_pixel_bytes(const struct np_batch_shape *shape)
{
    return (size_t)shape->rows * (size_t)shape->height * (size_t)shape->width *
           (size_t)shape->channels;
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

static bool needs_format(const struct np_batch_shape *shape)
{
    return shape->format.type != NP_ROW_U8 || shape->format.planar;
}

static int make_parts(struct np_gpu *gpu, struct np_err *err)
{
    const struct np_gpu_config *config = &gpu->config;
    const size_t words_bytes = (size_t)config->shape.channels * sizeof(*config->words);
    int code = np_rows_error(
        gpu, cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking), "a stream", err);

    for (int i = 0; !code && i < NP_ROWS_COPIES; i++)
        code = np_rows_error(gpu, cudaEventCreateWithFlags(&gpu->copies[i], cudaEventDisableTiming),
            "an event", err);
    if (code || !needs_format(&config->shape))
        return code;
    code = np_rows_error(gpu, cudaMalloc((void **)&gpu->words, words_bytes), "device memory", err);
    if (!code)
        code = np_rows_error(gpu,
            cudaMemcpyAsync(
                gpu->words, config->words, words_bytes, cudaMemcpyHostToDevice, gpu->stream),
            "a copy to the GPU", err);
    if (!code)
        code = np_rows_error(gpu,
            cudaMalloc((void **)&gpu->staging, np_rows_pixel_bytes(&config->shape)),
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

static void unpin(struct np_gpu *gpu)
{
    for (struct np_pinned *pinned = gpu->pinned, *next; pinned; pinned = next) {
        next = pinned->next;
        if (!np_rows_foreign(gpu))
            cudaHostUnregister(pinned->memory);
        np_free(pinned);
    }
}

static void free_device(struct np_gpu *gpu)
{
    for (int i = 0; i < NP_ROWS_COPIES; i++)
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
    const bool foreign = np_rows_foreign(gpu);
    const int device = foreign ? -1 : np_rows_enter(gpu);

    if (!foreign && gpu->stream)
        wait_for_all(gpu);
    unpin(gpu);
    for (struct np_gpu_buffer *buffer = gpu->buffers, *next; buffer; buffer = next) {
        next = buffer->next;
        np_rows_free_buffer(buffer);
    }
    if (!foreign) {
        free_device(gpu);
        np_rows_leave(gpu, device);
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
    device = np_rows_enter(gpu);
    code = make_parts(gpu, err);
    np_rows_leave(gpu, device);
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
    struct np_pinned *pinned = np_try_alloc(sizeof(*pinned), err);
    cudaError_t status;
    int device;

    if (!pinned)
        return -ENOMEM;
    device = np_rows_enter(gpu);
    status = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
    np_rows_leave(gpu, device);
    if (status != cudaSuccess) {
        np_free(pinned);
        return cannot_pin(gpu, bytes, status, err);
    }
    *pinned = (struct np_pinned){memory, gpu->pinned};
    gpu->pinned = pinned;
    return 0;
}

static int rows_copied(struct np_gpu *gpu, uint64_t copy, struct np_err *err)
{
    const cudaError_t status = cudaEventQuery(gpu->copies[copy % NP_ROWS_COPIES]);

    if (status == cudaErrorNotReady) {
        cudaGetLastError(); /* a runtime may keep it */
        return 0;
    }
    return status == cudaSuccess ? 1 : np_rows_error(gpu, status, "a copy to the GPU", err);
}

/* --- the plugin --------------------------------------------------------------------------------- */

static const struct np_gpu_ops gpu_ops = {
    .check = rows_check,
    .open = rows_open,
    .close = rows_close,
    .pin = rows_pin,
    .copied = rows_copied,
};
static const struct np_rows_plugin plugin = {
    .contract = NP_CONTRACT,
    .build = NP_COMMIT,
    .gpu = &gpu_ops,
    .buffers = &np_rows_buffers,
};

const struct np_rows_plugin *np_plugin_rows(void)
{
    return &plugin;
}
