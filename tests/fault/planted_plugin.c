/* A "CUDA" plugin that is the CPU device with one thing wrong: what NP_PLANT names. The program finds
 * it beside itself as libnnpipe-cuda.so, and its self-test must find the fault. Without NP_PLANT all
 * is right. Main thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "build_id.h"
#include "trainer/device.h"

const struct np_plugin *np_plugin_cuda(void);

static struct np_plan_ops plan_ops;
static struct np_graph *graphs[64]; /* wrong copies, which live as long as the process */
static int nr_graphs;
static uint64_t nr_params, nr_buffers, nr_reads;

static bool planted(const char *what)
{
    const char *plant = getenv("NP_PLANT");

    return plant && strcmp(plant, what) == 0;
}

static int opened(
    struct np_device *device, const struct np_device_options *options, struct np_err *err)
{
    return np_device_cpu.open(device, options, err);
}

/* A graph in which an operation is another one than the network asks for. */
static void spoil(struct np_graph *graph)
{
    for (int i = 0; i < graph->nr_nodes; i++) {
        struct np_op_node *node = &graph->nodes[i];

        if (planted("smoothing"))
            node->attrs.label_smoothing *= 1.5;
        if (planted("momentum") && node->op == NP_OP_BN_STATS)
            node->attrs.momentum *= 1.05;
        if (planted("eps") && node->op == NP_OP_BN_STATS)
            node->attrs.eps += 0.02;
        if (planted("dropout"))
            node->attrs.seed++;
        if (planted("input") && node->op == NP_OP_INPUT)
            node->attrs.mean[2] += 0.01f;
    }
}

static const struct np_graph *copy(const struct np_graph *graph)
{
    struct np_graph *mine = graph ? np_graph_copy(graph) : NULL;

    if (!mine)
        return NULL;
    spoil(mine);
    graphs[nr_graphs++ % 64] = mine;
    return mine;
}

static int prepare(struct np_device *device, const struct np_graph *train,
    const struct np_graph *eval, const struct np_plan_options *options, struct np_plan **ret_plan,
    struct np_err *err)
{
    nr_params = train->nr_params;
    nr_buffers = train->nr_buffers;
    return np_plan_cpu.prepare(device, copy(train), copy(eval), options, ret_plan, err);
}

static int step(struct np_plan *plan, const void *images, const void *labels, uint64_t at,
    float loss_scale, bool accumulate, struct np_err *err)
{
    if (planted("scale"))
        loss_scale *= 1.001f;
    if (planted("accumulate"))
        accumulate = false;
    return np_plan_cpu.step(plan, images, labels, at, loss_scale, accumulate, err);
}

static int update(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    struct np_hyper wrong = *hyper;

    if (planted("nesterov"))
        wrong.nesterov = false;
    if (planted("clip"))
        wrong.clip_norm = 0;
    if (planted("correction") && hyper->kind == NP_ADAMW)
        wrong.update++;
    if (planted("decay") && hyper->kind == NP_ADAMW)
        wrong.weight_decay = 0;
    return np_plan_cpu.update(plan, &wrong, err);
}

static int metrics(
    struct np_plan *plan, int later, struct np_metrics *ret_metrics, struct np_err *err)
{
    int code = np_plan_cpu.metrics(plan, planted("newest") ? 0 : later, ret_metrics, err);

    if (planted("correct") && ret_metrics->rows)
        ret_metrics->correct += ret_metrics->correct == 0 ? 1 : (uint64_t)-1;
    if (planted("loss"))
        ret_metrics->loss_sum *= 1.001;
    return code;
}

static int read_array(struct np_plan *plan, int array, float *out, struct np_err *err)
{
    int code = np_plan_cpu.read(plan, array, out, err);

    if (code == 0 && array == NP_ARRAY_GRADS && planted("gradient"))
        out[nr_params / 2] += 0.05f; /* one element of all */
    if (code == 0 && array == NP_ARRAY_GRADS && planted("race") && nr_reads++ % 3 == 0)
        out[0] *= 1.0000002f;
    if (code == 0 && array == NP_ARRAY_BUFFERS && planted("running") && nr_buffers)
        out[nr_buffers - 1] *= 1.001f;
    if (code == 0 && array == NP_ARRAY_GRADS && planted("nan"))
        out[0] = 0.0f / 0.0f;
    return code;
}

static int logits(struct np_plan *plan, float *out, struct np_err *err)
{
    int code = np_plan_cpu.logits(plan, out, err);

    if (code == 0 && planted("logit"))
        out[1] += 0.002f;
    return code;
}

static int eval(struct np_plan *plan, const void *images, const void *labels, struct np_err *err)
{
    if (planted("error"))
        return np_err_set(err, -EIO, "a planted error");
    return np_plan_cpu.eval(plan, images, labels, err);
}

static void list(np_info_fn found, void *context)
{
    (void)found;
    (void)context;
}

const struct np_plugin *np_plugin_cuda(void)
{
    static struct np_device_ops ops;
    static const struct np_plugin plugin = {.version = NP_PLUGIN_VERSION,
        .contract = NP_CONTRACT,
        .build = "planted",
        .ops = &ops,
        .plan_ops = &plan_ops,
        .list = list};

    ops = np_device_cpu; /* another table: no CPU device to the program */
    ops.name = "planted";
    ops.open = opened;
    plan_ops = np_plan_cpu;
    plan_ops.prepare = prepare;
    plan_ops.step = step;
    plan_ops.update = update;
    plan_ops.step_update = NULL;
    plan_ops.eval = eval;
    plan_ops.metrics = metrics;
    plan_ops.read = read_array;
    plan_ops.logits = logits;
    return &plugin;
}
