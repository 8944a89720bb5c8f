/* A plan's arrays for a checkpoint while later steps run: copied on the device behind what is queued, and from there,
 * on a stream of their own, into pinned memory. Without memory for the first copy the compute stream makes the second
 * one itself; without pinned memory there are none. Trainer thread. */
#ifndef NP_SNAPSHOT_CUDA_H
#define NP_SNAPSHOT_CUDA_H

#include "trainer/cuda/kernels_cuda.h"
#include "trainer/cuda/device_cuda.h"

struct np_cuda_snapshot {
    unsigned arrays; /* 1 << NP_ARRAY_* of each; 0: no snapshots */
    uint64_t at[NP_ARRAY_GRADS], bytes;
    char *host;   /* (bytes) pinned: the scaler, then the arrays; NULL: no snapshots */
    char *device; /* (bytes); NULL: copies go straight to the host */
    cudaStream_t stream;
    cudaEvent_t taken, done;
};

/* When the plan has its other memory; `arrays` are those of np_plan_options.snapshot. Too little memory is no error. */
int np_cuda_snapshot_take(struct np_plan *plan, unsigned arrays, struct np_err *err);
/* No queued work uses the snapshot when this returns. */
void np_cuda_snapshot_free(struct np_cuda_snapshot *snapshot);

/* Of np_cuda_plan_ops. */
int np_cuda_plan_snap(struct np_plan *plan, struct np_err *err);
int np_cuda_plan_snapped(struct np_plan *plan, bool wait, char **ret_state, struct np_err *err);
void np_cuda_plan_snapshot(const struct np_plan *plan, int array, float *out);

#endif
