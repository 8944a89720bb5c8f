/* The graph of the shipped configs: torchvision's names, shapes and numbers of parameters; copies,
 * costs, initial values, and the evaluation graph. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/yaml.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"

static struct np_graph *config_graph(const char *path, struct made made)
{
    char *text = made_read(path);
    struct np_graph *graph = made_good_graph(text, made);

    free(text);
    return graph;
}

static const struct made imagenet = {2, 224, 224, 3, 1000, NP_F32};

static bool has_dims(const struct np_graph *graph, const char *name, int n, const int *dims)
{
    int t = made_tensor(graph, name);

    return t >= 0 && graph->tensors[t].nr_dims == n &&
           memcmp(graph->tensors[t].dims, dims, (size_t)n * sizeof(*dims)) == 0;
}
#define DIMS(...)                                                                                  \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[])                               \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static uint64_t forward_flops(const struct np_graph *graph)
{
    uint64_t flops = 0;

    for (int n = 0; n < graph->nr_forward; n++)
        flops += np_node_flops(graph, &graph->nodes[n]);
    return flops;
}

static int count(const struct np_graph *graph, enum np_role role)
{
    int n = 0;

    for (int t = 0; t < graph->nr_tensors; t++)
        n += graph->tensors[t].role == role;
    return n;
}

Test(graph, resnet18_has_torchvisions_parameters)
{
    struct np_graph *graph = config_graph("configs/resnet18.yaml", imagenet);

    cr_assert_not_null(graph);
    cr_assert_eq(graph->nr_params, 11689512);
    cr_assert_eq(count(graph, NP_ROLE_PARAM), 62);
    cr_assert_eq(count(graph, NP_ROLE_BUFFER), 40);
    cr_assert(has_dims(graph, "conv1.weight", DIMS(64, 3, 7, 7)));
    cr_assert(has_dims(graph, "bn1.running_mean", DIMS(64)));
    cr_assert(has_dims(graph, "layer1.0.bn2.running_mean", DIMS(64)));
    cr_assert(has_dims(graph, "layer2.0.downsample.0.weight", DIMS(128, 64, 1, 1)));
    cr_assert(has_dims(graph, "layer2.0.downsample.1.running_var", DIMS(128)));
    cr_assert(has_dims(graph, "layer4.1.conv2.weight", DIMS(512, 512, 3, 3)));
    cr_assert(has_dims(graph, "fc.weight", DIMS(1000, 512)));
    cr_assert(has_dims(graph, "fc.bias", DIMS(1000)));
    cr_assert(made_tensor(graph, "layer1.0.downsample.0.weight") < 0);
    cr_assert(made_tensor(graph, "layer2.1.downsample.0.weight") < 0);
    cr_assert_eq(forward_flops(graph), 2 * 1814073344ull); /* 1.81 GMAC */
    np_graph_free(graph);
}

Test(graph, resnet50_has_torchvisions_parameters)
{
    struct np_graph *graph = config_graph("configs/resnet50.yaml", imagenet);

    cr_assert_not_null(graph);
    cr_assert_eq(graph->nr_params, 25557032);
    cr_assert_eq(count(graph, NP_ROLE_PARAM), 161);
    cr_assert(has_dims(graph, "layer1.0.downsample.0.weight", DIMS(256, 64, 1, 1)));
    cr_assert(has_dims(graph, "layer1.2.conv3.weight", DIMS(256, 64, 1, 1)));
    cr_assert(has_dims(graph, "layer3.5.conv2.weight", DIMS(256, 256, 3, 3)));
    cr_assert(has_dims(graph, "layer4.0.downsample.1.weight", DIMS(2048)));
    cr_assert(has_dims(graph, "fc.weight", DIMS(1000, 2048)));
    cr_assert_eq(forward_flops(graph), 2 * 4089184256ull); /* 4.09 GMAC */
    np_graph_free(graph);
}

Test(graph, alexnet_has_torchvisions_parameters)
{
    struct np_graph *graph = config_graph("configs/alexnet.yaml", imagenet);

    cr_assert_not_null(graph);
    cr_assert_eq(graph->nr_params, 61100840);
    cr_assert(has_dims(graph, "features.0.weight", DIMS(64, 3, 11, 11)));
    cr_assert(has_dims(graph, "features.10.bias", DIMS(256)));
    cr_assert(has_dims(graph, "classifier.1.weight", DIMS(4096, 9216)));
    cr_assert(has_dims(graph, "classifier.6.weight", DIMS(1000, 4096)));
    np_graph_free(graph);
}

Test(graph, small_configs_have_the_parameters_they_should)
{
    static const struct {
        const char *path;
        int size, channels;
        uint64_t params;
    } nets[] = {{"configs/mnist.yaml", 28, 1, 61706}, {"configs/resnet20.yaml", 32, 3, 272474},
        {"configs/cnn.yaml", 32, 3, 94762}, {"configs/cifar10.yaml", 32, 3, 539178},
        {"configs/airbench94.yaml", 32, 3, 1972802}};

    for (int i = 0; i < 5; i++) {
        struct made made = {4, nets[i].size, nets[i].size, nets[i].channels, 10, NP_F32};
        struct np_graph *graph = config_graph(nets[i].path, made);

        cr_assert_not_null(graph);
        cr_assert_eq(graph->nr_params, nets[i].params);
        np_graph_free(graph);
    }
}

