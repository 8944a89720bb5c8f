/* Kernels with mistakes for device.c, on the emulated grid alone. */
#include "trainer/cuda/launch.h"

#define THREADS 64

/* One from each thread of a block, added up by way of shared memory: out (blocks). The thread `idle`
 * leaves its part unwritten; -1: none does. */
static __global__ void add_ones(int idle, float *out)
{
    NP_SHARED(float, parts, [THREADS]);
    float sum = 0;

    if ((int)threadIdx.x != idle)
        parts[threadIdx.x] = 1;
    __syncthreads();
    for (int i = 0; i < THREADS; i++)
        sum += parts[i];
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

extern "C" void planted_add_ones(void *stream, int blocks, int idle, float *out)
{
    NP_LAUNCH(add_ones, blocks, THREADS, 0, stream, idle, out);
}
