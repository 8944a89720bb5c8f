/* Queues the kernels of each operation: one function per family, and the table that names them. The
 * program looked up operands when it was bound. */
#include "trainer/cuda/calls_cuda.h"

static const struct np_tensor *tensor(const struct np_cuda_program *program, int t)
{
    return &program->graph->tensors[t];
}

static uint64_t elements(const struct np_cuda_program *program, int t)
{
    return np_tensor_elements(tensor(program, t));
}

static struct np_cuda_pool pool_of(
    const struct np_cuda_program *program, const struct np_op_node *node, int x, int y)
{
    const int *in = tensor(program, x)->dims, *out = tensor(program, y)->dims;
    const struct np_window *w = &node->attrs.window;

    return (struct np_cuda_pool){in[0], in[1], in[2], in[3], out[1], out[2], w->kernel_h,
        w->kernel_w, w->stride_h, w->stride_w, w->pad_h, w->pad_w};
}

/* --- what each operation queues -------------------------------------------------------------- */

static void run_input(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    const int *in = tensor(p, node->ins[0])->dims;
    struct np_cuda_input input = {in[0], in[1], in[2], in[3], np_cuda_channels(p, node->outs[0]),
        {0}, {0}, np_mix_on(&node->attrs.mix), node->attrs.tta != NP_TTA_NONE};

    for (int i = 0; i < 4; i++) {
        input.mean[i] = node->attrs.mean[i];
        input.std[i] = node->attrs.std[i];
    }
    np_cuda_input(p->cuda->streams[NP_STREAM_COMPUTE], p->dtype, p->arrays.step, &input, c->p[1]);
}

static void run_views(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    np_cuda_views(p->cuda->streams[NP_STREAM_COMPUTE], p->dtype, p->arrays.step, c->node->attrs.tta,
        c->p[0], c->p[1], c->p[2], elements(p, c->node->ins[0]));
}

static void run_stats(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    const struct np_cuda_stats stats = {
        .x = q[0],
        .rows = np_cuda_rows(p, node->ins[0]),
        .c = np_cuda_channels(p, node->ins[0]),
        .eps = node->attrs.eps,
        .momentum = node->attrs.momentum,
        .step = p->arrays.step,
        .thaw = node->attrs.thaw,
        .running_mean = q[1],
        .running_var = q[2],
        .mean = q[3],
        .inv_std = q[4],
    };

    if (c->source && c->source->sums)
        np_cuda_bn_stats_of_sums(stream, p->dtype, &stats, c->source->sum, c->source->square_sum);
    else
        np_cuda_bn_stats(stream, p->dtype, &stats, p->workspace);
}

static void run_batchnorm(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *const *q = c->p;
    const struct np_cuda_bn bn = {
        .x = q[0],
        .add = node->nr_ins > 5 ? q[5] : NULL,
        .y = q[node->nr_ins],
        .mean = q[1],
        .second = q[2],
        .gamma = q[3],
        .beta = q[4],
        .eps = node->op == NP_OP_BN_APPLY ? -1 : node->attrs.eps,
        .rows = np_cuda_rows(p, node->ins[0]),
        .c = np_cuda_channels(p, node->ins[0]),
        .relu = node->attrs.relu,
        .mask = node->nr_outs > 1 ? q[node->nr_ins + 1] : NULL,
    };

    np_cuda_bn_apply(p->cuda->streams[NP_STREAM_COMPUTE], p->dtype, &bn);
}

static void run_batchnorm_back(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    struct np_cuda_bn_back back = {
        .dy = q[0],
        .x = q[1],
        .mean = q[2],
        .inv_std = q[3],
        .gamma = q[4],
        .beta = q[5],
        .rows = np_cuda_rows(p, node->ins[1]),
        .c = np_cuda_channels(p, node->ins[1]),
        .relu = node->attrs.relu,
        .step = p->arrays.step,
        .thaw = node->attrs.thaw,
    };

    if (node->op == NP_OP_BN_DGRAD) {
        np_cuda_bn_dgrad(stream, p->dtype, &back, q[6], q[7], q[node->nr_ins]);
        return;
    }
    if (node->nr_ins - node->attrs.joins > 6) {
        if (tensor(p, node->ins[6])->dtype == NP_U8)
            back.mask = q[6];
        else
            back.y = q[6];
    }
    back.dy2 = node->attrs.joins ? q[node->nr_ins - 1] : NULL;
    back.g = node->nr_outs > 2 ? q[node->nr_ins + 2] : NULL;
    np_cuda_bn_reduce(stream, p->dtype, &back, q[node->nr_ins], q[node->nr_ins + 1], p->workspace);
}

