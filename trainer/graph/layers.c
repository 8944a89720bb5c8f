/* The layer table, and the keys that every layer takes. Config time, one thread. */
#include "trainer/graph/layers.h"

#include <stddef.h>
#include <string.h>

const struct np_layer *const np_layers[] = {&np_layer_conv, &np_layer_linear, &np_layer_batchnorm,
    &np_layer_relu, &np_layer_maxpool, &np_layer_avgpool, &np_layer_global_avgpool,
    &np_layer_dropout, &np_layer_flatten, &np_layer_add, &np_layer_concat, &np_layer_relu6,
    &np_layer_leaky_relu, &np_layer_sigmoid, &np_layer_hardsigmoid, &np_layer_tanh, &np_layer_silu,
    &np_layer_hardswish, &np_layer_gelu, &np_layer_layernorm, &np_layer_groupnorm, &np_layer_scale,
    &np_layer_class_token, &np_layer_position, &np_layer_attention, &np_layer_first_token,
    &np_layer_mul, &np_layer_stochastic_depth, &np_layer_adaptive_avgpool, &np_layer_upsample,
    &np_layer_blur, &np_layer_conv_transpose, NULL};

const struct np_layer *np_layer_find(const char *name)
{
    for (int i = 0; np_layers[i]; i++)
        if (strcmp(np_layers[i]->name, name) == 0)
            return np_layers[i];
    return NULL;
}

/* --- keys for docs ------------------------------------------------------------------------- */

const struct np_option np_layer_common[] = {
    {"name", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "The layer's name; default: its index in its list, as in a torch Sequential. With the "
        "names "
        "of the blocks around it, it names the layer's parameters."},
    {"from", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "Its input: the name of an earlier layer, or `input`, the input of the list that it is in; "
        "default: the layer before it. add, mul and concat take a list of at least two."},
    {"when", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "A condition, such as `$in != $out`. If it is false, the layer is left out: its input "
        "passes "
        "unchanged under its name."},
    NP_OPTIONS_END,
};

const struct np_option np_block_options[] = {
    {"use", NP_OPT_NODE, 0, NULL, 0, 0, NULL, "Name of a list in `blocks:`."},
    {"layers", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "Instead of `use`: the list itself, which also sees the parameters around it."},
    {"repeat", NP_OPT_NODE, 0, NULL, 0, 0, NULL,
        "Number of repetitions (1 to 1000), named .0, .1 and so on. A parameter that is a list "
        "gives "
        "one value to each repetition, and its last value to the rest. Other keys are parameters: "
        "`out: 64` sets `$out` to 64 in the block. Numbers are calculated: `$out*4`. `$in` is the "
        "number of channels that the block reads."},
    NP_OPTIONS_END,
};
