/* Forward values of the reference kernels, worked out by hand or by a formula written here once
 * more; gradients alone would not notice a layer that computes something else consistently. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/rng.h"
#include "tests/kernel/interp.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"

/* One image, pixels 0.. in order; scaled so that the net reads the pixel's own number. */
struct pixels {
    struct np_graph *graph;
    struct interp interp;
};

static bool start(struct pixels *p, const char *model, struct made made)
{
    p->graph = made_good_graph(model, made);
    if (!p->graph || interp_init(&p->interp, p->graph, true) < 0)
        return false;
    for (int n = 0; n < p->graph->nr_nodes; n++) /* u8 / 255 / (1 / 255) = the number */
        if (p->graph->nodes[n].op == NP_OP_INPUT)
            for (int c = 0; c < 4; c++) {
                p->graph->nodes[n].attrs.mean[c] = 0;
                p->graph->nodes[n].attrs.std[c] = 1 / 255.0f;
            }
    return true;
}

static void go(struct pixels *p, const uint8_t *images)
{
    int32_t labels[64] = {0};

    interp_run(&p->interp, images, labels, 0);
}

static void stop(struct pixels *p)
{
    interp_fini(&p->interp);
    np_graph_free(p->graph);
}

/* Element i of what layer `name` gives. */
static double value(const struct pixels *p, const char *name, int i)
{
    for (int n = 0; n < p->graph->nr_nodes; n++)
        if (strcmp(p->graph->nodes[n].name, name) == 0 && p->graph->nodes[n].op != NP_OP_BN_STATS)
            return (double)interp_get(&p->interp, p->graph->nodes[n].outs[0], (uint64_t)i);
    return NAN;
}

static void set(struct pixels *p, const char *name, float (*of)(int i))
{
    int t = made_tensor(p->graph, name);
    const struct np_tensor *tensor = &p->graph->tensors[t];
    float *flat = tensor->role == NP_ROLE_PARAM ? p->interp.params : p->interp.buffers;

    for (uint64_t i = 0; i < np_tensor_elements(tensor); i++)
        flat[tensor->offset + i] = of((int)i);
}

static float counting(int i)
{
    return (float)i;
}

static float tenth(int i)
{
    return 0.1f * (float)(i + 1);
}

static uint8_t *counted(int n)
{
    uint8_t *images = malloc((size_t)n);

    for (int i = 0; i < n; i++)
        images[i] = (uint8_t)i;
    return images;
}

#define TAIL ", global_avgpool, linear: {name: fc, out: classes}]"

Test(values, conv_is_a_correlation_with_oihw_weights)
{
    struct pixels p;
    uint8_t *images = counted(18);

    /* 3x3x2 image NHWC; kernel 2x2, weight (1, 2, 2, 2) = 0..7 OIHW */
    cr_assert(start(&p, "model: [conv: {name: c, out: 1, kernel: 2, stride: 1, pad: 1}" TAIL,
        (struct made){1, 3, 3, 2, 2, NP_F32}));
    set(&p, "c.weight", counting);
    set(&p, "c.bias", tenth);
    go(&p, images);
    /* (0, 0): only the window's lower right tap lies in the image: pixel (0, 0) = {0, 1} */
    cr_assert_float_eq(value(&p, "c", 0), 0 * 3 + 1 * 7 + 0.1, 1e-5);
    /* (1, 1): pixels (0,0) (0,1) (1,0) (1,1) = {0,1} {2,3} {6,7} {8,9} */
    cr_assert_float_eq(value(&p, "c", 1 * 4 + 1),
        0 * 0 + 2 * 1 + 6 * 2 + 8 * 3 + 1 * 4 + 3 * 5 + 7 * 6 + 9 * 7 + 0.1, 1e-4);
    /* (3, 3): only the upper left tap: pixel (2, 2) = {16, 17} */
    cr_assert_float_eq(value(&p, "c", 15), 16 * 0 + 17 * 4 + 0.1, 1e-4);
    free(images);
    stop(&p);
}

Test(values, groups_and_dilation_take_the_right_taps)
{
    struct pixels p;
    uint8_t *images = counted(50);

    cr_assert(start(&p,
        "model: [conv: {name: c, out: 2, kernel: 3, dilation: 2, groups: 2, bias: "
        "false}" TAIL,
        (struct made){1, 5, 5, 2, 2, NP_F32}));
    set(&p, "c.weight", counting); /* (2, 1, 3, 3) */
    go(&p, images);
    double sum[2] = {0, 0};
    for (int o = 0; o < 2; o++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 3; x++)
                sum[o] += (o * 9 + y * 3 + x) * (double)((2 * y * 5 + 2 * x) * 2 + o);
    cr_assert_float_eq(value(&p, "c", 0), sum[0], 1e-2);
    cr_assert_float_eq(value(&p, "c", 1), sum[1], 1e-2);
    free(images);
    stop(&p);
}

