/* The table of `nnpipe selftest`. The tested layer reads a 1x1 convolution, so that the gradient of
 * its input is needed; a linear layer reads all its outputs, so that every element has a gradient
 * of its own. Sizes are odd: no multiple of a vector, a tile or a warp. */
#include "trainer/selftest/selftest_cases.h"

#include <stddef.h>

#define HEAD            "flatten, linear: {out: classes}"
#define AROUND(c, what) "model: [conv: {out: " #c ", kernel: 1}, " what ", " HEAD "]"
#define BEHIND(c, what) "model: [conv: {out: " #c ", kernel: 1, bias: false}, " what ", " HEAD "]"
#define FIRST(what)     "model: [" what ", " HEAD "]"
#define SMOOTH          "\nloss: {cross_entropy: {label_smoothing: 0.1}}"
#define BCE             "\nloss: {bce: {label_smoothing: 0.1, class_weights: [1, 0.2, 3, 0, 1.5]}}"
#define WEIGHTED                                                                                   \
    "\nloss: {cross_entropy: {label_smoothing: 0.1, class_weights: [1, 0.2, 3, 0, 1.5]}}"
#define PLAIN "bias: false"

#define LENET                                                                                      \
    "model: [conv: {out: 6, kernel: 5, pad: 2}, relu, maxpool: {kernel: 2}, conv: {out: 16, "      \
    "kernel: 5}, relu, maxpool: {kernel: 2}, flatten, linear: {out: 120}, relu, linear: {out: "    \
    "84}, relu, linear: {out: classes}]"
#define BASIC                                                                                      \
    "\nblocks:\n"                                                                                  \
    "  basic:\n"                                                                                   \
    "    - conv: {out: $out, kernel: 3, stride: $stride, pad: 1, bias: false}\n"                   \
    "    - batchnorm\n"                                                                            \
    "    - relu\n"                                                                                 \
    "    - conv: {out: $out, kernel: 3, pad: 1, bias: false}\n"                                    \
    "    - batchnorm: {name: last}\n"                                                              \
    "    - block: {name: short, use: shortcut, when: $in != $out, from: input, out: $out, "        \
    "stride: $stride}\n"                                                                           \
    "    - add: [last, short]\n"                                                                   \
    "    - relu\n"                                                                                 \
    "  shortcut: [{conv: {out: $out, kernel: 1, stride: $stride, bias: false}}, batchnorm]\n"
#define RESNET                                                                                     \
    "model:\n"                                                                                     \
    "  - conv: {out: 16, kernel: 3, pad: 1, bias: false}\n"                                        \
    "  - batchnorm\n"                                                                              \
    "  - relu\n"                                                                                   \
    "  - block: {use: basic, repeat: 2, out: 16, stride: 1}\n"                                     \
    "  - block: {use: basic, out: 24, stride: 2}\n"                                                \
    "  - global_avgpool\n"                                                                         \
    "  - linear: {out: classes}" BASIC
#define ONE_BLOCK(out, stride)                                                                     \
    "model:\n"                                                                                     \
    "  - conv: {out: 16, kernel: 1}\n"                                                             \
    "  - block: {use: basic, out: " #out ", stride: " #stride "}\n"                                \
    "  - flatten\n"                                                                                \
    "  - linear: {out: classes}" BASIC
#define BOTTLENECKS                                                                                \
    "\nblocks:\n"                                                                                  \
    "  bottleneck:\n"                                                                              \
    "    - conv: {out: $out, kernel: 1, bias: false}\n"                                            \
    "    - batchnorm\n"                                                                            \
    "    - relu\n"                                                                                 \
    "    - conv: {out: $out, kernel: 3, stride: $stride, pad: 1, bias: false}\n"                   \
    "    - batchnorm\n"                                                                            \
    "    - relu\n"                                                                                 \
    "    - conv: {out: $out*4, kernel: 1, bias: false}\n"                                          \
    "    - batchnorm: {name: last}\n"                                                              \
    "    - block: {name: short, use: shortcut, when: $in != $out*4, from: input, out: $out*4, "    \
    "stride: $stride}\n"                                                                           \
    "    - add: [last, short]\n"                                                                   \
    "    - relu\n"                                                                                 \
    "  shortcut: [{conv: {out: $out, kernel: 1, stride: $stride, bias: false}}, batchnorm]\n"
