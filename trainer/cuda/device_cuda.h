/* Internals of the CUDA device, shared by the plugin's files: np_device.state points to it. */
#ifndef NP_DEVICE_CUDA_H
#define NP_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "trainer/cuda/libs.h"
#include "trainer/device.h"

struct np_cuda_block { /* pinned memory, as it was mapped */
    void *memory;
    size_t bytes;
};
/* Gives the times of the device's events in np_now_ns() time: the time elapsed since an anchor,
 * an event on its own stream whose time is known. Anchors are renewed each second without
 * waiting. */
struct np_cuda_clock {
    cudaStream_t stream;
    cudaEvent_t anchors[2];
    uint64_t anchor_ns[2];
    int current;
    bool renewing; /* the other anchor is recorded and has not passed yet */
};
struct np_cuda {
    const struct np_device *device; /* whose state this is */
    struct np_cuda_libs libs;
    int ordinal;
    struct cudaDeviceProp props;
    cudaStream_t streams[NP_NR_STREAMS];
    cudnnHandle_t cudnn; /* on the compute stream */
    cublasLtHandle_t cublaslt;
    struct np_dnn_target target; /* of cudnn */

    int node; /* the GPU's NUMA node; -1: none, or not known */
    struct np_cuda_clock clock;
    cudaEvent_t *events; /* the pool: all events of record(), destroyed by close() */
    int nr_events;
    size_t events_room;
    struct np_cuda_block *blocks; /* of the pinned allocator */
    int nr_blocks;
    size_t blocks_room;
    bool warm;  /* its clocks have been raised once: see tune_cuda.c */
    int failed; /* of a call that returns no error; done() returns it */
};

extern const struct np_device_ops np_cuda_ops;    /* device_cuda.c */
extern const struct np_plan_ops np_cuda_plan_ops; /* plan_cuda.c */
/* status -> err: "cuda:0: WHAT: cudaErrorName: its text"; 0 for cudaSuccess, -ENOMEM for lack of
 * memory, else -EIO. device may be NULL. */
int np_cuda_check(
    const struct np_device *device, cudaError_t status, const char *what, struct np_err *err);

/* Captures of calls on a stream as a CUDA graph, which can be launched many times. */
/* False when NNPIPE_CUDA_GRAPH is 0: nothing may be captured. */
bool np_cuda_graphs(void);
/* Captures the calls that queue(context) makes on the stream, without running them. Each library
 * must have run the same calls once before. Caller destroys *ret_exec. Error: a call cannot be
 * captured, or there is no memory for the graph; the stream is unchanged, and CUDA's last error
 * is cleared, so that the same calls can be queued without a graph. */
int np_cuda_capture(cudaStream_t stream, int (*queue)(void *context, struct np_err *err),
    void *context, cudaGraphExec_t *ret_exec, struct np_err *err);

/* clock_cuda.c. start: waits for the first anchor. passed: of an event that has passed. */
int np_cuda_clock_start(struct np_cuda_clock *clock);
void np_cuda_clock_stop(struct np_cuda_clock *clock);
uint64_t np_cuda_clock_passed_ns(struct np_cuda_clock *clock, cudaEvent_t event);

/* pinned_cuda.c: huge pages on the GPU's node, each registered once. context: the device. Errors
 * are in device->fault. */
void *np_cuda_pinned_alloc(void *context, size_t bytes);
void np_cuda_pinned_free(void *context, void *memory, size_t bytes);
void np_cuda_pinned_fini(struct np_cuda *cuda);

/* gpu_cuda.c: finds GPUs without opening them. -ENODEV: no driver, too old a driver, no GPU; the
 * message says which, and what to install. */
int np_cuda_count(int *ret_n, struct np_err *err);
/* Checks that GPU `ordinal` of n can be used. -ENODEV: it cannot, and why; *ret_props is filled
 * if the GPU exists. */
int np_cuda_usable(int ordinal, int n, struct cudaDeviceProp *ret_props, struct np_err *err);
/* Reads a file of /sys/bus/pci/devices/: numa_node, max_link_width ...; false: it does not
 * exist. */
bool np_cuda_pci_file(int ordinal, const char *name, char *text, size_t text_bytes);
int np_cuda_node(int ordinal);
/* "580.65.06", or "" if the kernel does not report it. */
void np_cuda_driver_text(char *text, size_t text_bytes);

/* doctor_cuda.c; as np_plugin.doctor. */
int np_cuda_doctor(int ordinal, np_found_fn found, void *context, struct np_err *err);

#endif
