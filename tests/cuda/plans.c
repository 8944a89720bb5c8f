/* plans GPU.json PRECISION CONFIG HEIGHT CHANNELS CLASSES BATCH [free|tf32]: the network of a
 * config, lowered for a GPU that is only described, each of its convolutions put before cuDNN
 * itself. Prints what became of its nodes, and how the memory plan stands to the plans' workspaces;
 * fails when cuDNN has no plan for one. Then once more with each shape's first plan as the known
 * choice: that plan alone is built for each. free: not deterministic; tf32: allowed. Needs cuDNN,
 * no GPU; with a libcuda.so.1 like tests/emu/stub_driver.c also the engines that compile at run
 * time are built. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "tests/kernel/made_graphs.h"
#include "trainer/cuda/program_cuda.h"

#define MAX_NAMES 64

struct counted {
    const char *name;
    int n;
};

static void count(struct counted *names, const char *name)
{
    for (int i = 0; i < MAX_NAMES; i++) {
        if (names[i].name && strcmp(names[i].name, name) != 0)
            continue;
        names[i].name = name;
        names[i].n++;
        return;
    }
}

static int fail(const char *what, const struct np_err *err)
{
    printf("%s: %s\n", what, err->text);
    return 1;
}

/* Arena and workspace beside the sum of all activations: a plan that shared nothing would be far
 * larger, one that forgot a workspace smaller. */
static int report(const struct np_cuda_program *program, const char *title)
{
    const struct np_graph *graph = program->graph;
    struct counted names[MAX_NAMES] = {0};
    uint64_t all = 0;

    for (int n = 0; n < graph->nr_nodes; n++)
        count(names, np_cuda_call_name(&program->calls[n]));
    for (int t = 0; t < graph->nr_tensors; t++)
        if (graph->tensors[t].role == NP_ROLE_ACTIVATION || graph->tensors[t].role == NP_ROLE_SAVED)
            all += np_tensor_elements(&graph->tensors[t]) * np_dtype_bytes(graph->tensors[t].dtype);
    printf("%s: %d nodes, arena %.1f MB of %.1f, workspace %.1f MB:", title, graph->nr_nodes,
        (double)program->memory.arena_bytes * 1e-6, (double)all * 1e-6,
        (double)np_cuda_program_workspace_bytes(program) * 1e-6);
    for (int i = 0; i < MAX_NAMES && names[i].name; i++)
        printf("%s %s %d", i ? "," : "", names[i].name, names[i].n);
    printf("\n");
    return program->memory.arena_bytes == 0 || program->memory.arena_bytes > all;
}

/* Plans asked for: cuDNN's own function, counted. */
static int nr_builds;
static cudnnStatus_t (*new_descriptor)(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);

static cudnnStatus_t count_plans(
    cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *ret_descriptor)
{
    nr_builds += type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
    return new_descriptor(type, ret_descriptor);
}

/* A network's two graphs, and what they are lowered with. */
struct network {
    struct np_cuda *cuda;
    const struct np_graph *graphs[2]; /* train, eval */
    const struct np_dnn_rules *rules;
    const char *title;
};

/* The descriptor of a GPU that only this JSON describes; NULL: cuDNN refuses it. */
static cudnnBackendDescriptor_t described(const struct np_cudnn *cudnn, const char *json)
{
    cudnnBackendDescriptor_t props = NULL;

    return cudnn->new_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &props) ||
                   cudnn->set(props, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                       (int64_t)strlen(json), json) ||
                   cudnn->finalize(props)
               ? NULL
               : props;
}

/* As if each shape's first plan had been chosen. */
static int note_choice(const struct np_cuda_conv *conv, struct np_engines *engines)
{
    return conv ? np_engines_put(engines, conv->shape->key, np_cuda_conv_taken(conv), 1, NULL) : 0;
}

static int note_choices(const struct np_cuda_program *program, struct np_engines *engines)
{
    int code = 0;

    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++) {
        code = note_choice(program->calls[n].conv, engines);
        if (code == 0)
            code = note_choice(program->calls[n].summing, engines);
    }
    return code;
}

