/* A kernel case's node as the CUDA device runs it, with its own kernels, on a grid that the CPU
 * emulates. */
#ifndef NP_KERNEL_CASE_CUDA_H
#define NP_KERNEL_CASE_CUDA_H

#include "tests/kernel/kernel_case.h"

/* The node's launches on the tested operands, as a program would queue them. dtype: of activations. */
void kernel_case_run_cuda(struct kernel_case *the_case, enum np_dtype dtype);

#endif
