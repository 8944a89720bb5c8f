/* The grammar of `model:` and `blocks:`: names, inputs, shapes, parameters, and the mistake each
 * wrong model gets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "trainer/graph/layers.h"

#define TAIL "  - global_avgpool\n  - linear: {out: classes}\n"

static const struct made small = {4, 32, 32, 3, 10, NP_F32};

/* The tensor that layer `name` gives, found by its node; the shape is checked. */
static bool gives(const struct np_graph *graph, const char *name, int h, int w, int c)
{
    for (int n = graph->nr_nodes - 1; n >= 0; n--)
        if (strcmp(graph->nodes[n].name, name) == 0) {
            const int *dims = graph->tensors[graph->nodes[n].outs[0]].dims;

            return dims[0] == graph->batch && dims[1] == h && dims[2] == w && dims[3] == c;
        }
    return false;
}

Test(layers, shapes_equal_those_of_torch)
{
    struct np_graph *graph = made_good_graph(
        "model:\n"
        "  - conv: {name: a, out: 8, kernel: 3, pad: same}\n"                          /* 32 */
        "  - conv: {name: b, out: 8, kernel: 3, stride: 2}\n"                          /* 15 */
        "  - maxpool: {name: c, kernel: 3, stride: 2, pad: 1}\n"                       /* 8 */
        "  - conv: {name: d, out: 16, kernel: 3, dilation: 2, pad: same, groups: 8}\n" /* 8 */
        "  - avgpool: {name: e, kernel: 3}\n"                                          /* 2 */
        "  - concat: {name: f, from: [e, e, e]}\n"
        "  - flatten: {name: g}\n"
        "  - linear: {name: h, out: classes, bias: false}\n",
        small);

    cr_assert_not_null(graph);
    cr_assert(gives(graph, "a", 32, 32, 8));
    cr_assert(gives(graph, "b", 15, 15, 8));
    cr_assert(gives(graph, "c", 8, 8, 8));
    cr_assert(gives(graph, "d", 8, 8, 16));
    cr_assert(gives(graph, "e", 2, 2, 16));
    cr_assert(gives(graph, "f", 2, 2, 48));
    cr_assert(gives(graph, "g", 1, 1, 192));
    cr_assert(gives(graph, "h", 1, 1, 10));
    cr_assert(made_tensor(graph, "h.bias") < 0);
    cr_assert_eq(graph->tensors[made_tensor(graph, "d.weight")].dims[1], 1);
    np_graph_free(graph);
}

Test(layers, unnamed_layers_take_their_index_and_repeats_count)
{
    struct np_graph *graph =
        made_good_graph("model:\n"
                        "  - relu\n"
                        "  - conv: {out: 4, kernel: 1}\n"
                        "  - block: {use: unit, out: 8}\n"
                        "  - block: {use: unit, repeat: 2, out: [8, 16]}\n"
                        "  - block: {name: tail, layers: [block: {use: unit, repeat: 1, out: 4}]}\n"
                        "  - global_avgpool\n"
                        "  - linear: {out: classes}\n"
                        "blocks: {unit: [{conv: {out: $out, kernel: 1}}, relu]}\n",
            small);

    cr_assert_not_null(graph);
    cr_assert(made_tensor(graph, "1.weight") >= 0);
    cr_assert(made_tensor(graph, "2.0.weight") >= 0);
    cr_assert(made_tensor(graph, "3.0.0.weight") >= 0);
    cr_assert(gives(graph, "3.1.0", 32, 32, 16));
    cr_assert(made_tensor(graph, "tail.0.0.0.weight") >= 0);
    cr_assert(made_tensor(graph, "6.bias") >= 0);
    np_graph_free(graph);
}

Test(layers, names_are_found_in_the_list_then_around_it)
{
    struct np_graph *graph =
        made_good_graph("model:\n"
                        "  - conv: {name: stem, out: 8, kernel: 1}\n"
                        "  - block: {name: one, layers: [{conv: {name: x, out: 4, kernel: 1}}]}\n"
                        "  - conv: {out: 8, kernel: 1}\n"
                        "  - block:\n"
                        "      name: two\n"
                        "      layers:\n"
                        "        - conv: {name: y, out: 8, kernel: 1, from: stem}\n"
                        "        - add: [y, input]\n"
                        "        - concat: {name: c, from: [one, stem, \"2\", \"1\"]}\n"
                        "  - global_avgpool\n"
                        "  - linear: {out: classes}\n",
            small);

    /* "2" is the layer around, "1" the block's own add */
    cr_assert_not_null(graph);
    cr_assert(gives(graph, "two.c", 32, 32, 28));
    np_graph_free(graph);
}

