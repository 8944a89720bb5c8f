/* See interp.h. */
#include "tests/kernel/interp.h"

#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "trainer/cpu/kernels_check.h"

struct interp_call {
    struct np_prepared made;
    void *scratch, *shared, **partials;
    struct np_operands operands;
};

static void *place(struct interp *interp, int t)
{
    const struct np_tensor *tensor = &interp->graph->tensors[t];

    switch (tensor->role) {
    case NP_ROLE_PARAM: return interp->params + tensor->offset;
    case NP_ROLE_BUFFER: return interp->buffers + tensor->offset;
    case NP_ROLE_GRAD: return interp->grads + tensor->offset;
    case NP_ROLE_INPUT: return NULL;
    default: return np_alloc(np_tensor_elements(tensor) * np_dtype_bytes(tensor->dtype));
    }
}

static int prepare(struct interp *interp, int n, bool reference)
{
    const struct np_op_node *node = &interp->graph->nodes[n];
    struct interp_call *call = &interp->calls[n];
    int code =
        np_kernel_find(interp->graph, node, interp->chunk_rows, reference, NULL, &call->made, NULL);

    if (code < 0) {
        interp->missing = np_op_names[node->op];
        return code;
    }
    call->scratch = np_alloc(call->made.needs.scratch_bytes + 1);
    call->shared = np_alloc(call->made.needs.shared_bytes + 1);
    call->partials = calloc((size_t)interp->nr_lanes, sizeof(void *));
    for (int lane = 0; lane < interp->nr_lanes; lane++)
        call->partials[lane] = np_alloc(call->made.needs.partial_bytes + 1);
    for (int i = 0; i < node->nr_ins; i++)
        call->operands.ptr[i] = interp->memory[node->ins[i]];
    for (int o = 0; o < node->nr_outs; o++)
        call->operands.ptr[node->nr_ins + o] = interp->memory[node->outs[o]];
    return 0;
}

int interp_init_cut(struct interp *interp, const struct np_graph *graph, bool reference,
    int nr_lanes, int chunk_rows)
{
    int code = 0;

    *interp = (struct interp){.graph = graph, .nr_lanes = nr_lanes, .chunk_rows = chunk_rows};
    interp->params = np_alloc((graph->nr_params + 1) * sizeof(float));
    interp->grads = np_alloc((graph->nr_params + 1) * sizeof(float));
    interp->buffers = np_alloc((graph->nr_buffers + 1) * sizeof(float));
    interp->memory = calloc((size_t)graph->nr_tensors, sizeof(void *));
    interp->calls = calloc((size_t)graph->nr_nodes, sizeof(*interp->calls));
    np_graph_init(graph, INTERP_SEED, interp->params, interp->buffers);
    for (int t = 0; t < graph->nr_tensors; t++)
        interp->memory[t] = place(interp, t);
    for (int n = 0; n < graph->nr_nodes && code == 0; n++)
        code = prepare(interp, n, reference);
    return code;
}

int interp_init(struct interp *interp, const struct np_graph *graph, bool reference)
{
    return interp_init_cut(interp, graph, reference, 1, 1);
}

void interp_fini(struct interp *interp)
{
    for (int n = 0; n < interp->graph->nr_nodes; n++) {
        struct interp_call *call = &interp->calls[n];

        if (call->made.kernel && call->made.kernel->free)
            call->made.kernel->free(call->made.state);
        for (int lane = 0; call->partials && lane < interp->nr_lanes; lane++)
            np_free(call->partials[lane]);
        free(call->partials);
        np_free(call->scratch);
        np_free(call->shared);
    }
    for (int t = 0; t < interp->graph->nr_tensors; t++) {
        enum np_role role = interp->graph->tensors[t].role;

        if (role == NP_ROLE_ACTIVATION || role == NP_ROLE_SAVED)
            np_free(interp->memory[t]);
    }
    np_free(interp->params);
    np_free(interp->grads);
    np_free(interp->buffers);
    free(interp->memory);
    free(interp->calls);
}

