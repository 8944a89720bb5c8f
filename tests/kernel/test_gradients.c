/* Gradients of the reference kernels against signed central differences of the loss: for each
 * parameter tensor the vector of differences must match the vector of gradients in length and
 * direction. A relu or a maximum has kinks that a difference can straddle; the one-sided
 * difference of the other side is right then. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/rng.h"
#include "loader/base/yaml.h"
#include "tests/kernel/interp.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "trainer/rules.h"

/* Steps of a difference, and the errors they leave: against rounding a large step helps, against
 * kinks a small one. */
#define SMOOTH_STEP 4e-3
#define KINKED_STEP 1e-3
#define SMOOTH      0.006
#define KINKED      0.03
/* Elements of a tensor that are looked at, two or three runs of the net each. */
#define MAX_ELEMENTS NP_TIMES(40, 1)

static const struct made tiny = {3, 9, 9, 2, 3, NP_F32};

/* Loss with one parameter moved by delta. Running averages move too; this test does not read them. */
static double loss_at(struct interp *interp, const uint8_t *images, const int32_t *labels,
    uint64_t element, double delta)
{
    float kept = interp->params[element];
    double loss;

    interp->params[element] = (float)((double)kept + delta);
    interp_run_forward(interp, images, labels, 3);
    loss = interp_loss(interp);
    interp->params[element] = kept;
    return loss;
}

/* |differences - gradients| / |gradients| over (up to MAX_ELEMENTS) elements of one tensor; floor:
 * what counts as no gradient at all. middle: the loss with nothing moved. */
static double tensor_error(struct interp *interp, int t, const float *grads, const uint8_t *images,
    const int32_t *labels, double middle, bool kinks)
{
    const struct np_tensor *tensor = &interp->graph->tensors[t];
    uint64_t n = np_tensor_elements(tensor), stride = (n + MAX_ELEMENTS - 1) / MAX_ELEMENTS;
    double step = kinks ? KINKED_STEP : SMOOTH_STEP;
    double wrong = 0, all = 0, floor = 0.02;

    for (uint64_t i = 0; i < n; i += stride) {
        uint64_t at = tensor->offset + i;
        double up = loss_at(interp, images, labels, at, step);
        double down = loss_at(interp, images, labels, at, -step);
        /* the steps f32 really took */
        double taken = (double)(float)((double)interp->params[at] + step) -
                       (double)(float)((double)interp->params[at] - step);
        double error = fabs((up - down) / taken - (double)grads[at]);

        if (kinks) {
            error = fmin(error, fabs((up - middle) / taken * 2 - (double)grads[at]));
            error = fmin(error, fabs((middle - down) / taken * 2 - (double)grads[at]));
        }
        wrong += error * error;
        all += (double)grads[at] * (double)grads[at];
    }
    return sqrt(wrong) / (sqrt(all) + floor);
}

/* Weights away from symmetric starts: batchnorm's 1 and 0, zero biases. */
static void stir(struct interp *interp)
{
    struct np_draws draws;

    np_draws_init(&draws, 11, NP_STREAM_TEST, 0, 0, 1);
    for (uint64_t i = 0; i < interp->graph->nr_params; i++)
        interp->params[i] += (float)(0.2 * (np_draw_uniform(&draws) - 0.5));
}

/* The worst tensor's error; every parameter must have a gradient. */
static double worst_error(struct np_graph *graph, uint64_t seed, bool kinks)
{
    struct interp interp;
    uint8_t *images;
    int32_t *labels;
    float *grads;
    double worst = 0, middle;

    if (interp_init_cut(&interp, graph, true, 1, graph->batch) < 0) {
        fprintf(stderr, "no kernel for %s\n", interp.missing);
        interp_fini(&interp);
        return 1e9;
    }
    stir(&interp);
    interp_batch(graph, seed, &images, &labels);
    interp_run(&interp, images, labels, 3);
    middle = interp_loss(&interp);
    grads = malloc(graph->nr_params * sizeof(float));
    memcpy(grads, interp.grads, graph->nr_params * sizeof(float));
    for (int t = 0; t < graph->nr_tensors; t++) {
        double error;

        if (graph->tensors[t].role != NP_ROLE_PARAM || graph->tensors[t].rule.thaw == NP_NEVER)
            continue;
        error = graph->tensors[t].grad < 0
                    ? 1e9
                    : tensor_error(&interp, t, grads, images, labels, middle, kinks);
        if (error > (kinks ? KINKED : SMOOTH))
            fprintf(stderr, "%s: error %.3g\n", graph->tensors[t].name, error);
        worst = error > worst ? error : worst;
    }
    free(grads);
    free(images);
    free(labels);
    interp_fini(&interp);
    return worst;
}

