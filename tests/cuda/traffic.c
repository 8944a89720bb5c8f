/* traffic PRECISION CONFIG HEIGHT CHANNELS CLASSES BATCH: the bytes that a training step reads and writes in
 * the GPU's memory, by a model: each launch reads each of its operands once and writes each result once, and a sum
 * over rows goes through its scratch. A line a part: NAME; LAUNCHES READ WRITTEN. Operands are those of the program
 * that the plugin makes, over the emulated cuDNN; what its kernels do is written down here again, and
 * tests/cuda/traffic.sh compares it with what tests/emu/traffic.h counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/kernel/made_graphs.h"
#include "trainer/cuda/program_cuda.h"

enum part {
    CONV,
    DGRAD,
    WGRAD,
    LINEAR,
    BN_STATS,
    BN_APPLY,
    BN_REDUCE,
    BN_DGRAD,
    ADD,
    POOL,
    LOSS,
    UPDATE,
    REST,
    NR_PARTS
};
static const char *const names[NR_PARTS] = {"conv", "dgrad", "wgrad", "linear", "bn_stats",
    "bn_apply", "bn_reduce", "bn_dgrad", "add", "pool", "loss", "update", "rest"};
static struct {
    uint64_t launches, read, written;
} parts[NR_PARTS];

static void add(enum part part, int launches, uint64_t read, uint64_t written)
{
    parts[part].launches += (uint64_t)launches;
    parts[part].read += read;
    parts[part].written += written;
}

static const enum part part_of[NP_NR_OPS] = {
    [NP_OP_INPUT] = REST,
    [NP_OP_CONV] = CONV,
    [NP_OP_CONV_DGRAD] = DGRAD,
    [NP_OP_CONV_WGRAD] = WGRAD,
    [NP_OP_LINEAR] = LINEAR,
    [NP_OP_LINEAR_DGRAD] = LINEAR,
    [NP_OP_LINEAR_WGRAD] = LINEAR,
    [NP_OP_BN_STATS] = BN_STATS,
    [NP_OP_BN_APPLY] = BN_APPLY,
    [NP_OP_BN_REDUCE] = BN_REDUCE,
    [NP_OP_BN_DGRAD] = BN_DGRAD,
    [NP_OP_ADD] = ADD,
    [NP_OP_MAXPOOL] = POOL,
    [NP_OP_MAXPOOL_DGRAD] = POOL,
    [NP_OP_AVGPOOL] = POOL,
    [NP_OP_AVGPOOL_DGRAD] = POOL,
    [NP_OP_GLOBAL_AVGPOOL] = POOL,
    [NP_OP_GLOBAL_AVGPOOL_DGRAD] = POOL,
    [NP_OP_CROSS_ENTROPY] = LOSS,
    [NP_OP_CROSS_ENTROPY_DGRAD] = LOSS,
    [NP_OP_RELU] = REST,
    [NP_OP_RELU_DGRAD] = REST,
    [NP_OP_DROPOUT] = REST,
    [NP_OP_DROPOUT_DGRAD] = REST,
    [NP_OP_FLATTEN] = REST,
    [NP_OP_FLATTEN_DGRAD] = REST,
};

static bool of_conv(enum np_op op)
{
    return op == NP_OP_CONV || op == NP_OP_CONV_DGRAD || op == NP_OP_CONV_WGRAD;
}

static bool of_linear(enum np_op op)
{
    return op == NP_OP_LINEAR || op == NP_OP_LINEAR_DGRAD || op == NP_OP_LINEAR_WGRAD;
}

/* Products read weights as halves; gradients of a convolution's weights are halves. */
static uint64_t bytes_of(
    const struct np_cuda_program *program, const struct np_op_node *node, int t)
{
    const struct np_tensor *x = &program->graph->tensors[t];
    const bool halves = program->dtype != NP_CUDA_F32;
    const bool weights = x->nr_dims == 4 || of_linear(node->op);
    uint64_t width = np_dtype_bytes(x->dtype);

    if (x->role == NP_ROLE_PARAM)
        width = halves && weights && (of_conv(node->op) || of_linear(node->op)) ? 2 : 4;
    if (x->role == NP_ROLE_GRAD)
        width = halves && x->nr_dims == 4 ? 2 : 4;
    return np_tensor_elements(x) * width;
}

static uint64_t sum_of(
    const struct np_cuda_program *program, const struct np_op_node *node, const int *tensors, int n)
{
    uint64_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += tensors[i] < 0 ? 0 : bytes_of(program, node, tensors[i]);
    return bytes;
}

/* Sums over rows pass through memory, in one launch: two floats for each stretch of rows, two pairs of floats for a
 * team of 32 of them, of groups of up to 32 packs of channels. */
