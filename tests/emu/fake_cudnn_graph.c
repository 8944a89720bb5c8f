/* The emulated cuDNN: reading an operation graph. A convolution of one of three kinds; behind a forward
 * one an addition of a bias and a relu may follow, over virtual tensors, or statistics of what it
 * gives. */
#include "tests/emu/fake_cudnn.h"

/* The attributes of an operation by its kind: convolution, alpha, beta, x (dy), w, y (dx). */
static const struct kind {
    int op, conv, alpha, beta, ins[2], out;
} kinds[] = {
    [FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    [DGRAD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX},
    [WGRAD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW},
};

struct shape {
    int64_t d[4]; /* n, c, h, w, or out, in, kh, kw; stored with the second one innermost */
};

static cudnnStatus_t unknown(const char *what)
{
    return fake_error(CUDNN_STATUS_NOT_SUPPORTED, "no engine for %s", what);
}

static cudnnStatus_t misfit(const char *what)
{
    return fake_error(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "%s", what);
}

/* The name's tensor, whole and dense; fills in both. */
static cudnnStatus_t read_tensor(
    const struct descriptor *op, int name, struct fake_operand *operand, struct shape *shape)
{
    const struct descriptor *t = fake_part(op, (cudnnBackendAttributeName_t)name);
    const struct attribute *dims = t ? fake_get(t, CUDNN_ATTR_TENSOR_DIMENSIONS) : NULL;
    const struct attribute *strides = t ? fake_get(t, CUDNN_ATTR_TENSOR_STRIDES) : NULL;
    const int64_t *d, *s;

    if (!dims || !strides || dims->count != 4 || strides->count != 4)
        return misfit("a tensor without four dimensions and strides");
    d = dims->values, s = strides->values;
    if (s[1] != 1 || s[3] != d[1] || s[2] != d[1] * d[3] || s[0] != d[1] * d[2] * d[3])
        return unknown("tensors that are not NHWC");
    for (int i = 0; i < 4; i++)
        shape->d[i] = d[i];
    *operand = (struct fake_operand){.uid = fake_int(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
        .type = (cudnnDataType_t)fake_int(t, CUDNN_ATTR_TENSOR_DATA_TYPE, -1),
        .elements = d[0] * d[1] * d[2] * d[3],
        .alignment = fake_int(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1)};
    if (operand->uid == 0 || operand->elements <= 0)
        return misfit("a tensor without a number or elements");
    return operand->type == CUDNN_DATA_FLOAT || operand->type == CUDNN_DATA_HALF ||
                   operand->type == CUDNN_DATA_BFLOAT16
               ? CUDNN_STATUS_SUCCESS
               : unknown("tensors of such types");
}

static bool read_pair(const struct descriptor *conv, cudnnBackendAttributeName_t name, int64_t *to)
{
    const struct attribute *a = fake_get(conv, name);

    if (!a || a->count != 2)
        return false;
    to[0] = ((const int64_t *)a->values)[0];
    to[1] = ((const int64_t *)a->values)[1];
    return true;
}

static cudnnStatus_t read_window(const struct descriptor *conv, struct fake_conv *c)
{
    int64_t after[2];

    if (!conv || fake_int(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0) != 2 ||
        !read_pair(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c->pad) ||
        !read_pair(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after) ||
        !read_pair(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c->stride) ||
        !read_pair(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, c->dilation))
        return misfit("a convolution that is not whole");
    if (fake_int(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, -1) != CUDNN_DATA_FLOAT ||
        fake_int(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, -1) != CUDNN_CROSS_CORRELATION ||
        after[0] != c->pad[0] || after[1] != c->pad[1])
        return unknown("such a convolution");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fit(
    struct fake_conv *c, const struct shape *x, const struct shape *w, const struct shape *y)
{
    int64_t out[2];

    c->n = x->d[0], c->c = x->d[1], c->h = x->d[2], c->w = x->d[3];
    c->out = w->d[0], c->kernel_h = w->d[2], c->kernel_w = w->d[3];
    c->out_h = y->d[2], c->out_w = y->d[3];
    if (c->c % w->d[1] != 0 || c->out % (c->groups = c->c / w->d[1]) != 0)
        return misfit("channels do not divide into groups");
    for (int i = 0; i < 2; i++)
        out[i] =
            (x->d[2 + i] + 2 * c->pad[i] - c->dilation[i] * (w->d[2 + i] - 1) - 1) / c->stride[i] +
            1;
    return y->d[0] == c->n && y->d[1] == c->out && out[0] == c->out_h && out[1] == c->out_w
               ? CUDNN_STATUS_SUCCESS
               : misfit("a convolution's result is of another shape");
}

static cudnnStatus_t read_convolution(const struct descriptor *op, struct fake_program *p)
{
    const struct kind *kind = &kinds[p->kind];
    const struct attribute *alpha = fake_get(op, (cudnnBackendAttributeName_t)kind->alpha);
    const struct attribute *beta = fake_get(op, (cudnnBackendAttributeName_t)kind->beta);
    struct shape ins[2], out;
    cudnnStatus_t status = read_tensor(op, kind->ins[0], &p->ins[0], &ins[0]);

    if (status == CUDNN_STATUS_SUCCESS)
        status = read_tensor(op, kind->ins[1], &p->ins[1], &ins[1]);
    if (status == CUDNN_STATUS_SUCCESS)
        status = read_tensor(op, kind->out, &p->out, &out);
    if (status == CUDNN_STATUS_SUCCESS)
        status = read_window(fake_part(op, (cudnnBackendAttributeName_t)kind->conv), &p->conv);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!alpha || !beta || *(const float *)alpha->values != 1 ||
        *(const float *)beta->values != 0 || p->ins[0].type != p->ins[1].type)
        return unknown("factors, or inputs of two types");
    return p->kind == FORWARD ? fit(&p->conv, &ins[0], &ins[1], &out)
           : p->kind == DGRAD ? fit(&p->conv, &out, &ins[1], &ins[0])
                              : fit(&p->conv, &ins[0], &out, &ins[1]);
}

/* Bias or relu, of what the program gives so far. */
static cudnnStatus_t read_pointwise(const struct descriptor *op, struct fake_program *p)
{
    const struct descriptor *part = fake_part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    int64_t mode = part ? fake_int(part, CUDNN_ATTR_POINTWISE_MODE, -1) : -1;
    int64_t type = p->out.type, from = p->out.uid;
    struct fake_operand x;
    struct shape shape;
    cudnnStatus_t status = read_tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &x, &shape);

    if (status != CUDNN_STATUS_SUCCESS || x.uid != from || type != CUDNN_DATA_FLOAT || p->relu)
        return unknown("a chain that is not convolution, bias, relu");
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
        p->relu = true;
    } else if (mode == CUDNN_POINTWISE_ADD && p->bias.uid == 0) {
        status = read_tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &p->bias, &shape);
        if (status == CUDNN_STATUS_SUCCESS &&
            (p->bias.elements != p->conv.out || shape.d[1] != p->conv.out))
            status = unknown("an addition that is not of a bias");
    } else {
        return unknown("such a pointwise operation");
    }
    return status == CUDNN_STATUS_SUCCESS
               ? read_tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &p->out, &shape)
               : status;
}

