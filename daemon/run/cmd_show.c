/* `nnpipe show CONFIG|RUN|FILE`: prints the resolved config, then each layer with its output shape,
 * parameters and FLOPs for one image. The text is a valid config, because the layers are
 * comments. Of a FILE of weights it lists the tensors. */
#include <stdio.h>
#include <sys/stat.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/run/inference.h"
#include "daemon/run/show_weights.h"
#include "loader/base/clock.h"
#include "loader/base/json.h"
#include "daemon/config/setup.h"
#include "loader/base/yaml.h"
#include "trainer/checkpoint/weights_file.h"

static uint64_t node_params(const struct np_graph *graph, const struct np_op_node *node)
{
    uint64_t n = 0;

    for (int i = 0; i < node->nr_ins; i++)
        if (node->ins[i] >= 0 && graph->tensors[node->ins[i]].role == NP_ROLE_PARAM)
            n += np_tensor_elements(&graph->tensors[node->ins[i]]);
    return n;
}

/* Hides nodes that are no layer for the user. A batchnorm is two nodes, its statistics and the
 * rest: only the second is shown. */
static bool is_hidden(enum np_op op)
{
    return op == NP_OP_INPUT || op == NP_OP_BN_STATS || np_op_is_loss(op);
}

/* The output's (channels, height, width), torch's order, or only the features of a linear layer.
 * Returns the number of dimensions. */
static int output_shape(const struct np_graph *graph, const struct np_op_node *node, int shape[3],
    char *text, size_t text_bytes)
{
    const int *dims = graph->tensors[node->outs[0]].dims;

    shape[0] = dims[3];
    shape[1] = dims[1];
    shape[2] = dims[2];
    if (shape[1] == 1 && shape[2] == 1 && (node->op == NP_OP_LINEAR || node->op == NP_OP_FLATTEN)) {
        snprintf(text, text_bytes, "%d", shape[0]);
        return 1;
    }
    snprintf(text, text_bytes, "%dx%dx%d", shape[0], shape[1], shape[2]);
    return 3;
}

static void print_row(
    const char *name, const char *op, const char *output, uint64_t params, uint64_t flops)
{
    printf("# %-32s %-16s %-16s %12llu %16llu\n", name, op, output, (unsigned long long)params,
        (unsigned long long)flops);
}

/* The layer's name in a config. */
static const char *layer_of(const struct np_op_node *node)
{
    switch (node->op) {
    case NP_OP_BN_APPLY: return "batchnorm";
    case NP_OP_ACT: return np_act_names[node->attrs.act];
    case NP_OP_NORM: return node->attrs.groups ? "groupnorm" : "layernorm";
    case NP_OP_TOKENS: return "first_token";
    default: return np_op_names[node->op];
    }
}

static void print_layers(const struct np_graph *graph, struct np_json *line, bool json)
{
    uint64_t params = 0, flops = 0;

    if (!json)
        printf("\n# %-32s %-16s %-16s %12s %16s\n", "layer", "op", "output", "parameters", "FLOPs");
    for (int i = 0; i < graph->nr_nodes; i++) {
        const struct np_op_node *node = &graph->nodes[i];
        const char *op = layer_of(node);
        const uint64_t own = node_params(graph, node), work = np_node_flops(graph, node);
        char text[64];
        int shape[3];

        params += own;
        flops += work;
        if (is_hidden(node->op))
            continue;
        const int n = output_shape(graph, node, shape, text, sizeof(text));
        if (!json) {
            print_row(node->name, op, text, own, work);
            continue;
        }
        np_json_begin(line, "layers");
        np_json_text(line, "name", node->name);
        np_json_text(line, "op", op);
        np_json_ints(line, "shape", shape, n);
        np_json_int(line, "parameters", (int64_t)own);
        np_json_int(line, "flops", (int64_t)work);
        np_json_print(line, stdout);
    }
    if (!json) {
        print_row("total", "", "", params, flops);
        return;
    }
    np_json_begin(line, "total");
    np_json_int(line, "parameters", (int64_t)params);
    np_json_int(line, "flops", (int64_t)flops);
    np_json_print(line, stdout);
}

static void print(const struct np_config *config, const struct np_graph *graph, bool json)
{
    struct np_node *resolved = np_config_node(config);
    struct np_json line = {0};

    if (json) {
        np_json_begin(&line, "config");
        np_json_node(&line, "config", resolved);
        np_json_print(&line, stdout);
    } else {
        np_node_print(stdout, resolved);
    }
    print_layers(graph, &line, json);
    np_json_fini(&line);
    np_node_free(resolved);
}

/* Uses the classes and the picture size of the data; without data it guesses them. */
static int show(const struct np_config *config, const struct np_overrides *overrides, bool json)
{
    uint64_t last_ns = np_now_ns();
    const struct np_source_progress progress = {
        .note = np_note, .count = np_note_listing, .context = &last_ns};
    struct np_setup setup = {0};
    struct np_graph_input input;
    struct np_report report;
    struct np_err err = {0};
    char guess[NP_GUESS_TEXT];

    np_config_report(config, &report);
    np_loader_row_sizes(&config->loader, &setup.sets.size);
    if (np_sets_open(&config->sets, &progress, &setup.sets, &err) < 0)
        fprintf(stderr, "the data are not checked: %s\n", err.text);
    int classes = setup.sets.classes ? setup.sets.classes->nr_items : 0;
    bool guessed = np_network_guess(&config->network, &setup.sets.size, &classes, guess);
    np_network_input(&config->network, setup.sets.size.height, setup.sets.size.width, classes,
        config->precision < 0 ? NP_F32 : (enum np_dtype)config->precision, &input);
    input.classes_guessed = !setup.sets.classes;
    struct np_graph *graph = np_network_build(&config->network, &input, &report);
    np_complain_report(&report, overrides);
    if (graph) {
        print(config, graph, json);
        if (guessed)
            fprintf(stderr, "for the model's shapes %s\n", guess);
    }
    np_graph_free(graph);
    np_setup_fini(&setup);
    np_report_fini(&report);
    return graph ? NP_EXIT_DONE : NP_EXIT_USAGE;
}

int np_cmd_show(int argc, char **argv)
{
    bool json = false;
    const struct np_flag flags[] = {{"--json", NULL, &json, NULL}, {NULL, NULL, NULL, NULL}};
    struct np_overrides overrides = {0};
    struct np_config *config = NULL;
    struct stat stat_;
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code == 0 && nr != 1)
        code = np_usage("show", "expected one CONFIG, RUN or FILE of weights, not %d", nr);
    if (code == 0 && np_weights_is_file(argv[1]))
        return np_show_weights(argv[1], json);
    char *own = code == 0 && stat(argv[1], &stat_) == 0 && S_ISDIR(stat_.st_mode)
                    ? np_inference_config(argv[1])
                    : NULL;
    if (code == 0)
        code = np_cmd_config(own ? own : argv[1], &overrides, NULL, &config);
    np_free(own);
    if (code == 0)
        code = show(config, &overrides, json);
    np_config_free(config);
    return code;
}
