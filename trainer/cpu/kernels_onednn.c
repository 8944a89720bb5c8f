/* Convolutions by oneDNN: forward, gradient of the input, gradient of the weights.
 *
 * Activations stay plain NHWC; begin() reorders weights into the primitive's layout once a step;
 * gradients of weights are summed in that layout, and finish() reorders them. A primitive has a
 * fixed number of rows: one is made for max_rows, one for a single row, which runs the
 * remainder. Each pool thread runs its own primitives single-threaded. Two rows of the table are
 * for bf16: oneDNN's own kernels and, where it has no correct one, "by f32": activations are
 * converted to f32, computed, and rounded back. */
#include "trainer/cpu/kernels_onednn_api.h"

#include <assert.h>
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/cpu/kernels_cpu.h"

enum { FULL, ONE, NR_SIZES };

struct conv {
    enum np_op op;
    bool half;  /* activations are bf16 */
    bool wraps; /* and oneDNN computes in f32 */
    bool has_bias;
    bool relu; /* after the forward convolution */
    int nr_operands_in;
    int rows[NR_SIZES];
    size_t x_row, y_row; /* elements of a row */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t forward[NR_SIZES], desc[NR_SIZES];
    dnnl_primitive_t primitive[NR_SIZES];
    struct np_md_own x[NR_SIZES], y[NR_SIZES]; /* plain */
    struct np_md_own any_weights, file_weights, bias;
    np_md weights; /* in the primitives' layout; of desc[FULL] */
    dnnl_primitive_desc_t reorder_desc;
    dnnl_primitive_t reorder; /* file -> weights, for wgrad weights -> file */
    /* scratch: oneDNN's own, then x and y in f32, then a gradient */
    size_t margin, x_at, y_at, gradient_at; /* margin: bytes after oneDNN's own */
    size_t weight_bytes, bias_bytes;
};

static size_t align(size_t bytes)
{
    return (bytes + NP_ALIGN - 1) / NP_ALIGN * NP_ALIGN;
}

/* --- making primitives --------------------------------------------------------------------- */

struct shape {
    int n, h, w, c;
};

static struct shape shape_of(const struct np_tensor *tensor)
{
    const int *d = tensor->dims;

    return (struct shape){d[0], d[1], d[2], d[3]};
}

static dnnl_status_t make_activation(struct np_md_own *own, struct shape s, int rows, bool bf16)
{
    const dnnl_dim_t dims[] = {rows, s.c, s.h, s.w};

    return np_md_make(own, 4, dims, bf16 ? dnnl_bf16 : dnnl_f32, dnnl_nhwc);
}

static dnnl_status_t make_weights(
    struct conv *conv, const struct np_window *w, struct shape x, struct shape y, bool bf16)
{
    const dnnl_dim_t groups = w->groups, out = y.c / w->groups, in = x.c / w->groups;
    const dnnl_dim_t with_groups[] = {groups, out, in, w->kernel_h, w->kernel_w}, bias[] = {y.c};
    const bool grouped = groups > 1;
    const int nr = grouped ? 5 : 4;
    const dnnl_dim_t *dims = grouped ? with_groups : with_groups + 1;
    dnnl_status_t status =
        np_md_make(&conv->any_weights, nr, dims, bf16 ? dnnl_bf16 : dnnl_f32, dnnl_format_tag_any);

    if (status == dnnl_success)
        status =
            np_md_make(&conv->file_weights, nr, dims, dnnl_f32, grouped ? dnnl_goihw : dnnl_oihw);
    if (status == dnnl_success && conv->has_bias)
        status = np_md_make(&conv->bias, 1, bias, dnnl_f32, dnnl_x);
    return status;
}

static void set_window(
    struct np_conv_desc *desc, const struct np_window *w, struct shape x, struct shape y)
{
    const int in[] = {x.h, x.w}, out[] = {y.h, y.w}, kernel[] = {w->kernel_h, w->kernel_w};
    const int strides[] = {w->stride_h, w->stride_w}, pads[] = {w->pad_h, w->pad_w};
    const int dilations[] = {w->dilation_h, w->dilation_w};