/* freeze: the value of that key. */
static bool freezes(struct np_graph *graph, const char *freeze)
{
    const struct np_rules_time time = {1, 1, 1};
    struct np_node *node = NULL;
    struct np_report report;
    struct np_rules rules;

    np_report_init(&report, "test");
    int code = np_yaml_parse(freeze, strlen(freeze), &node, &report);
    code = code < 0 ? code : np_rules_parse(node, NULL, &rules, &report);
    code = code < 0 ? code : np_rules_apply(&rules, &time, graph, &report);
    np_rules_fini(&rules);
    np_node_free(node);
    np_report_fini(&report);
    return code == 0;
}

/* A net between a first conv, whose gradient has passed everything, and the classifier. */
static double error_of_labels(
    enum np_label_type type, const char *layers, const char *more, const char *freeze, bool kinks)
{

    static const struct np_fusions all = {true, true, true, true, true, true, true, true};
    char text[4096];
    struct np_graph *graph;
    double plain, fused;

    snprintf(text, sizeof(text),
        "model:\n  - conv: {name: first, out: 4, kernel: 3, pad: 1}\n%s"
        "  - flatten\n  - linear: {name: last, out: classes}\n%s",
        layers, more);
    graph = made_good_typed_graph(text, tiny, type);
    if (!graph || !freezes(graph, freeze) || np_autodiff(graph, NULL) < 0)
        return 1e9;
    plain = worst_error(graph, 21, kinks);
    np_fuse(graph, &all);
    fused = worst_error(graph, 21, kinks);
    np_graph_free(graph);
    return plain > fused ? plain : fused;
}

static double error_of_frozen(const char *layers, const char *more, const char *freeze, bool kinks)
{
    return error_of_labels(NP_LABEL_CLASS, layers, more, freeze, kinks);
}

static double error_of(const char *layers, const char *more, bool kinks)
{
    return error_of_frozen(layers, more, "[]", kinks);
}

static bool smooth(const char *layers, const char *more)
{
    return error_of(layers, more, false) < SMOOTH;
}

static bool smooth_of(enum np_label_type type, const char *layers, const char *more)
{
    return error_of_labels(type, layers, more, "[]", false) < SMOOTH;
}

static bool kinked(const char *layers, const char *more)
{
    return error_of(layers, more, true) < KINKED;
}

Test(gradients, of_nothing_but_conv_and_linear)
{
    cr_assert(smooth("", ""));
}

Test(gradients, of_convolutions_of_every_kind)
{
    cr_assert(smooth("  - conv: {out: 6, kernel: 3, stride: 2, pad: 1}\n", ""));
    cr_assert(smooth("  - conv: {out: 6, kernel: 3, dilation: 2, pad: 1}\n", ""));
    cr_assert(smooth("  - conv: {out: 6, kernel: 3, groups: 2, bias: false}\n", ""));
    cr_assert(smooth("  - conv: {out: 8, kernel: 5, groups: 4, pad: same}\n", ""));
    cr_assert(smooth("  - conv: {out: 5, kernel: 1, stride: 3}\n", ""));
    cr_assert(smooth("  - conv: {out: 3, kernel: 4, stride: 3, pad: 2}\n", ""));
}

Test(gradients, of_batchnorm)
{
    cr_assert(smooth("  - batchnorm\n", ""));
    cr_assert(smooth("  - batchnorm: {eps: 0.1, momentum: 0.3}\n", ""));
    cr_assert(kinked("  - batchnorm\n  - relu\n", ""));
}