/* Sum and sum of squares of each channel of what the convolution alone gives. */
static cudnnStatus_t read_stats(const struct descriptor *op, struct fake_program *p)
{
    static const int names[] = {
        CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC};
    struct fake_operand x;
    struct shape shape;
    cudnnStatus_t status = read_tensor(op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, &x, &shape);

    if (status != CUDNN_STATUS_SUCCESS || x.uid != p->out.uid || p->bias.uid || p->relu ||
        p->sums[0].uid ||
        fake_int(op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, -1) != CUDNN_GENSTATS_SUM_SQSUM ||
        fake_int(op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, -1) != CUDNN_DATA_FLOAT)
        return unknown("statistics that are not of a convolution alone");
    for (int i = 0; i < 2; i++) {
        status = read_tensor(op, names[i], &p->sums[i], &shape);
        if (status != CUDNN_STATUS_SUCCESS || p->sums[i].elements != p->conv.out ||
            shape.d[1] != p->conv.out || p->sums[i].type != CUDNN_DATA_FLOAT)
            return misfit("statistics that are not of the channels");
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_lower(const struct descriptor *graph, struct fake_program *ret_program)
{
    const struct attribute *ops = fake_get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    struct fake_program p = {0};
    void *const *list = ops ? ops->values : NULL;
    cudnnStatus_t status = unknown("an empty graph");

    for (int64_t i = 0; ops && i < ops->count; i++) {
        const struct descriptor *op = fake_descriptor(list[i], "an operation graph");

        if (i == 0) {
            while (p.kind < WGRAD && kinds[p.kind].op != (int)op->type)
                p.kind++;
            status = kinds[p.kind].op == (int)op->type ? read_convolution(op, &p)
                                                       : unknown("such an operation");
        } else {
            status = p.kind == FORWARD && op->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
                         ? read_pointwise(op, &p)
                     : p.kind == FORWARD && op->type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR
                         ? read_stats(op, &p)
                         : unknown("such a chain");
        }
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
    }
    *ret_program = p;
    return status;
}
