/* Finds and loads NVIDIA's libraries at run time, so that the plugin loads on any machine and
 * can report what is missing. The CUDA runtime is linked statically and looks for the driver at
 * its first call. Trainer thread, at start. */
#ifndef NP_CUDA_LIBS_H
#define NP_CUDA_LIBS_H

#include <cublasLt.h>

#include "trainer/cuda/dnn.h"
#include "trainer/cuda/nccl_api.h"

struct np_cublaslt {
    size_t (*version)(void);
    const char *(*error_string)(cublasStatus_t status);
    cublasStatus_t (*create)(cublasLtHandle_t *handle);
    cublasStatus_t (*destroy)(cublasLtHandle_t handle);
    cublasStatus_t (*matmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
        const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
        cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
        cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
        const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
        cudaStream_t stream);
    cublasStatus_t (*new_matmul)(
        cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale);
    cublasStatus_t (*free_matmul)(cublasLtMatmulDesc_t desc);
    cublasStatus_t (*set_matmul)(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
        const void *value, size_t bytes);
    cublasStatus_t (*new_layout)(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows,
        uint64_t columns, int64_t leading);
    cublasStatus_t (*free_layout)(cublasLtMatrixLayout_t layout);
    cublasStatus_t (*new_preference)(cublasLtMatmulPreference_t *preference);
    cublasStatus_t (*free_preference)(cublasLtMatmulPreference_t preference);
    cublasStatus_t (*set_preference)(cublasLtMatmulPreference_t preference,
        cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t bytes);
    cublasStatus_t (*heuristic)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
        cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int max,
        cublasLtMatmulHeuristicResult_t *ret_results, int *ret_n);
};

struct np_cuda_library { /* as found */
    void *handle;        /* of dlopen(); NULL: not found */
    char path[512];
    char version[32];
};
struct np_cuda_libs {
    struct np_cudnn cudnn;
    struct np_cublaslt cublaslt;
    struct np_nccl nccl;
    struct np_cuda_library cudnn_library, cublaslt_library, nvrtc_library, nccl_library;
    struct np_err no_nccl; /* why nccl_library has no handle */
};

/* Looks, in this order, at NNPIPE_CUDA_LIBS (folders, ':' between them; with
 * NNPIPE_CUDA_LIBS_ONLY=1 nowhere else), the loader's own path, the toolkit (CUDA_HOME,
 * /usr/local/cuda*), and pip's nvidia/<name>/lib below the site-packages of the active environment,
 * of each python3 in PATH, and of the usual places. -ENOENT, -EPROTO: cuDNN or cuBLASLt is missing,
 * or of another major version; the message gives the name, the places, and what to install. A
 * missing NVRTC is not an error: engines that compile at run time are not used then
 * (rules.runtime), which costs speed. Nor is a missing NCCL: one process needs none. Call np_cuda_libs_close() after an error too: the libraries
 * found are open. */
int np_cuda_libs_open(struct np_cuda_libs *libs, struct np_err *err);
void np_cuda_libs_close(struct np_cuda_libs *libs);

#endif