/* ret_engines: NULL, or where the choices go, and a table is printed. */
static int lower(
    const struct network *network, struct np_engines *known, struct np_engines *ret_engines)
{
    static const char *const names[] = {"train", "eval"};
    static const struct np_plan_options options;
    struct np_cuda_convs *convs = np_cuda_convs_new(&network->cuda->target, 0);
    const struct np_cuda_parts parts = {network->cuda, convs, known, &options};
    int bad = 0;

    for (int g = 0; g < 2; g++) {
        struct np_cuda_program *program = NULL;
        struct np_cuda_layout layout = {0};
        const struct np_cuda_arrays arrays = {.layout = &layout};
        struct np_err err = {0};
        char title[300];

        snprintf(title, sizeof(title), "%s %s", network->title, names[g]);
        if (np_cuda_layout_init(&layout, network->graphs[g], false, &err) < 0 ||
            np_cuda_program_new(
                &parts, network->graphs[g], &arrays, network->rules, &program, &err) < 0)
            bad |= fail(title, &err);
        else if (ret_engines)
            bad |= report(program, title) | (note_choices(program, ret_engines) < 0);
        np_cuda_program_free(program);
        np_cuda_layout_fini(&layout);
    }
    if (convs->nr_lost > 0) {
        printf(
            "%s: %s: %s is not offered again\n", network->title, convs->lost_node, convs->lost_id);
        bad = 1;
    }
    np_cuda_convs_free(convs);
    return bad;
}

/* With nothing known, and with each shape's choice. */
static int lower_twice(const struct network *network)
{
    struct np_engines *engines = np_engines_new();
    int bad = lower(network, NULL, engines), first = nr_builds;

    nr_builds = 0;
    bad |= lower(network, engines, NULL);
    printf("%s: %d plans to choose from %d shapes, %d where the choices are known\n",
        network->title, first, engines->n, nr_builds);
    bad |= nr_builds != engines->n;
    np_engines_free(engines);
    return bad;
}

int main(int argc, char **argv)
{
    static const char *const precisions[] = {"f32", "bf16", "f16"};
    struct np_err err = {0};
    static struct np_cuda cuda;
    char title[256];
    int precision = 0, bad;
    const char *how = argc == 9 ? argv[8] : "";
    const struct np_dnn_rules rules = {
        .deterministic = strcmp(how, "free") != 0, .tf32 = strcmp(how, "tf32") == 0};

    if (argc != 8 && (argc != 9 || (rules.deterministic && !rules.tf32)))
        return 2;
    while (precision < 3 && strcmp(precisions[precision], argv[2]) != 0)
        precision++;
    char *json = NULL, *text = made_read(argv[3]);
    uint64_t bytes;
    np_read_file(argv[1], 1 << 20, &json, &bytes, NULL);
    if (!json || !text || precision == 3)
        return 2;
    const struct made made = {atoi(argv[7]), atoi(argv[4]), atoi(argv[4]), atoi(argv[5]),
        atoi(argv[6]), (enum np_dtype)precision};
    struct np_graph *graph = made_good_graph(text, made);
    struct np_graph *eval = graph ? np_graph_eval(graph) : NULL;
    if (!graph || !eval || np_autodiff(graph, &err) < 0)
        return fail("graph", &err);
    if (np_cuda_libs_open(&cuda.libs, &err) < 0)
        return fail("libraries", &err);
    cuda.target.cudnn = &cuda.libs.cudnn;
    cuda.target.props = described(cuda.target.cudnn, json);
    if (!cuda.target.props && np_err_set(&err, -1, "cuDNN refuses the description of a GPU"))
        return fail(argv[1], &err);
    snprintf(title, sizeof(title), "%s %s%s%s", argv[3], argv[2], *how ? " " : "", how);
    new_descriptor = cuda.libs.cudnn.new_descriptor;
    cuda.libs.cudnn.new_descriptor = count_plans;
    bad = lower_twice(&(struct network){&cuda, {graph, eval}, &rules, title});
    np_dnn_drop(cuda.target.cudnn, &cuda.target.props, 1);
    np_cuda_libs_close(&cuda.libs);
    np_graph_free(eval);
    np_graph_free(graph);
    np_free(json);
    free(text);
    return bad;
}
