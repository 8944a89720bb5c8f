/* The CUDA device: opening, memory, two streams, events, captures. Copies have their own stream, so
 * that the next batch is copied during this one's step; only events order the streams, and only
 * done() with wait blocks. Trainer thread. */
#include "trainer/cuda/device_cuda.h"

#include <errno.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/clock.h"
#include "trainer/cuda/kernels_cuda.h"

/* Keeps the error of a call that cannot return it, for done() and in device->fault. */
static int keep_fault(struct np_device *device, cudaError_t status, const char *what)
{
    struct np_cuda *cuda = device->state;
    struct np_err err = {0};

    if (status == cudaSuccess)
        return 0;
    np_cuda_check(NULL, status, what, &err);
    snprintf(device->fault, sizeof(device->fault), "%s", err.text);
    if (cuda->failed == 0)
        cuda->failed = err.code;
    return err.code;
}

/* --- opening ------------------------------------------------------------------------------- */

static int take_gpu(struct np_device *device, struct np_err *err)
{
    struct np_cuda *cuda = device->state;
    cudaError_t status;
    int n = 0, code = np_cuda_count(&n, err);

    if (code < 0)
        np_err_context(err, "%s", device->name);
    else
        code = np_cuda_usable(cuda->ordinal, n, &cuda->props, err);
    if (code < 0)
        return code;
    status = cudaSetDevice(cuda->ordinal);
    if (status == cudaErrorDevicesUnavailable) {
        cudaGetLastError();
        return np_err_set(err, -EBUSY,
            "%s: another process uses this GPU exclusively (compute mode): wait for it, or "
            "`nvidia-smi -i %d -c 0`",
            device->name, cuda->ordinal);
    }
    if (status == cudaSuccess && cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess)
        cudaGetLastError(); /* without the flag, waits spin and use a core */
    return np_cuda_check(device, status, "to take the GPU", err);
}

static int make_streams(struct np_device *device, struct np_err *err)
{
    struct np_cuda *cuda = device->state;
    int code = 0;

    for (int i = 0; i < NP_NR_STREAMS && code == 0; i++)
        code = np_cuda_check(device,
            cudaStreamCreateWithFlags(&cuda->streams[i], cudaStreamNonBlocking), "a stream", err);
    if (code == 0)
        code = np_cuda_check(
            device, (cudaError_t)np_cuda_clock_start(&cuda->clock), "the clock's events", err);
    return code;
}

static int make_handles(struct np_device *device, struct np_err *err)
{
    struct np_cuda *cuda = device->state;
    const struct np_cudnn *cudnn = &cuda->libs.cudnn;
    const struct np_cublaslt *cublaslt = &cuda->libs.cublaslt;
    cudnnStatus_t status = cudnn->create(&cuda->cudnn);

    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->set_stream(cuda->cudnn, cuda->streams[NP_STREAM_COMPUTE]);
    if (status != CUDNN_STATUS_SUCCESS)
        return np_err_set(err, -EIO, "%s: cuDNN %s at %s does not start: %s", device->name,
            cuda->libs.cudnn_library.version, cuda->libs.cudnn_library.path,
            cudnn->error_string(status));
    cublasStatus_t answer = cublaslt->create(&cuda->cublaslt);
    if (answer != CUBLAS_STATUS_SUCCESS)
        return np_err_set(err, -EIO, "%s: cuBLASLt %s at %s does not start: %s", device->name,
            cuda->libs.cublaslt_library.version, cuda->libs.cublaslt_library.path,
            cublaslt->error_string(answer));
    cuda->target = (struct np_dnn_target){.cudnn = cudnn, .handle = cuda->cudnn};
    return 0;
}

static void cuda_close(struct np_device *device)
{
    struct np_cuda *cuda = device->state;

    for (int i = 0; i < NP_NR_STREAMS; i++)
        if (cuda->streams[i])
            cudaStreamSynchronize(cuda->streams[i]);
    if (cuda->cublaslt)
        cuda->libs.cublaslt.destroy(cuda->cublaslt);
    if (cuda->cudnn)
        cuda->libs.cudnn.destroy(cuda->cudnn);
    for (int i = 0; i < cuda->nr_events; i++)
        cudaEventDestroy(cuda->events[i]);
    np_free(cuda->events);
    np_cuda_clock_stop(&cuda->clock);
    np_cuda_pinned_fini(&cuda->pinned);
    for (int i = 0; i < NP_NR_STREAMS; i++)
        if (cuda->streams[i])
            cudaStreamDestroy(cuda->streams[i]);
    np_cuda_libs_close(&cuda->libs);
    np_free(cuda);
    device->state = NULL;
}

static int cuda_open(
    struct np_device *device, const struct np_device_options *options, struct np_err *err)
{
    struct np_cuda *cuda = np_alloc(sizeof(*cuda));
    int code;

    device->state = cuda;
    cuda->device = device;
    cuda->ordinal = options ? options->ordinal : 0;
    code = take_gpu(device, err);
    if (code == 0 && (code = np_cuda_libs_open(&cuda->libs, err)) < 0)
        np_err_context(err, "%s", device->name);
    if (code == 0)
        code = make_streams(device, err);
    if (code == 0)
        code = make_handles(device, err);
    if (code < 0) {
        cuda_close(device);
        return code;
    }
    cuda->pinned = (struct np_cuda_pinned){.device = device, .node = np_cuda_node(cuda->ordinal)};
    device->pinned =
        (struct np_allocator){np_cuda_pinned_alloc, np_cuda_pinned_free, &cuda->pinned};
    device->node = cuda->pinned.node;
    device->auto_precision = NP_BF16;
    return 0;
}