static void run_pointwise(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    uint64_t n = elements(p, node->outs[0]);

    if (node->op == NP_OP_RELU)
        np_cuda_relu(stream, p->dtype, q[0], q[1], n);
    else if (node->op == NP_OP_RELU_DGRAD)
        np_cuda_relu_dgrad(stream, p->dtype, q[0], q[1], q[2], n);
    else if (node->op == NP_OP_ADD)
        np_cuda_add(stream, p->dtype, q[0], q[1], node->attrs.relu, q[2], n);
    else if (node->nr_ins > 1)
        np_cuda_dropout_mask(stream, p->dtype, node->attrs.rate, q[0], q[1], q[2], n);
    else
        np_cuda_dropout(stream, p->dtype, p->arrays.step,
            &(struct np_cuda_drop){node->attrs.seed, node->attrs.rate, node->attrs.relu}, q[0],
            q[1], n);
}

static void run_act(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    uint64_t n = elements(p, node->outs[0]);
    float slope = (float)node->attrs.slope;

    if (node->op == NP_OP_ACT)
        np_cuda_act(stream, p->dtype, node->attrs.act, slope, q[0], q[1], n);
    else
        np_cuda_act_dgrad(stream, p->dtype, node->attrs.act, slope, q[0], q[1], q[2], n);
}

static void run_pool(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    bool back = node->op == NP_OP_MAXPOOL_DGRAD || node->op == NP_OP_AVGPOOL_DGRAD;
    int x = back ? node->outs[0] : node->ins[0], y = back ? node->ins[0] : node->outs[0];
    const struct np_cuda_pool pool = pool_of(p, node, x, y);

    if (node->op == NP_OP_MAXPOOL)
        np_cuda_maxpool(stream, p->dtype, &pool, q[0], q[1], node->nr_outs > 1 ? q[2] : NULL);
    else if (node->op == NP_OP_MAXPOOL_DGRAD)
        np_cuda_maxpool_dgrad(
            stream, p->dtype, &pool, q[0], q[1], node->attrs.relu ? q[2] : NULL, q[node->nr_ins]);
    else if (node->op == NP_OP_AVGPOOL)
        np_cuda_avgpool(stream, p->dtype, &pool, q[0], q[1]);
    else
        np_cuda_avgpool_dgrad(stream, p->dtype, &pool, q[0], q[1]);
}

/* Operations on all pixels of a picture: (n, h * w, c). */
static void run_picture(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    bool back = node->op == NP_OP_GLOBAL_AVGPOOL_DGRAD || node->op == NP_OP_FLATTEN_DGRAD;
    const int *d = tensor(p, back ? node->outs[0] : node->ins[0])->dims;

    if (node->op == NP_OP_GLOBAL_AVGPOOL)
        np_cuda_global_avgpool(stream, p->dtype, q[0], q[1], d[0], d[1] * d[2], d[3]);
    else if (node->op == NP_OP_GLOBAL_AVGPOOL_DGRAD)
        np_cuda_global_avgpool_dgrad(stream, p->dtype, q[0], q[1], d[0], d[1] * d[2], d[3]);
    else
        np_cuda_flatten(stream, p->dtype, q[0], q[1], d[0], d[1] * d[2], d[3], back);
}

static void run_resample(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    const bool back = node->op == NP_OP_RESAMPLE_DGRAD;
    const int *x = tensor(p, back ? node->outs[0] : node->ins[0])->dims;
    const int *y = tensor(p, back ? node->ins[0] : node->outs[0])->dims;
    const struct np_cuda_resample sizes = {
        x[0], x[1], x[2], x[3], y[1], y[2], (int)node->attrs.resample};

    (back ? np_cuda_resample_dgrad : np_cuda_resample_run)(
        p->cuda->streams[NP_STREAM_COMPUTE], p->dtype, &sizes, c->p[0], c->p[1]);
}

