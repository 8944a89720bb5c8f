/* Internals of the CUDA device, shared by the plugin's files: np_device.state points to it. */
#ifndef NP_DEVICE_CUDA_H
#define NP_DEVICE_CUDA_H

#include "trainer/cuda/clock_cuda.h"
#include "trainer/cuda/gpu_cuda.h"
#include "trainer/cuda/libs.h"
#include "trainer/cuda/pinned_cuda.h"
#include "trainer/device.h"

struct np_cuda {
    const struct np_device *device; /* whose state this is */
    struct np_cuda_libs libs;
    int ordinal;
    struct cudaDeviceProp props;
    cudaStream_t streams[NP_NR_STREAMS];
    cudnnHandle_t cudnn; /* on the compute stream */
    cublasLtHandle_t cublaslt;
    struct np_dnn_target target; /* of cudnn */
    struct np_cuda_clock clock;
    cudaEvent_t *events; /* the pool: all events of record(), destroyed by close() */
    int nr_events;
    size_t events_room;
    struct np_cuda_pinned pinned;
    bool warm;  /* its clocks have been raised once: see tune_cuda.c */
    int failed; /* of a call that returns no error; done() returns it */
};

extern const struct np_device_ops np_cuda_ops;    /* device_cuda.c */
extern const struct np_plan_ops np_cuda_plan_ops; /* plan_cuda.c */
/* False when NNPIPE_CUDA_GRAPH is 0: nothing may be captured. */
bool np_cuda_graphs(void);
/* Captures the calls that queue(context) makes on the stream, without running them. Each library
 * must have run the same calls once before. Caller destroys *ret_exec. Error: a call cannot be
 * captured, or there is no memory for the graph; the stream is unchanged, and CUDA's last error
 * is cleared, so that the same calls can be queued without a graph. */
int np_cuda_capture(cudaStream_t stream, int (*queue)(void *context, struct np_err *err),
    void *context, cudaGraphExec_t *ret_exec, struct np_err *err);

/* doctor_cuda.c; as np_plugin.doctor. */
int np_cuda_doctor(int ordinal, np_found_fn found, void *context, struct np_err *err);

#endif
