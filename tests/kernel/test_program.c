/* Whole nets on the CPU device: a step against the reference's, and what its bits depend on. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "tests/kernel/small_nets.h"
#include "tests/test.h"
#include "trainer/device.h"
#include "trainer/cpu/kernels.h"
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

static float *weights_of(const struct np_graph *graph, int t, float *params, uint64_t *ret_n)
{
    const struct np_tensor *tensor = &graph->tensors[t];

    *ret_n = np_tensor_elements(tensor);
    return tensor->role == NP_ROLE_PARAM && tensor->nr_dims > 1 ? params + tensor->offset : NULL;
}

/* Weights that are bf16 already, as kernels in that type may round them, or not. */
static void round_weights(const struct np_graph *graph, float *params)
{
    for (int t = 0; t < graph->nr_tensors; t++) {
        uint64_t n;
        float *weights = weights_of(graph, t, params, &n);

        for (uint64_t i = 0; weights && i < n; i++) {
            uint16_t half;

            np_bf16_from_f32(&half, weights + i, 1);
            np_f32_from_bf16(weights + i, &half, 1);
        }
    }
}

/* One training step, one update, one evaluation; gradients are those of the step. spoil: what a wrong
 * kernel would make of the weights. */
static bool stepped_run_with(struct stepped *s, struct np_graph *graph,
    struct np_plan_options options, void (*spoil)(const struct np_graph *graph, float *params))
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
    if (graph->tensors[graph->input].dtype == NP_BF16)
        round_weights(graph, s->params);
    if (spoil)
        spoil(graph, s->params);
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

static bool stepped_run(struct stepped *s, struct np_graph *graph, struct np_plan_options options)
{
    return stepped_run_with(s, graph, options, NULL);
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

/* How far two gradients are apart, as a share of the first one's norm. */
struct apart {
    double worst; /* tensor */
    double whole; /* of all parameters together */
};

static struct apart gradients_apart(const struct np_graph *graph, const float *a, const float *b)
{
    struct apart apart = {0};
    double all_norm = 0, all_off = 0;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];
        double norm = 0, off = 0;

        if (tensor->role != NP_ROLE_PARAM)
            continue;
        for (uint64_t i = tensor->offset; i < tensor->offset + np_tensor_elements(tensor); i++) {
            norm += (double)a[i] * a[i];
            off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        }
        all_norm += norm;
        all_off += off;
        if (!(sqrt(off) <= apart.worst * sqrt(norm)) && norm > 1e-16)
            apart.worst = sqrt(off / norm);
    }
    apart.whole = sqrt(all_off / all_norm);
    return apart;
}

/* Of f32: sums in another order. bf16 rounds every activation: of a thousand before a relu a few
 * change sign, which alone puts a small tensor's gradient off by some percent. */
struct bounds {
    double worst, whole, loss;
};
static const struct bounds f32_bounds = {1e-4, 1e-4, 1e-4}, bf16_bounds = {0.2, 0.08, 0.01};

static bool step_is_right(
    int which, enum np_dtype dtype, void (*spoil)(const struct np_graph *graph, float *params))
{
    const struct bounds *most = dtype == NP_F32 ? &f32_bounds : &bf16_bounds;
    struct stepped right, tested;
    struct apart apart = {INFINITY, INFINITY};
    double loss;
    bool ran = stepped_run(&right, make_net(which, dtype),
        (struct np_plan_options){.lanes = 1, .threads = 1, .reference = true});

    ran = stepped_run_with(&tested, make_net(which, dtype),
              (struct np_plan_options){.lanes = 3, .threads = 2}, spoil) &&
          ran;
    if (ran)
        apart = gradients_apart(right.graph, right.grads, tested.grads);
    loss = fabs(right.metrics.loss_sum - tested.metrics.loss_sum) / right.metrics.loss_sum;
    ran = ran && apart.worst <= most->worst && apart.whole <= most->whole && loss <= most->loss &&
          tested.metrics.rows == BATCH - 1 && right.metrics.rows == BATCH - 1 &&
          fabs(right.eval_metrics.loss_sum - tested.eval_metrics.loss_sum) <=
              3 * most->loss * right.eval_metrics.loss_sum;
    if (!ran)
        fprintf(stderr, "net %d: gradients off by %g, the worst tensor's by %g, loss by %g\n",
            which, apart.whole, apart.worst, loss);
    stepped_fini(&right);
    stepped_fini(&tested);
    return ran;
}

Test(program, a_step_in_f32_is_the_reference, .timeout = 120)
{
    cr_assert(step_is_right(0, NP_F32, NULL));
    cr_assert(step_is_right(1, NP_F32, NULL));
}

Test(program, a_step_in_bf16_is_the_reference, .timeout = 120)
{
    cr_assert(step_is_right(0, NP_BF16, NULL));
    cr_assert(step_is_right(1, NP_BF16, NULL));
}

/* The third matrix of weights: a convolution in the middle of either net. */
static float *middle_weights(const struct np_graph *graph, float *params, uint64_t *ret_n)
{
    int nr = 0;

    for (int t = 0; t < graph->nr_tensors; t++) {
        float *weights = weights_of(graph, t, params, ret_n);

        if (weights && ++nr == 3)
            return weights;
    }
    return NULL;
}

/* Every ninth product is left out: a place of the window. */
static void drop_terms(const struct np_graph *graph, float *params)
{
    uint64_t n;
    float *weights = middle_weights(graph, params, &n);

    for (uint64_t i = 0; i < n; i += 9)
        weights[i] = 0;
}

/* Four bits instead of eight, cut off. */
static void lose_bits(const struct np_graph *graph, float *params)
{
    uint64_t n;
    float *weights = middle_weights(graph, params, &n);

    for (uint64_t i = 0; i < n; i++) {
        uint32_t word;

        memcpy(&word, &weights[i], sizeof(word));
        word &= 0xfff00000;
        memcpy(&weights[i], &word, sizeof(word));
    }
}

Test(program, the_tolerance_of_a_step_in_bf16_catches_one_wrong_layer, .timeout = 120)
{
    for (int which = 0; which < 2; which++) {
        cr_assert_not(step_is_right(which, NP_BF16, drop_terms));
        cr_assert_not(step_is_right(which, NP_BF16, lose_bits));
    }
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
