/* A linear layer on the GPU, forward or backward, by cuBLASLt: one matrix product, bias and relu in
 * its epilogue; and products of f32 matrices that belong to no layer. Trainer thread. */
#ifndef NP_LINEAR_CUDA_H
#define NP_LINEAR_CUDA_H

#include "trainer/cuda/libs.h"

#define NP_LINEAR_WORKSPACE (32u << 20) /* bytes: NVIDIA's advice for Hopper */

struct np_cuda_linear;
/* node: LINEAR, LINEAR_DGRAD or LINEAR_WGRAD (dbias is not made here). tf32: f32 products may round
 * their inputs. Weight gradients are f32 whatever the inputs are. */
int np_cuda_linear_new(const struct np_cublaslt *lt, cublasLtHandle_t handle,
    const struct np_graph *graph, const struct np_op_node *node, bool tf32,
    struct np_cuda_linear **ret_linear, struct np_err *err);
/* Of a product: (rows, cols) as it lies in memory, row by row. */
struct np_cuda_factor {
    uint64_t rows, cols;
    bool transposed; /* its transpose is multiplied */
};
/* y = factor 0 times factor 1, in f32; its operands are factor 0, factor 1, y. name: for errors. */
int np_cuda_product_new(const struct np_cublaslt *lt, cublasLtHandle_t handle,
    const struct np_cuda_factor factors[2], bool tf32, const char *name,
    struct np_cuda_linear **ret_product, struct np_err *err);
void np_cuda_linear_free(struct np_cuda_linear *linear);
/* Operands in the node's order, ins then out 0 (LINEAR without a bias: x, weight, y). workspace:
 * NP_LINEAR_WORKSPACE bytes. */
int np_cuda_linear_bind(
    struct np_cuda_linear *linear, void *const operands[4], void *workspace, struct np_err *err);
int np_cuda_linear_run(struct np_cuda_linear *linear, cudaStream_t stream, struct np_err *err);

#endif