static void run_gate(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    const int *d = tensor(p, node->ins[0])->dims;
    const uint64_t row = elements(p, node->ins[0]) / (uint64_t)d[0];

    if (node->op == NP_OP_MUL)
        np_cuda_mul(stream, p->dtype, q[0], q[1],
            elements(p, node->ins[1]) == elements(p, node->ins[0]), q[2], (uint64_t)d[0],
            d[1] * d[2], d[3]);
    else if (node->op == NP_OP_MUL_SUM)
        np_cuda_mul_sum(stream, p->dtype, q[0], q[1], q[2], (uint64_t)d[0], d[1] * d[2], d[3]);
    else
        np_cuda_drop_rows(stream, p->dtype, p->arrays.step, node->attrs.seed, node->attrs.rate,
            q[0], q[1], (uint64_t)d[0], row);
}

static void run_concat(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    bool back = node->op == NP_OP_CONCAT_DGRAD;
    int nr_parts = back ? node->nr_outs : node->nr_ins, at = 0;
    int whole = back ? node->ins[0] : node->outs[0];
    void *all = q[back ? 0 : node->nr_ins];

    for (int i = 0; i < nr_parts; i++) {
        int part = back ? node->outs[i] : node->ins[i], n;
        void *piece = q[back ? node->nr_ins + i : i];

        if (part < 0)
            continue;
        n = np_cuda_channels(p, part);
        if (back)
            np_cuda_copy_channels(stream, p->dtype, all, np_cuda_channels(p, whole), at, piece, n,
                0, n, np_cuda_rows(p, whole));
        else
            np_cuda_copy_channels(stream, p->dtype, piece, n, 0, all, np_cuda_channels(p, whole),
                at, n, np_cuda_rows(p, whole));
        at += n;
    }
}

/* True: not the plain cross-entropy, which has kernels of its own. */
static bool weighted(
    const struct np_cuda_program *p, const struct np_op_node *node, struct np_cuda_loss *loss)
{
    const bool weights = p->graph->class_weights != NULL;

    *loss = (struct np_cuda_loss){p->graph->batch, np_cuda_channels(p, node->ins[0]),
        (float)node->attrs.label_smoothing, (float)node->attrs.gamma,
        weights ? p->arrays.class_weights : NULL, np_mix_on(&node->attrs.mix),
        (float)node->attrs.threshold, 1, p->graph->values > 0, node->attrs.regression,
        (float)node->attrs.delta};
    if (!node->attrs.sums_classes)
        loss->share /= (float)loss->classes;
    return weights || node->attrs.gamma > 0 || loss->mixes;
}

/* The binary cross-entropy, and the losses of numbers. */
static void run_values(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    const enum np_op op = c->node->op;
    struct np_cuda_loss loss;

    weighted(p, c->node, &loss);
    if (op == NP_OP_BCE_DGRAD || op == NP_OP_REGRESSION_DGRAD) {
        (op == NP_OP_BCE_DGRAD ? np_cuda_bce_dgrad : np_cuda_regression_dgrad)(
            stream, p->dtype, p->arrays.step, p->arrays.scaler, q[0], &loss, q[2]);
        return;
    }
    (op == NP_OP_BCE ? np_cuda_bce : np_cuda_regression)(
        stream, p->dtype, p->arrays.step, q[0], &loss, q[2], q[3], q[4]);
    np_cuda_numbers(
        stream, p->arrays.step, q[2], q[3], q[4], loss.n, p->arrays.numbers, p->arrays.losses);
}

/* One launch for the loss, its numbers and, where the backward pass follows, its gradient. */
static void run_entropy(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    void *const *q = c->p;
    const bool back = c->node->op == NP_OP_CROSS_ENTROPY_DGRAD;
    const struct np_cuda_entropy entropy = {
        .logits = q[0],
        .n = p->graph->batch,
        .classes = np_cuda_channels(p, c->node->ins[0]),
        .smoothing = (float)c->node->attrs.label_smoothing,
        .loss = back ? NULL : q[2],
        .correct = back ? NULL : q[3],
        .top5 = back ? NULL : q[4],
        .numbers = p->arrays.numbers,
        .losses = p->arrays.losses,
        .dlogits = back        ? q[2]
                   : c->reader ? c->reader->p[2]
                               : NULL,
    };

    if (!c->source)
        np_cuda_cross_entropy(p->cuda->streams[NP_STREAM_COMPUTE], p->dtype, p->arrays.step,
            p->arrays.scaler, &entropy);
}

