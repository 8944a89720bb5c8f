/* A batch in lanes on a GPU (trainer/lanes.h): a lane is a batch of the plan. The lanes' gradients and
 * buffers are summed on the device, in the tree of lanes.h: those of this process as they come, then
 * with the other processes' GPUs, in buckets. A bucket is a part of the gradients' array; its sum is
 * queued on a stream of its own as soon as the last lane's backward pass has no more use for it, beside
 * the rest of that pass. Trainer thread. */
#ifndef NP_SUMS_CUDA_H
#define NP_SUMS_CUDA_H

#include "trainer/cuda/nccl_cuda.h"
#include "trainer/cuda/program_cuda.h"

struct np_plan;
struct np_cuda_sums;

/* Joins the processes of options->comm; before the programs are made. */
int np_cuda_sums_new(struct np_plan *plan, const struct np_plan_options *options,
    struct np_cuda_sums **ret_sums, struct np_err *err);
/* After that: finds the buckets, and takes the memory, before the batch takes the rest. */
int np_cuda_sums_take(struct np_cuda_sums *sums, struct np_err *err);
/* Leaves the other processes; before it, graphs of the last lane must have been destroyed. */
void np_cuda_sums_part(struct np_cuda_sums *sums);
/* After that; NULL works. */
void np_cuda_sums_free(struct np_cuda_sums *sums);

/* Lanes of a batch: in all processes, the first one of this process, and how many it has. */
int np_cuda_sums_lanes(const struct np_cuda_sums *sums);
int np_cuda_sums_first(const struct np_cuda_sums *sums);
int np_cuda_sums_own(const struct np_cuda_sums *sums);

/* All of these queue. Before lane `lane` (0 ...) of this process: it begins with the buffers that the
 * step began with. */
int np_cuda_sums_begin(struct np_cuda_sums *sums, int lane, struct np_err *err);
/* After it, but for the last one: adds its gradients and buffers to the tree. */
int np_cuda_sums_add(struct np_cuda_sums *sums, int lane, struct np_err *err);
/* Around the last lane's calls: the buckets go out between them, and the end waits for all. Can be
 * captured. Then the gradients are those of all lanes, and the buffers their mean. */
int np_cuda_sums_queue_last(
    struct np_cuda_sums *sums, struct np_cuda_program *program, struct np_err *err);
/* All processes must capture, or none: true if any says so. */
int np_cuda_sums_any(struct np_cuda_sums *sums, bool *says, struct np_err *err);
/* 0, or why what is computed is worth nothing: another process has died. sums may be NULL. */
int np_cuda_sums_check(const struct np_cuda_sums *sums, struct np_err *err);
/* What rank 0 chose (a text, np_free) becomes that of all: before a plan that has no choice yet. */
int np_cuda_sums_share(struct np_comm *comm, char **text, struct np_err *err);

#endif
