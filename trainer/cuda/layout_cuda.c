#include "trainer/cuda/layout_cuda.h"

#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/cuda/kernels_cuda.h"
#include "trainer/muon.h"

static int padded_channels(const struct np_graph *graph)
{
    const struct np_tensor *input = &graph->tensors[graph->input];
    int c = input->dims[3], unit = input->dtype == NP_F32 ? 4 : 8;

    for (int n = 0; n < graph->nr_nodes; n++)
        for (int i = 0; i < graph->nodes[n].nr_ins; i++) {
            const struct np_op_node *node = &graph->nodes[n];

            if (node->ins[i] == graph->input &&
                ((node->op != NP_OP_CONV && node->op != NP_OP_CONV_WGRAD) ||
                    node->attrs.window.groups != 1))
                return c;
        }
    return (c + unit - 1) / unit * unit;
}

struct np_graph *np_cuda_graph(const struct np_graph *graph)
{
    struct np_graph *copy = np_graph_copy(graph);
    int padded = padded_channels(graph);

    if (padded == graph->tensors[graph->input].dims[3])
        return copy;
    copy->tensors[copy->input].dims[3] = padded;
    for (int n = 0; n < copy->nr_nodes; n++) {
        const struct np_op_node *node = &copy->nodes[n];

        if (node->ins[0] != copy->input)
            continue;
        if (node->op == NP_OP_CONV)
            copy->tensors[node->ins[1]].dims[1] = padded;
        else if (node->op == NP_OP_CONV_WGRAD)
            copy->tensors[node->outs[0]].dims[1] = padded;
    }
    return copy;
}

/* --- places ---------------------------------------------------------------------------------- */

static bool is_conv(const struct np_tensor *tensor)
{
    return tensor->nr_dims == 4;
}

static void place(struct np_cuda_layout *layout, const struct np_graph *device, bool convs)
{
    for (int t = 0; t < device->nr_tensors; t++) {
        const struct np_tensor *tensor = &device->tensors[t];

        if (tensor->role != NP_ROLE_PARAM || is_conv(tensor) != convs)
            continue;
        layout->offsets[t] = layout->nr_params;
        layout->nr_params +=
            (np_tensor_elements(tensor) + NP_CUDA_CHUNK - 1) / NP_CUDA_CHUNK * NP_CUDA_CHUNK;
    }
}

/* Returns the number of a rule; a new one is added. */
static int number_of(struct np_cuda_layout *layout, const struct np_rule *rule, bool for_matrices)
{
    for (int r = 0; r < layout->nr_rules; r++) {
        const struct np_rule *known = &layout->rules[r];

        if (known->lr == rule->lr && known->decay == rule->decay && known->thaw == rule->thaw &&
            known->stop == rule->stop && layout->for_matrices[r] == for_matrices)
            return r;
    }
    if (layout->nr_rules < NP_CUDA_MAX_RULES) {
        layout->rules[layout->nr_rules] = *rule;
        layout->for_matrices[layout->nr_rules] = for_matrices;
    }
    return layout->nr_rules++;
}

static void add_matrix(struct np_cuda_layout *layout, const struct np_graph *device, int t)
{
    const struct np_tensor *file = &layout->files->tensors[t];
    const uint64_t rows = np_muon_rows(layout->files, t);

    layout->matrices[layout->nr_matrices++] = (struct np_cuda_matrix){
        .at = layout->offsets[t],
        .rows = rows,
        .cols = np_tensor_elements(&device->tensors[t]) / rows,
        .rate = np_muon_rate(rows, np_tensor_elements(file) / rows),
        .thaw = file->rule.thaw,
    };
}