Test(gradients, through_frozen_layers)
{
    static const char *const freeze[] = {"[bn]", "{names: [bn], batchnorm: false}",
        "{names: [bn], until: {step: 9}}", "[mid, bn]", "[first]", "[first, bn, mid.weight]",
        "[\"*.bias\", mid]", "[bn.weight]"};

    for (size_t i = 0; i < sizeof(freeze) / sizeof(*freeze); i++) {
        cr_expect(error_of_frozen("  - batchnorm: {name: bn}\n"
                                  "  - conv: {name: mid, out: 3, kernel: 3}\n",
                      "", freeze[i], false) < SMOOTH,
            "%s", freeze[i]);
        cr_expect(error_of_frozen("  - conv: {name: mid, out: 4, kernel: 1}\n"
                                  "  - batchnorm: {name: bn}\n  - add: [bn, first]\n  - relu\n"
                                  "  - maxpool: {kernel: 2}\n",
                      "", freeze[i], true) < KINKED,
            "%s, with an add and a relu", freeze[i]);
    }
}

Test(gradients, of_frozen_layers_are_not_calculated)
{
    struct np_graph *graph = made_good_graph(
        "model:\n  - conv: {name: a, out: 4, kernel: 3}\n  - batchnorm: {name: bn}\n"
        "  - relu\n  - maxpool: {kernel: 2}\n"
        "  - conv: {name: b, out: 4, kernel: 3}\n  - flatten\n"
        "  - linear: {name: last, out: classes}\n",
        tiny);
    int nr[NP_NR_OPS] = {0};

    cr_assert(graph && freezes(graph, "[a, bn]") && np_autodiff(graph, NULL) == 0);
    for (int n = 0; n < graph->nr_nodes; n++) {
        nr[graph->nodes[n].op]++;
        cr_expect(graph->nodes[n].op != NP_OP_MAXPOOL || graph->nodes[n].nr_outs == 1);
    }
    cr_expect(nr[NP_OP_CONV_WGRAD] == 1 && nr[NP_OP_LINEAR_WGRAD] == 1);
    cr_expect(nr[NP_OP_CONV_DGRAD] == 0 && nr[NP_OP_MAXPOOL_DGRAD] == 0);
    cr_expect(nr[NP_OP_BN_EVAL] == 1 && nr[NP_OP_BN_STATS] == 0 && nr[NP_OP_BN_REDUCE] == 0);
    np_graph_free(graph);
}

Test(gradients, of_relu_behind_everything)
{
    cr_assert(kinked("  - relu\n", ""));
    cr_assert(kinked("  - conv: {out: 6, kernel: 3}\n  - relu\n", ""));
    cr_assert(kinked("  - flatten\n  - linear: {out: 7}\n  - relu\n", ""));
}

Test(gradients, of_activation_functions)
{
    cr_assert(kinked("  - relu6\n", ""));
    cr_assert(kinked("  - leaky_relu: {slope: 0.2}\n", ""));
    cr_assert(kinked("  - hardsigmoid\n", ""));
    cr_assert(kinked("  - hardswish\n", ""));
    cr_assert(smooth("  - sigmoid\n", ""));
    cr_assert(smooth("  - tanh\n", ""));
    cr_assert(smooth("  - silu\n", ""));
    cr_assert(smooth("  - gelu\n", ""));
    cr_assert(smooth("  - gelu: {approximate: tanh}\n", ""));
}

Test(gradients, of_pooling)
{
    cr_assert(kinked("  - maxpool: {kernel: 2}\n", ""));
    cr_assert(kinked("  - maxpool: {kernel: 3, stride: 2, pad: 1}\n", ""));
    cr_assert(kinked("  - maxpool: {kernel: 3, stride: 1}\n", ""));
    cr_assert(smooth("  - avgpool: {kernel: 2}\n", ""));
    cr_assert(smooth("  - avgpool: {kernel: 3, stride: 2, pad: 1}\n", ""));
    cr_assert(smooth("  - avgpool: {kernel: 4, stride: 3, pad: 2}\n", ""));
    cr_assert(smooth("  - global_avgpool\n", ""));
}

Test(gradients, of_windows_with_unequal_sides)
{
    cr_assert(smooth("  - conv: {out: 5, kernel: [1, 5], stride: [2, 1], pad: [0, 2]}\n", ""));
    cr_assert(
        smooth("  - conv: {out: 4, kernel: 3, dilation: [2, 1], pad: same, groups: 2}\n", ""));
    cr_assert(kinked("  - maxpool: {kernel: [3, 2], stride: 2, ceil_mode: true}\n", ""));
    cr_assert(smooth(
        "  - avgpool: {kernel: [2, 3], stride: [2, 2], pad: [1, 1], ceil_mode: true}\n", ""));
}

