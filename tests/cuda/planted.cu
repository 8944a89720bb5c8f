/* Kernels for device.c, on the emulated grid alone. They compile in a second; the plugin's elementwise kernels take a
 * quarter of a minute with the sanitizers. */
#include "trainer/cuda/kernels_cuda.h"
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

static __global__ void zero(float *x, int n)
{
    if ((int)threadIdx.x < n)
        x[threadIdx.x] = 0;
}

/* n: at most THREADS */
extern "C" void planted_zero(void *stream, float *x, int n)
{
    NP_LAUNCH(zero, 1, THREADS, 0, stream, x, n);
}

static __global__ void set_step(np_cuda_step *step, np_cuda_step value)
{
    *step = value;
}

extern "C" void planted_set_step(void *stream, np_cuda_step *step, const np_cuda_step *value)
{
    NP_LAUNCH(set_step, 1, 1, 0, stream, step, *value);
}
