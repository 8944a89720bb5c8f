/* Queues the kernels of normalisation, scale, tokens and attention. */
#include <math.h>

#include "trainer/cuda/calls_cuda.h"

static const int *dims(const struct np_cuda_program *p, int t)
{
    return p->graph->tensors[t].dims;
}

static uint64_t row_of(const struct np_cuda_program *p, int t)
{
    return np_tensor_elements(&p->graph->tensors[t]) / (uint64_t)dims(p, t)[0];
}

static struct np_cuda_row_norm norm_of(
    const struct np_cuda_program *p, const struct np_op_node *node, const float *gamma)
{
    const int *x = dims(p, node->ins[0]);

    return (struct np_cuda_row_norm){.n = x[0],
        .hw = x[1] * x[2],
        .c = x[3],
        .groups = node->attrs.groups,
        .eps = node->attrs.eps,
        .gamma = gamma};
}

static struct np_cuda_attention attention_of(
    const struct np_cuda_program *p, const struct np_op_node *node)
{
    const int *y = dims(p, node->op == NP_OP_ATTENTION ? node->outs[0] : node->ins[0]);
    int heads = node->attrs.heads;

    return (struct np_cuda_attention){.n = y[0],
        .tokens = y[1] * y[2],
        .heads = heads,
        .width = y[3] / heads,
        .scale = 1 / sqrtf((float)(y[3] / heads))};
}

uint64_t np_cuda_token_scratch(const struct np_cuda_program *p, const struct np_op_node *node)
{
    const struct np_cuda_row_norm norm = norm_of(p, node, NULL);

    switch (node->op) {
    case NP_OP_SCALE_WGRAD:
    case NP_OP_BIAS_WGRAD:
        return np_cuda_channel_scratch(
            np_cuda_rows(p, node->ins[0]), np_cuda_channels(p, node->ins[0]));
    case NP_OP_NORM_WGRAD: return np_cuda_norm_wgrad_scratch(&norm);
    case NP_OP_ATTENTION_DGRAD: {
        const struct np_cuda_attention attention = attention_of(p, node);

        return np_cuda_attention_scratch(&attention);
    }
    default: return 0;
    }
}

void np_cuda_run_norm(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    struct np_cuda_row_norm norm = norm_of(p, c->node, q[c->node->op == NP_OP_NORM ? 1 : 2]);

    if (c->node->op == NP_OP_NORM) {
        norm.beta = q[2];
        np_cuda_normalise(stream, p->dtype, &norm, q[0], q[3]);
    } else if (c->node->op == NP_OP_NORM_DGRAD) {
        np_cuda_norm_dgrad(stream, p->dtype, &norm, q[0], q[1], q[3]);
    } else {
        np_cuda_norm_wgrad(stream, p->dtype, &norm, q[0], q[1], q[2], q[3], p->workspace);
    }
}

void np_cuda_run_scale(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    const uint64_t rows = np_cuda_rows(p, c->node->ins[0]);
    const int channels = np_cuda_channels(p, c->node->ins[0]);

    if (c->node->op == NP_OP_SCALE)
        np_cuda_scale(stream, p->dtype, q[0], q[1], q[2], rows, channels);
    else
        np_cuda_scale_wgrad(stream, p->dtype, q[0], q[1], q[2], rows, channels, p->workspace);
}

void np_cuda_run_bias(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    const uint64_t rows = np_cuda_rows(p, c->node->ins[0]);
    const int channels = np_cuda_channels(p, c->node->ins[0]);

    if (c->node->op == NP_OP_BIAS) /* the position of a row that is one pixel */
        np_cuda_position(stream, p->dtype, q[0], q[1], q[2], rows, (uint64_t)channels);
    else
        np_cuda_bias_grad(stream, p->dtype, q[0], q[1], rows, channels, p->workspace);
}

void np_cuda_run_tokens(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    const int n = dims(p, node->ins[0])[0];
    const uint64_t row = row_of(p, node->ins[0]);
    const int64_t first = (int64_t)node->attrs.first_token * np_cuda_channels(p, node->ins[0]);

    if (node->op == NP_OP_POSITION)
        np_cuda_position(stream, p->dtype, q[0], q[1], q[2], n, row);
    else if (node->op == NP_OP_ROWS_SUM)
        np_cuda_rows_sum(stream, p->dtype, q[0], q[1], n, row,
            np_tensor_elements(&p->graph->tensors[node->outs[0]]));
    else if (node->op == NP_OP_CLASS_TOKEN)
        np_cuda_shift(stream, p->dtype, q[0], q[1], q[2], n, row, row_of(p, node->outs[0]), -first);
    else
        np_cuda_shift(stream, p->dtype, q[0], NULL, q[1], n, row, row_of(p, node->outs[0]),
            node->op == NP_OP_TOKENS ? first : -first);
}

void np_cuda_run_attention(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    const struct np_cuda_attention attention = attention_of(p, c->node);

    if (c->node->op == NP_OP_ATTENTION)
        np_cuda_attend(stream, p->dtype, &attention, q[0], q[1]);
    else
        np_cuda_attend_back(stream, p->dtype, &attention, q[0], q[1], q[2], p->workspace);
}