    for (int i = 0; i < 2; i++) {
        desc->strides[i] = strides[i];
        desc->dilates[i] = dilations[i] - 1;
        desc->pad_low[i] = pads[i];
        desc->pad_high[i] =
            (out[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - in[i] - pads[i];
    }
}

/* A 1x1 convolution with a stride gathers its pixels in the scratchpad first, with channels
 * rounded up to whole vectors; oneDNN 2.6 requests memory without the rounding and writes past
 * its end. */
static size_t margin_of(const struct np_window *w, struct shape x)
{
    bool gathers = w->kernel_h == 1 && w->kernel_w == 1 && (w->stride_h > 1 || w->stride_w > 1);

    return gathers ? (size_t)x.h * (size_t)x.w * 16 * sizeof(float) : 0;
}

/* oneDNN's reference code is slower than converting. */
static bool is_slow(const_dnnl_primitive_desc_t desc)
{
    const char *name = "";

    dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    return strncmp(name, "ref", 3) == 0 || strncmp(name, "simple", 6) == 0;
}

static dnnl_status_t make_primitive(struct conv *conv, int size, struct np_conv_desc *desc)
{
    dnnl_primitive_desc_t *pd = &conv->desc[size], *ahead = &conv->forward[size];
    const bool forward = conv->op == NP_OP_CONV, wgrad = conv->op == NP_OP_CONV_WGRAD;
    dnnl_status_t status;

    desc->x = np_md_get(&conv->x[size]);
    desc->y = np_md_get(&conv->y[size]);
    desc->weights = np_md_get(&conv->any_weights);
    desc->bias = np_md_get(&conv->bias);
    if (!forward && (status = np_conv_forward(ahead, conv->engine, desc)) != dnnl_success)
        return status;
    if (size != FULL) /* of the same layout, so that they can be shared */
        desc->weights = conv->weights;
    status = forward ? np_conv_forward(pd, conv->engine, desc)
             : wgrad ? np_conv_backward_weights(pd, conv->engine, desc, *ahead)
                     : np_conv_backward_data(pd, conv->engine, desc, *ahead);
    if (status != dnnl_success)
        return status;
    if (conv->half && !conv->wraps && is_slow(*pd))
        return dnnl_unimplemented;
    if (size == FULL)
        conv->weights = np_md_of(*pd, wgrad ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
    return dnnl_primitive_create(&conv->primitive[size], *pd);
}

static dnnl_status_t make_reorder(struct conv *conv)
{
    np_md file = np_md_get(&conv->file_weights);
    bool back = conv->op == NP_OP_CONV_WGRAD;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(&conv->reorder_desc,
        back ? conv->weights : file, conv->engine, back ? file : conv->weights, conv->engine, NULL);

    return status != dnnl_success ? status
                                  : dnnl_primitive_create(&conv->reorder, conv->reorder_desc);
}

static void conv_free(void *state)
{
    struct conv *conv = state;

    for (int i = 0; i < NR_SIZES; i++) {
        dnnl_primitive_destroy(conv->primitive[i]);
        dnnl_primitive_desc_destroy(conv->desc[i]);
        dnnl_primitive_desc_destroy(conv->forward[i]);
        np_md_drop(&conv->x[i]);
        np_md_drop(&conv->y[i]);
    }
    dnnl_primitive_destroy(conv->reorder);
    dnnl_primitive_desc_destroy(conv->reorder_desc);
    np_md_drop(&conv->any_weights);
    np_md_drop(&conv->file_weights);
    np_md_drop(&conv->bias);
    dnnl_primitive_attr_destroy(conv->attr);
    dnnl_stream_destroy(conv->stream);
    dnnl_engine_destroy(conv->engine);
    np_free(conv);
}

/* oneDNN 2.6.3, with AVX-512's bf16 products (its jit_bf16_1x1:avx512_core_bf16, on a Zen 5):
 * backward data of a 1x1 convolution with an odd number of outputs (of a group) is wrong by up
 * to a hundred times, silently. Of 2016 shapes 294 were: 1, 3, 5, 15, 17, 19, 33 outputs, any
 * number of inputs, at 60 and 180 pixels (3x20, 1x60, 10x18) with stride 1 and 12x20 with stride
 * 2; none at 1, 16, 49, 64, 196 or 256 pixels, none with even outputs. */
static bool is_wrong(const struct conv *conv, const struct np_window *w, struct shape y)
{
    return conv->op == NP_OP_CONV_DGRAD && conv->half && !conv->wraps && w->kernel_h == 1 &&
           w->kernel_w == 1 && y.c / w->groups % 2 != 0;
}

static dnnl_status_t conv_start(struct conv *conv)
{
    dnnl_status_t status = dnnl_engine_create(&conv->engine, dnnl_cpu, 0);

    if (status == dnnl_success)
        status = dnnl_stream_create(&conv->stream, conv->engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_create(&conv->attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(conv->attr, dnnl_scratchpad_mode_user);
    return status;
}

static dnnl_status_t conv_make(
    struct conv *conv, const struct np_graph *graph, const struct np_op_node *node, int max_rows)
{
    bool bf16 = conv->half && !conv->wraps, wgrad = conv->op == NP_OP_CONV_WGRAD;
    bool dgrad = conv->op == NP_OP_CONV_DGRAD;
    const struct np_window *w = &node->attrs.window;
    struct shape x = shape_of(&graph->tensors[dgrad ? node->outs[0] : node->ins[0]]);
    struct shape y = shape_of(&graph->tensors[dgrad   ? node->ins[0]
                                              : wgrad ? node->ins[1]
                                                      : node->outs[0]]);
    struct np_conv_desc desc = {0};

    if (is_wrong(conv, w, y))
        return dnnl_unimplemented;
    conv->margin = margin_of(w, x);
    conv->x_row = (size_t)x.h * (size_t)x.w * (size_t)x.c;
    conv->y_row = (size_t)y.h * (size_t)y.w * (size_t)y.c;
    dnnl_status_t status = conv_start(conv);
    if (status == dnnl_success)
        status = make_weights(conv, w, x, y, bf16);
    set_window(&desc, w, x, y);
    desc.attr = conv->attr;
    conv->rows[FULL] = max_rows;
    conv->rows[ONE] = 1;
    for (int size = FULL; size <= (max_rows > 1 ? ONE : FULL) && status == dnnl_success; size++) {
        status = make_activation(&conv->x[size], x, conv->rows[size], bf16);
        if (status == dnnl_success)
            status = make_activation(&conv->y[size], y, conv->rows[size], bf16);
        if (status == dnnl_success)
            status = make_primitive(conv, size, &desc);
    }
    return status == dnnl_success ? make_reorder(conv) : status;
}

static void set_needs(struct conv *conv, int max_rows, struct np_needs *ret_needs)
{
    size_t bytes = 0, rows = (size_t)max_rows;

    for (int size = FULL; size < NR_SIZES; size++)
        if (conv->desc[size]) {
            size_t own = np_md_bytes(np_md_of(conv->desc[size], dnnl_query_scratchpad_md));

            bytes = own > bytes ? own : bytes;
        }
    conv->x_at = bytes = align(bytes + conv->margin);
    bytes += conv->wraps ? align(rows * conv->x_row * sizeof(float)) : 0;
    conv->y_at = bytes;
    bytes += conv->wraps ? align(rows * conv->y_row * sizeof(float)) : 0;
    conv->gradient_at = bytes;
    conv->weight_bytes = align(np_md_bytes(conv->weights));
    conv->bias_bytes = align(np_md_bytes(np_md_get(&conv->bias)));
    *ret_needs = (struct np_needs){.max_rows = max_rows};
    if (conv->op == NP_OP_CONV_WGRAD) {
        bytes += conv->weight_bytes + conv->bias_bytes;
        ret_needs->partial_bytes = ret_needs->leaf_bytes = conv->weight_bytes + conv->bias_bytes;
    } else {
        ret_needs->shared_bytes = conv->weight_bytes;
    }
    ret_needs->scratch_bytes = bytes;
}

static int prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    bool wraps, void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    int first = node->op == NP_OP_CONV_DGRAD ? node->outs[0] : node->ins[0];
    struct conv *conv = np_alloc(sizeof(*conv));
    dnnl_status_t status;

    omp_set_num_threads(1); /* rows that primitives are made for */
    conv->op = node->op;
    conv->half = graph->tensors[first].dtype == NP_BF16;
    conv->wraps = wraps;
    conv->relu = node->attrs.relu && node->op == NP_OP_CONV;
    conv->nr_operands_in = node->nr_ins;
    conv->has_bias = node->op == NP_OP_CONV         ? node->nr_ins > 2 && node->ins[2] >= 0
                     : node->op == NP_OP_CONV_WGRAD ? node->nr_outs > 1 && node->outs[1] >= 0
                                                    : false;
    status = conv_make(conv, graph, node, max_rows);
    if (status != dnnl_success) {
        conv_free(conv);
        if (status == dnnl_unimplemented || status == dnnl_invalid_arguments)
            return -ENOTSUP;
        return np_err_set(err, -ENOMEM, "oneDNN rejects a convolution: status %d", (int)status);
    }
    set_needs(conv, max_rows, ret_needs);
    *ret_state = conv;
    return 0;
}

static int own_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    return prepare(graph, node, max_rows, false, ret_state, ret_needs, err);
}

static int by_f32_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    return prepare(graph, node, max_rows, true, ret_state, ret_needs, err);
}

/* --- running ------------------------------------------------------------------------------- */

struct operand {
    int arg;
    np_md md;
    const void *data;
};

/* Fails only on lack of memory inside oneDNN or a bug. */
static void execute(const struct conv *conv, const_dnnl_primitive_t primitive,
    const struct operand *operands, int n)
{
    dnnl_exec_arg_t args[6];
    dnnl_status_t status = dnnl_success;

    omp_set_num_threads(1); /* of this thread */
    for (int i = 0; i < n && status == dnnl_success; i++) {
        args[i].arg = operands[i].arg;
        status = dnnl_memory_create(
            &args[i].memory, operands[i].md, conv->engine, (void *)operands[i].data);
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(primitive, conv->stream, n, args);
    assert(status == dnnl_success);
    for (int i = 0; i < n; i++)
        dnnl_memory_destroy(args[i].memory);
}

static void conv_begin(void *state, const struct np_operands *operands, void *shared)
{
    struct conv *conv = state;
    const struct operand list[] = {
        {DNNL_ARG_FROM, np_md_get(&conv->file_weights), operands->ptr[1]},
        {DNNL_ARG_TO, conv->weights, shared}};

    execute(conv, conv->reorder, list, 2);
}

static void *scratch_at(const struct np_run *run, size_t at)
{
    return (char *)run->scratch + at;
}

/* Row r of an activation; converted rows lie in the scratch. */
static void *row_at(const struct conv *conv, void *data, size_t row, int r)
{
    return (char *)data + (size_t)r * row * (conv->half ? sizeof(uint16_t) : sizeof(float));
}

static void *as_float(const struct conv *conv, const struct np_run *run, void *data, size_t row,
    size_t at, int r, int nr_rows)
{
    float *out = scratch_at(run, at);

    if (!conv->wraps)
        return row_at(conv, data, row, r);
    np_f32_from_bf16(out, row_at(conv, data, row, r), row * (size_t)nr_rows);
    return out;
}

/* Returns where rows are written: in place, or in the scratch, to be rounded back. */
static void *to_float(
    const struct conv *conv, const struct np_run *run, void *data, size_t row, size_t at, int r)
{
    return conv->wraps ? scratch_at(run, at) : row_at(conv, data, row, r);
}

/* Forward, and the gradient of the input. */
static void data_rows(struct conv *conv, const struct np_run *run, int size, int r)
{
    const bool forward = conv->op == NP_OP_CONV;
    void *const *ptr = run->operands->ptr;
    void *out = ptr[conv->nr_operands_in];
    int rows = conv->rows[size], n = 4;
    const size_t from_row = forward ? conv->x_row : conv->y_row;
    const size_t to_row = forward ? conv->y_row : conv->x_row;
    np_md x = np_md_get(&conv->x[size]), y = np_md_get(&conv->y[size]);
    void *from = as_float(conv, run, ptr[0], from_row, forward ? conv->x_at : conv->y_at, r, rows);
    void *to = to_float(conv, run, out, to_row, forward ? conv->y_at : conv->x_at, r);
    struct operand list[5] = {{forward ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, forward ? x : y, from},
        {DNNL_ARG_WEIGHTS, conv->weights, run->shared},
        {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, forward ? y : x, to},
        {DNNL_ARG_SCRATCHPAD, np_md_of(conv->desc[size], dnnl_query_scratchpad_md), run->scratch}};

    if (conv->has_bias)
        list[n++] = (struct operand){DNNL_ARG_BIAS, np_md_get(&conv->bias), ptr[2]};
    execute(conv, conv->primitive[size], list, n);
    if (conv->relu) /* not by oneDNN: its relu turns NaN into 0 */
        np_cpu_relu(conv->half && !conv->wraps, to, to, to_row * (size_t)rows);
    if (conv->wraps)
        np_bf16_from_f32(row_at(conv, out, to_row, r), to, to_row * (size_t)rows);
}

/* The gradient of these rows goes to the scratch, or is the lane's first summand. */
static void wgrad_rows(struct conv *conv, const struct np_run *run, int size, int r)
{
    void *const *ptr = run->operands->ptr;
    int rows = conv->rows[size], n = 4;
    bool starts = run->first_in_lane && r == run->first_row;
    float *sum = run->partial, *gradient = scratch_at(run, conv->gradient_at);
    float *out = starts ? sum : gradient;
    struct operand list[5] = {{DNNL_ARG_SRC, np_md_get(&conv->x[size]),
                                  as_float(conv, run, ptr[0], conv->x_row, conv->x_at, r, rows)},
        {DNNL_ARG_DIFF_DST, np_md_get(&conv->y[size]),
            as_float(conv, run, ptr[1], conv->y_row, conv->y_at, r, rows)},
        {DNNL_ARG_DIFF_WEIGHTS, conv->weights, out},
        {DNNL_ARG_SCRATCHPAD, np_md_of(conv->desc[size], dnnl_query_scratchpad_md), run->scratch}};

    if (conv->has_bias)
        list[n++] = (struct operand){
            DNNL_ARG_DIFF_BIAS, np_md_get(&conv->bias), (char *)out + conv->weight_bytes};
    execute(conv, conv->primitive[size], list, n);
    for (size_t i = 0; !starts && i < (conv->weight_bytes + conv->bias_bytes) / sizeof(float); i++)
        sum[i] += gradient[i];
}

static void conv_run(void *state, const struct np_run *run)
{
    struct conv *conv = state;
    int end = run->first_row + run->nr_rows;

    for (int r = run->first_row, size; r < end; r += conv->rows[size]) {
        size = end - r >= conv->rows[FULL] ? FULL : ONE;
        (conv->op == NP_OP_CONV_WGRAD ? wgrad_rows : data_rows)(conv, run, size, r);
    }
}

/* Adds the lanes' sums in order into the first lane's, then reorders them into the files'
 * layout. One part does all: the reorder needs whole weights. */
static void wgrad_finish(void *state, const struct np_finish *finish)
{
    struct conv *conv = state;
    float *sum = finish->partials[0], *dbias;
    void *const *ptr = finish->operands->ptr;
    const struct operand list[] = {{DNNL_ARG_FROM, conv->weights, sum},
        {DNNL_ARG_TO, np_md_get(&conv->file_weights), ptr[conv->nr_operands_in]}};
    size_t n = (conv->weight_bytes + conv->bias_bytes) / sizeof(float);

    assert(!finish->accumulate);
    if (finish->part > 0)
        return;
    for (int lane = 1; lane < finish->nr_lanes; lane++)
        for (size_t i = 0; i < n; i++)
            sum[i] += ((const float *)finish->partials[lane])[i];
    execute(conv, conv->reorder, list, 2);
    if (!conv->has_bias)
        return;
    dbias = ptr[conv->nr_operands_in + 1];
    memcpy(dbias, (char *)sum + conv->weight_bytes, np_md_bytes(np_md_get(&conv->bias)));
}

#define CONV(name_, dtype_, prepare_)                                                              \
    {"onednn conv " name_, NP_OP_CONV, dtype_, prepare_, conv_begin, conv_run, NULL, conv_free,    \
        NULL},                                                                                     \
    {                                                                                              \
        "onednn conv dgrad " name_, NP_OP_CONV_DGRAD, dtype_, prepare_, conv_begin, conv_run,      \
            NULL, conv_free, NULL                                                                  \
    }
#define WGRAD(name_, dtype_, prepare_)                                                             \
    {                                                                                              \
        "onednn conv wgrad " name_, NP_OP_CONV_WGRAD, dtype_, prepare_, NULL, conv_run,            \
            wgrad_finish, conv_free, NULL                                                          \
    }

const struct np_kernel np_kernels_onednn[] = {
    CONV("f32", NP_F32, own_prepare),
    WGRAD("f32", NP_F32, own_prepare),
    CONV("bf16", NP_BF16, own_prepare),
    CONV("bf16 by f32", NP_BF16, by_f32_prepare),
    /* Never oneDNN's bf16 kernels for gradients of weights: 2.6.3's gave inf for 3x3 windows of
     * stride 1 and padding 1 over pictures 1 and 2 pixels wide (8 of 700 random shapes). */
    WGRAD("bf16 by f32", NP_BF16, by_f32_prepare),
    {NULL},
};

unsigned np_onednn_isa(void)
{
    return (unsigned)dnnl_get_effective_cpu_isa();
}

void np_onednn_version(char ret_text[32])
{
    const dnnl_version_t *version = dnnl_version();

    snprintf(ret_text, 32, "%d.%d.%d", version->major, version->minor, version->patch);
}
