/* See capture_cuda.h. */
#include "trainer/cuda/capture_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/device_cuda.h"

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