/* --- memory and copies --------------------------------------------------------------------- */

static void *cuda_alloc(struct np_device *device, size_t bytes)
{
    void *memory = NULL;
    cudaError_t status = cudaMalloc(&memory, bytes ? bytes : 1);
    struct np_err err = {0};

    if (status == cudaSuccess)
        return memory;
    np_cuda_check(NULL, status, "device memory", &err);
    snprintf(device->fault, sizeof(device->fault), "%s", err.text);
    return NULL;
}

static void cuda_free(struct np_device *device, void *memory)
{
    if (memory)
        cudaFree(memory);
}

static int cuda_upload(struct np_device *device, void *dst, const void *src, size_t bytes)
{
    struct np_cuda *cuda = device->state;

    nvtxRangePushA("upload");
    cudaError_t status =
        cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, cuda->streams[NP_STREAM_COPY]);
    nvtxRangePop();
    return keep_fault(device, status, "a copy to the GPU");
}

static uint64_t cuda_room(struct np_device *device)
{
    size_t room = 0, all = 0;

    keep_fault(device, cudaMemGetInfo(&room, &all), "to ask for free memory");
    return room;
}

static int cuda_make_rows(struct np_device *device, const struct np_residents *residents)
{
    struct np_cuda *cuda = device->state;
    const struct np_batch_shape *shape = &residents->shape;

    nvtxRangePushA("rows");
    np_cuda_make_rows(cuda->streams[NP_STREAM_COPY], residents->rows, shape->rows, shape->height,
        shape->width, shape->channels, residents->arena, residents->images);
    nvtxRangePop();
    return keep_fault(device, cudaPeekAtLastError(), "a kernel that makes rows");
}

/* --- events -------------------------------------------------------------------------------- */

/* An event with a time; waits for it sleep. */
static cudaError_t new_event(struct np_cuda *cuda, cudaEvent_t *ret_event)
{
    np_grow(&cuda->events, &cuda->events_room, (size_t)cuda->nr_events + 1, sizeof(*cuda->events));
    cudaError_t status = cudaEventCreateWithFlags(ret_event, cudaEventBlockingSync);
    if (status == cudaSuccess)
        cuda->events[cuda->nr_events++] = *ret_event;
    return status;
}

static void cuda_record(struct np_device *device, enum np_which stream, struct np_event *event)
{
    struct np_cuda *cuda = device->state;
    cudaEvent_t own = event->state;
    cudaError_t status = cudaSuccess;

    if (!own && (status = new_event(cuda, &own)) == cudaSuccess)
        event->state = own;
    if (status == cudaSuccess)
        status = cudaEventRecord(own, cuda->streams[stream]);
    keep_fault(device, status, "to record an event");
}

static void cuda_follow(
    struct np_device *device, enum np_which stream, const struct np_event *event)
{
    struct np_cuda *cuda = device->state;

    if (event->state)
        keep_fault(device, cudaStreamWaitEvent(cuda->streams[stream], event->state, 0),
            "to follow an event");
}

static int cuda_done(struct np_device *device, struct np_event *event, bool wait)
{
    struct np_cuda *cuda = device->state;
    cudaError_t status;

    if (cuda->failed < 0)
        return cuda->failed;
    if (!event->state) { /* never recorded */
        event->passed_ns = np_now_ns();
        return 1;
    }
    status = cudaEventQuery(event->state);
    if (status == cudaErrorNotReady) { /* which the runtime may keep as the last error */
        cudaError_t kept = cudaGetLastError();

        if (kept != cudaSuccess && kept != cudaErrorNotReady)
            return keep_fault(device, kept, "a launch");
        if (!wait)
            return 0;
        status = cudaEventSynchronize(event->state);
    }
    if (status != cudaSuccess)
        return keep_fault(device, status, "the GPU");
    event->passed_ns = np_cuda_clock_passed_ns(&cuda->clock, event->state);
    return 1;
}

/* --- captures ------------------------------------------------------------------------------ */

bool np_cuda_graphs(void)
{
    const char *graph = getenv("NNPIPE_CUDA_GRAPH");

    return !graph || strcmp(graph, "0") != 0;
}

int np_cuda_capture(cudaStream_t stream, int (*queue)(void *context, struct np_err *err),
    void *context, cudaGraphExec_t *ret_exec, struct np_err *err)
{
    cudaGraph_t graph = NULL;
    int code = np_cuda_check(NULL, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
        "to capture a graph", err);

    if (code == 0) {
        code = queue(context, err);
        cudaError_t status = cudaStreamEndCapture(stream, &graph);
        if (code == 0)
            code = np_cuda_check(NULL, status, "to capture a graph", err);
    }
    if (code == 0)
        code =
            np_cuda_check(NULL, cudaGraphInstantiate(ret_exec, graph, 0), "to make a graph", err);
    if (graph)
        cudaGraphDestroy(graph);
    if (code < 0)
        cudaGetLastError();
    return code;
}

const struct np_device_ops np_cuda_ops = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .upload = cuda_upload,
    .room = cuda_room,
    .make_rows = cuda_make_rows,
    .record = cuda_record,
    .follow = cuda_follow,
    .done = cuda_done,
};
