/* Test-time augmentation on the CPU device: the mean over views beside pictures that were mirrored and shifted before,
 * with any cut of the batch; masked rows; the same with the reference kernels. */
#include <math.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "trainer/device.h"
#include "trainer/plan.h"

#define BATCH   5
#define H       6
#define W       8
#define CLASSES 3
#define ROW     (H * W * 3)

static const char net[] =
    "model: [{conv: {out: 8, kernel: 3, pad: 1}}, batchnorm, relu, {conv: {out: 8, kernel: 3}}, "
    "relu, flatten, {dropout: {rate: 0.5}}, {linear: {out: classes}}]";
static const int32_t labels[BATCH] = {0, 2, -1, 1, 1};

static void make_pictures(uint8_t images[BATCH * ROW])
{
    for (int i = 0; i < BATCH * ROW; i++)
        images[i] = (uint8_t)((unsigned)i * 2654435761u >> 21);
}

/* A view as np.pad(mode="reflect") and a cut make it, with a mirror after it. */
static void make_view(const uint8_t *images, int shift, bool mirror, uint8_t *made)
{
    uint8_t padded[H + 2][W + 2][3];

    for (int r = 0; r < BATCH; r++) {
        for (int y = 0; y < H + 2; y++)
            for (int x = 0; x < W + 2; x++) {
                const int from_y = y == 0 ? 1 : y == H + 1 ? H - 2 : y - 1;
                const int from_x = x == 0 ? 1 : x == W + 1 ? W - 2 : x - 1;

                memcpy(padded[y][x], images + r * ROW + (from_y * W + from_x) * 3, 3);
            }
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                memcpy(made + r * ROW + (y * W + x) * 3,
                    padded[y + 1 + shift][(mirror ? W - 1 - x : x) + 1 + shift], 3);
    }
}

/* Evaluates once; logits: (BATCH, CLASSES). */
static void evaluate(const uint8_t *images, enum np_tta tta, enum np_dtype precision,
    struct np_plan_options options, float *logits, struct np_metrics *ret_metrics)
{
    struct np_graph *graph =
        made_good_graph(net, (struct made){BATCH, H, W, 3, CLASSES, precision});
    struct np_graph *eval = np_graph_eval(graph);
    float *params = np_alloc_array(graph->nr_params, sizeof(float));
    float *buffers = np_alloc_array(graph->nr_buffers, sizeof(float));
    struct np_device *device = NULL;
    struct np_plan *plan = NULL;
    struct np_err err = {0};

    np_graph_views(eval, tta);
    np_graph_init(graph, 3, params, buffers);
    cr_assert_eq(np_device_open("cpu", NULL, &device, &err), 0);
    const struct np_plan_ops *ops = device->plan_ops;
    cr_assert_eq(ops->prepare(device, NULL, eval, &options, &plan, &err), 0, "%s", err.text);
    cr_assert_eq(ops->write(plan, NP_ARRAY_PARAMS, params, &err), 0);
    cr_assert_eq(ops->write(plan, NP_ARRAY_BUFFERS, buffers, &err), 0);
    for (int batch = 0; batch < 2; batch++) { /* a second batch begins a sum of its own */
        cr_assert_eq(ops->eval(plan, images, labels, &err), 0);
        cr_assert_eq(ops->metrics(plan, false, ret_metrics, &err), 0);
    }
    cr_assert_eq(ops->logits(plan, logits, &err), 0);
    ops->free(plan);
    np_device_close(device);
    np_free(params);
    np_free(buffers);
    np_graph_free(eval);
    np_graph_free(graph);
}

