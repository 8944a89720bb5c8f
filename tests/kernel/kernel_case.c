#include "tests/kernel/kernel_case.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "trainer/cpu/kernels_check.h"

void kernel_case_init(struct kernel_case *the_case, enum np_op op, int batch)
{
    memset(the_case, 0, sizeof(*the_case));
    the_case->graph = calloc(1, sizeof(*the_case->graph));
    the_case->graph->batch = batch;
    the_case->graph->images = the_case->graph->labels = the_case->graph->input = -1;
    the_case->graph->logits = the_case->graph->loss = the_case->graph->correct =
        the_case->graph->top5 = -1;
    np_graph_node(the_case->graph, op, "node", 0);
    the_case->graph->nodes[0].attrs.window = (struct np_window)NP_SQUARE(1, 1, 0, 1, 1);
}

struct np_op_node *kernel_case_node(struct kernel_case *the_case)
{
    return &the_case->graph->nodes[0];
}

static size_t bytes_of(const struct np_tensor *tensor)
{
    return np_tensor_elements(tensor) * np_dtype_bytes(tensor->dtype);
}

static void fill(void *data, const struct np_tensor *tensor, int seed, float scale, float offset)
{
    struct np_draws draws;

    np_draws_init(&draws, (uint64_t)seed, NP_STREAM_TEST, 0, 0, 0);
    for (uint64_t i = 0; i < np_tensor_elements(tensor); i++) {
        float value = (float)np_draw_normal(&draws) * scale + offset;

        if (tensor->dtype == NP_F32)
            ((float *)data)[i] = value;
        else if (tensor->dtype == NP_BF16)
            np_bf16_from_f32((uint16_t *)data + i, &value, 1);
        else if (tensor->dtype == NP_U8)
            ((uint8_t *)data)[i] = (uint8_t)np_draw_below(&draws, 256);
        else
            ((int32_t *)data)[i] = (int32_t)np_draw_below(&draws, 10);
    }
}

/* Outputs start as something that is not the result. */
static void add(struct kernel_case *the_case, enum np_role role, enum np_dtype dtype, int nr_dims,
    const int *dims, float scale, float offset, bool out)
{
    struct np_op_node *node = kernel_case_node(the_case);
    int at = node->nr_ins + node->nr_outs;
    int tensor = np_graph_tensor(the_case->graph, "tensor", role, dtype, nr_dims, dims);
    size_t bytes = bytes_of(&the_case->graph->tensors[tensor]);

    the_case->reference[at] = np_alloc(bytes);
    the_case->tested[at] = np_alloc(bytes);
    fill(the_case->reference[at], &the_case->graph->tensors[tensor], 1 + at, scale, offset);
    if (out)
        memset(the_case->tested[at], 0x3f, bytes);
    else
        memcpy(the_case->tested[at], the_case->reference[at], bytes);
    if (out)
        np_graph_out(the_case->graph, 0, tensor);
    else
        np_graph_in(the_case->graph, 0, tensor);
}

void kernel_case_activation(
    struct kernel_case *the_case, enum np_dtype dtype, int h, int w, int c, bool out)
{
    const int image[4] = {the_case->graph->batch, h, w, c}, flat[2] = {the_case->graph->batch, c};

    add(the_case, NP_ROLE_ACTIVATION, dtype, h ? 4 : 2, h ? image : flat, 1, 0, out);
}

void kernel_case_values(struct kernel_case *the_case, const int dims[4], float scale, float offset,
    enum np_role role, bool out)
{
    int nr = 0;

    while (nr < 4 && dims[nr])
        nr++;
    add(the_case, role, NP_F32, nr, dims, scale, offset, out);
}

static void round_values(float *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint16_t half;

        np_bf16_from_f32(&half, values + i, 1);
        np_f32_from_bf16(values + i, &half, 1);
    }
}

void kernel_case_round(struct kernel_case *the_case)
{
    const struct np_op_node *node = kernel_case_node(the_case);

    for (int i = 0; i < node->nr_ins; i++) {
        const struct np_tensor *tensor =
            node->ins[i] < 0 ? NULL : &the_case->graph->tensors[node->ins[i]];

        if (!tensor || tensor->dtype != NP_F32 || tensor->nr_dims < 2)
            continue;
        round_values(the_case->reference[i], np_tensor_elements(tensor));
        round_values(the_case->tested[i], np_tensor_elements(tensor));
    }
}

void kernel_case_absent(struct kernel_case *the_case)
{
    np_graph_in(the_case->graph, 0, -1);
}

