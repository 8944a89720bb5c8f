/* SAM's way uphill, and the CPU device's step of two passes. */
#include <math.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "trainer/device.h"
#include "trainer/optim.h"
#include "trainer/plan.h"
#include "trainer/sam.h"

Test(sam, climbs_by_rho_in_the_gradients_direction)
{
    const float g[] = {3, 0, -4}, start[] = {1, -0.5f, 2};
    float w[3], kind[3];

    memcpy(w, start, sizeof(w));
    memcpy(kind, start, sizeof(kind));
    cr_expect(np_sam_squares(w, g, 3, false) == 25);
    np_sam_climb(w, g, 3, np_sam_scale(5, 0.5), false);
    cr_expect(fabsf(w[0] - 1.3f) < 1e-6f && w[1] == -0.5f && fabsf(w[2] - 1.6f) < 1e-6f);
    cr_expect(np_sam_squares(kind, g, 3, true) == 9 + 64);
    np_sam_climb(kind, g, 3, np_sam_scale(sqrt(73), 0.5), true);
    cr_expect(fabsf(kind[0] - 1 - (float)(0.5 / sqrt(73) * 3)) < 1e-6f && kind[1] == -0.5f);
    cr_expect(fabsf(kind[2] - 2 + (float)(0.5 / sqrt(73) * 16)) < 1e-6f);
}

Test(sam, without_a_gradient_stays_and_a_broken_norm_is_not_hidden)
{
    const float g[] = {0, 0};
    float w[] = {1, -2};

    np_sam_climb(w, g, 2, np_sam_scale(0, 0.05), false);
    cr_expect(w[0] == 1 && w[1] == -2);
    cr_expect(isnan(np_sam_scale(INFINITY, 0.05)) && isnan(np_sam_scale(NAN, 0.05)));
}

static const char model[] = "model: [conv: {out: 4, kernel: 3, pad: 1}, batchnorm, relu, "
                            "dropout: {rate: 0.5}, flatten, linear: {out: classes}]";

enum { MAX = 4096, PIXELS = 4 * 8 * 8 * 3 };

struct state {
    float params[MAX], buffers[MAX], grads[MAX];
    struct np_metrics metrics;
};

/* One step at made-up weights, with these threads. */
static void step(const struct np_hyper *hyper, int threads, struct state *ret_state)
{
    const struct np_plan_options options = {.lanes = 2, .threads = threads};
    struct np_graph *graph = made_good_graph(model, (struct made){4, 8, 8, 3, 5, NP_F32}),
                    *train = np_graph_copy(graph);
    const int32_t labels[] = {0, 3, 1, 4};
    struct np_device *device = NULL;
    struct np_plan *plan = NULL;
    uint8_t images[PIXELS];
    float values[MAX];

    cr_assert(np_autodiff(train, NULL) == 0 && train->nr_params < MAX && train->nr_buffers < MAX);
    cr_assert(np_device_open("cpu", NULL, &device, NULL) == 0);
    const struct np_plan_ops *ops = device->plan_ops;
    cr_assert(ops->prepare(device, train, NULL, &options, &plan, NULL) == 0);
    for (int i = 0; i < PIXELS; i++)
        images[i] = (uint8_t)(i * 7919 % 251);
    np_graph_init(train, 5, values, ret_state->buffers);
    cr_assert(ops->write(plan, NP_ARRAY_PARAMS, values, NULL) == 0);
    cr_assert(ops->write(plan, NP_ARRAY_BUFFERS, ret_state->buffers, NULL) == 0);
    cr_assert(ops->step_update(plan, images, labels, 3, 0.25f, hyper, NULL) == 0);
    cr_assert(ops->metrics(plan, false, &ret_state->metrics, NULL) == 0);
    cr_assert(ops->read(plan, NP_ARRAY_PARAMS, ret_state->params, NULL) == 0);
    cr_assert(ops->read(plan, NP_ARRAY_BUFFERS, ret_state->buffers, NULL) == 0);
    cr_assert(ops->read(plan, NP_ARRAY_GRADS, ret_state->grads, NULL) == 0);
    ops->free(plan);
    np_device_close(device);
    np_graph_free(train);
    np_graph_free(graph);
}

Test(sam, step_keeps_loss_statistics_and_weights_of_the_first_pass)
{
    static struct state plain, sharp, still, three;
    const struct np_hyper hyper = {.kind = NP_SGD, .lr = 0.1f},
                          sam = {.kind = NP_SGD, .lr = 0.1f, .sam_rho = 0.5f},
                          no_rate = {.kind = NP_SGD, .sam_rho = 0.5f, .sam_adaptive = true},
                          neither = {.kind = NP_SGD};

    step(&hyper, 1, &plain);
    step(&sam, 1, &sharp);
    cr_expect(sharp.metrics.rows == 4 && sharp.metrics.loss_sum == plain.metrics.loss_sum);
    cr_expect(memcmp(sharp.buffers, plain.buffers, 8 * sizeof(float)) == 0);
    cr_expect(memcmp(sharp.params, plain.params, sizeof(plain.params)) != 0);
    step(&sam, 3, &three); /* threads do not change the bits */
    cr_expect(memcmp(sharp.params, three.params, sizeof(sharp.params)) == 0);
    step(&no_rate, 1, &still); /* at a rate of 0 the weights return, bit for bit */
    step(&neither, 1, &plain);
    cr_expect(memcmp(still.params, plain.params, sizeof(plain.params)) == 0);
    cr_expect(memcmp(still.grads, plain.grads, sizeof(plain.grads)) != 0);
}

/* The gradient at the weights after the climb is what updates; with dropout's masks of the step. */
Test(sam, updates_by_the_gradient_uphill)
{
    static struct state sharp, start;
    const struct np_hyper sam = {.kind = NP_SGD, .lr = 0.1f, .sam_rho = 0.5f},
                          neither = {.kind = NP_SGD};

    step(&neither, 1, &start);
    step(&sam, 1, &sharp);
    for (int i = 0; i < 100; i++)
        cr_expect(fabsf(sharp.params[i] - (start.params[i] - 0.1f * sharp.grads[i])) < 1e-6f);
}
