/* Muon's matrices on the GPU (muon.h has the formulas): one after the other, in memory for the
 * largest. Products are cuBLASLt's, in f32 whatever the network's precision is; with tf32 it may round
 * their factors to TF32's 10 bits, as those of linear layers in f32. The norm is summed in double, in a
 * fixed order; all else is f32. A matrix has the layout of the device, whose columns are in another
 * order than those of the files: that changes the order of sums only. Trainer thread. */
#ifndef NP_MUON_CUDA_H
#define NP_MUON_CUDA_H

#include "trainer/cuda/calls_cuda.h"

struct np_cuda_muon;
/* cuda, layout: borrowed while it lives. */
int np_cuda_muon_new(const struct np_cuda *cuda, const struct np_cuda_layout *layout, bool tf32,
    struct np_cuda_muon **ret_muon, struct np_err *err);
void np_cuda_muon_free(struct np_cuda_muon *muon);
uint64_t np_cuda_muon_bytes(const struct np_cuda_muon *muon);
/* memory: np_cuda_muon_bytes() of the device, at a multiple of 256 bytes. */
int np_cuda_muon_bind(struct np_cuda_muon *muon, void *memory, struct np_err *err);
/* After np_cuda_norm(): queues the update of all matrices but those that are always frozen. The same
 * calls each time, so that it can be captured. arrays: step and scaler; update: as np_cuda_update(). */
int np_cuda_muon_queue(struct np_cuda_muon *muon, cudaStream_t stream,
    const struct np_cuda_arrays *arrays, const struct np_cuda_optimizer *update, int iterations,
    struct np_err *err);

#endif