Test(layers, windows_have_a_size_for_each_side_and_round_up_or_down)
{
    struct np_graph *graph = made_good_graph(
        "model:\n"
        "  - conv: {name: a, out: 8, kernel: [1, 7], pad: same}\n"                   /* 32, 32 */
        "  - conv: {name: b, out: 8, kernel: [7, 1], stride: [2, 1], pad: [3, 0]}\n" /* 16, 32 */
        "  - conv: {name: c, out: 8, kernel: 3, dilation: [1, 2], pad: same}\n"      /* 16, 32 */
        "  - maxpool: {name: d, kernel: [3, 2], stride: [2, 3], ceil_mode: true}\n"  /* 8, 11 */
        "  - maxpool: {name: e, kernel: 3, stride: 2, pad: 1, ceil_mode: true}\n"    /* 5, 6 */
        "  - avgpool: {name: f, kernel: 2, stride: 3, pad: 1, ceil_mode: true}\n"    /* 2, 3 */
        "  - upsample: {name: g, scale: [3, 2]}\n"                                   /* 6, 6 */
        "  - adaptive_avgpool: {name: h, size: [4, 5]}\n" TAIL,
        small);

    cr_assert_not_null(graph);
    cr_assert(gives(graph, "a", 32, 32, 8));
    cr_assert(gives(graph, "b", 16, 32, 8));
    cr_assert(gives(graph, "c", 16, 32, 8));
    cr_assert(gives(graph, "d", 8, 11, 8));
    cr_assert(gives(graph, "e", 5, 6, 8));
    cr_assert(gives(graph, "f", 2, 3, 8));
    np_graph_free(graph);
}

Test(layers, a_transposed_convolution_has_the_shapes_of_torch)
{
    struct np_graph *graph = made_good_graph(
        "model:\n"
        "  - conv: {name: a, out: 8, kernel: 3, stride: 4}\n" /* 8, 8 */
        "  - conv_transpose: {name: b, out: 6, kernel: [3, 2], stride: 2, pad: [1, 0], "
        "output_pad: [1, 0], groups: 2}\n"                                     /* 16, 16 */
        "  - conv_transpose: {name: c, out: 4, kernel: 3, dilation: [1, 2]}\n" /* 18, 20 */
        TAIL,
        small);
    const struct np_tensor *weight;

    cr_assert_not_null(graph);
    cr_assert(gives(graph, "b", 16, 16, 6));
    cr_assert(gives(graph, "c", 18, 20, 4));
    weight = &graph->tensors[made_tensor(graph, "b.weight")]; /* (in, out / groups, kh, kw) */
    cr_assert(weight->dims[0] == 8 && weight->dims[1] == 3 && weight->dims[2] == 3 &&
              weight->dims[3] == 2 && weight->fan_in == 18 && weight->fan_out == 48);
    cr_assert_eq(graph->tensors[made_tensor(graph, "b.bias")].dims[0], 6);
    np_graph_free(graph);
}

Test(layers, a_false_condition_passes_the_input_on)
{
    const char *text =
        "model:\n"
        "  - conv: {name: stem, out: 8, kernel: 1}\n"
        "  - block: {name: a, use: res, out: 8}\n"
        "  - block: {name: b, use: res, out: 16}\n"
        "  - global_avgpool\n"
        "  - linear: {out: classes}\n"
        "blocks:\n"
        "  res:\n"
        "    - conv: {name: x, out: $out, kernel: 1}\n"
        "    - conv: {name: side, out: $out, kernel: 1, from: input, when: $in != $out}\n"
        "    - add: [x, side]\n";
    struct np_graph *graph = made_good_graph(text, small);

    cr_assert_not_null(graph);
    cr_assert(made_tensor(graph, "a.side.weight") < 0);
    cr_assert(made_tensor(graph, "b.side.weight") >= 0);
    np_graph_free(graph);
}

/* --- mistakes ------------------------------------------------------------------------------ */

