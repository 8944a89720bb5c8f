/* Gives the times of GPU events in np_now_ns() time. Trainer thread. */
#ifndef NP_CLOCK_CUDA_H
#define NP_CLOCK_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* An event's time is the time elapsed since an anchor, an event on a stream of its own whose host
 * time is known. Anchors are renewed each second without waiting. */
struct np_cuda_clock {
    cudaStream_t stream;
    cudaEvent_t anchors[2];
    uint64_t anchor_ns[2];
    int current;
    bool renewing; /* the other anchor is recorded and has not passed yet */
};

/* Waits for the first anchor. Returns a cudaError_t. */
int np_cuda_clock_start(struct np_cuda_clock *clock);
void np_cuda_clock_stop(struct np_cuda_clock *clock);
/* event: has passed. */
uint64_t np_cuda_clock_passed_ns(struct np_cuda_clock *clock, cudaEvent_t event);

#endif
