/* See linear_cuda.h. cuBLASLt counts columns first: a row-major (rows, columns) is its
 * (columns, rows). So y = x w^T is its D = A B with A = w transposed, B = x. */
#include "trainer/cuda/linear_cuda.h"

#include <errno.h>

#include "loader/base/mem.h"

struct np_cuda_linear {
    const struct np_cublaslt *lt;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layouts[3]; /* A, B, D */
    cublasLtMatmulAlgo_t algo;
    int a, b, bias, d; /* operands; bias -1: none */
    void *pointers[4], *workspace;
};

/* One product: the layout of its three matrices, and which operands of the node they are. */
struct product {
    int a, b, bias, d;
    cublasOperation_t op_a, op_b;
    uint64_t sizes[3][2]; /* of A, B, D: columns of the row-major matrix, its rows */
    bool f32_out;
};

static struct product product_of(const struct np_graph *graph, const struct np_op_node *node)
{
    /* x (rows, in), w (out, in), y (rows, out) */
    const struct np_tensor *first = &graph->tensors[node->ins[0]];
    const struct np_tensor *second = &graph->tensors[node->ins[1]];
    uint64_t rows = (uint64_t)first->dims[0], in, out;

    if (node->op == NP_OP_LINEAR) {
        in = (uint64_t)second->dims[1], out = (uint64_t)second->dims[0];
        return (struct product){.a = 1,
            .b = 0,
            .bias = node->nr_ins > 2 ? 2 : -1,
            .d = node->nr_ins,
            .op_a = CUBLAS_OP_T,
            .op_b = CUBLAS_OP_N,
            .sizes = {{in, out}, {in, rows}, {out, rows}}};
    }
    if (node->op == NP_OP_LINEAR_DGRAD) { /* dy, w -> dx */
        in = (uint64_t)second->dims[1], out = (uint64_t)second->dims[0];
        return (struct product){.a = 1,
            .b = 0,
            .bias = -1,
            .d = 2,
            .op_a = CUBLAS_OP_N,
            .op_b = CUBLAS_OP_N,
            .sizes = {{in, out}, {out, rows}, {in, rows}}};
    }
    /* x, dy -> dw */
    in = (uint64_t)graph->tensors[node->outs[0]].dims[1];
    out = (uint64_t)graph->tensors[node->outs[0]].dims[0];
    return (struct product){.a = 0,
        .b = 1,
        .bias = -1,
        .d = 2,
        .op_a = CUBLAS_OP_N,
        .op_b = CUBLAS_OP_T,
        .sizes = {{in, rows}, {out, rows}, {in, out}},
        .f32_out = true};
}