#define BOTTLENECK                                                                                 \
    "model:\n"                                                                                     \
    "  - conv: {out: 32, kernel: 7, stride: 2, pad: 3, bias: false}\n"                             \
    "  - batchnorm\n"                                                                              \
    "  - relu\n"                                                                                   \
    "  - maxpool: {kernel: 3, stride: 2, pad: 1}\n"                                                \
    "  - block: {use: bottleneck, out: 16, stride: 1}\n"                                           \
    "  - global_avgpool\n"                                                                         \
    "  - linear: {out: classes}" BOTTLENECKS
#define SMALL                                                                                      \
    "model: [conv: {out: 16, kernel: 3, pad: 1, bias: false}, batchnorm, relu, maxpool: {kernel: " \
    "2}, conv: {out: 24, kernel: 3, pad: 1, bias: false}, batchnorm, relu, global_avgpool, "       \
    "linear: {out: classes}]" SMOOTH

#define ENCODER                                                                                    \
    "model:\n"                                                                                     \
    "  - conv: {out: 24, kernel: 4, stride: 4}\n"                                                  \
    "  - class_token\n"                                                                            \
    "  - position\n"                                                                               \
    "  - layernorm: {name: norm1}\n"                                                               \
    "  - linear: {out: 72}\n"                                                                      \
    "  - attention: {name: attention, heads: 3}\n"                                                 \
    "  - add: {name: mixed, from: [attention, norm1]}\n"                                           \
    "  - layernorm\n"                                                                              \
    "  - linear: {out: 48}\n"                                                                      \
    "  - gelu\n"                                                                                   \
    "  - linear: {name: fc2, out: 24}\n"                                                           \
    "  - scale: {name: scaled}\n"                                                                  \
    "  - add: [mixed, scaled]\n"                                                                   \
    "  - first_token\n"                                                                            \
    "  - linear: {out: classes}" SMOOTH

#define POOLED(what) "model: [" what ", avgpool: {kernel: 7}, " HEAD "]"
#define BIG(c, what)                                                                               \
    "model: [conv: {out: " #c ", kernel: 1, bias: false}, " what ", avgpool: {kernel: 7}, " HEAD "]"
#define STEM                                                                                       \
    "model:\n"                                                                                     \
    "  - conv: {out: 64, kernel: 7, stride: 2, pad: 3, bias: false}\n"                             \
    "  - batchnorm\n"                                                                              \
    "  - relu\n"                                                                                   \
    "  - maxpool: {kernel: 3, stride: 2, pad: 1}\n"
#define TOP "  - global_avgpool\n  - linear: {out: classes}"
#define RESNET18                                                                                   \
    STEM "  - block: {use: basic, repeat: 2, out: 64, stride: 1}\n"                                \
         "  - block: {use: basic, repeat: 2, out: 128, stride: [2, 1]}\n"                          \
         "  - block: {use: basic, repeat: 2, out: 256, stride: [2, 1]}\n"                          \
         "  - block: {use: basic, repeat: 2, out: 512, stride: [2, 1]}\n" TOP BASIC
