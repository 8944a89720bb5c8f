/* Muon's matrices by oneDNN's products and all threads, beside plain C, which is torch's
 * (test_optim_torch.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "trainer/cpu/kernels_onednn_muon.h"
#include "trainer/muon.h"

/* Wide and tall, large and small, of one row, and none: the layer of the logits. */
static const char model[] = "model:\n"
                            "  - conv: {name: wide, out: 70, kernel: 3, bias: false}\n"
                            "  - conv: {name: tall, out: 300, kernel: 1, bias: false}\n"
                            "  - conv: {name: large, out: 260, kernel: 1, bias: false}\n"
                            "  - conv: {name: deep, out: 131, kernel: [1, 2], bias: false}\n"
                            "  - conv: {name: one, out: 1, kernel: 1, bias: false}\n"
                            "  - global_avgpool\n"
                            "  - linear: {name: logits, out: classes}\n";

static float wave(uint64_t i)
{
    return sinf((float)(i % 9973) * 0.37f) + 0.1f * sinf((float)i);
}

/* A matrix after one update from zeros: -lr sqrt(max(1, rows / cols)) times its direction. */
static float *updated(uint64_t n, struct np_update *update)
{
    const struct np_hyper hyper = {.kind = NP_MUON, .lr = 1, .momentum = 0.5f, .iterations = 5};
    float *params = calloc(n, sizeof(float)), *mean = calloc(n, sizeof(float));
    float *grads = malloc(n * sizeof(float));

    for (uint64_t i = 0; i < n; i++)
        grads[i] = wave(i);
    update->params = params;
    update->state[0] = update->state[1] = mean; /* the second is adamw's */
    update->grads = grads;
    update->n = n;
    update->grad_scale = 1;
    update->rule = (struct np_rule){.lr = 1, .decay = 1};
    np_optim_update(&hyper, update);
    free(mean);
    free(grads);
    return params;
}

static float *plain(uint64_t rows, uint64_t n)
{
    float *scratch = malloc(np_muon_scratch(rows, n / rows) * sizeof(float));
    struct np_update update = {.rows = rows, .scratch = scratch, .means = &np_muon_plain};
    float *params = updated(n, &update);

    free(scratch);
    return params;
}

static float *threaded(const struct np_graph *graph, int t, int nr_threads, bool *ret_large)
{
    struct np_err err = {0};
    struct np_pool *pool;
    struct np_cpu_muon *muon;
    struct np_update update = {0};

    cr_assert_eq(np_pool_new(nr_threads, &pool, &err), 0);
    cr_assert_eq(np_cpu_muon_new(graph, pool, &muon, &err), 0);
    np_cpu_muon_fill(muon, t, 0, &update);
    cr_assert_eq(update.rows, np_muon_rows(graph, t));
    *ret_large = np_cpu_muon_is_large(muon, t);
    float *params = updated(np_tensor_elements(&graph->tensors[t]), &update);
    np_cpu_muon_free(muon);
    np_pool_free(pool);
    return params;
}

static double distance(const float *x, const float *y, uint64_t n)
{
    double apart = 0, size = 0;

    for (uint64_t i = 0; i < n; i++) {
        apart += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        size += (double)y[i] * y[i];
    }
    return sqrt(apart / size);
}

Test(muon, any_number_of_threads_gives_the_same_bits_and_plain_cs_numbers)
{
    struct np_graph *graph = made_good_graph(
        model, (struct made){.batch = 2, .height = 8, .width = 8, .channels = 3, .classes = 5});
    int nr_large = 0, nr_small = 0;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const uint64_t rows = np_muon_rows(graph, t), n = np_tensor_elements(&graph->tensors[t]);
        bool large;

        if (rows == 0)
            continue;
        float *one = threaded(graph, t, 1, &large), *three = threaded(graph, t, 3, &large);
        float *wanted = plain(rows, n);
        cr_expect_arr_eq(one, three, n * sizeof(float));
        cr_expect(distance(one, wanted, n) < 1e-4, "%s: %g from plain C", graph->tensors[t].name,
            distance(one, wanted, n));
        *(large ? &nr_large : &nr_small) += 1;
        free(one);
        free(three);
        free(wanted);
    }
    cr_expect(nr_large >= 2 && nr_small >= 2 && nr_large + nr_small == 5);
    np_graph_free(graph);
}

Test(muon, a_zero_gradient_gives_no_direction_and_a_nan_stays_one)
{
    float x[6] = {0}, scratch[6 + 2 * 4];

    np_muon_orthogonal(x, 2, 3, 5, scratch, &np_muon_plain);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(x[i], 0);
    x[4] = NAN;
    np_muon_orthogonal(x, 2, 3, 5, scratch, &np_muon_plain);
    cr_assert(isnan(x[0]) && isnan(x[5]));
}