static void find_rules(
    struct np_cuda_layout *layout, const struct np_graph *device, bool muon, struct np_err *err)
{
    layout->rules = np_alloc_array(NP_CUDA_MAX_RULES, sizeof(*layout->rules));
    layout->for_matrices = np_alloc_array(NP_CUDA_MAX_RULES, sizeof(*layout->for_matrices));
    layout->matrices = np_alloc_array((size_t)device->nr_tensors, sizeof(*layout->matrices));
    for (int t = 0; t < device->nr_tensors; t++) {
        const struct np_tensor *tensor = &device->tensors[t];
        const bool matrix = muon && np_muon_rows(layout->files, t) > 0;

        if (matrix)
            add_matrix(layout, device, t);
        if (tensor->role == NP_ROLE_PARAM)
            memset(layout->rule_of + layout->offsets[t] / NP_CUDA_CHUNK,
                number_of(layout, &tensor->rule, matrix),
                (np_tensor_elements(tensor) + NP_CUDA_CHUNK - 1) / NP_CUDA_CHUNK);
    }
    if (layout->nr_rules > NP_CUDA_MAX_RULES)
        np_err_set(err, -ENOTSUP,
            "the parameters have %d different rates and decays; a GPU takes up to %d",
            layout->nr_rules, NP_CUDA_MAX_RULES);
}

int np_cuda_layout_init(
    struct np_cuda_layout *layout, const struct np_graph *files, bool muon, struct np_err *err)
{
    struct np_graph *device = np_cuda_graph(files);

    *layout = (struct np_cuda_layout){.files = files};
    layout->offsets = np_alloc_array((size_t)device->nr_tensors, sizeof(*layout->offsets));
    place(layout, device, true);
    layout->nr_convs = layout->nr_params;
    place(layout, device, false);
    layout->rule_of = np_try_alloc(layout->nr_params / NP_CUDA_CHUNK + 1, err);
    if (layout->rule_of)
        find_rules(layout, device, muon, err);
    np_graph_free(device);
    return err->code;
}

void np_cuda_layout_fini(struct np_cuda_layout *layout)
{
    np_free(layout->offsets);
    np_free(layout->rule_of);
    np_free(layout->rules);
    np_free(layout->for_matrices);
    np_free(layout->matrices);
    *layout = (struct np_cuda_layout){0};
}

/* --- copies ---------------------------------------------------------------------------------- */

/* (out, in, kh, kw) of the files <-> (out, kh, kw, padded) of the device. */
static void copy_conv(
    const struct np_tensor *tensor, int padded, float *file, float *device, bool to_device)
{
    int out = tensor->dims[0], in = tensor->dims[1], pixels = tensor->dims[2] * tensor->dims[3];

    for (int o = 0; o < out; o++)
        for (int i = 0; i < in; i++)
            for (int p = 0; p < pixels; p++) {
                float *f = &file[((size_t)o * (size_t)in + (size_t)i) * (size_t)pixels + (size_t)p];
                float *d =
                    &device[((size_t)o * (size_t)pixels + (size_t)p) * (size_t)padded + (size_t)i];

                *(to_device ? d : f) = *(to_device ? f : d);
            }
}

/* Only the input's convolutions have more channels on the device than in the files. */
static int channels_on_device(const struct np_cuda_layout *layout, int t)
{
    const struct np_graph *graph = layout->files;

    for (int n = 0; n < graph->nr_nodes; n++)
        if (graph->nodes[n].op == NP_OP_CONV && graph->nodes[n].ins[1] == t &&
            graph->nodes[n].ins[0] == graph->input)
            return padded_channels(graph);
    return graph->tensors[t].dims[1];
}

static void copy_all(
    const struct np_cuda_layout *layout, float *files, float *device, bool to_device)
{
    for (int t = 0; t < layout->files->nr_tensors; t++) {
        const struct np_tensor *tensor = &layout->files->tensors[t];
        float *file = files + tensor->offset, *dev = device + layout->offsets[t];

        if (tensor->role != NP_ROLE_PARAM)
            continue;
        if (is_conv(tensor))
            copy_conv(tensor, channels_on_device(layout, t), file, dev, to_device);
        else
            memcpy(to_device ? dev : file, to_device ? file : dev,
                np_tensor_elements(tensor) * sizeof(float));
    }
}

void np_cuda_layout_pack(const struct np_cuda_layout *layout, const float *files, float *device)
{
    memset(device, 0, layout->nr_params * sizeof(float));
    copy_all(layout, (float *)files, device, true); /* only read in this direction */
}

void np_cuda_layout_unpack(const struct np_cuda_layout *layout, const float *device, float *files)
{
    copy_all(layout, files, (float *)device, false); /* only read in this direction */
}