static void run_lane(
    struct interp *interp, struct interp_call *call, const struct np_step_info *info, int lane)
{
    int batch = interp->graph->batch;
    int first = batch * lane / interp->nr_lanes, end = batch * (lane + 1) / interp->nr_lanes;

    for (int row = first; row < end; row += interp->chunk_rows) {
        struct np_run run = {.operands = &call->operands,
            .info = info,
            .first_row = row,
            .nr_rows = end - row < interp->chunk_rows ? end - row : interp->chunk_rows,
            .first_in_lane = row == first,
            .scratch = call->scratch,
            .partial = call->partials[lane],
            .shared = call->shared};

        call->made.kernel->run(call->made.state, &run);
    }
}

static void run_call(struct interp *interp, int n, const struct np_step_info *info)
{
    struct interp_call *call = &interp->calls[n];

    if (call->made.kernel->begin)
        call->made.kernel->begin(call->made.state, &call->operands, call->shared);
    for (int lane = 0; lane < interp->nr_lanes; lane++)
        run_lane(interp, call, info, lane);
    for (int part = 0; part < 3 && call->made.kernel->finish; part++) {
        struct np_finish finish = {.operands = &call->operands,
            .info = info,
            .partials = call->partials,
            .nr_lanes = interp->nr_lanes,
            .batch = interp->graph->batch,
            .part = part,
            .nr_parts = 3,
            .scratch = call->scratch};

        call->made.kernel->finish(call->made.state, &finish);
    }
}

static void run_nodes(struct interp *interp, const uint8_t *images, const int32_t *labels,
    uint64_t step, int nr_nodes)
{
    struct np_step_info info = {.step = step, .loss_scale = 1};

    for (int n = 0; n < nr_nodes; n++) {
        const struct np_op_node *node = &interp->graph->nodes[n];

        for (int i = 0; i < node->nr_ins; i++) {
            if (node->ins[i] == interp->graph->images)
                interp->calls[n].operands.ptr[i] = (void *)images;
            else if (node->ins[i] == interp->graph->labels)
                interp->calls[n].operands.ptr[i] = (void *)labels;
        }
        run_call(interp, n, &info);
    }
}

void interp_run(struct interp *interp, const uint8_t *images, const int32_t *labels, uint64_t step)
{
    run_nodes(interp, images, labels, step, interp->graph->nr_nodes);
}

void interp_run_forward(
    struct interp *interp, const uint8_t *images, const int32_t *labels, uint64_t step)
{
    run_nodes(interp, images, labels, step, interp->graph->nr_forward);
}

float interp_get(const struct interp *interp, int tensor, uint64_t i)
{
    float value;

    if (interp->graph->tensors[tensor].dtype == NP_F32)
        return ((const float *)interp->memory[tensor])[i];
    np_f32_from_bf16(&value, (const uint16_t *)interp->memory[tensor] + i, 1);
    return value;
}

double interp_loss(const struct interp *interp)
{
    double sum = 0;

    for (int r = 0; r < interp->graph->batch; r++)
        sum += (double)interp_get(interp, interp->graph->loss, (uint64_t)r);
    return sum;
}

void interp_batch(
    const struct np_graph *graph, uint64_t seed, uint8_t **ret_images, int32_t **ret_labels)
{
    uint64_t n = np_tensor_elements(&graph->tensors[graph->images]);
    struct np_draws draws;

    *ret_images = malloc(n);
    *ret_labels = malloc(np_tensor_elements(&graph->tensors[graph->labels]) * sizeof(int32_t));
    np_draws_init(&draws, seed, NP_STREAM_TEST, 0, 0, 0);
    for (uint64_t i = 0; i < n; i++)
        (*ret_images)[i] = (uint8_t)np_draw_below(&draws, 256);
    for (int r = 0; r < graph->batch; r++)
        (*ret_labels)[r] = (int32_t)np_draw_below(&draws, (uint32_t)graph->classes);
    for (int i = 0; i < graph->batch * graph->values; i++)
        ((float *)*ret_labels)[graph->batch + i] = np_graph_has_sigmoids(graph)
                                                       ? (float)np_draw_below(&draws, 2)
                                                       : (float)np_draw_normal(&draws);
}