Test(graph, resnets_are_at_most_40_lines)
{
    static const char *const paths[] = {
        "configs/resnet18.yaml", "configs/resnet50.yaml", "configs/resnet20.yaml"};

    for (int i = 0; i < 3; i++) {
        char *text = NULL;
        uint64_t bytes;
        int lines = 0;

        cr_assert_eq(np_read_file(paths[i], 65536, &text, &bytes, NULL), 0);
        for (const char *at = text; *at; at++)
            lines += *at == '\n';
        np_free(text);
        cr_assert_gt(lines, 10);
        cr_assert_leq(lines, 40);
    }
}

static const char small_net[] = "model:\n"
                                "  - conv: {out: 8, kernel: 3, groups: 1}\n"
                                "  - batchnorm: {zero_init: true}\n"
                                "  - relu\n"
                                "  - maxpool: {kernel: 2}\n"
                                "  - dropout: {rate: 0.25}\n"
                                "  - conv: {out: 8, kernel: 3, groups: 4, init: kaiming_normal}\n"
                                "  - flatten\n"
                                "  - dropout\n"
                                "  - linear: {out: classes, init: xavier_uniform}\n";

Test(graph, initial_values_follow_their_distributions)
{
    struct np_graph *graph = made_good_graph(small_net, (struct made){2, 12, 12, 3, 64, NP_F32});
    float *params, *buffers;
    double sum = 0, squares = 0;
    int t;

    cr_assert_not_null(graph);
    params = calloc(graph->nr_params, sizeof(float));
    buffers = calloc(graph->nr_buffers, sizeof(float));
    np_graph_init(graph, 1, params, buffers);
    t = made_tensor(graph, "0.weight"); /* uniform, 1/sqrt(27) */
    for (int i = 0; i < 216; i++) {
        cr_assert_leq(fabs((double)params[graph->tensors[t].offset + (uint64_t)i]), 1 / sqrt(27));
        sum += params[graph->tensors[t].offset + (uint64_t)i];
    }
    cr_assert_float_eq(sum / 216, 0, 0.03);
    t = made_tensor(graph, "1.weight");
    cr_assert_eq(params[graph->tensors[t].offset], 0); /* zero_init */
    t = made_tensor(graph, "1.running_var");
    cr_assert_eq(buffers[graph->tensors[t].offset + 7], 1);
    t = made_tensor(graph, "5.weight"); /* (8, 2, 3, 3): fan_out 72 */
    for (int i = 0; i < 144; i++)
        squares += pow((double)params[graph->tensors[t].offset + (uint64_t)i], 2);
    cr_assert_float_eq(sqrt(squares / 144), sqrt(2.0 / 72), 0.03);
    t = made_tensor(graph, "8.weight");
    cr_assert_eq(graph->tensors[t].fan_in, 72);
    for (uint64_t i = 0, n = 64 * 72; i < n; i++)
        cr_assert_leq(fabs((double)params[graph->tensors[t].offset + i]), sqrt(6.0 / (72 + 64)));
    free(params);
    free(buffers);
    np_graph_free(graph);
}

/* torch.nn.init.kaiming_uniform_ of (64, 4, 6, 6): within sqrt(6 / 144), with a deviation of sqrt(2 / 144);
 * the default's deviation is sqrt(1 / 3 / 144). */
Test(graph, kaiming_uniform_is_torchs_and_wider_than_the_default)
{
    const char *const words[] = {"kaiming_uniform", "default"};
    const double bounds[] = {sqrt(6.0 / 144), sqrt(1.0 / 144)};

    for (int w = 0; w < 2; w++) {
        char text[256];
        double largest = 0, squares = 0;

        snprintf(text, sizeof(text),
            "model: [conv: {out: 64, kernel: 6, bias: false, init: %s}, flatten, "
            "linear: {out: classes, init: %s}]",
            words[w], words[w]);
        struct np_graph *graph = made_good_graph(text, (struct made){2, 8, 8, 4, 8, NP_F32});
        cr_assert_not_null(graph);
        float *params = calloc(graph->nr_params, sizeof(float));
        np_graph_init(graph, 1, params, NULL);
        for (int i = 0; i < 64 * 144; i++) {
            largest = fmax(largest, fabs((double)params[i]));
            squares += (double)params[i] * params[i];
        }
        cr_assert(largest <= bounds[w] && largest > 0.99 * bounds[w]);
        cr_assert_float_eq(sqrt(squares / (64 * 144)) / bounds[w], sqrt(1.0 / 3), 0.01);
        free(params);
        np_graph_free(graph);
    }
}

