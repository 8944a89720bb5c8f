/* The activation functions. Included by C and .cu files. */
#ifndef NP_ACT_H
#define NP_ACT_H

#include <stdbool.h>

/* Activation functions but relu, which has an operation of its own: it fuses, and its gradient needs
 * y alone. Formulas: kernels_ref_act.c. */
enum np_act {
    NP_ACT_RELU6,
    NP_ACT_LEAKY_RELU, /* attr: slope */
    NP_ACT_SIGMOID,
    NP_ACT_HARDSIGMOID,
    NP_ACT_TANH,
    NP_ACT_SILU,
    NP_ACT_HARDSWISH,
    NP_ACT_GELU,
    NP_ACT_GELU_TANH,
    NP_NR_ACTS
};
/* True: its slope jumps somewhere, as relu's does. */
static inline bool np_act_has_kinks(enum np_act act)
{
    return act == NP_ACT_RELU6 || act == NP_ACT_LEAKY_RELU || act == NP_ACT_HARDSIGMOID ||
           act == NP_ACT_HARDSWISH;
}

#endif
