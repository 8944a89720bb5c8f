/* cuBLASLt counts columns first: a row-major (rows, columns) is its (columns, rows). So y = x w^T
 * is its D = A B with A = w transposed, B = x. */
#include "trainer/cuda/linear_cuda.h"

#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"

enum { X, W, Y }; /* (tokens of all rows, in), (out, in), (tokens, out); or their gradients */

struct product {
    int a, b, bias, d; /* operands of the node; bias -1: none */
    cublasOperation_t op_a, op_b;
    int matrices[3];      /* A, B, D: X, W or Y */
    uint64_t sizes[3][2]; /* of X, W, Y: columns of the row-major matrix, its rows */
};

struct np_cuda_linear {
    const struct np_cublaslt *lt;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layouts[3]; /* A, B, D */
    cublasLtMatmulAlgo_t algo;
    struct product product;
    void *pointers[4], *workspace;
};

static struct product product_of(const struct np_graph *graph, const struct np_op_node *node)
{
    const bool forward = node->op == NP_OP_LINEAR, wgrad = node->op == NP_OP_LINEAR_WGRAD;
    const int *w = graph->tensors[wgrad ? node->outs[0] : node->ins[1]].dims;
    const int *x = graph->tensors[node->ins[0]].dims;
    const uint64_t rows = (uint64_t)x[0] * (uint64_t)x[1] * (uint64_t)x[2];
    const uint64_t in = (uint64_t)w[1], out = (uint64_t)w[0];
    struct product product = {.a = 1, /* w */
        .b = 0,
        .bias = -1,
        .d = 2,
        .op_a = CUBLAS_OP_N,
        .op_b = CUBLAS_OP_N,
        .matrices = {W, Y, X},
        .sizes = {[X] = {in, rows}, [W] = {in, out}, [Y] = {out, rows}}};

    if (forward) {
        product.bias = node->nr_ins > 2 ? 2 : -1;
        product.d = node->nr_ins;
        product.op_a = CUBLAS_OP_T;
        memcpy(product.matrices, (const int[]){W, X, Y}, sizeof(product.matrices));
    } else if (wgrad) {
        product.a = 0; /* x */
        product.b = 1;
        product.op_b = CUBLAS_OP_T;
        memcpy(product.matrices, (const int[]){X, Y, W}, sizeof(product.matrices));
    }
    return product;
}

static cudaDataType_t type_of(enum np_dtype dtype)
{
    return dtype == NP_BF16 ? CUDA_R_16BF : dtype == NP_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static int refuse(const struct np_cuda_linear *linear, cublasStatus_t status, const char *what,
    const char *name, struct np_err *err)
{
    return np_err_set(err, status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -ENOTSUP,
        "%s: cuBLASLt %s: %s", name, what, linear->lt->error_string(status));
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

static cublasStatus_t describe(
    struct np_cuda_linear *linear, cudaDataType_t type, bool relu, bool tf32)
{
    /* cuBLASLt chooses an algorithm by the pointer's alignment; np_cuda_linear_bind() sets the real one. */
    const uintptr_t any_bias = 512;
    const struct product *product = &linear->product;
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
    if (status == CUBLAS_STATUS_SUCCESS && product->bias >= 0)
        status = lt->set_matmul(
            linear->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &any_bias, sizeof(any_bias));
    for (int i = 0; i < 3 && status == CUBLAS_STATUS_SUCCESS; i++) {
        const int matrix = product->matrices[i];
        const uint64_t *size = product->sizes[matrix];

        status = lt->new_layout(&linear->layouts[i], i == 2 && matrix == W ? CUDA_R_32F : type,
            size[0], size[1], (int64_t)size[0]);
    }
    return status;
}

struct manner {
    cudaDataType_t type; /* of the factors */
    bool relu, tf32;
    const char *name; /* for errors */
};

/* Makes linear ready to bind, or frees it. */
static int finish(struct np_cuda_linear *linear, const struct manner *manner,
    struct np_cuda_linear **ret_linear, struct np_err *err)
{
    cublasStatus_t status = describe(linear, manner->type, manner->relu, manner->tf32);
    int n = 0, code = 0;

    if (status == CUBLAS_STATUS_SUCCESS)
        status = choose(linear, &n);
    if (status != CUBLAS_STATUS_SUCCESS)
        code = refuse(linear, status, "rejects the product", manner->name, err);
    else if (n == 0)
        code =
            np_err_set(err, -ENOTSUP, "%s: cuBLASLt has no algorithm for its shapes", manner->name);
    if (code < 0)
        np_cuda_linear_free(linear);
    else
        *ret_linear = linear;
    return code;
}

static struct np_cuda_linear *begin(
    const struct np_cublaslt *lt, cublasLtHandle_t handle, const struct product *product)
{
    struct np_cuda_linear *linear = np_alloc(sizeof(*linear));

    linear->lt = lt;
    linear->handle = handle;
    linear->product = *product;
    return linear;
}

int np_cuda_linear_new(const struct np_cublaslt *lt, cublasLtHandle_t handle,
    const struct np_graph *graph, const struct np_op_node *node, bool tf32,
    struct np_cuda_linear **ret_linear, struct np_err *err)
{
    const struct product product = product_of(graph, node);
    const struct manner manner = {.type = type_of(graph->tensors[node->ins[0]].dtype),
        .relu = node->op == NP_OP_LINEAR && node->attrs.relu,
        .tf32 = tf32,
        .name = node->name};

    return finish(begin(lt, handle, &product), &manner, ret_linear, err);
}

int np_cuda_product_new(const struct np_cublaslt *lt, cublasLtHandle_t handle,
    const struct np_cuda_factor factors[2], bool tf32, const char *name,
    struct np_cuda_linear **ret_product, struct np_err *err)
{
    const struct np_cuda_factor *x = &factors[0], *w = &factors[1];
    const struct product product = {.a = 1, /* w */
        .b = 0,
        .bias = -1,
        .d = 2,
        .op_a = w->transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
        .op_b = x->transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
        .matrices = {W, X, Y},
        .sizes = {[X] = {x->cols, x->rows},
            [W] = {w->cols, w->rows},
            [Y] = {w->transposed ? w->rows : w->cols, x->transposed ? x->cols : x->rows}}};
    const struct manner manner = {.type = CUDA_R_32F, .tf32 = tf32, .name = name};

    return finish(begin(lt, handle, &product), &manner, ret_product, err);
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
    const int bias = linear->product.bias;

    memcpy(linear->pointers, operands, sizeof(linear->pointers));
    linear->workspace = workspace;
    if (bias >= 0 && linear->lt->set_matmul(linear->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                         &operands[bias], sizeof(void *)) != CUBLAS_STATUS_SUCCESS)
        return np_err_set(err, -ENOTSUP, "cuBLASLt rejects a bias");
    return 0;
}

int np_cuda_linear_run(struct np_cuda_linear *linear, cudaStream_t stream, struct np_err *err)
{
    const float one = 1, zero = 0;
    const struct product *product = &linear->product;
    void *const *p = linear->pointers;
    cublasStatus_t status = linear->lt->matmul(linear->handle, linear->desc, &one, p[product->a],
        linear->layouts[0], p[product->b], linear->layouts[1], &zero, p[product->d],
        linear->layouts[2], p[product->d], linear->layouts[2], &linear->algo, linear->workspace,
        NP_LINEAR_WORKSPACE, stream);

    return status == CUBLAS_STATUS_SUCCESS
               ? 0
               : np_err_set(err, -EIO, "cuBLASLt cannot run: %s", linear->lt->error_string(status));
}
