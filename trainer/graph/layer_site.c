/* Helpers for the layer table's rows: names, tensors and nodes of a layer at its site, windows,
 * mistakes. Config time, one thread. */
#include "trainer/graph/layer_site.h"

#include <stdarg.h>
#include <stdio.h>

#define MAX_NAME 4096

int np_layer_mistake(const struct np_layer_site *site, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    np_report_add(site->report, site->node->line, site->node->column, "%s '%s': %s", site->layer,
        site->name, text);
    return -1;
}

struct np_shape np_site_shape(const struct np_layer_site *site, int tensor)
{
    const int *dims = site->graph->tensors[tensor].dims;

    return (struct np_shape){dims[1], dims[2], dims[3]};
}

/* Names are at most MAX_NAME - 64 long: nothing is truncated. */
int np_site_tensor(const struct np_layer_site *site, const char *suffix, enum np_role role,
    enum np_dtype dtype, int nr_dims, const int *dims)
{
    char name[MAX_NAME];

    snprintf(name, sizeof(name), "%s%s%s", site->name, *suffix ? "." : "", suffix);
    return np_graph_tensor(site->graph, name, role, dtype, nr_dims, dims);
}

int np_site_activation(const struct np_layer_site *site, struct np_shape s)
{
    const int dims[] = {site->graph->batch, s.h, s.w, s.c};
    /* Rows first: h * w * c alone may be past 2^64 only when each is past 2^21. */
    double elements = (double)dims[0] * s.h * s.w * s.c;

    if (elements >= (double)NP_MAX_ELEMENTS)
        return np_layer_mistake(site,
            "its output, a batch of %d times %dx%dx%d, has 2^31 elements or more; make batch, "
            "image or layer smaller",
            dims[0], s.h, s.w, s.c);
    return np_site_tensor(site, "", NP_ROLE_ACTIVATION, site->input->precision, 4, dims);
}

int np_site_node(const struct np_layer_site *site, enum np_op op)
{
    return np_graph_node(site->graph, op, site->name, site->node->line);
}

int np_site_simple(const struct np_layer_site *site, enum np_op op, struct np_shape s)
{
    int y = np_site_activation(site, s), node;

    if (y < 0)
        return -1;
    node = np_site_node(site, op);
    np_graph_in(site->graph, node, site->ins[0]);
    np_graph_out(site->graph, node, y);
    return node;
}

int np_site_output(const struct np_layer_site *site, int node)
{
    return node < 0 ? -1 : site->graph->nodes[node].outs[0];
}

/* A window along one side. */
struct side {
    int size, kernel, stride, pad, dilation;
};

static int reach_of(struct side s)
{
    return s.dilation * (s.kernel - 1) + 1;
}

/* Output size, as torch: floor((size + 2 pad - reach) / stride) + 1; rounded up, the last window must
 * begin inside the picture or the padding before it. */
static int slide(struct side s, bool ceil_mode)
{
    int steps = s.size + 2 * s.pad - reach_of(s);
    int out = (steps + (ceil_mode ? s.stride - 1 : 0)) / s.stride + 1;

    return ceil_mode && (out - 1) * s.stride >= s.size + s.pad ? out - 1 : out;
}

int np_site_window(const struct np_layer_site *site, const struct np_window *w, bool ceil_mode,
    struct np_shape *ret_shape)
{
    struct np_shape x = np_site_shape(site, site->ins[0]);
    const struct side h = {x.h, w->kernel_h, w->stride_h, w->pad_h, w->dilation_h};
    const struct side v = {x.w, w->kernel_w, w->stride_w, w->pad_w, w->dilation_w};
    char padded[48] = "", dilated[48] = "", text[24];

    if (h.size + 2 * h.pad >= reach_of(h) && v.size + 2 * v.pad >= reach_of(v)) {
        ret_shape->h = slide(h, ceil_mode);
        ret_shape->w = slide(v, ceil_mode);
        return 0;
    }
    if (h.pad || v.pad)
        snprintf(padded, sizeof(padded), " with pad %s", np_axes_text(text, h.pad, v.pad));
    if (h.dilation > 1 || v.dilation > 1)
        snprintf(dilated, sizeof(dilated), " with dilation %s",
            np_axes_text(text, h.dilation, v.dilation));
    return np_layer_mistake(site, "input %dx%d%s is smaller than kernel %dx%d%s", x.h, x.w, padded,
        w->kernel_h, w->kernel_w, dilated);
}

bool np_site_param(const struct np_layer_site *site, int node, const struct np_site_param *param,
    int nr_dims, const int *dims)
{
    double all = (double)site->graph->nr_params, elements = 1;

    for (int i = 0; i < nr_dims; i++)
        elements *= dims[i];
    if (all + elements >= (double)NP_MAX_ELEMENTS) {
        np_layer_mistake(site, "with its %s the model has 2^31 parameters or more",
            *param->suffix ? param->suffix : "values");
        return false;
    }
    int t = np_site_tensor(site, param->suffix, param->role, NP_F32, nr_dims, dims);
    struct np_tensor *tensor = &site->graph->tensors[t];
    tensor->init = param->init;
    tensor->init_value = param->init_value;
    tensor->fan_in = param->fan_in;
    tensor->fan_out = param->fan_out;
    tensor->rule.decay = param->decay;
    np_graph_in(site->graph, node, t);
    return true;
}
