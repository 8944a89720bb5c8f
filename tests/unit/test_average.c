/* The average of the weights: its weight at each update, and the CPU device's average and swap. */
#include <math.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "trainer/average.h"
#include "trainer/device.h"
#include "trainer/plan.h"

Test(average, is_due_every_so_many_updates_and_may_warm_up)
{
    const struct np_average_options none = {0}, plain = {.decay = 0.9, .every = 3},
                                    warm = {.decay = 0.9, .every = 3, .warmup = true};

    const struct np_average_options rising = {.decay = 0.9, .every = 3, .rise = 2};

    cr_expect(fabs(np_average_weight(&rising, 3, 30) - (1 - 0.9 * 0.01)) < 1e-7);
    cr_expect(fabs(np_average_weight(&rising, 30, 30) - 0.1) < 1e-7);
    cr_expect(np_average_weight(&rising, 31, 30) == 0);
    cr_expect(np_average_weight(&none, 3, 1000000) == 0);
    cr_expect(np_average_weight(&plain, 2, 1000000) == 0);
    cr_expect(fabs(np_average_weight(&plain, 3, 1000000) - 0.1) < 1e-7);
    cr_expect(fabs(np_average_weight(&warm, 3, 1000000) - 0.9) < 1e-7);      /* 1 - 1 / 10 */
    cr_expect(fabs(np_average_weight(&warm, 6, 1000000) - 9.0 / 11) < 1e-7); /* 1 - 2 / 11 */
    cr_expect(fabs(np_average_weight(&warm, 300000, 1000000) - 0.1) < 1e-7);
}

static const char model[] =
    "model: [conv: {out: 4, kernel: 3, pad: 1}, batchnorm, relu, flatten, linear: {out: classes}]";

enum { MAX = 4096 };

/* Fills an array with f(i), or compares it. */
static void put(const struct np_device *device, struct np_plan *plan, int array, float scale)
{
    float values[MAX];

    for (int i = 0; i < MAX; i++)
        values[i] = scale * (float)(i % 17 + 1);
    cr_assert(device->plan_ops->write(plan, array, values, NULL) == 0);
}

static float get(const struct np_device *device, struct np_plan *plan, int array, int i)
{
    float values[MAX];

    cr_assert(device->plan_ops->read(plan, array, values, NULL) == 0);
    return values[i] / (float)(i % 17 + 1);
}

Test(average, of_the_cpu_device_blends_comes_back_and_swaps)
{
    const struct np_plan_options options = {.lanes = 1, .threads = 1};
    struct np_graph *graph = made_good_graph(model, (struct made){2, 8, 8, 3, 5, NP_F32}),
                    *train = np_graph_copy(graph);
    struct np_device *device = NULL;
    struct np_plan *plan = NULL;

    cr_assert(np_autodiff(train, NULL) == 0);
    cr_assert(train->nr_params < MAX && train->nr_params > 100 && train->nr_buffers == 8);
    cr_assert(np_device_open("cpu", NULL, &device, NULL) == 0);
    const struct np_plan_ops *ops = device->plan_ops;
    cr_assert(ops->prepare(device, train, NULL, &options, &plan, NULL) == 0);
    put(device, plan, NP_ARRAY_PARAMS, 4);
    put(device, plan, NP_ARRAY_AVERAGE, 2);
    cr_assert(ops->average(plan, 0.25f, false, NULL) == 0);
    const int last = (int)train->nr_params - 1;
    cr_expect(get(device, plan, NP_ARRAY_AVERAGE, last) == 2.5f);
    cr_expect(get(device, plan, NP_ARRAY_PARAMS, last) == 4);
    cr_assert(ops->swap(plan, NULL) == 0);
    cr_expect(get(device, plan, NP_ARRAY_AVERAGE, 0) == 4);
    cr_expect(get(device, plan, NP_ARRAY_PARAMS, last) == 2.5f);
    cr_assert(ops->average(plan, 0.5f, true, NULL) == 0);
    cr_expect(get(device, plan, NP_ARRAY_AVERAGE, last) == 3.25f);
    cr_expect(get(device, plan, NP_ARRAY_PARAMS, 0) == 3.25f);
    ops->free(plan);
    np_device_close(device);
    np_graph_free(train);
    np_graph_free(graph);
}