Test(values, pools_equal_those_of_torch)
{
    struct pixels p;
    uint8_t *images = counted(25);

    cr_assert(start(&p,
        "model: [maxpool: {name: m, kernel: 2, stride: 2, pad: 1}, avgpool: {name: "
        "a, kernel: 2, stride: 2, pad: 1, from: input}, concat: [m, a]" TAIL,
        (struct made){1, 5, 5, 1, 2, NP_F32}));
    go(&p, images);
    cr_assert_float_eq(value(&p, "m", 0), 0, 1e-4);  /* padding is no pixel */
    cr_assert_float_eq(value(&p, "m", 4), 12, 1e-4); /* pixels 6 7 11 12 */
    cr_assert_float_eq(value(&p, "m", 8), 24, 1e-4);
    cr_assert_float_eq(value(&p, "a", 0), 0.0 / 4, 1e-4); /* padding counts */
    cr_assert_float_eq(value(&p, "a", 1), (1 + 2) / 4.0, 1e-4);
    cr_assert_float_eq(value(&p, "a", 4), (6 + 7 + 11 + 12) / 4.0, 1e-4);
    cr_assert_float_eq(value(&p, "3", 0), /* global mean of m, then a */
        (value(&p, "m", 0) + value(&p, "m", 1) + value(&p, "m", 2) + value(&p, "m", 3) +
            value(&p, "m", 4) + value(&p, "m", 5) + value(&p, "m", 6) + value(&p, "m", 7) +
            value(&p, "m", 8)) /
            9,
        1e-5);
    free(images);
    stop(&p);
}

Test(values, flatten_is_channels_first_and_concat_keeps_order)
{
    struct pixels p;
    uint8_t *images = counted(12); /* 2x2x3 */

    cr_assert(start(&p, "model: [{flatten: {name: f}}, {linear: {name: fc, out: classes}}]",
        (struct made){1, 2, 2, 3, 2, NP_F32}));
    go(&p, images);
    for (int c = 0; c < 3; c++)
        for (int pixel = 0; pixel < 4; pixel++)
            cr_assert_float_eq(value(&p, "f", c * 4 + pixel), pixel * 3 + c, 1e-4);
    free(images);
    stop(&p);
}

Test(values, batchnorm_normalises_and_keeps_torchs_running_averages)
{
    struct pixels p;
    uint8_t *images = counted(16); /* 2 images of 2x2x2 */
    double mean = 0, var = 0;

    cr_assert(start(&p, "model: [batchnorm: {name: b, momentum: 0.25, eps: 0.5}" TAIL,
        (struct made){2, 2, 2, 2, 2, NP_F32}));
    set(&p, "b.weight", tenth);
    set(&p, "b.bias", counting);
    go(&p, images);
    for (int i = 0; i < 8; i++)
        mean += (2 * i + 1) / 8.0; /* channel 1: 1, 3, ... 15 */
    for (int i = 0; i < 8; i++)
        var += pow(2 * i + 1 - mean, 2) / 8;
    cr_assert_float_eq(value(&p, "b", 3), 0.2 * (3 - mean) / sqrt(var + 0.5) + 1, 1e-5);
    int t = made_tensor(p.graph, "b.running_mean");
    cr_assert_float_eq(
        p.interp.buffers[p.graph->tensors[t].offset + 1], 0.75 * 0 + 0.25 * mean, 1e-5);
    t = made_tensor(p.graph, "b.running_var");
    cr_assert_float_eq(
        p.interp.buffers[p.graph->tensors[t].offset + 1], 0.75 * 1 + 0.25 * var * 8 / 7, 1e-4);
    free(images);
    stop(&p);
}

Test(values, evaluation_uses_the_running_averages)
{
    struct np_graph *train =
        made_good_graph("model: [{batchnorm: {name: b}}, {dropout: {rate: 0.9}}" TAIL,
            (struct made){2, 2, 2, 2, 2, NP_F32});
    struct pixels p = {.graph = np_graph_eval(train)};
    uint8_t *images = counted(16);

    cr_assert_eq(interp_init(&p.interp, p.graph, true), 0);
    p.graph->nodes[0].attrs.mean[1] = 0;
    p.graph->nodes[0].attrs.std[1] = 1 / 255.0f;
    set(&p, "b.running_mean", tenth);
    set(&p, "b.running_var", counting);
    go(&p, images);
    cr_assert_float_eq(value(&p, "b", 3), (3 - 0.2) / sqrt(1 + 1e-5), 1e-4);
    free(images);
    stop(&p);
    np_graph_free(train);
}