static void run_loss(struct np_cuda_program *p, const struct np_cuda_call *c)
{
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    struct np_cuda_loss loss;

    if (!weighted(p, c->node, &loss)) {
        run_entropy(p, c);
    } else if (c->node->op == NP_OP_CROSS_ENTROPY_DGRAD) {
        np_cuda_loss_dgrad(stream, p->dtype, p->arrays.step, p->arrays.scaler, q[0], &loss, q[2]);
    } else {
        np_cuda_loss(stream, p->dtype, p->arrays.step, q[0], &loss, q[2], q[3], q[4]);
        np_cuda_numbers(
            stream, p->arrays.step, q[2], q[3], q[4], loss.n, p->arrays.numbers, p->arrays.losses);
    }
}

/* Also queues the operations that cuDNN's pattern lacks. */
static int run_conv(struct np_cuda_program *p, const struct np_cuda_call *c, struct np_err *err)
{
    const struct np_op_node *node = c->node;
    void *stream = p->cuda->streams[NP_STREAM_COMPUTE], *const *q = c->p;
    int out = node->nr_outs ? node->outs[0] : -1, code;
    bool bias = node->nr_ins > 2;

    code = np_cuda_conv_run(c->sums ? c->summing : c->conv, err);
    if (code < 0)
        return code;
    if (node->op == NP_OP_CONV && c->conv->shape->pattern == NP_CONV_PLAIN) {
        if (bias)
            np_cuda_bias(stream, p->dtype, q[2], node->attrs.relu, q[3], np_cuda_rows(p, out),
                np_cuda_channels(p, out));
        else if (node->attrs.relu)
            np_cuda_relu(stream, p->dtype, q[2], q[2], elements(p, out));
    }
    return 0;
}

/* --- the table ------------------------------------------------------------------------------- */