/* Every mistake, "line:column: text", a line each. */
static char *mistakes_of(const char *text, struct made made)
{
    struct np_report report;
    struct np_graph *graph;
    char *all = calloc(1, 65536);

    np_report_init(&report, "t");
    graph = made_graph(text, made, &report);
    np_report_sort(&report);
    for (int i = 0; i < report.nr_errs; i++)
        snprintf(all + strlen(all), 65536 - strlen(all), "%d:%d: %s\n", report.errs[i].line,
            report.errs[i].column, report.errs[i].text);
    if (graph)
        strcat(all, "no mistake");
    np_graph_free(graph);
    np_report_fini(&report);
    return all;
}

static const struct {
    const char *model, *wanted;
} wrong[] = {
    {"model:\n  - conv: {out: 4, kernel: 11}\n  - maxpool: {kernel: 8}\n"
     "  - conv: {name: far, out: 4, kernel: 11}\n" TAIL,
        "4:5: conv 'far': input 2x2 is smaller than kernel 11x11\n"},
    {"model:\n  - conv: {out: 4, kernel: 9, pad: 1, stride: 4, dilation: 5}\n" TAIL,
        "2:5: conv '0': input 32x32 with pad 1 is smaller than kernel 9x9 with dilation 5\n"},
    {"model:\n  - conv: {out: 4, kernel: [3, 2], pad: same}\n" TAIL,
        "2:5: conv '0': pad: same needs an odd kernel, not 2\n"},
    {"model:\n  - conv: {out: 4, kernel: [3, 40], pad: [0, 1], dilation: [1, 2]}\n" TAIL,
        "2:5: conv '0': input 32x32 with pad 0x1 is smaller than kernel 3x40 with dilation 1x2\n"},
    {"model:\n  - maxpool: {kernel: [3, 2], pad: [1, 2]}\n" TAIL,
        "2:5: maxpool '0': pad 2 is more than half of kernel 2\n"},
    {"model:\n  - maxpool: {kernel: [3, 2, 1]}\n" TAIL,
        "2:23: kernel: expected a whole number or [height, width], not a list\n"},
    {"model:\n  - avgpool: {kernel: [3, two]}\n" TAIL,
        "2:27: kernel: expected a whole number, not 'two'\n"},
    {"model:\n  - conv: {name: a, out: 4, kernel: 3}\n  - conv: {name: b, out: 4, kernel: 3}\n"
     "  - mul: [a, b]\n" TAIL,
        "4:5: mul '2': its inputs, 30x30x4 and 28x28x4, are not of one shape, and none is 1x1 with "
        "the other's channels\n"},
    {"model:\n  - conv: {name: a, out: 4, kernel: 3}\n  - conv: {name: b, out: 4, kernel: 1}\n"
     "  - mul: [a, b, a]\n" TAIL,
        "4:10: mul: needs the layers that it joins, at most 2: mul: [a, b]\n"},
    {"model:\n  - conv_transpose: {out: 4, kernel: 3, stride: [3, 2], output_pad: 2}\n" TAIL,
        "2:5: conv_transpose '0': output_pad 2 is not less than stride 2\n"},
    {"model:\n  - conv_transpose: {out: 4, kernel: 3, pad: [0, 17]}\n" TAIL,
        "2:5: conv_transpose '0': width 32 becomes 0 pixels\n"},
    {"model:\n  - conv_transpose: {out: 4, kernel: 3, groups: 2}\n" TAIL,
        "2:5: conv_transpose '0': its 3 input channels cannot be divided into 2 groups\n"},
    {"model:\n  - conv_transpose: {out: 4, kernel: 3, init: dirac}\n" TAIL,
        "2:47: init: expected one of default, kaiming_normal, kaiming_uniform, xavier_uniform, "
        "normal, "
        "zero, one, trunc_normal, not 'dirac'\n"},
    {"model:\n  - covn: {out: 4, kernel: 3}\n" TAIL,
        "2:5: no layer 'covn'; did you mean 'conv'?\n"},
    {"model:\n  - transformer\n" TAIL,
        "2:5: no layer 'transformer'; there are: conv, linear, batchnorm, relu, maxpool, avgpool, "
        "global_avgpool, dropout, flatten, add, concat, relu6, leaky_relu, sigmoid, hardsigmoid, "
        "tanh, silu, hardswish, gelu, layernorm, groupnorm, scale, class_token, position, "
        "attention, first_token, mul, stochastic_depth, adaptive_avgpool, upsample, "
        "blur, conv_transpose, block\n"},
    {"model:\n  - unit\n" TAIL "blocks: {unit: [relu]}\n",
        "2:5: no layer 'unit', but a block: block: {use: unit}\n5:10: unit: this block is never "
        "used\n"},
    {"model:\n  - conv: {out: 4, kernle: 3}\n" TAIL,
        "2:11: conv: the key 'kernel' is missing\n2:20: kernle: unknown key in conv; did you mean "
        "'kernel'?\n"},
    {"model:\n  - conv: {out: 0, kernel: x, pad: wide}\n  - rleu\n" TAIL,
        "2:17: out: 0 is out of range: 1 to 1048576\n2:28: kernel: expected a whole number, not "
        "'x'\n2:36: pad: expected a whole number or same, not 'wide'\n3:5: no layer 'rleu'; did "
        "you "
        "mean 'relu'?\n"},
    {"model:\n  - conv: {out: 6, kernel: 3, groups: 4}\n" TAIL,
        "2:5: conv '0': its 3 input channels cannot be divided into 4 groups\n"},
    {"model:\n  - conv: {out: 4, kernel: 3, groups: 3}\n" TAIL,
        "2:5: conv '0': its 4 output channels cannot be divided into 3 groups\n"},
    {"model:\n  - conv: {out: 4, kernel: 4, pad: same}\n" TAIL,
        "2:5: conv '0': pad: same needs an odd kernel, not 4\n"},
    {"model:\n  - maxpool: {kernel: 3, pad: 2}\n" TAIL,
        "2:5: maxpool '0': pad 2 is more than half of kernel 3\n"},
    {"model:\n  - maxpool: {kernel: 17}\n" TAIL, "2:23: kernel: 17 is out of range: 1 to 16\n"},
    {"model:\n  - linear: {out: classes}\n",
        "2:5: linear '0': its input, 32x32x3, is not a list of "
        "numbers; put flatten or global_avgpool before "
        "it\n"},
    {"model:\n  - relu\n",
        "2:5: the model gives 32x32x3, but there are 10 classes: its last layer should be linear: "
        "{out: classes}\n"},
    {"model:\n  - conv: {name: a, out: 4, kernel: 3}\n  - conv: {name: b, out: 5, kernel: 3, "
     "from: input}\n  - add: [a, b]\n" TAIL,
        "4:5: add '2': its inputs differ in shape: 30x30x4 and 30x30x5\n"},
    {"model:\n  - conv: {name: a, out: 4, kernel: 3}\n  - relu: {name: b, from: input}\n  - "
     "concat: [a, b]\n" TAIL,
        "4:5: concat '2': its inputs differ in height or width: 30x30x4 and 32x32x3\n"},
    {"model:\n  - relu: {name: a}\n  - add: [a]\n" TAIL,
        "3:10: add: needs the layers that it joins, at most 15: add: [a, b]\n"},
    {"model:\n  - relu: {name: a}\n  - add\n" TAIL,
        "3:5: add: needs the layers that it joins, at most 15: add: [a, b]\n"},
    {"model:\n  - relu: {name: a}\n  - relu: {from: [a, a]}\n" TAIL,
        "3:18: relu: reads one layer; add and concat join several\n"},
    {"model:\n  - relu: {name: bn1}\n  - relu: {from: bn2}\n" TAIL,
        "3:18: from: no layer before this one is named 'bn2'; did you mean 'bn1'?\n"},
    {"model:\n  - relu: {name: a}\n  - relu: {name: a}\n" TAIL,
        "3:5: the name 'a' is taken by the layer in line 2\n"},
    {"model:\n  - relu: {name: input}\n" TAIL,
        "2:18: name: 'input' is the name of the list's input; choose another name\n"},
    {"model:\n  - relu: {name: a.b}\n" TAIL,
        "2:18: name: expected letters, digits, _ and -, at most 64\n"},
    {"model:\n  - conv: {name: side, out: 4, kernel: 3}\n  - relu: {from: input}\n" TAIL,
        "2:5: conv 'side': no layer reads its output\n"},
    {"model:\n  - {conv: {out: 4, kernel: 3}, name: a}\n" TAIL,
        "2:33: name: a layer is one key; its options go inside: conv: {name: ...}\n"},
    {"model:\n  - [relu]\n" TAIL,
        "2:5: expected a layer: a name, or a name with options, like conv: {out: 32, kernel: 3}\n"},
    {"model:\n  - conv: 32\n" TAIL, "2:11: conv: expected options, like conv: {out: 32}\n"},
    {"model:\n  - dropout: 0.5\n" TAIL,
        "2:14: dropout: expected options, like dropout: {rate: 0.5}\n"},
    {"model:\n  - block: basic\n" TAIL,
        "2:12: block: expected options, like block: {use: basic}\n"},
    {"model:\n  - relu: [1]\n" TAIL, "2:11: relu: expected options, like relu: {name: ...}\n"},
    {"model: []\n", "1:8: model: expected a list of layers\n"},
    {"model: relu\n", "1:8: model: expected a list of layers\n"},
    {"model:\n" TAIL "blocks: [relu]\n",
        "4:9: blocks: expected names with lists of layers: {NAME: [...]}\n"},
    {"model:\n  - block: {use: uint, out: 4}\n" TAIL "blocks: {unit: [relu]}\n",
        "2:18: use: no block 'uint' in blocks:; did you mean 'unit'?\n5:10: unit: this block is "
        "never used\n"},
    {"model:\n  - block: {out: 4}\n" TAIL,
        "2:5: block: needs one of use: NAME and layers: [...]\n"},
    {"model:\n  - block\n" TAIL, "2:5: block: needs one of use: NAME and layers: [...]\n"},
    {"model:\n  - block: {use: unit, layers: [relu]}\n" TAIL "blocks: {unit: [relu]}\n",
        "2:5: block: needs one of use: NAME and layers: [...]\n"},
    {"model:\n  - block: {use: unit, uot: 4}\n" TAIL
     "blocks: {unit: [conv: {out: $out, kernel: 1}]}\n",
        "2:5: block unit needs the parameter 'out'\n2:24: uot: unit has no parameter $uot; did you "
        "mean 'out'?\n"},
    {"model:\n  - block: {use: unit, out: 4, in: 3}\n" TAIL
     "blocks: {unit: [conv: {out: $out, kernel: 1}]}\n",
        "2:32: in: unit has no parameter $in\n"},
    {"model:\n  - block: {use: unit, repeat: 0}\n" TAIL "blocks: {unit: [relu]}\n",
        "2:32: repeat: 0 is out of range: 1 to 1000\n"},
    {"model:\n  - block: {use: unit, repeat: 2, k: []}\n" TAIL
     "blocks: {unit: [maxpool: {kernel: $k}]}\n",
        "2:38: k: an empty list\n"},
    {"model:\n  - block: {use: unit, repeat: 3, k: [1, 99]}\n" TAIL
     "blocks: {unit: [maxpool: {kernel: $k}]}\n",
        "5:35: kernel: 99 is out of range: 1 to 16\n"},
    {"model:\n  - block: {use: a}\n" TAIL "blocks:\n  a: [block: {use: b}]\n  b: [block: {use: "
     "a}]\n",
        "7:20: use: block 'a' would contain itself\n"},
    {"model:\n  - block: {use: a}\n" TAIL "blocks: {a: []}\n",
        "5:13: a block is a list of layers\n"},
    {"model:\n  - block: {use: a}\n" TAIL "blocks: {a: relu}\n",
        "5:13: a block is a list of layers\n"},
    {"model:\n  - block: {use: a, repeat: 3}\n" TAIL
     "blocks: {a: [conv: {out: $in*2, kernel: 1/0$}]}\n",
        "5:41: '1/0$': a division by 0\n"},
    {"model:\n  - conv: {out: $out, kernel: 1}\n" TAIL,
        "2:17: '$out': there is no parameter $out here\n"},
    {"model:\n  - relu: {when: maybe}\n" TAIL,
        "2:18: 'maybe': expected a number or a $parameter before the rest\n"},
    /* after a mistake only certain ones are reported: no shape follows from a wrong one */
    {"model:\n  - conv: {out: 4, kernel: 33}\n  - block: {use: a}\n  - add: [nobody, \"0\"]\n" TAIL
     "blocks: {a: [{conv: {out: $in*2, kernel: 1}}, {relu: {x: 1}}]}\n",
        "2:5: conv '0': input 32x32 is smaller than kernel 33x33\n4:11: from: no layer before this "
        "one is named 'nobody'\n7:55: x: unknown key in relu; it takes: name, from, when\n"},
    {"model:\n" TAIL "loss: hinge\n", "4:7: loss: "},
    {"model:\n" TAIL "loss: {cross_entropy: {label_smoothing: 2}}\n",
        "4:41: label_smoothing: 2 is out of range: 0 to 0.999\n"},
    {"model:\n" TAIL "loss: {focal: {class_weights: [1, 2]}}\n",
        "4:31: class_weights: 2 weights are given, but there are 10 classes\n"},
    {"model:\n" TAIL "loss: {cross_entropy: {class_weights: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}}\n",
        "4:39: class_weights: all weights are 0\n"},
    {"model:\n  - flatten\n  - linear: {out: 16777216}\n  - linear: {out: 16777216}\n  - linear: "
     "{out: classes}\n",
        "3:5: linear '1': with its weight the model has 2^31 parameters or more\n"},
};