Test(values, dropout_keeps_the_mean_and_changes_with_the_step)
{
    struct np_graph *graph = made_good_graph(
        "model: [{dropout: {name: d, rate: 0.3}}" TAIL, (struct made){8, 16, 16, 3, 2, NP_F32});
    struct interp interp;
    uint8_t *images = malloc(8 * 768);
    int32_t labels[8] = {0};
    double kept[2] = {0, 0};
    int same = 0;
    float *first = malloc(8 * 768 * sizeof(float));

    memset(images, 200, 8 * 768);
    cr_assert(graph && interp_init(&interp, graph, true) == 0);
    for (int step = 0; step < 2; step++) {
        interp_run(&interp, images, labels, (uint64_t)step);
        for (int i = 0; i < 8 * 768; i++) {
            float x = interp_get(&interp, graph->input, (uint64_t)i);
            float y = interp_get(&interp, graph->nodes[1].outs[0], (uint64_t)i);

            cr_assert(y == 0 || fabsf(y - x / 0.7f) < 1e-5f * fabsf(y));
            kept[step] += y != 0;
            same += step == 1 && (y != 0) == (first[i] != 0);
            first[i] = y;
        }
    }
    cr_assert_float_eq(kept[0] / (8 * 768), 0.7, 0.02);
    cr_assert_float_eq(kept[1] / (8 * 768), 0.7, 0.02);
    cr_assert_float_eq(same / (8.0 * 768), 0.7 * 0.7 + 0.3 * 0.3, 0.03);
    interp_fini(&interp);
    np_graph_free(graph);
    free(images);
    free(first);
}

/* The loss of logits that are the biases: one linear layer on nothing. */
static void loss_of(const float *logits, int classes, int label, const char *loss, double ret[3])
{
    char model[256];
    struct np_graph *graph;
    struct interp interp;
    uint8_t image[3] = {0};
    int32_t labels[1] = {label};

    snprintf(model, sizeof(model), "model: [linear: {name: l, out: classes, init: zero}]\nloss: %s",
        loss);
    graph = made_good_graph(model, (struct made){1, 1, 1, 3, classes, NP_F32});
    interp_init(&interp, graph, true);
    memcpy(interp.params + graph->tensors[made_tensor(graph, "l.bias")].offset, logits,
        (size_t)classes * sizeof(float));
    interp_run(&interp, image, labels, 0);
    ret[0] = (double)interp_get(&interp, graph->loss, 0);
    ret[1] = (double)interp_get(&interp, graph->correct, 0);
    ret[2] = (double)interp_get(&interp, graph->top5, 0);
    interp_fini(&interp);
    np_graph_free(graph);
}

Test(values, cross_entropy_and_its_counts)
{
    const float logits[7] = {1, 3, -2, 0.5f, 2, 7, 4};
    double sum = 0, all[3], mean = 0;

    for (int i = 0; i < 7; i++)
        sum += exp((double)logits[i]);
    for (int i = 0; i < 7; i++)
        mean += (log(sum) - (double)logits[i]) / 7;
    loss_of(logits, 7, 5, "cross_entropy", all);
    cr_assert_float_eq(all[0], log(sum) - 7, 1e-5);
    cr_assert(all[1] == 1 && all[2] == 1);
    loss_of(logits, 7, 0, "{cross_entropy: {label_smoothing: 0.2}}", all);
    cr_assert_float_eq(all[0], 0.8 * (log(sum) - 1) + 0.2 * mean, 1e-5);
    cr_assert(all[1] == 0 && all[2] == 1); /* fifth of 7 4 3 2 1 */
    loss_of(logits, 7, 3, "cross_entropy", all);
    cr_assert(all[1] == 0 && all[2] == 0);
}

Test(values, large_logits_do_not_overflow_and_nan_is_never_right)
{
    const float large[3] = {1000, 999, -1000}, bad[3] = {1, NAN, 2}, ties[3] = {4, 4, 4};
    double all[3];

    loss_of(large, 3, 1, "cross_entropy", all);
    cr_assert_float_eq(all[0], 1 + log1p(exp(-1)), 1e-4);
    for (int label = 0; label < 3; label++) {
        loss_of(bad, 3, label, "cross_entropy", all);
        cr_assert_eq(all[1], 0);
    }
    loss_of(ties, 3, 0, "cross_entropy", all);
    cr_assert_eq(all[1], 1);
    loss_of(ties, 3, 2, "cross_entropy", all);
    cr_assert_eq(all[1], 0); /* a constant answer is right for one class, not for all */
}

Test(values, bf16_rounds_to_nearest_even)
{
    const float in[] = {1, 1 + 1.0f / 256, 1 + 3.0f / 256, -1.00390625f, 3.3895314e38f, INFINITY,
        NAN, 1e-40f, 0, 65535};
    const uint16_t wanted[] = {
        0x3f80, 0x3f80, 0x3f82, 0xbf80, 0x7f7f, 0x7f80, 0x7fc0, 0x0001, 0, 0x4780};
    uint16_t out[10];
    float back[10];

    np_bf16_from_f32(out, in, 10);
    np_f32_from_bf16(back, out, 10);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(out[i], wanted[i]);
    cr_assert(isnan(back[6]) && isinf(back[5]) && back[0] == 1 && back[2] == 1.015625f);
}