const struct np_cuda_lowering np_cuda_lowerings[NP_NR_OPS] = {
    [NP_OP_INPUT] = {"own input", run_input},
    [NP_OP_CONV] = {"cudnn conv", NULL},
    [NP_OP_CONV_DGRAD] = {"cudnn dgrad", NULL},
    [NP_OP_CONV_WGRAD] = {"cudnn wgrad", NULL},
    [NP_OP_BN_STATS] = {"own bn_stats", run_stats},
    [NP_OP_BN_APPLY] = {"own bn_apply", run_batchnorm},
    [NP_OP_BN_EVAL] = {"own bn_eval", run_batchnorm},
    [NP_OP_BN_REDUCE] = {"own bn_reduce", run_batchnorm_back},
    [NP_OP_BN_DGRAD] = {"own bn_dgrad", run_batchnorm_back},
    [NP_OP_RELU] = {"own relu", run_pointwise},
    [NP_OP_RELU_DGRAD] = {"own relu_dgrad", run_pointwise},
    [NP_OP_ACT] = {"own act", run_act},
    [NP_OP_ACT_DGRAD] = {"own act_dgrad", run_act},
    [NP_OP_MAXPOOL] = {"own maxpool", run_pool},
    [NP_OP_MAXPOOL_DGRAD] = {"own maxpool_dgrad", run_pool},
    [NP_OP_AVGPOOL] = {"own avgpool", run_pool},
    [NP_OP_AVGPOOL_DGRAD] = {"own avgpool_dgrad", run_pool},
    [NP_OP_GLOBAL_AVGPOOL] = {"own global_avgpool", run_picture},
    [NP_OP_GLOBAL_AVGPOOL_DGRAD] = {"own global_avgpool_dgrad", run_picture},
    [NP_OP_LINEAR] = {"cublaslt linear", NULL},
    [NP_OP_LINEAR_DGRAD] = {"cublaslt dgrad", NULL},
    [NP_OP_LINEAR_WGRAD] = {"cublaslt wgrad", NULL},
    [NP_OP_DROPOUT] = {"own dropout", run_pointwise},
    [NP_OP_DROPOUT_DGRAD] = {"own dropout", run_pointwise},
    [NP_OP_FLATTEN] = {"own flatten", run_picture},
    [NP_OP_FLATTEN_DGRAD] = {"own flatten", run_picture},
    [NP_OP_ADD] = {"own add", run_pointwise},
    [NP_OP_RESAMPLE] = {"own resample", run_resample},
    [NP_OP_RESAMPLE_DGRAD] = {"own resample_dgrad", run_resample},
    [NP_OP_MUL] = {"own mul", run_gate},
    [NP_OP_MUL_SUM] = {"own mul_sum", run_gate},
    [NP_OP_DROP_ROWS] = {"own drop_rows", run_gate},
    [NP_OP_DROP_ROWS_DGRAD] = {"own drop_rows", run_gate},
    [NP_OP_CONCAT] = {"own concat", run_concat},
    [NP_OP_CONCAT_DGRAD] = {"own concat", run_concat},
    [NP_OP_CROSS_ENTROPY] = {"own cross_entropy", run_loss},
    [NP_OP_CROSS_ENTROPY_DGRAD] = {"own cross_entropy_dgrad", run_loss},
    [NP_OP_BCE] = {"own bce", run_values},
    [NP_OP_BCE_DGRAD] = {"own bce_dgrad", run_values},
    [NP_OP_REGRESSION] = {"own regression", run_values},
    [NP_OP_REGRESSION_DGRAD] = {"own regression_dgrad", run_values},
    [NP_OP_NORM] = {"own norm", np_cuda_run_norm},
    [NP_OP_NORM_WGRAD] = {"own norm_wgrad", np_cuda_run_norm},
    [NP_OP_NORM_DGRAD] = {"own norm_dgrad", np_cuda_run_norm},
    [NP_OP_SCALE] = {"own scale", np_cuda_run_scale},
    [NP_OP_SCALE_WGRAD] = {"own scale_wgrad", np_cuda_run_scale},
    [NP_OP_BIAS] = {"own bias", np_cuda_run_bias},
    [NP_OP_BIAS_WGRAD] = {"own bias_wgrad", np_cuda_run_bias},
    [NP_OP_POSITION] = {"own position", np_cuda_run_tokens},
    [NP_OP_CLASS_TOKEN] = {"own class_token", np_cuda_run_tokens},
    [NP_OP_ROWS_SUM] = {"own rows_sum", np_cuda_run_tokens},
    [NP_OP_TOKENS] = {"own tokens", np_cuda_run_tokens},
    [NP_OP_TOKENS_DGRAD] = {"own tokens_dgrad", np_cuda_run_tokens},
    [NP_OP_ATTENTION] = {"own attention", np_cuda_run_attention},
    [NP_OP_ATTENTION_DGRAD] = {"own attention_dgrad", np_cuda_run_attention},
    [NP_OP_VIEWS] = {"own views", run_views},
};

const char *np_cuda_call_name(const struct np_cuda_call *call)
{
    if (call->conv && call->node->op == NP_OP_CONV)
        return np_conv_patterns[(call->sums ? call->summing : call->conv)->shape->pattern];
    if (call->source && call->source->sums)
        return "own bn_stats of sums";
    return np_cuda_lowerings[call->node->op].name;
}

int np_cuda_call_queue(
    struct np_cuda_program *program, const struct np_cuda_call *call, struct np_err *err)
{
    const struct np_op_node *node = call->node;
    void *stream = program->cuda->streams[NP_STREAM_COMPUTE];
    int code = 0;

    if (call->conv)
        code = run_conv(program, call, err);
    else if (call->linear)
        code = np_cuda_linear_run(call->linear, stream, err);
    else
        np_cuda_lowerings[node->op].run(program, call);
    if (code == 0 && (node->op == NP_OP_CONV_WGRAD || node->op == NP_OP_LINEAR_WGRAD) &&
        node->nr_outs > 1)
        np_cuda_bias_grad(stream, program->dtype, call->p[1], call->p[3],
            np_cuda_rows(program, node->ins[1]), np_cuda_channels(program, node->ins[1]),
            program->workspace);
    return code;
}