/* The weighted mean of single views. */
static void expect(
    const uint8_t *images, enum np_tta tta, enum np_dtype precision, float *ret_logits)
{
    static const int shifts[] = {0, -1, 1};
    const int views = tta == NP_TTA_FLIP ? 2 : 6;
    uint8_t made[BATCH * ROW];
    struct np_metrics metrics;

    memset(ret_logits, 0, BATCH * CLASSES * sizeof(float));
    for (int v = 0; v < views; v++) {
        const float weight = views == 2 ? 0.5f : v < 2 ? 0.25f : 0.125f;
        float logits[BATCH * CLASSES];

        make_view(images, shifts[v / 2], v % 2, made);
        evaluate(
            made, NP_TTA_NONE, precision, (struct np_plan_options){.threads = 1}, logits, &metrics);
        for (int i = 0; i < BATCH * CLASSES; i++)
            ret_logits[i] += weight * logits[i];
    }
}

Test(views, logits_are_the_weighted_mean)
{
    for (int variant = 0; variant < 8; variant++) {
        const enum np_tta tta = variant & 1 ? NP_TTA_FLIP : NP_TTA_FLIP_SHIFT;
        const enum np_dtype precision = variant & 2 ? NP_BF16 : NP_F32;
        const struct np_plan_options options = {.threads = 1, .reference = variant & 4};
        const float limit = precision == NP_BF16 ? 0.02f : 2e-6f;
        uint8_t images[BATCH * ROW];
        float wanted[BATCH * CLASSES], logits[BATCH * CLASSES], plain[BATCH * CLASSES];
        struct np_metrics metrics, without;
        float moved = 0;

        make_pictures(images);
        expect(images, tta, precision, wanted);
        evaluate(images, tta, precision, options, logits, &metrics);
        evaluate(images, NP_TTA_NONE, precision, options, plain, &without);
        for (int i = 0; i < BATCH * CLASSES; i++) {
            cr_expect(fabsf(logits[i] - wanted[i]) <= limit * fmaxf(1, fabsf(wanted[i])),
                "variant %d, %d: %g, not %g", variant, i, (double)logits[i], (double)wanted[i]);
            moved = fmaxf(moved, fabsf(plain[i] - wanted[i]));
        }
        cr_expect(
            moved > 0.04f, "variant %d: views make no difference: %g", variant, (double)moved);
        cr_expect(metrics.rows == 4 && metrics.loss_sum != without.loss_sum, "variant %d", variant);
    }
}

/* Cross entropy of the mean, not the mean of the views' losses. */
Test(views, the_loss_is_that_of_the_mean)
{
    uint8_t images[BATCH * ROW];
    float logits[BATCH * CLASSES];
    struct np_metrics metrics;
    double loss = 0;

    make_pictures(images);
    evaluate(images, NP_TTA_FLIP_SHIFT, NP_F32, (struct np_plan_options){.threads = 1}, logits,
        &metrics);
    for (int r = 0; r < BATCH; r++) {
        double sum = 0;

        for (int c = 0; c < CLASSES && labels[r] >= 0; c++)
            sum += exp((double)logits[r * CLASSES + c]);
        if (labels[r] >= 0)
            loss += log(sum) - (double)logits[r * CLASSES + labels[r]];
    }
    cr_expect_float_eq(metrics.loss_sum, loss, 1e-5);
}

/* Threads and lanes, and rows that are not computed. */
Test(views, a_row_does_not_depend_on_the_cut_of_the_batch)
{
    uint8_t images[BATCH * ROW];
    float one[BATCH * CLASSES], other[BATCH * CLASSES];
    struct np_metrics metrics;

    make_pictures(images);
    evaluate(images, NP_TTA_FLIP_SHIFT, NP_F32, (struct np_plan_options){.threads = 1, .lanes = 1},
        one, &metrics);
    for (int lanes = 2; lanes <= 5; lanes++) {
        const struct np_plan_options options = {.threads = 3, .lanes = lanes, .skip_masked = true};

        evaluate(images, NP_TTA_FLIP_SHIFT, NP_F32, options, other, &metrics);
        for (int i = 0; i < BATCH * CLASSES; i++)
            cr_expect(labels[i / CLASSES] < 0 || fabsf(one[i] - other[i]) <= 1e-5f,
                "%d lanes, %d: %g, not %g", lanes, i, (double)other[i], (double)one[i]);
    }
}
