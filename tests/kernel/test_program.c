/* Whole nets on the CPU device: a step against the reference's, and what its bits depend on. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "tests/kernel/small_nets.h"
#include "tests/test.h"
#include "trainer/device.h"
#include "trainer/plan.h"

#define BATCH   12
#define SIDE    16
#define CLASSES 10

struct stepped {
    struct np_graph *graph, *eval_graph;
    struct np_device *device;
    struct np_plan *plan;
    float *params, *grads, *buffers;
    struct np_metrics metrics, eval_metrics;
    uint8_t *images;
    int32_t labels[BATCH];
    struct np_err err;
};

static void make_batch(struct stepped *s)
{
    struct np_draws draws;

    np_draws_init(&draws, 5, NP_STREAM_TEST, 0, 0, 0);
    s->images = np_alloc(BATCH * SIDE * SIDE * 3);
    for (int i = 0; i < BATCH * SIDE * SIDE * 3; i++)
        s->images[i] = (uint8_t)np_draw_below(&draws, 256);
    for (int i = 0; i < BATCH; i++)
        s->labels[i] = i == 5 ? -1 : (int32_t)np_draw_below(&draws, CLASSES);
}

/* One training step, one update, one evaluation; gradients are those of the step. */
static bool stepped_run(struct stepped *s, struct np_graph *graph, struct np_plan_options options)
{
    static const struct np_hyper hyper = {.lr = 0.05f, .momentum = 0.9f};
    const struct np_plan_ops *ops;
    int code;

    memset(s, 0, sizeof(*s));
    make_batch(s);
    s->graph = graph;
    s->eval_graph = np_graph_eval(graph);
    s->params = np_alloc_array(graph->nr_params, sizeof(float));
    s->grads = np_alloc_array(graph->nr_params, sizeof(float));
    s->buffers = np_alloc_array(graph->nr_buffers + 1, sizeof(float));
    np_graph_init(graph, 3, s->params, s->buffers);
    code = np_autodiff(graph, &s->err);
    if (code == 0)
        code = np_device_open("cpu", NULL, &s->device, &s->err);
    if (code < 0)
        return false;
    ops = s->device->plan_ops;
    code = ops->prepare(s->device, graph, s->eval_graph, &options, &s->plan, &s->err);
    if (code == 0)
        code = ops->write(s->plan, NP_ARRAY_PARAMS, s->params, &s->err);
    if (code == 0)
        code = ops->write(s->plan, NP_ARRAY_BUFFERS, s->buffers, &s->err);
    if (code == 0)
        code = ops->step(s->plan, s->images, s->labels, 0, 1.0f / BATCH, false, &s->err);
    if (code == 0)
        code = ops->read(s->plan, NP_ARRAY_GRADS, s->grads, &s->err);
    if (code == 0)
        code = ops->metrics(s->plan, false, &s->metrics, &s->err);
    if (code == 0)
        code = ops->update(s->plan, &hyper, &s->err);
    if (code == 0)
        code = ops->eval(s->plan, s->images, s->labels, &s->err);
    if (code == 0)
        code = ops->metrics(s->plan, false, &s->eval_metrics, &s->err);
    if (code == 0)
        code = ops->read(s->plan, NP_ARRAY_PARAMS, s->params, &s->err);
    if (code == 0)
        code = ops->read(s->plan, NP_ARRAY_BUFFERS, s->buffers, &s->err);
    return code == 0;
}

static void stepped_fini(struct stepped *s)
{
    if (s->err.code)
        fprintf(stderr, "%s\n", s->err.text);
    if (s->plan)
        s->device->plan_ops->free(s->plan);
    np_device_close(s->device);
    np_graph_free(s->graph);
    np_graph_free(s->eval_graph);
    np_free(s->params);
    np_free(s->grads);
    np_free(s->buffers);
    np_free(s->images);
}

static struct np_graph *make_net(int which, enum np_dtype dtype)
{
    return which ? net_plain(BATCH, SIDE, CLASSES, dtype)
                 : net_resnet(BATCH, SIDE, 1, 8, CLASSES, dtype);
}

/* The largest difference of two gradients, tensor by tensor, as a share of the tensor's norm. */
static double worst_gradient(const struct np_graph *graph, const float *a, const float *b)
{
    double worst = 0;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];
        double norm = 0, off = 0;

        if (tensor->role != NP_ROLE_PARAM)
            continue;
        for (uint64_t i = tensor->offset; i < tensor->offset + np_tensor_elements(tensor); i++) {
            norm += (double)a[i] * a[i];
            off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        }
        if (!(sqrt(off) <= worst * sqrt(norm)) && norm > 1e-16)
            worst = sqrt(off / norm);
    }
    return worst;
}

static bool step_is_right(int which, enum np_dtype dtype, double tolerance)
{
    struct stepped right, tested;
    double worst, loss;
    bool ran = stepped_run(&right, make_net(which, dtype),
        (struct np_plan_options){.lanes = 1, .threads = 1, .reference = true});

    ran = stepped_run(&tested, make_net(which, dtype),
              (struct np_plan_options){.lanes = 3, .threads = 2}) &&
          ran;
    worst = ran ? worst_gradient(right.graph, right.grads, tested.grads) : INFINITY;
    loss = fabs(right.metrics.loss_sum - tested.metrics.loss_sum) / right.metrics.loss_sum;
    if (!(worst <= tolerance && loss <= tolerance))
        fprintf(stderr, "net %d: gradients off by %g, loss by %g\n", which, worst, loss);
    ran = ran && worst <= tolerance && loss <= tolerance && tested.metrics.rows == BATCH - 1 &&
          right.metrics.rows == BATCH - 1 &&
          fabs(right.eval_metrics.loss_sum - tested.eval_metrics.loss_sum) <=
              3 * tolerance * right.eval_metrics.loss_sum;
    stepped_fini(&right);
    stepped_fini(&tested);
    return ran;
}

Test(program, a_step_in_f32_is_the_references, .timeout = 120)
{
    cr_assert(step_is_right(0, NP_F32, 1e-4));
    cr_assert(step_is_right(1, NP_F32, 1e-4));
}

/* bf16 rounds every activation: of a thousand before a relu a few change sign, which alone puts
 * gradients off by some percent. A wrong kernel puts them off by more than half. */
Test(program, a_step_in_bf16_is_the_references, .timeout = 120)
{
    cr_assert(step_is_right(0, NP_BF16, 0.15));
    cr_assert(step_is_right(1, NP_BF16, 0.15));
}

Test(program, bits_depend_on_lanes_not_on_threads, .timeout = 120)
{
    for (int which = 0; which < 2; which++) {
        struct stepped one, four;
        bool equal = stepped_run(
            &one, make_net(which, NP_F32), (struct np_plan_options){.lanes = 3, .threads = 1});

        equal = stepped_run(&four, make_net(which, NP_F32),
                    (struct np_plan_options){.lanes = 3, .threads = 4}) &&
                equal;
        equal = equal && memcmp(one.grads, four.grads, one.graph->nr_params * sizeof(float)) == 0 &&
                memcmp(one.params, four.params, one.graph->nr_params * sizeof(float)) == 0 &&
                memcmp(one.buffers, four.buffers, one.graph->nr_buffers * sizeof(float)) == 0;
        stepped_fini(&one);
        stepped_fini(&four);
        cr_assert(equal);
    }
}