#define RESNET50                                                                                   \
    STEM "  - block: {use: bottleneck, repeat: 3, out: 64, stride: 1}\n"                           \
         "  - block: {use: bottleneck, repeat: 4, out: 128, stride: [2, 1]}\n"                     \
         "  - block: {use: bottleneck, repeat: 6, out: 256, stride: [2, 1]}\n"                     \
         "  - block: {use: bottleneck, repeat: 3, out: 512, stride: [2, 1]}\n" TOP BOTTLENECKS

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* a row says what it has */
const struct np_selftest_case np_selftest_cases[] = {
    /* convolutions on pixels: 3 channels, 1 channel */
    {"conv 3x3 on pixels", FIRST("conv: {out: 16, kernel: 3, pad: 1}"), 5, 13, 11, 3, 10},
    {"conv 7x7 stride 2 on pixels",
        FIRST("conv: {out: 64, kernel: 7, stride: 2, pad: 3, " PLAIN "}"), 3, 31, 29, 3, 10},
    {"conv 11x11 stride 4 on pixels", FIRST("conv: {out: 24, kernel: 11, stride: 4, pad: 2}"), 3,
        47, 51, 3, 7},
    {"conv 5x5 on grey", FIRST("conv: {out: 6, kernel: 5, pad: 2}"), 4, 15, 17, 1, 10},
    /* and on activations */
    {"conv 1x1", AROUND(16, "conv: {out: 32, kernel: 1}"), 5, 9, 7, 3, 10},
    {"conv 1x1 odd channels", AROUND(13, "conv: {out: 21, kernel: 1, " PLAIN "}"), 5, 9, 7, 3, 10},
    {"conv 1x1 stride 2", AROUND(16, "conv: {out: 24, kernel: 1, stride: 2, " PLAIN "}"), 5, 9, 7,
        3, 10},
    {"conv 3x3", AROUND(16, "conv: {out: 16, kernel: 3, pad: 1, " PLAIN "}"), 5, 11, 9, 3, 10},
    {"conv 3x3 with bias", AROUND(24, "conv: {out: 40, kernel: 3, pad: 1}"), 3, 8, 8, 3, 10},
    {"conv 3x3 odd channels", AROUND(7, "conv: {out: 11, kernel: 3, pad: 1}"), 3, 7, 9, 3, 5},
    {"conv 3x3 one channel", AROUND(1, "conv: {out: 1, kernel: 3, pad: 1}"), 3, 7, 9, 3, 5},
    {"conv 3x3 without padding", AROUND(16, "conv: {out: 16, kernel: 3}"), 3, 9, 12, 3, 10},
    {"conv 3x3 stride 2", AROUND(16, "conv: {out: 32, kernel: 3, stride: 2, pad: 1, " PLAIN "}"), 3,
        13, 10, 3, 10},
    {"conv 3x3 stride 3", AROUND(8, "conv: {out: 8, kernel: 3, stride: 3, pad: 2}"), 3, 14, 11, 3,
        10},
    {"conv 5x5 stride 2", AROUND(8, "conv: {out: 16, kernel: 5, stride: 2, pad: 2}"), 3, 13, 13, 3,
        10},
    {"conv 3x3 dilation 2", AROUND(16, "conv: {out: 16, kernel: 3, pad: 2, dilation: 2}"), 3, 12,
        11, 3, 10},
    {"conv 3x3 dilation 3 stride 2",
        AROUND(8, "conv: {out: 8, kernel: 3, pad: 3, dilation: 3, stride: 2}"), 3, 15, 13, 3, 10},
    {"conv 3x3 groups 4", AROUND(16, "conv: {out: 32, kernel: 3, pad: 1, groups: 4}"), 3, 9, 9, 3,
        10},
    {"conv 3x3 groups of odd size", AROUND(15, "conv: {out: 9, kernel: 3, pad: 1, groups: 3}"), 3,
        9, 9, 3, 10},
    {"conv 1x1 groups 2", AROUND(16, "conv: {out: 16, kernel: 1, groups: 2}"), 3, 9, 9, 3, 10},
    {"conv depthwise", AROUND(24, "conv: {out: 24, kernel: 3, pad: 1, groups: 24, " PLAIN "}"), 3,
        10, 9, 3, 10},
    {"conv depthwise stride 2",
        AROUND(16, "conv: {out: 16, kernel: 5, stride: 2, pad: 2, groups: 16}"), 3, 13, 12, 3, 10},
    {"conv 1x7", AROUND(16, "conv: {out: 24, kernel: [1, 7], pad: same, " PLAIN "}"), 3, 9, 12, 3,
        10},
    {"conv 3x2 stride 1x2",
        AROUND(8, "conv: {out: 8, kernel: [3, 2], stride: [1, 2], dilation: [2, 1], pad: [2, 0]}"),
        3, 9, 12, 3, 10},
    {"conv the size of its input", AROUND(16, "conv: {out: 20, kernel: 7}"), 9, 7, 7, 3, 10},
    {"conv 256 to 256", AROUND(256, "conv: {out: 256, kernel: 3, pad: 1, " PLAIN "}"), 2, 7, 7, 3,
        10},
    {"conv, relu", AROUND(16, "conv: {out: 24, kernel: 3, pad: 1}, relu"), 4, 9, 10, 3, 10},
    {"conv, relu, conv",
        AROUND(16, "conv: {out: 16, kernel: 3, pad: 1}, relu, conv: {out: 8, kernel: 3, pad: 1}"),
        4, 9, 10, 3, 10},
    /* normalisation */
    {"batchnorm", BEHIND(16, "batchnorm"), 8, 9, 7, 3, 10},
    {"batchnorm odd channels", BEHIND(13, "batchnorm"), 5, 9, 7, 3, 10},
    {"batchnorm own constants", BEHIND(8, "batchnorm: {momentum: 0.3, eps: 0.1}"), 5, 9, 7, 3, 10},
    {"batchnorm, relu", BEHIND(16, "batchnorm, relu"), 8, 9, 7, 3, 10},
    {"batchnorm, relu, odd channels", BEHIND(11, "batchnorm, relu"), 5, 9, 7, 3, 10},
    {"batchnorm, add, relu",
        BEHIND(16, "relu: {name: a}, conv: {out: 16, kernel: 3, pad: 1, bias: false}, batchnorm: "
                   "{name: b}, add: [b, a], relu"),
        6, 8, 9, 3, 10},
    {"batchnorm, add",
        BEHIND(9, "relu: {name: a}, conv: {out: 9, kernel: 1}, batchnorm: {name: b}, add: [a, b]"),
        6, 8, 9, 3, 10},
    {"batchnorm of 1x1", BEHIND(24, "batchnorm, relu"), 24, 1, 1, 3, 10},
    /* the rest */
    {"relu", AROUND(13, "relu"), 5, 9, 7, 3, 10},
    {"relu6", AROUND(13, "relu6"), 5, 9, 7, 3, 10},
    {"leaky_relu", AROUND(13, "leaky_relu: {slope: 0.2}"), 5, 9, 7, 3, 10},
    {"sigmoid", AROUND(13, "sigmoid"), 5, 9, 7, 3, 10},
    {"hardsigmoid", AROUND(13, "hardsigmoid"), 5, 9, 7, 3, 10},
    {"tanh", AROUND(13, "tanh"), 5, 9, 7, 3, 10},
    {"silu", AROUND(16, "silu"), 5, 9, 7, 3, 10},
    {"hardswish", AROUND(13, "hardswish"), 5, 9, 7, 3, 10},
    {"gelu", AROUND(13, "gelu"), 5, 9, 7, 3, 10},
    {"gelu by tanh", AROUND(13, "gelu: {approximate: tanh}"), 5, 9, 7, 3, 10},
    {"linear bottleneck",
        BEHIND(8, "conv: {out: 24, kernel: 1, bias: false}, batchnorm, relu6, conv: {out: 24, "
                  "kernel: 3, pad: 1, groups: 24, bias: false}, batchnorm, relu6, conv: {out: 8, "
                  "kernel: 1, bias: false}, batchnorm: {name: last}, add: [last, 0]"),
        6, 8, 9, 3, 10},
    {"adaptive_avgpool", AROUND(11, "adaptive_avgpool: {size: [4, 5]}"), 5, 9, 7, 3, 10},
    {"conv_transpose 4x4 stride 2",
        AROUND(16, "conv_transpose: {out: 24, kernel: 4, stride: 2, pad: 1}"), 3, 9, 7, 3, 10},
    {"conv_transpose 3x3 odd channels",
        AROUND(7, "conv_transpose: {out: 11, kernel: 3, stride: 2, output_pad: [1, 0]}"), 3, 7, 6,
        3, 5},
    {"conv_transpose groups 2 without bias",
        AROUND(16, "conv_transpose: {out: 8, kernel: 3, pad: 1, groups: 2, " PLAIN "}"), 3, 9, 8, 3,
        10},
    {"conv_transpose on pixels", FIRST("conv_transpose: {out: 8, kernel: 2, stride: 2}"), 3, 9, 8,
        3, 10},
    {"upsample nearest", AROUND(11, "upsample: {scale: [2, 3]}"), 5, 4, 3, 3, 10},
    {"upsample bilinear", AROUND(11, "upsample: {mode: bilinear}"), 5, 5, 4, 3, 10},
    {"blur", AROUND(11, "blur: {stride: 2}"), 5, 5, 4, 3, 10},
    {"mul",
        AROUND(13, "conv: {name: a, out: 13, kernel: 1}, conv: {name: b, out: 13, kernel: 3, pad: "
                   "1}, mul: [a, b]"),
        5, 7, 9, 3, 10, .loose = 2},
    {"squeeze and excite",
        AROUND(16, "silu: {name: x}, global_avgpool, conv: {out: 5, kernel: 1}, silu, conv: {out: "
                   "16, kernel: 1}, sigmoid: {name: gate}, mul: [x, gate]"),
        5, 7, 9, 3, 10},
    {"stochastic depth",
        AROUND(11, "silu: {name: x}, conv: {out: 11, kernel: 1}, stochastic_depth: {name: kept, "
                   "rate: 0.4}, add: [kept, x]"),
        9, 7, 5, 3, 10},
    {"maxpool 2x2", AROUND(16, "maxpool: {kernel: 2}"), 5, 12, 10, 3, 10},
    {"maxpool 2x2 of odd size", AROUND(13, "maxpool: {kernel: 2}"), 5, 9, 7, 3, 10},
    {"maxpool 3x3 stride 2", AROUND(16, "maxpool: {kernel: 3, stride: 2, pad: 1}"), 5, 13, 12, 3,
        10},
    {"maxpool 3x3 stride 1", AROUND(7, "maxpool: {kernel: 3, stride: 1, pad: 1}"), 3, 9, 8, 3, 10},
    {"maxpool behind relu", AROUND(16, "relu, maxpool: {kernel: 3, stride: 2}"), 5, 13, 12, 3, 10},
    {"maxpool 3x3 rounded up", AROUND(16, "maxpool: {kernel: 3, stride: 2, ceil_mode: true}"), 5,
        13, 12, 3, 10},
    {"avgpool 2x3 rounded up",
        AROUND(11, "avgpool: {kernel: [2, 3], stride: [3, 2], pad: 1, ceil_mode: true}"), 5, 13, 12,
        3, 10},
    {"avgpool 2x2", AROUND(16, "avgpool: {kernel: 2}"), 5, 12, 10, 3, 10},
    {"avgpool 3x3 stride 2", AROUND(11, "avgpool: {kernel: 3, stride: 2, pad: 1}"), 5, 13, 12, 3,
        10},
    {"global_avgpool", AROUND(16, "global_avgpool"), 5, 9, 7, 3, 10},
    {"global_avgpool odd channels", AROUND(37, "global_avgpool"), 5, 7, 7, 3, 10},
    {"flatten, linear", "model: [" HEAD "]", 9, 5, 7, 3, 13},
    {"linear, relu, linear", "model: [flatten, linear: {out: 67}, relu, linear: {out: classes}]", 9,
        8, 7, 3, 10},
    {"linear without bias",
        "model: [flatten, linear: {out: 33, bias: false}, linear: {out: classes}]", 7, 8, 7, 3, 10},
    {"linear to 1000 classes", "model: [flatten, linear: {out: 128}, linear: {out: classes}]", 12,
        4, 4, 3, 1000},
    {"dropout", AROUND(16, "dropout: {rate: 0.4}"), 5, 9, 7, 3, 10},
    {"dropout behind linear",
        "model: [flatten, linear: {out: 61}, relu, dropout, linear: {out: classes}]", 9, 6, 6, 3,
        10},
    {"add",
        AROUND(13, "conv: {name: a, out: 13, kernel: 1}, conv: {name: b, out: 13, kernel: 3, pad: "
                   "1}, add: [a, b]"),
        5, 7, 9, 3, 10},
    {"add of three",
        AROUND(8, "relu: {name: a}, conv: {name: b, out: 8, kernel: 1}, conv: {name: c, out: 8, "
                  "kernel: 1}, add: [a, b, c], relu"),
        5, 7, 9, 3, 10},
    {"concat",
        AROUND(8, "conv: {name: a, out: 5, kernel: 1}, conv: {name: b, out: 11, kernel: 3, pad: "
                  "1}, concat: [a, b]"),
        5, 7, 9, 3, 10},
    {"concat of three",
        AROUND(8, "relu: {name: a}, conv: {name: b, out: 16, kernel: 1}, conv: {name: c, out: 3, "
                  "kernel: 1}, concat: [a, b, c], conv: {out: 12, kernel: 1}"),
        5, 7, 9, 3, 10},
    {"linear of each pixel", AROUND(13, "linear: {out: 9}"), 5, 7, 9, 3, 10},
    {"linear of each pixel, relu", AROUND(13, "linear: {out: 21}, relu"), 5, 7, 5, 3, 10},
    {"layernorm", AROUND(16, "layernorm: {eps: 1e-3}"), 5, 9, 7, 3, 10},
    {"layernorm odd channels", AROUND(37, "layernorm"), 5, 5, 7, 3, 10},
    {"groupnorm", AROUND(24, "groupnorm: {groups: 4}"), 5, 9, 7, 3, 10},
    {"groupnorm odd channels", AROUND(21, "groupnorm: {groups: 3, eps: 1e-3}"), 5, 9, 7, 3, 10},
    {"scale", AROUND(13, "scale: {init: 0.5}"), 5, 9, 7, 3, 10},
    {"tokens", AROUND(12, "class_token, position, linear: {out: 11}, first_token"), 5, 4, 5, 3, 10,
        .loose = 2},
    {"attention", AROUND(12, "linear: {out: 24}, attention: {heads: 2}"), 5, 5, 9, 3, 10,
        .loose = 3},
    {"attention, one wide head", AROUND(8, "linear: {out: 201}, attention: {heads: 1}"), 3, 3, 11,
        3, 10, .loose = 3},
    {"cross-entropy, smoothing", "model: [" HEAD "]" SMOOTH, 17, 5, 5, 3, 10},
    {"cross-entropy, masked rows", "model: [" HEAD "]", 16, 5, 5, 3, 10, .nr_masked = 5},
    {"cross-entropy, both", "model: [" HEAD "]" SMOOTH, 16, 5, 5, 1, 101, .nr_masked = 3},
    {"cross-entropy of 3 classes", "model: [" HEAD "]", 11, 5, 5, 3, 3},
    {"cross-entropy, class weights", "model: [" HEAD "]" WEIGHTED, 16, 5, 5, 3, 5, .nr_masked = 3},
    {"mixup and cutmix", "model: [" HEAD "]" SMOOTH, 16, 6, 7, 3, 10, .mixes = true,
        .nr_masked = 3},
    {"focal loss", "model: [" HEAD "]\nloss: focal", 16, 5, 5, 3, 10, .nr_masked = 3},
    {"binary cross-entropy", "model: [" HEAD "]" BCE, 16, 5, 5, 3, 5, .nr_masked = 3},
    {"binary cross-entropy, mixed", "model: [" HEAD "]\nloss: {bce: {threshold: 0.2}}", 16, 6, 7, 3,
        10, .mixes = true, .nr_masked = 3},
    {"several classes, mixed", "model: [" HEAD "]\nloss: bce", 16, 6, 7, 3, 10, .mixes = true,
        .label_type = NP_LABEL_MULTI, .nr_masked = 3},
    {"numbers, huber", "model: [" HEAD "]\nloss: {huber: {delta: 3}}", 16, 5, 5, 3, 5,
        .label_type = NP_LABEL_VALUE, .nr_masked = 3},
    {"numbers, l1", "model: [" HEAD "]\nloss: l1", 16, 5, 5, 3, 5, .label_type = NP_LABEL_VALUE,
        .nr_masked = 3},
    {"numbers, mixed", "model: [" HEAD "]\nloss: mse", 16, 5, 5, 3, 1, .mixes = true,
        .label_type = NP_LABEL_VALUE, .nr_masked = 3},
    {"batchnorm with masked rows", BEHIND(8, "batchnorm, relu") SMOOTH, 12, 6, 6, 3, 10,
        .nr_masked = 4},
    /* large enough that no single element, moved over a kink, exceeds the tolerance */
    {"batch of one", AROUND(8, "conv: {out: 16, kernel: 3, pad: 1}, relu, maxpool: {kernel: 2}"), 1,
        43, 41, 3, 10},
    /* together */
    {"residual block", ONE_BLOCK(16, 1), 6, 9, 8, 3, 10},
    {"residual block, stride 2", ONE_BLOCK(24, 2), 6, 9, 8, 3, 10},
    {"LeNet-5", LENET, 16, 28, 28, 1, 10, .loose = 2},
    {"small ResNet", RESNET SMOOTH, 12, 16, 16, 3, 10, .loose = 3},
    {"bottleneck behind a stem", BOTTLENECK, 8, 33, 31, 3, 10, .loose = 3},
    {"encoder of a transformer", ENCODER, 2, 12, 12, 3, 10, .loose = 2},
    {"training, 60 steps", SMALL, 24, 12, 12, 3, 8, .trains = true},
    /* the shapes of ResNet-50's and AlexNet's layers at 224, where libraries have engines of
     * their own */
    {"conv 7x7 stride 2, 224", POOLED("conv: {out: 64, kernel: 7, stride: 2, pad: 3, bias: false}"),
        8, 224, 224, 3, 10, .big = true},
    {"conv 11x11 stride 4, 224", POOLED("conv: {out: 64, kernel: 11, stride: 4, pad: 2}, relu"), 8,
        224, 224, 3, 10, .big = true},
    {"conv 3x3 64 to 64, 56", BIG(64, "conv: {out: 64, kernel: 3, pad: 1, bias: false}"), 16, 56,
        56, 3, 10, .big = true},
    {"conv 1x1 64 to 256, 56", BIG(64, "conv: {out: 256, kernel: 1, bias: false}"), 16, 56, 56, 3,
        10, .big = true},
    {"conv 1x1 256 to 64, 56", BIG(256, "conv: {out: 64, kernel: 1, bias: false}"), 16, 56, 56, 3,
        10, .big = true},
    {"conv 3x3 stride 2, 128, 56",
        BIG(128, "conv: {out: 128, kernel: 3, stride: 2, pad: 1, bias: false}"), 16, 56, 56, 3, 10,
        .big = true},
    {"conv 1x1 stride 2, 256 to 512, 56",
        BIG(256, "conv: {out: 512, kernel: 1, stride: 2, bias: false}"), 16, 56, 56, 3, 10,
        .big = true},
    {"conv 3x3 128 to 128, 28", BIG(128, "conv: {out: 128, kernel: 3, pad: 1, bias: false}"), 16,
        28, 28, 3, 10, .big = true},
    {"conv 3x3 256 to 256, 14", BIG(256, "conv: {out: 256, kernel: 3, pad: 1, bias: false}"), 16,
        14, 14, 3, 10, .big = true},
    {"conv 1x1 1024 to 256, 14", BIG(1024, "conv: {out: 256, kernel: 1, bias: false}"), 16, 14, 14,
        3, 10, .big = true},
    {"conv 3x3 512 to 512, 7", BIG(512, "conv: {out: 512, kernel: 3, pad: 1, bias: false}"), 32, 7,
        7, 3, 10, .big = true},
    {"conv 1x1 512 to 2048, 7", BIG(512, "conv: {out: 2048, kernel: 1, bias: false}"), 32, 7, 7, 3,
        10, .big = true},
    {"batchnorm, relu, 64, 112",
        BEHIND(
            64, "batchnorm, relu, maxpool: {kernel: 3, stride: 2, pad: 1}, avgpool: {kernel: 7}"),
        8, 112, 112, 3, 10, .big = true},
    {"linear 9216 to 4096",
        "model: [conv: {out: 256, kernel: 1}, flatten, linear: {out: 4096}, linear: {out: "
        "classes}]",
        64, 6, 6, 3, 1000, .big = true},
    /* whole networks: after so many kinks, only f32 can be compared */
    {"ResNet-18 at 96", RESNET18, 16, 96, 96, 3, 1000, .loose_f32 = 500, .big = true},
    {"ResNet-50 at 96", RESNET50, 16, 96, 96, 3, 1000, .loose_f32 = 500, .big = true},
    {NULL},
};