Test(gradients, of_transposed_convolutions)
{
    cr_assert(smooth("  - conv_transpose: {out: 3, kernel: 3}\n", ""));
    cr_assert(smooth("  - conv_transpose: {out: 4, kernel: [4, 3], stride: 2, pad: 1, "
                     "output_pad: [0, 1], groups: 2}\n",
        ""));
    cr_assert(
        smooth("  - conv_transpose: {out: 2, kernel: 2, dilation: [1, 2], bias: false}\n", ""));
    cr_assert(smooth("  - conv_transpose: {out: 4, kernel: 2, stride: 3, groups: 4}\n", ""));
}

Test(gradients, of_dropout_with_the_same_draws)
{
    cr_assert(smooth("  - dropout: {rate: 0.3}\n", ""));
    cr_assert(smooth("  - flatten\n  - dropout: {rate: 80%}\n", ""));
}

Test(gradients, of_other_sizes)
{
    cr_assert(smooth("  - adaptive_avgpool: {size: [4, 5]}\n", ""));
    cr_assert(smooth("  - upsample\n", ""));
    cr_assert(smooth("  - blur\n  - blur: {stride: 2}\n", ""));
    cr_assert(
        smooth("  - avgpool: {kernel: 3}\n  - upsample: {scale: [2, 3], mode: bilinear}\n", ""));
}

Test(gradients, of_products_and_dropped_rows)
{
    cr_assert(smooth("  - conv: {name: a, out: 4, kernel: 3, pad: 1}\n  - mul: [a, first]\n", ""));
    cr_assert(smooth("  - mul: [first, first]\n", ""));
    cr_assert(smooth("  - global_avgpool\n  - conv: {out: 2, kernel: 1}\n  - silu\n"
                     "  - conv: {out: 4, kernel: 1}\n  - sigmoid: {name: gate}\n"
                     "  - mul: [gate, first]\n",
        ""));
    cr_assert(
        smooth("  - stochastic_depth: {name: kept, rate: 0.5}\n  - add: [kept, first]\n", ""));
}

Test(gradients, of_label_smoothing)
{
    cr_assert(smooth("", "loss: {cross_entropy: {label_smoothing: 0.2}}\n"));
}

Test(gradients, of_class_weights_and_focal_losses)
{
    cr_assert(smooth("", "loss: {cross_entropy: {class_weights: [0.5, 2, 3]}}\n"));
    cr_assert(
        smooth("", "loss: {cross_entropy: {class_weights: [1, 0, 3], label_smoothing: 0.2}}\n"));
    cr_assert(smooth("", "loss: focal\n"));
    cr_assert(smooth("", "loss: {focal: {gamma: 0.5, class_weights: [0.5, 2, 3]}}\n"));
}

Test(gradients, of_binary_cross_entropy)
{
    cr_assert(smooth("", "loss: bce\n"));
    cr_assert(smooth("", "loss: {bce: {label_smoothing: 0.2, class_weights: [0.5, 2, 3]}}\n"));
    cr_assert(smooth("", "loss: {bce: {threshold: 0.3, reduce: sum}}\n"));
}

Test(gradients, of_losses_of_several_classes_and_of_numbers)
{
    cr_assert(smooth_of(NP_LABEL_MULTI, "", "loss: bce\n"));
    cr_assert(smooth_of(NP_LABEL_MULTI, "", "loss: {bce: {class_weights: [0.5, 2, 3]}}\n"));
    cr_assert(smooth_of(NP_LABEL_VALUE, "", "loss: mse\n"));
    cr_assert(smooth_of(NP_LABEL_VALUE, "", "loss: l1\n"));
    cr_assert(smooth_of(NP_LABEL_VALUE, "", "loss: {huber: {delta: 0.5}}\n"));
}