Test(layers, each_mistake_is_reported_at_its_place)
{
    int failed = 0;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        char *all = mistakes_of(wrong[i].model, small);

        if (strncmp(all, wrong[i].wanted, strlen(wrong[i].wanted)) != 0 ||
            (wrong[i].wanted[strlen(wrong[i].wanted) - 1] == '\n' &&
                strlen(all) != strlen(wrong[i].wanted))) {
            fprintf(stderr, "case %zu\n%sgives\n%swanted\n%s\n", i, wrong[i].model, all,
                wrong[i].wanted);
            failed++;
        }
        free(all);
    }
    cr_assert_eq(failed, 0);
}

Test(layers, a_batch_too_large_is_reported)
{
    char *all = mistakes_of("model:\n  - conv: {out: 4096, kernel: 1}\n" TAIL,
        (struct made){128, 224, 224, 3, 10, NP_F32});

    cr_assert_str_eq(all, "2:5: conv '0': its output, a batch of 128 times 224x224x4096, has 2^31 "
                          "elements or more; make batch, image or layer smaller\n");
    free(all);
    all = mistakes_of("model:\n" TAIL, (struct made){1000000, 224, 224, 3, 10, NP_F32});
    cr_assert_str_eq(all, "2:3: a batch of 1000000 images of 224x224x3 is too large\n");
    free(all);
}