Test(graph, a_tensors_values_depend_on_its_name_and_the_seed_alone)
{
    struct np_graph *one = made_good_graph(
        "model: [conv: {name: a, out: 4, kernel: 3}, global_avgpool, linear: {out: classes}]",
        (struct made){2, 8, 8, 3, 5, NP_F32});
    struct np_graph *two = made_good_graph("model: [conv: {name: z, out: 3, kernel: 1}, "
                                           "conv: {name: a, out: 4, kernel: 3}, global_avgpool, "
                                           "linear: {out: classes}]",
        (struct made){2, 8, 8, 3, 5, NP_F32});
    float p[3][1000];
    const float *a[3];

    cr_assert(one && two && one->nr_params < 1000 && two->nr_params < 1000);
    np_graph_init(one, 1, p[0], NULL);
    np_graph_init(two, 1, p[1], NULL);
    np_graph_init(one, 2, p[2], NULL);
    a[0] = p[0] + one->tensors[made_tensor(one, "a.weight")].offset;
    a[1] = p[1] + two->tensors[made_tensor(two, "a.weight")].offset;
    a[2] = p[2] + one->tensors[made_tensor(one, "a.weight")].offset;
    cr_assert(memcmp(a[0], a[1], 108 * sizeof(float)) == 0);
    cr_assert(memcmp(a[0], a[2], 108 * sizeof(float)) != 0);
    np_graph_free(one);
    np_graph_free(two);
}

Test(graph, evaluation_graph_has_neither_statistics_nor_dropout_nor_backward)
{
    struct np_graph *graph = made_good_graph(small_net, (struct made){2, 12, 12, 3, 64, NP_BF16});
    struct np_graph *eval;
    int nr_eval = 0;

    cr_assert_not_null(graph);
    cr_assert_eq(np_autodiff(graph, NULL), 0);
    cr_assert_gt(graph->nr_nodes, graph->nr_forward);
    eval = np_graph_eval(graph);
    cr_assert_not_null(eval);
    cr_assert_eq(eval->nr_nodes, eval->nr_forward);
    for (int n = 0; n < eval->nr_nodes; n++) {
        enum np_op op = eval->nodes[n].op;

        cr_assert(op != NP_OP_BN_STATS && op != NP_OP_BN_APPLY && op != NP_OP_DROPOUT);
        nr_eval += op == NP_OP_BN_EVAL;
    }
    cr_assert_eq(nr_eval, 1);
    cr_assert_eq(eval->nr_params, graph->nr_params);
    for (int t = 0; t < graph->nr_tensors; t++)
        cr_assert(strcmp(graph->tensors[t].name, eval->tensors[t].name) == 0 &&
                  graph->tensors[t].offset == eval->tensors[t].offset);
    np_graph_free(eval);
    np_graph_free(graph);
}

Test(graph, decay_is_for_weights_of_conv_and_linear)
{
    struct np_graph *graph = made_good_graph(small_net, (struct made){2, 12, 12, 3, 64, NP_F32});

    cr_assert_not_null(graph);
    for (int t = 0; t < graph->nr_tensors; t++)
        if (graph->tensors[t].role == NP_ROLE_PARAM)
            cr_assert_eq(graph->tensors[t].rule.decay != 0, graph->tensors[t].nr_dims > 1);
    np_graph_free(graph);
}

Test(graph, normal_form_reads_back_as_the_same_graph)
{
    static const char *const paths[] = {
        "configs/resnet18.yaml", "configs/resnet50.yaml", "configs/alexnet.yaml"};

    for (int i = 0; i < 3; i++) {
        char *text = made_read(paths[i]), *printed = NULL;
        size_t bytes;
        FILE *out = open_memstream(&printed, &bytes);
        struct np_report report;
        struct np_node *root = NULL, *all = np_node_new(NP_NODE_MAP, 0, 0), *blocks;
        struct np_graph *first = made_good_graph(text, imagenet), *second;

        np_report_init(&report, "test");
        cr_assert_eq(np_yaml_parse(text, strlen(text), &root, &report), 0);
        np_node_add(all, "model", np_graph_model_node(np_node_get(root, "model")));
        if (np_node_get(root, "blocks")) {
            const struct np_node *given = np_node_get(root, "blocks");

            blocks = np_node_new(NP_NODE_MAP, 0, 0);
            for (int b = 0; b < given->nr_items; b++)
                np_node_add(blocks, given->items[b]->key, np_graph_model_node(given->items[b]));
            np_node_add(all, "blocks", blocks);
        }
        np_node_print(out, all);
        fclose(out);
        second = made_good_graph(printed, imagenet);
        cr_assert(first && second);
        cr_assert_eq(first->nr_nodes, second->nr_nodes);
        for (int n = 0; n < first->nr_nodes; n++) {
            cr_assert_str_eq(first->nodes[n].name, second->nodes[n].name);
            cr_assert(memcmp(&first->nodes[n].attrs, &second->nodes[n].attrs,
                          sizeof(first->nodes[n].attrs)) == 0);
            cr_assert(memcmp(first->nodes[n].ins, second->nodes[n].ins,
                          sizeof(first->nodes[n].ins)) == 0);
        }
        np_graph_free(first);
        np_graph_free(second);
        np_node_free(all);
        np_node_free(root);
        free(printed);
        free(text);
    }
}
