/* The CUDA device's inside, shared by the plugin's files: what np_device.state points at. */
#ifndef NP_DEVICE_CUDA_H
#define NP_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "trainer/cuda/libs.h"
#include "trainer/device.h"

struct np_cuda {
    struct np_cuda_libs libs;
    int ordinal;
    struct cudaDeviceProp props;
    cudaStream_t streams[NP_NR_STREAMS];
    cudnnHandle_t cudnn; /* on the compute stream */
    cublasLtHandle_t cublaslt;
    struct np_dnn_target target; /* of cudnn */
};

extern const struct np_device_ops np_cuda_ops;    /* device_cuda.c */
extern const struct np_plan_ops np_cuda_plan_ops; /* plan_cuda.c */
/* status -> err: "cuda:0: WHAT: cudaErrorName: its text"; 0 for cudaSuccess, -ENOMEM for lack of
 * memory, else -EIO. device may be NULL. */
int np_cuda_check(
    const struct np_device *device, cudaError_t status, const char *what, struct np_err *err);

#endif