Test(gradients, of_normalisation_and_scale)
{
    cr_assert(smooth("  - layernorm\n", ""));
    cr_assert(smooth("  - layernorm: {eps: 0.1}\n", ""));
    cr_assert(smooth("  - groupnorm: {groups: 2}\n", ""));
    cr_assert(smooth("  - groupnorm: {groups: 4, eps: 0.1}\n", ""));
    cr_assert(smooth("  - scale: {init: 0.5}\n", ""));
}

Test(gradients, of_tokens_and_attention)
{
    cr_assert(smooth("  - linear: {out: 6}\n", "")); /* of each pixel */
    cr_assert(smooth("  - position\n  - conv: {out: 3, kernel: 3}\n", ""));
    cr_assert(smooth("  - class_token\n  - position\n  - first_token\n", ""));
    cr_assert(smooth("  - class_token\n  - linear: {out: 9}\n  - global_avgpool\n", ""));
    cr_assert(smooth("  - linear: {out: 12}\n  - attention: {heads: 2}\n", ""));
    cr_assert(smooth("  - class_token\n  - linear: {out: 9}\n  - attention: {heads: 1}\n"
                     "  - first_token\n",
        ""));
}

Test(gradients, of_shared_tensors_and_joins)
{
    cr_assert(smooth("  - conv: {name: a, out: 4, kernel: 3, pad: 1}\n"
                     "  - add: [a, first]\n",
        ""));
    cr_assert(smooth("  - add: [first, first]\n", ""));
    cr_assert(smooth("  - conv: {name: a, out: 3, kernel: 3, pad: 1}\n"
                     "  - conv: {name: b, out: 2, kernel: 1, from: first}\n"
                     "  - concat: [a, first, b, a]\n"
                     "  - conv: {out: 4, kernel: 2}\n",
        ""));
    cr_assert(smooth("  - conv: {name: a, out: 4, kernel: 3, pad: 1, from: input}\n"
                     "  - add: {name: s, from: [a, first]}\n"
                     "  - add: [s, a, first]\n",
        ""));
}

Test(gradients, of_residual_blocks)
{
    static const char blocks[] =
        "blocks:\n"
        "  basic:\n"
        "    - conv: {name: conv1, out: $out, kernel: 3, stride: $stride, pad: 1, bias: false}\n"
        "    - batchnorm: {name: bn1}\n"
        "    - relu\n"
        "    - conv: {name: conv2, out: $out, kernel: 3, pad: 1, bias: false}\n"
        "    - batchnorm: {name: bn2}\n"
        "    - block:\n"
        "        name: side\n"
        "        when: $in != $out\n"
        "        from: input\n"
        "        layers: [{conv: {out: $out, kernel: 1, stride: $stride}}, batchnorm]\n"
        "    - add: [bn2, side]\n"
        "    - relu\n";

    cr_assert(kinked("  - block: {use: basic, repeat: 2, out: 4, stride: 1}\n", blocks));
    cr_assert(kinked("  - block: {use: basic, repeat: 2, out: 6, stride: [2, 1]}\n", blocks));
}

Test(gradients, masked_rows_do_not_count)
{
    struct np_graph *graph =
        made_good_graph("model: [global_avgpool, linear: {name: l, out: classes}]", tiny);
    struct interp interp;
    uint8_t *images;
    int32_t *labels;
    float kept[16];
    int same = 0;

    cr_assert(graph && np_autodiff(graph, NULL) == 0);
    cr_assert_eq(interp_init(&interp, graph, true), 0);
    interp_batch(graph, 3, &images, &labels);
    labels[1] = -1;
    interp_run(&interp, images, labels, 0);
    memcpy(kept, interp.grads, graph->nr_params * sizeof(float));
    cr_assert_eq(interp_get(&interp, graph->loss, 1), 0);
    cr_assert_eq(interp_get(&interp, graph->correct, 1), 0);
    cr_assert_eq(interp_get(&interp, graph->top5, 1), 0);
    cr_assert_gt(interp_get(&interp, graph->loss, 0), 0);
    memset(images + 9 * 9 * 2, 255, 9 * 9 * 2); /* other pixels in the masked row */
    interp_run(&interp, images, labels, 0);
    for (uint64_t i = 0; i < graph->nr_params; i++)
        same += kept[i] == interp.grads[i];
    cr_assert_eq(same, (int)graph->nr_params);
    free(images);
    free(labels);
    interp_fini(&interp);
    np_graph_free(graph);
}
