/* Makes, fills and finalises descriptors; the graph keeps the first error. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/cuda/dnn_graph.h"

int np_dnn_refuse(
    const struct np_cudnn *cudnn, cudnnStatus_t status, const char *what, struct np_err *err)
{
    char why[400] = "";

    if (cudnn->last_error)
        cudnn->last_error(why, sizeof(why));
    for (char *c = why; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return np_err_set(err, status == CUDNN_STATUS_ALLOC_FAILED ? -ENOMEM : -ENOTSUP,
        "cuDNN refuses %s: %s%s%s", what, cudnn->error_string(status), *why ? ": " : "", why);
}

struct np_dnn *np_dnn_new(const struct np_dnn_target *target)
{
    struct np_dnn *dnn = np_alloc(sizeof(*dnn));

    dnn->target = target;
    return dnn;
}

void np_dnn_drop(const struct np_cudnn *cudnn, cudnnBackendDescriptor_t *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i])
            cudnn->free_descriptor(list[i]);
}

void np_dnn_free(struct np_dnn *dnn)
{
    if (!dnn)
        return;
    np_dnn_drop(dnn->target->cudnn, &dnn->graph, 1);
    np_dnn_drop(dnn->target->cudnn, dnn->ops, dnn->nr_ops);
    np_dnn_drop(dnn->target->cudnn, dnn->parts, dnn->nr_parts);
    np_dnn_drop(dnn->target->cudnn, dnn->tensors, dnn->nr_tensors);
    np_free(dnn);
}

/* Makes a tensor, an operation or a part of one, which lives as long as the graph. Its attributes
 * follow, then finalize(). */
static cudnnBackendDescriptor_t add(struct np_dnn *dnn, cudnnBackendDescriptor_t *list, int *n,
    cudnnBackendDescriptorType_t type, const char *what)
{
    assert(*n < NP_DNN_MAX);
    return list[(*n)++] = make(dnn, type, what);
}

static int add_tensor(
    struct np_dnn *dnn, cudnnDataType_t type, const int64_t dims[4], bool is_virtual)
{
    /* NHWC: c is next to c, then w, h, n. */
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    int64_t uid = dnn->nr_tensors + 1, alignment = 16;
    cudnnBackendDescriptor_t t;

    t = add(dnn, dnn->tensors, &dnn->nr_tensors, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
    set(dnn, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, "a tensor's type");
    set(dnn, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims, "a tensor's dimensions");
    set(dnn, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides, "a tensor's strides");
    set(dnn, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid, "a tensor's number");
    set(dnn, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, "an alignment");
    set(dnn, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual,
        "a virtual tensor");
    finalize(dnn, t, "a tensor");
    if (!is_virtual)
        dnn->bound[dnn->nr_bound++] = uid;
    return dnn->nr_tensors - 1;
}

int np_dnn_tensor(
    struct np_dnn *dnn, enum np_dnn_kind kind, cudnnDataType_t type, const int64_t dims[4])
{
    dnn->has_f32 |= type == CUDNN_DATA_FLOAT && kind == NP_DNN_REAL;
    return add_tensor(dnn, type, dims, kind == NP_DNN_VIRTUAL);
}

int np_dnn_channels(struct np_dnn *dnn, int64_t c)
{
    return add_tensor(dnn, CUDNN_DATA_FLOAT, (const int64_t[]){1, c, 1, 1}, false);
}

static void operand(
    struct np_dnn *dnn, cudnnBackendDescriptor_t op, cudnnBackendAttributeName_t name, int tensor)
{
    if (tensor >= 0)
        set(dnn, op, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dnn->tensors[tensor], "an operand");
}

static cudnnBackendDescriptor_t convolution(struct np_dnn *dnn, const struct np_window *window)
{
    cudnnBackendDescriptor_t d =
        add(dnn, dnn->parts, &dnn->nr_parts, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "a convolution");
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t nr_dims = 2, pad[2] = {window->pad_h, window->pad_w},
                  stride[2] = {window->stride_h, window->stride_w},
                  dilation[2] = {window->dilation_h, window->dilation_w};

    set(dnn, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &nr_dims,
        "two dimensions");
    set(dnn, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, "f32 sums");
    set(dnn, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode, "a mode");
    set(dnn, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad, "padding");
    set(dnn, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad, "padding");
    set(dnn, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride, "a stride");
    set(dnn, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation, "a dilation");
    finalize(dnn, d, "a convolution");
    return d;
}

/* The three kinds differ only in their names. */
static void add_convolution(struct np_dnn *dnn, const struct np_window *window,
    cudnnBackendDescriptorType_t type, const cudnnBackendAttributeName_t names[6],
    const int tensors[3])
{
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t part = convolution(dnn, window),
                             op = add(dnn, dnn->ops, &dnn->nr_ops, type, "a convolution");

    set(dnn, op, names[0], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part, "a convolution");
    set(dnn, op, names[1], CUDNN_TYPE_FLOAT, 1, &one, "a factor");
    set(dnn, op, names[2], CUDNN_TYPE_FLOAT, 1, &zero, "a factor");
    for (int i = 0; i < 3; i++)
        operand(dnn, op, names[3 + i], tensors[i]);
    finalize(dnn, op, "a convolution");
}

void np_dnn_conv(struct np_dnn *dnn, const struct np_window *window, int x, int w, int y)
{
    static const cudnnBackendAttributeName_t names[] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};

    add_convolution(dnn, window, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, names,
        (const int[]){x, w, y});
}

void np_dnn_dgrad(struct np_dnn *dnn, const struct np_window *window, int dy, int w, int dx)
{
    static const cudnnBackendAttributeName_t names[] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX};

    add_convolution(dnn, window, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        names, (const int[]){dy, w, dx});
}

void np_dnn_wgrad(struct np_dnn *dnn, const struct np_window *window, int x, int dy, int dw)
{
    static const cudnnBackendAttributeName_t names[] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW};

    add_convolution(dnn, window, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        names, (const int[]){x, dy, dw});
}

void np_dnn_pointwise(struct np_dnn *dnn, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t op, part = add(dnn, dnn->parts, &dnn->nr_parts,
                                     CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "a pointwise operation");

    set(dnn, part, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, "a mode");
    set(dnn, part, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute, "f32");
    finalize(dnn, part, "a pointwise operation");
    op = add(dnn, dnn->ops, &dnn->nr_ops, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
        "a pointwise operation");
    set(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &part, "a pointwise operation");
    operand(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    operand(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    operand(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finalize(dnn, op, "a pointwise operation");
}

void np_dnn_stats(struct np_dnn *dnn, int x, int sum, int square_sum)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    cudnnBackendDescriptor_t op = add(dnn, dnn->ops, &dnn->nr_ops,
        CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, "sums of channels");

    set(dnn, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode, "a mode");
    set(dnn, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute, "f32");
    operand(dnn, op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
    operand(dnn, op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    operand(dnn, op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, square_sum);
    finalize(dnn, op, "sums of channels");
}

int np_dnn_finish(struct np_dnn *dnn, struct np_err *err)
{
    dnn->graph = make(dnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a graph of operations");
    set(dnn, dnn->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, dnn->nr_ops,
        dnn->ops, "a graph's operations");
    if (dnn->target->handle)
        set(dnn, dnn->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
            &dnn->target->handle, "a handle");
    finalize(dnn, dnn->graph, "a graph of operations");
    return dnn->err.code ? np_err_set(err, dnn->err.code, "%s", dnn->err.text) : 0;
}
