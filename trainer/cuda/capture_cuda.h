/* What is queued on a stream as a CUDA graph: captured, to be launched as often as wanted. Trainer
 * thread. */
#ifndef NP_CAPTURE_CUDA_H
#define NP_CAPTURE_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "loader/base/err.h"

/* May anything be captured? Not where NNPIPE_CUDA_GRAPH is 0. */
bool np_cuda_graphs(void);
/* Captures what queue(context) queues on the stream; nothing of it runs. Each library must have run
 * once before what it queues here. Caller destroys *ret_exec. Error: something cannot be captured,
 * or there is no memory for the graph; the stream is as it was, and CUDA's last error is cleared,
 * so that the same may be queued without a graph. */
int np_cuda_capture(cudaStream_t stream, int (*queue)(void *context, struct np_err *err),
    void *context, cudaGraphExec_t *ret_exec, struct np_err *err);

#endif
