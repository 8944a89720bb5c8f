/* Captures calls on a stream as a CUDA graph, which can be launched many times. Trainer thread. */
#ifndef NP_CAPTURE_CUDA_H
#define NP_CAPTURE_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "loader/base/err.h"

/* False when NNPIPE_CUDA_GRAPH is 0: nothing may be captured. */
bool np_cuda_graphs(void);
/* Captures the calls that queue(context) makes on the stream, without running them. Each library
 * must have run the same calls once before. Caller destroys *ret_exec. Error: a call cannot be
 * captured, or there is no memory for the graph; the stream is unchanged, and CUDA's last error
 * is cleared, so that the same calls can be queued without a graph. */
int np_cuda_capture(cudaStream_t stream, int (*queue)(void *context, struct np_err *err),
    void *context, cudaGraphExec_t *ret_exec, struct np_err *err);

#endif
