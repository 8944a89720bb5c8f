/* cuBLASLt on the CPU, for tests: the emulated libcublasLt.so.13. Products D = op(A) op(B) of dense
 * column-major matrices, with bias and relu behind them; sums in f32. All else is refused. */
#include <cublasLt.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tests/emu/cudart.h"
#include "tests/emu/fake_numbers.h"
#include "tests/emu/traffic.h"

#define WORKSPACE_BYTES 2048 /* the one algorithm writes over this much of it */

struct layout {
    cudaDataType_t type;
    int64_t rows, columns;
};
struct product {
    cublasComputeType_t compute;
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    bool loaded; /* it has run */
};
struct job {
    struct product product;
    struct layout a, b, d;
    const void *from_a, *from_b;
    void *to, *workspace;
};

static const struct product *product_of(cublasLtMatmulDesc_t desc)
{
    return (const struct product *)desc;
}

static const struct layout *layout_of(cublasLtMatrixLayout_t layout)
{
    return (const struct layout *)layout;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS         ? "success"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
           : status == CUBLAS_STATUS_ALLOC_FAILED  ? "no memory"
                                                   : "an error of the emulated library";
}

/* Something new of this size, unless the call is to fail. */
static cublasStatus_t make(size_t bytes, void **ret_made, const char *call)
{
    if (np_emu_fails(call))
        return CUBLAS_STATUS_ALLOC_FAILED;
    *ret_made = calloc(1, bytes);
    return *ret_made ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t drop(const void *made)
{
    free((void *)(uintptr_t)made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *ret_handle)
{
    return make(1, (void **)ret_handle, __func__);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return drop(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(
    cublasLtMatmulDesc_t *ret_desc, cublasComputeType_t compute, cudaDataType_t scale)
{
    cublasStatus_t status = make(sizeof(struct product), (void **)ret_desc, __func__);

    if (status == CUBLAS_STATUS_SUCCESS && scale != CUDA_R_32F)
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS)
        *(struct product *)*ret_desc = (struct product){.compute = compute,
            .a = CUBLAS_OP_N,
            .b = CUBLAS_OP_N,
            .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return status;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return drop(desc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes)
{
    struct product *product = (struct product *)desc;
    void *to;
    size_t room;

    if (np_emu_fails(__func__))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    switch ((int)name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: to = &product->a, room = sizeof(product->a); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: to = &product->b, room = sizeof(product->b); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        to = &product->epilogue, room = sizeof(product->epilogue);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: to = &product->bias, room = sizeof(void *); break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (bytes != room)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *ret_layout, cudaDataType_t type,
    uint64_t rows, uint64_t columns, int64_t leading)
{
    cublasStatus_t status = make(sizeof(struct layout), (void **)ret_layout, __func__);

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    *(struct layout *)*ret_layout = (struct layout){type, (int64_t)rows, (int64_t)columns};
    return leading == (int64_t)rows &&
                   (type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return drop(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *ret_preference)
{
    return make(1, (void **)ret_preference, __func__);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return drop(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t bytes)
{
    (void)preference, (void)name, (void)value, (void)bytes;
    return np_emu_fails(__func__) ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

/* Rows and columns of op(A). */
static int64_t rows_of(const struct layout *m, cublasOperation_t op)
{
    return op == CUBLAS_OP_N ? m->rows : m->columns;
}

static int64_t columns_of(const struct layout *m, cublasOperation_t op)
{
    return op == CUBLAS_OP_N ? m->columns : m->rows;
}

static bool fits(
    const struct product *p, const struct layout *a, const struct layout *b, const struct layout *d)
{
    return a->type == b->type && rows_of(a, p->a) == d->rows && columns_of(b, p->b) == d->columns &&
           columns_of(a, p->a) == rows_of(b, p->b) &&
           (d->type == a->type || d->type == CUDA_R_32F) &&
           (p->compute == CUBLAS_COMPUTE_32F || p->compute == CUBLAS_COMPUTE_32F_FAST_TF32) &&
           (p->epilogue == CUBLASLT_EPILOGUE_DEFAULT || p->epilogue == CUBLASLT_EPILOGUE_RELU ||
               p->epilogue == CUBLASLT_EPILOGUE_BIAS || p->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,
    cublasLtMatmulHeuristicResult_t *ret_results, int *ret_n)
{
    (void)handle, (void)preference, (void)c;
    *ret_n = 0;
    if (np_emu_fails(__func__))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (most < 1 || !fits(product_of(desc), layout_of(a), layout_of(b), layout_of(d)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* The algorithm depends on the bias's alignment: the pointer is wanted before. */
    if (product_of(desc)->epilogue & CUBLASLT_EPILOGUE_BIAS &&
        (!product_of(desc)->bias || (uintptr_t)product_of(desc)->bias % 16 != 0))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(ret_results, 0, sizeof(*ret_results));
    ret_results->workspaceSize = WORKSPACE_BYTES;
    *ret_n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static enum number number_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? F32 : type == CUDA_R_16F ? F16 : BF16;
}

static void reach(const void *memory, const struct layout *m)
{
    size_t bytes = (size_t)(m->rows * m->columns) * (m->type == CUDA_R_32F ? 4 : 2);

    if (!np_emu_holds(memory, bytes) || (uintptr_t)memory % 16 != 0)
        np_emu_die(
            "cuBLASLt", "%zu bytes at %p are not the device's, or not aligned", bytes, memory);
}

/* op(M), row by row of op(M) (or column by column), as f32. */
static float *gathered(
    const void *memory, const struct layout *m, cublasOperation_t op, bool by_columns)
{
    int64_t rows = rows_of(m, op), columns = columns_of(m, op);
    float *all = calloc((size_t)(rows * columns), sizeof(*all));

    if (!all)
        np_emu_die("cuBLASLt", "no memory for a matrix");
    reach(memory, m);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            all[by_columns ? c * rows + r : r * columns + c] = fake_load(
                memory, number_of(m->type), op == CUBLAS_OP_N ? c * m->rows + r : r * m->rows + c);
    return all;
}

static uint64_t bytes_of(const struct layout *m)
{
    return (uint64_t)(m->rows * m->columns) * (m->type == CUDA_R_32F ? 4 : 2);
}

static void count(const struct job *job)
{
    const struct layout *d = &job->d;

    np_emu_traffic_add("cublaslt", bytes_of(&job->a) + bytes_of(&job->b), bytes_of(d));
    reach(job->to, d);
    np_emu_traffic_fill(job->to, d->rows * d->columns, d->type == CUDA_R_32F ? 4 : 2, 1e-2f);
}

static void run(void *context)
{
    const struct job *job = context;
    const struct product *p = &job->product;

    if (np_emu_traffic()) {
        count(job);
        return;
    }
    int64_t inner = columns_of(&job->a, p->a);
    float *a = gathered(job->from_a, &job->a, p->a, false);
    float *b = gathered(job->from_b, &job->b, p->b, true);
    bool relu = p->epilogue & CUBLASLT_EPILOGUE_RELU, bias = p->epilogue & CUBLASLT_EPILOGUE_BIAS;

    reach(job->to, &job->d);
    if (bias) /* of D's type, one for each row */
        reach(p->bias, &(struct layout){job->d.type, job->d.rows, 1});
    memset(job->workspace, 0xff, WORKSPACE_BYTES);
    for (int64_t c = 0; c < job->d.columns; c++)
        for (int64_t r = 0; r < job->d.rows; r++) {
            float sum = 0;

            for (int64_t i = 0; i < inner; i++)
                sum += a[r * inner + i] * b[c * inner + i];
            if (bias)
                sum += fake_load(p->bias, number_of(job->d.type), r);
            fake_store(
                job->to, number_of(job->d.type), c * job->d.rows + r, relu && sum < 0 ? 0 : sum);
        }
    free(a);
    free(b);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
    const void *a, cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
    const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
    cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
    size_t workspace_bytes, cudaStream_t stream)
{
    struct job *job;

    (void)handle, (void)c, (void)c_layout, (void)algo;
    if (np_emu_fails(__func__))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (*(const float *)alpha != 1 || *(const float *)beta != 0 ||
        workspace_bytes < WORKSPACE_BYTES || !np_emu_holds(workspace, workspace_bytes) ||
        !fits(product_of(desc), layout_of(a_layout), layout_of(b_layout), layout_of(d_layout)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* Kernels are loaded at the first run, which a capture forbids. */
    if (!product_of(desc)->loaded && np_emu_break_capture(stream))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    ((struct product *)desc)->loaded = true;
    job = calloc(1, sizeof(*job));
    if (!job)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *job = (struct job){*product_of(desc), *layout_of(a_layout), *layout_of(b_layout),
        *layout_of(d_layout), a, b, d, workspace};
    np_emu_queue(stream, run, free, job);
    return CUBLAS_STATUS_SUCCESS;
}
