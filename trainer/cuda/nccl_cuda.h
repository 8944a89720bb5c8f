/* The GPUs of a run's processes, joined by NCCL. The trainer thread queues; a thread of the group's own
 * joins, watches and leaves, because NCCL blocks in each of these, and in a stream's wait, when
 * another process has died: it asks NCCL and np_comm_heard(), and aborts, so that what is queued ends.
 *
 * Whether an operation is captured must be the same in all processes (NCCL's guide, "Using NCCL with
 * CUDA Graphs"). */
#ifndef NP_NCCL_CUDA_H
#define NP_NCCL_CUDA_H

#include "trainer/comm.h"
#include "trainer/cuda/device_cuda.h"
#include "trainer/cuda/kernels_cuda.h"

struct np_cuda_group;

/* Joins the processes of comm (borrowed), each with the GPU of its device. Blocks until all have come.
 * -EINVAL: no NCCL, another version of it, or two of them have the same GPU. -ECONNRESET, -ETIMEDOUT: a
 * process did not come. */
int np_cuda_group_open(struct np_device *device, struct np_comm *comm,
    struct np_cuda_group **ret_group, struct np_err *err);
/* Leaves: every process calls it at the same point, or has died. Before it, destroy all graphs that
 * captured the group's operations: NCCL waits for them. Blocks for ten seconds at most. NULL works. */
void np_cuda_group_close(struct np_cuda_group *group);

/* Queues: from, (n), goes to the process with that rank, whose own comes into `to`; either may be NULL, for
 * one way only. n and type are the same at both ends. */
int np_cuda_group_swap(struct np_cuda_group *group, const void *from, void *to, uint64_t n,
    enum np_cuda_dtype type, int peer, cudaStream_t stream, struct np_err *err);
/* Queues: x, (n), becomes its sum over all processes, in an order of NCCL's. */
int np_cuda_group_sum(struct np_cuda_group *group, void *x, uint64_t n, enum np_cuda_dtype type,
    cudaStream_t stream, struct np_err *err);
/* After a wait for a stream: 0, or why the group was aborted. Then what was computed is worth nothing. */
int np_cuda_group_check(struct np_cuda_group *group, struct np_err *err);

#endif