static int run(struct kernel_case *the_case, bool reference, int lanes, int chunk)
{
    const struct np_graph *graph = the_case->graph;
    struct np_prepared made;
    struct np_operands operands;
    const struct np_step_info info = {.step = 3, .loss_scale = 0.125f};
    void *scratch, *shared, *partials[8],
        **data = reference ? the_case->reference : the_case->tested;
    struct np_err err = {0};
    int code;

    memcpy(operands.ptr, data, sizeof(operands.ptr));
    code = np_kernel_find(graph, &graph->nodes[0], chunk, reference, NULL, &made, &err);
    if (code < 0)
        return code;
    const struct np_kernel *kernel = made.kernel;
    const struct np_needs needs = made.needs;
    void *state = made.state;
    if (!reference)
        the_case->kernel = kernel->name;
    scratch = np_alloc(needs.scratch_bytes + 1);
    shared = np_alloc(needs.shared_bytes + 1);
    if (kernel->begin)
        kernel->begin(state, &operands, shared);
    for (int lane = 0; lane < lanes; lane++) {
        int first = graph->batch * lane / lanes, end = graph->batch * (lane + 1) / lanes;

        partials[lane] = np_alloc(needs.partial_bytes + 1);
        memset(partials[lane], 0x7f, needs.partial_bytes); /* garbage, as the executor's */
        for (int row = first; row < end; row += chunk) {
            const struct np_run rows = {.operands = &operands,
                .info = &info,
                .first_row = row,
                .nr_rows = end - row < chunk ? end - row : chunk,
                .first_in_lane = row == first,
                .scratch = scratch,
                .partial = partials[lane],
                .shared = shared};

            memset(scratch, 0x7f, needs.scratch_bytes);
            kernel->run(state, &rows);
        }
    }
    for (int part = 0; part < 3 && kernel->finish; part++)
        kernel->finish(state, &(struct np_finish){.operands = &operands,
                                  .info = &info,
                                  .partials = partials,
                                  .nr_lanes = lanes,
                                  .batch = graph->batch,
                                  .part = part,
                                  .nr_parts = 3,
                                  .scratch = scratch});
    for (int lane = 0; lane < lanes; lane++)
        np_free(partials[lane]);
    np_free(scratch);
    np_free(shared);
    kernel->free(state);
    return 0;
}

bool kernel_case_run(struct kernel_case *the_case, int lanes, int chunk)
{
    if (run(the_case, true, 1, the_case->graph->batch) < 0 ||
        run(the_case, false, lanes, chunk) < 0)
        return false;
    return strncmp(the_case->kernel, "reference", 9) != 0;
}

void kernel_case_reference(struct kernel_case *the_case)
{
    run(the_case, true, 1, the_case->graph->batch);
}

static double value(const void *data, const struct np_tensor *tensor, uint64_t i)
{
    float f;

    if (tensor->dtype == NP_F32)
        return ((const float *)data)[i];
    if (tensor->dtype == NP_U8)
        return ((const uint8_t *)data)[i];
    assert(tensor->dtype == NP_BF16);
    np_f32_from_bf16(&f, (const uint16_t *)data + i, 1);
    return f;
}

double kernel_case_error(const struct kernel_case *the_case, int first_out)
{
    const struct np_op_node *node = &the_case->graph->nodes[0];
    double worst = 0;

    for (int o = first_out; o < node->nr_outs; o++) {
        const struct np_tensor *tensor = &the_case->graph->tensors[node->outs[o]];
        double most = fmax(1e-30, the_case->typical), off = 0;

        for (uint64_t i = 0; i < np_tensor_elements(tensor); i++) {
            double right = value(the_case->reference[node->nr_ins + o], tensor, i);
            double here = value(the_case->tested[node->nr_ins + o], tensor, i);
            double difference = fabs(right - here);

            most = fmax(most, fabs(right));
            if (!(difference <= off)) /* a NaN is the worst */
                off = isnan(difference) ? INFINITY : difference;
        }
        worst = fmax(worst, off / most);
    }
    return worst;
}

void kernel_case_say(const struct kernel_case *the_case, double error)
{
    const struct np_op_node *node = &the_case->graph->nodes[0];
    const struct np_window *w = &node->attrs.window;

    fprintf(stderr, "%s, %s: off by %g; window %d, stride %d, pad %d, relu %d; operands",
        np_op_names[node->op], the_case->kernel ? the_case->kernel : "no kernel", error,
        w->kernel_h, w->stride_h, w->pad_h, node->attrs.relu);
    for (int i = 0; i < node->nr_ins + node->nr_outs; i++) {
        int at = i < node->nr_ins ? node->ins[i] : node->outs[i - node->nr_ins];
        const struct np_tensor *tensor = at < 0 ? NULL : &the_case->graph->tensors[at];

        for (int d = 0; tensor && d < tensor->nr_dims; d++)
            fprintf(stderr, "%s%d", d == 0 ? " " : "x", tensor->dims[d]);
    }
    fprintf(stderr, "\n");
}

/* The step from one bf16 number to the next at this size. */
static double ulp(double size)
{
    return size > 0 ? ldexp(1, ilogb(size) - 7) : 1;
}

struct kernel_ulps kernel_case_ulps(const struct kernel_case *the_case)
{
    const struct np_op_node *node = &the_case->graph->nodes[0];
    const struct np_tensor *tensor = &the_case->graph->tensors[node->outs[0]];
    const void *reference = the_case->reference[node->nr_ins],
               *tested = the_case->tested[node->nr_ins];
    const uint64_t n = np_tensor_elements(tensor);
    struct kernel_ulps ulps = {0};
    double largest = 0;

    assert(tensor->dtype == NP_BF16);
    for (uint64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(value(reference, tensor, i)));
    for (uint64_t i = 0; i < n; i++) {
        double right = value(reference, tensor, i);
        double off = fabs(right - value(tested, tensor, i)) / ulp(fmax(fabs(right), largest / 64));

        ulps.share += off != 0 ? 1 / (double)n : 0;
        if (!(off <= ulps.most))
            ulps.most = isnan(off) ? INFINITY : off;
    }
    return ulps;
}

void kernel_case_fini(struct kernel_case *the_case)
{
    for (int i = 0; i < 2 * NP_MAX_OPERANDS; i++) {
        np_free(the_case->reference[i]);
        np_free(the_case->tested[i]);
    }
    np_graph_free(the_case->graph);
}
