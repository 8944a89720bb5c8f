/* Starts a kernel from a .cu file. nvcc: on a stream. Compiled as plain C++ with tests/emu/grid.h
 * the same files run on the CPU, each thread of a block as a fiber, so that tests compare every
 * kernel with the reference without a GPU. Those files contain no launch syntax.
 *
 *     NP_LAUNCH(kernel, blocks, threads, shared_bytes, stream, arguments...)
 *     NP_SHARED(float, sums, [WARPS][2]);    shared memory of a block, in a kernel or what it calls
 */
#ifndef NP_LAUNCH_H
#define NP_LAUNCH_H

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define NP_LAUNCH(kernel, blocks, threads, shared, stream, ...)                                    \
    kernel<<<(blocks), (threads), (shared), (cudaStream_t)(stream)>>>(__VA_ARGS__)
#define NP_SHARED(type, name, dims) __shared__ type name dims
#define NP_PRAGMA(words)            _Pragma(#words)
#define NP_UNROLL(times)            NP_PRAGMA(unroll times) /* the next loop */
#else
#define NP_UNROLL(times)
#include "tests/emu/grid.h" /* __global__, threadIdx ..., NP_LAUNCH, NP_SHARED */
#endif

#endif