Test(layers, hostile_nesting_and_repetition_end_quickly, .timeout = 120)
{
    char *text = calloc(1, 1 << 20), *all;

    /* 10^30 layers if it were expanded */
    strcpy(text, "model:\n  - block: {use: b0, repeat: 1000}\n" TAIL "blocks:\n");
    for (int i = 0; i < 10; i++)
        sprintf(text + strlen(text), "  b%d: [block: {use: b%d, repeat: 1000}]\n", i, i + 1);
    strcat(text, "  b10: [relu]\n");
    all = mistakes_of(text, small);
    cr_assert_not_null(strstr(all, "more than 10000 layers"));
    free(all);
    /* nothing but conditions that do not hold */
    strcpy(text, "model:\n  - block: {use: b0, repeat: 1000}\n" TAIL
                 "blocks: {b0: [{block: {layers: [{relu: {when: 0}}], repeat: 1000}}]}\n");
    all = mistakes_of(text, small);
    cr_assert_not_null(strstr(all, "more than 10000 layers"));
    free(all);
    strcpy(text, "model:\n  - block: {use: b0}\n" TAIL "blocks:\n");
    for (int i = 0; i < 1000; i++)
        sprintf(text + strlen(text), "  b%d: [block: {use: b%d}]\n", i, i + 1);
    strcat(text, "  b1000: [relu]\n");
    all = mistakes_of(text, small);
    cr_assert_not_null(strstr(all, "blocks nested deeper than 32"));
    free(all);
    free(text);
}

Test(layers, every_layer_has_help_and_the_common_keys_are_free)
{
    for (int i = 0; np_layers[i]; i++) {
        cr_assert(np_layers[i]->help && np_layers[i]->add && np_layers[i]->max_ins >= 1);
        for (const struct np_option *o = np_layers[i]->options; o->key; o++) {
            cr_assert_not_null(o->help);
            for (const struct np_option *c = np_layer_common; c->key; c++)
                cr_assert(strcmp(o->key, c->key) != 0);
        }
    }
}