static uint64_t scratch_of(const struct np_cuda_program *program, int t)
{
    const uint64_t rows = np_cuda_rows(program, t), c = (uint64_t)np_cuda_channels(program, t);
    const uint64_t wide = program->dtype == NP_CUDA_F32 ? 4 : 8, width = c % wide == 0 ? wide : 1;
    uint64_t lanes = 1;

    while (lanes < c / width && lanes < 32)
        lanes *= 2;
    const uint64_t groups = (c / width + lanes - 1) / lanes, unit = 8 * 256 / lanes;
    const uint64_t most = groups < 1024 ? 1024 / groups : 1;
    const uint64_t per = ((rows + most - 1) / most + unit - 1) / unit * unit;
    const uint64_t nr = (rows + per - 1) / per;

    return groups * lanes * width * 2 * (nr * 4 + (nr + 31) / 32 * 8);
}

/* The bias's gradient, which the node's own product leaves out. */
static void count_bias(const struct np_cuda_program *program, const struct np_op_node *node)
{
    const uint64_t scratch = scratch_of(program, node->ins[1]);
    const uint64_t dy = bytes_of(program, node, node->ins[1]);

    add(REST, 1, dy + scratch, scratch + bytes_of(program, node, node->outs[1]));
}

static void count(const struct np_cuda_program *program, const struct np_cuda_call *call)
{
    const struct np_op_node *node = call->node;
    const enum part part = part_of[node->op];
    uint64_t read = sum_of(program, node, node->ins, node->nr_ins);
    uint64_t written = sum_of(program, node, node->outs, node->nr_outs);
    int launches = 1;

    if (node->op == NP_OP_CONV_WGRAD || node->op == NP_OP_LINEAR_WGRAD) {
        written = bytes_of(program, node, node->outs[0]);
        if (node->nr_outs > 1)
            count_bias(program, node);
    }
    if (node->op == NP_OP_BN_STATS) { /* running means and variances move */
        const uint64_t scratch = scratch_of(program, node->ins[0]);

        read += scratch;
        written += scratch + sum_of(program, node, node->ins + 1, 2);
    }
    if (node->op == NP_OP_BN_REDUCE) {
        const uint64_t scratch = scratch_of(program, node->ins[1]);

        read += scratch;
        written += scratch;
    }
    if (node->op == NP_OP_CROSS_ENTROPY) /* and its sums, into memory of the host */
        read += written;
    if (node->op == NP_OP_CROSS_ENTROPY_DGRAD) /* which the same launch writes */
        launches = 0, read = 0;
    add(part, launches, read, written);
}

/* SGD with momentum, which reads the convolutions' gradients as halves; the same launch sums up the norm, since nothing
 * is clipped. */
static void count_update(const struct np_cuda_program *program)
{
    const uint64_t n = program->arrays.layout->nr_params, convs = program->arrays.layout->nr_convs;
    const bool halves = program->dtype != NP_CUDA_F32;

    add(UPDATE, 1, 12 * n - (halves ? 2 * convs : 0) + n / NP_CUDA_CHUNK,
        8 * n + (halves ? 2 * n : 0));
    add(REST, 1, 0, sizeof(struct np_cuda_step)); /* set_step() */
}

static int fail(const char *what, const struct np_err *err)
{
    printf("%s: %s\n", what, err->text);
    return 1;
}

int main(int argc, char **argv)
{
    static const char *const precisions[] = {"f32", "bf16", "f16"};
    static const struct np_dnn_rules rules = {.deterministic = true};
    static const struct np_plan_options options;
    static struct np_device *device;
    struct np_cuda_layout layout = {0};
    struct np_cuda_arrays arrays = {.layout = &layout};
    struct np_cuda_program *program = NULL;
    struct np_err err = {0};
    int precision = 0;

    if (argc != 7)
        return 2;
    while (precision < 3 && strcmp(precisions[precision], argv[1]) != 0)
        precision++;
    char *text = made_read(argv[2]);
    if (!text || precision == 3)
        return 2;
    const struct made made = {atoi(argv[6]), atoi(argv[3]), atoi(argv[3]), atoi(argv[4]),
        atoi(argv[5]), (enum np_dtype)precision};
    struct np_graph *graph = made_good_graph(text, made);
    if (!graph || np_autodiff(graph, &err) < 0)
        return fail("graph", &err);
    if (np_device_open("cuda:0", NULL, &device, &err) < 0)
        return fail("device", &err);
    struct np_cuda *cuda = device->state;
    struct np_cuda_convs *convs = np_cuda_convs_new(&cuda->target, 0);
    const struct np_cuda_parts of = {cuda, convs, NULL, &options};
    if (np_cuda_layout_init(&layout, graph, false, &err) < 0 ||
        np_cuda_program_new(&of, graph, &arrays, &rules, &program, &err) < 0)
        return fail("program", &err);
    for (int n = 0; n < program->graph->nr_nodes; n++)
        count(program, &program->calls[n]);
    count_update(program);
    for (int i = 0; i < NR_PARTS; i++)
        if (parts[i].launches)
            printf("%s; %llu %llu %llu\n", names[i], (unsigned long long)parts[i].launches,
                (unsigned long long)parts[i].read, (unsigned long long)parts[i].written);
    np_cuda_program_free(program);
    np_cuda_convs_free(convs);
    np_cuda_layout_fini(&layout);
    np_device_close(device);
    np_graph_free(graph);
    free(text);
    return 0;
}