static cudaDataType_t type_of(enum np_dtype dtype)
{
    return dtype == NP_BF16 ? CUDA_R_16BF : dtype == NP_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static int refuse(const struct np_cuda_linear *linear, cublasStatus_t status, const char *what,
    const struct np_op_node *node, struct np_err *err)
{
    return np_err_set(err, status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -ENOTSUP,
        "%s: cuBLASLt %s: %s", node->name, what, linear->lt->error_string(status));
}

/* Finds the fastest algorithm by cuBLASLt's own estimate, for pointers at multiples of 16 bytes. */
static cublasStatus_t choose(struct np_cuda_linear *linear, int *ret_n)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const struct np_cublaslt *lt = linear->lt;
    const uint64_t workspace = NP_LINEAR_WORKSPACE;
    const uint32_t alignment = 16;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t status = lt->new_preference(&preference);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->set_preference(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = lt->set_preference(preference, alignments[i], &alignment, sizeof(alignment));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->heuristic(linear->handle, linear->desc, linear->layouts[0], linear->layouts[1],
            linear->layouts[2], linear->layouts[2], preference, 1, &result, ret_n);
    if (status == CUBLAS_STATUS_SUCCESS && *ret_n > 0)
        linear->algo = result.algo;
    if (preference)
        lt->free_preference(preference);
    return status;
}

static cublasStatus_t describe(struct np_cuda_linear *linear, const struct product *product,
    cudaDataType_t type, bool relu, bool tf32)
{
    const struct np_cublaslt *lt = linear->lt;
    const cublasComputeType_t compute =
        type == CUDA_R_32F && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasLtEpilogue_t epilogue =
        product->bias >= 0 ? relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS
        : relu             ? CUBLASLT_EPILOGUE_RELU
                           : CUBLASLT_EPILOGUE_DEFAULT;
    cublasStatus_t status = lt->new_matmul(&linear->desc, compute, CUDA_R_32F);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->set_matmul(
            linear->desc, CUBLASLT_MATMUL_DESC_TRANSA, &product->op_a, sizeof(product->op_a));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->set_matmul(
            linear->desc, CUBLASLT_MATMUL_DESC_TRANSB, &product->op_b, sizeof(product->op_b));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->set_matmul(
            linear->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    for (int i = 0; i < 3 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = lt->new_layout(&linear->layouts[i], i == 2 && product->f32_out ? CUDA_R_32F : type,
            product->sizes[i][0], product->sizes[i][1], (int64_t)product->sizes[i][0]);
    return status;
}

int np_cuda_linear_new(const struct np_cublaslt *lt, cublasLtHandle_t handle,
    const struct np_graph *graph, const struct np_op_node *node, bool tf32,
    struct np_cuda_linear **ret_linear, struct np_err *err)
{
    struct np_cuda_linear *linear = np_alloc(sizeof(*linear));
    const struct product product = product_of(graph, node);
    cublasStatus_t status;
    int n = 0, code = 0;

    linear->lt = lt;
    linear->handle = handle;
    linear->a = product.a;
    linear->b = product.b;
    linear->bias = product.bias;
    linear->d = product.d;
    status = describe(linear, &product, type_of(graph->tensors[node->ins[0]].dtype),
        node->op == NP_OP_LINEAR && node->attrs.relu, tf32);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = choose(linear, &n);
    if (status != CUBLAS_STATUS_SUCCESS)
        code = refuse(linear, status, "rejects the product", node, err);
    else if (n == 0)
        code =
            np_err_set(err, -ENOTSUP, "%s: cuBLASLt has no algorithm for its shapes", node->name);
    if (code < 0)
        np_cuda_linear_free(linear);
    else
        *ret_linear = linear;
    return code;
}

void np_cuda_linear_free(struct np_cuda_linear *linear)
{
    if (!linear)
        return;
    for (int i = 0; i < 3; i++)
        if (linear->layouts[i])
            linear->lt->free_layout(linear->layouts[i]);
    if (linear->desc)
        linear->lt->free_matmul(linear->desc);
    np_free(linear);
}

int np_cuda_linear_bind(
    struct np_cuda_linear *linear, void *const operands[4], void *workspace, struct np_err *err)
{
    for (int i = 0; i < 4; i++)
        linear->pointers[i] = operands[i];
    linear->workspace = workspace;
    if (linear->bias >= 0 && linear->lt->set_matmul(linear->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                 &operands[linear->bias], sizeof(void *)) != CUBLAS_STATUS_SUCCESS)
        return np_err_set(err, -ENOTSUP, "cuBLASLt rejects a bias");
    return 0;
}

int np_cuda_linear_run(struct np_cuda_linear *linear, cudaStream_t stream, struct np_err *err)
{
    const float one = 1, zero = 0;
    void *const *p = linear->pointers;
    cublasStatus_t status =
        linear->lt->matmul(linear->handle, linear->desc, &one, p[linear->a], linear->layouts[0],
            p[linear->b], linear->layouts[1], &zero, p[linear->d], linear->layouts[2], p[linear->d],
            linear->layouts[2], &linear->algo, linear->workspace, NP_LINEAR_WORKSPACE, stream);

    return status == CUBLAS_STATUS_SUCCESS
               ? 0
               : np_err_set(err, -EIO, "cuBLASLt cannot run: %s", linear->lt->error_string(status));
}
