#include "trainer/cuda/snapshot_cuda.h"

#include <errno.h>
#include <string.h>

#include "trainer/cuda/plan_memory.h"

#define ALIGNED 256 /* bytes: places of arrays */
#define SHARE                                                                                      \
    4 /* of the free memory: arrays that the first steps allocate, and the feed, need the rest */

static uint64_t bytes_of(const struct np_plan *plan, int array)
{
    return (np_array_of_buffers(array) ? plan->nr_buffers : plan->layout->nr_params) *
           sizeof(float);
}

static void place_all(const struct np_plan *plan, struct np_cuda_snapshot *snapshot)
{
    snapshot->bytes = (sizeof(struct np_cuda_scaler) + ALIGNED - 1) / ALIGNED * ALIGNED;
    for (int i = 0; i < NP_ARRAY_GRADS; i++) {
        snapshot->at[i] = snapshot->bytes;
        if (snapshot->arrays >> i & 1)
            snapshot->bytes += (bytes_of(plan, i) + ALIGNED - 1) / ALIGNED * ALIGNED;
    }
}

/* Takes memory; NULL, and no error, if there is too little. */
static int take_memory(struct np_plan *plan, struct np_cuda_snapshot *snapshot, struct np_err *err)
{
    size_t free_bytes = 0, all = 0;
    cudaError_t status = cudaHostAlloc((void **)&snapshot->host, snapshot->bytes, 0);

    if (status == cudaSuccess)
        status = cudaMemGetInfo(&free_bytes, &all);
    if (status == cudaSuccess && snapshot->bytes <= free_bytes / SHARE)
        status = cudaMalloc((void **)&snapshot->device, snapshot->bytes);
    if (status != cudaErrorMemoryAllocation)
        return np_cuda_plan_check(plan, status, "memory for snapshots", err);
    cudaGetLastError();
    return 0;
}

int np_cuda_snapshot_take(struct np_plan *plan, unsigned arrays, struct np_err *err)
{
    struct np_cuda_snapshot *snapshot = &plan->snapshot;
    int code;

    if (!arrays)
        return 0;
    snapshot->arrays = arrays;
    place_all(plan, snapshot);
    if ((code = take_memory(plan, snapshot, err)) < 0 || !snapshot->host)
        return code;
    cudaError_t status = cudaStreamCreateWithFlags(&snapshot->stream, cudaStreamNonBlocking);
    if (status == cudaSuccess)
        status = cudaEventCreateWithFlags(&snapshot->taken, cudaEventDisableTiming);
    if (status == cudaSuccess)
        status = cudaEventCreateWithFlags(
            &snapshot->done, cudaEventDisableTiming | cudaEventBlockingSync);
    return np_cuda_plan_check(plan, status, "a stream for snapshots", err);
}

void np_cuda_snapshot_free(struct np_cuda_snapshot *snapshot)
{
    if (snapshot->stream) {
        cudaStreamSynchronize(snapshot->stream);
        cudaStreamDestroy(snapshot->stream);
    }
    if (snapshot->taken)
        cudaEventDestroy(snapshot->taken);
    if (snapshot->done)
        cudaEventDestroy(snapshot->done);
    if (snapshot->device)
        cudaFree(snapshot->device);
    if (snapshot->host)
        cudaFreeHost(snapshot->host);
    *snapshot = (struct np_cuda_snapshot){0};
}

/* --- snapshots ------------------------------------------------------------------------------- */

static int queue_copy(
    struct np_plan *plan, uint64_t at, const void *from, uint64_t bytes, struct np_err *err)
{
    const struct np_cuda_snapshot *snapshot = &plan->snapshot;
    char *to = (snapshot->device ? snapshot->device : snapshot->host) + at;

    return np_cuda_plan_check(plan,
        cudaMemcpyAsync(to, from, bytes,
            snapshot->device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost,
            np_cuda_stream(plan)),
        "a snapshot", err);
}

/* The copies to the host, behind those on the device. */
static cudaError_t send(const struct np_cuda_snapshot *snapshot, cudaStream_t compute)
{
    cudaError_t status = cudaSuccess;

    if (!snapshot->device)
        return cudaEventRecord(snapshot->done, compute);
    status = cudaEventRecord(snapshot->taken, compute);
    if (status == cudaSuccess)
        status = cudaStreamWaitEvent(snapshot->stream, snapshot->taken, 0);
    if (status == cudaSuccess)
        status = cudaMemcpyAsync(snapshot->host, snapshot->device, snapshot->bytes,
            cudaMemcpyDeviceToHost, snapshot->stream);
    return status == cudaSuccess ? cudaEventRecord(snapshot->done, snapshot->stream) : status;
}

int np_cuda_plan_snap(struct np_plan *plan, struct np_err *err)
{
    const struct np_cuda_snapshot *snapshot = &plan->snapshot;
    int code;

    if (!snapshot->host)
        return np_err_set(err, -EAGAIN, "%s: no memory for snapshots", plan->device->name);
    code = queue_copy(plan, 0, plan->arrays.scaler, sizeof(*plan->arrays.scaler), err);
    for (int i = 0; code == 0 && i < NP_ARRAY_GRADS; i++) {
        float *array;

        if (snapshot->arrays >> i & 1 && (code = np_cuda_array(plan, i, &array, err)) == 0)
            code = queue_copy(plan, snapshot->at[i], array, bytes_of(plan, i), err);
    }
    return code == 0
               ? np_cuda_plan_check(plan, send(snapshot, np_cuda_stream(plan)), "a snapshot", err)
               : code;
}

int np_cuda_plan_snapped(struct np_plan *plan, bool wait, char **ret_state, struct np_err *err)
{
    const struct np_cuda_snapshot *snapshot = &plan->snapshot;
    struct np_cuda_scaler scaler;
    cudaError_t status = cudaEventQuery(snapshot->done);

    if (status == cudaErrorNotReady) { /* which the runtime may keep as the last error */
        const cudaError_t kept = cudaGetLastError();

        if (kept != cudaSuccess && kept != cudaErrorNotReady)
            return np_cuda_plan_check(plan, kept, "a launch", err);
        if (!wait)
            return 0;
        status = cudaEventSynchronize(snapshot->done);
    }
    const int code = np_cuda_plan_check(plan, status, "a snapshot", err);
    if (code < 0)
        return code;
    memcpy(&scaler, snapshot->host, sizeof(scaler));
    *ret_state = np_cuda_state_text(plan, &scaler);
    return 1;
}

void np_cuda_plan_snapshot(const struct np_plan *plan, int array, float *out)
{
    const struct np_cuda_snapshot *snapshot = &plan->snapshot;
    const float *host = (const float *)(const void *)(snapshot->host + snapshot->at[array]);

    if (np_array_of_buffers(array))
        memcpy(out, host, bytes_of(plan, array));
    else
        np_cuda_layout_unpack(plan->layout, host, out);
}
