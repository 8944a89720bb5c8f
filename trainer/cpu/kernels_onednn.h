/* oneDNN's version and instructions, and rows of its table in other files. */
#ifndef NP_KERNELS_ONEDNN_H
#define NP_KERNELS_ONEDNN_H

#include "trainer/cpu/kernels.h"

/* Rounding depends on these: the version ("2.6.3") and the instructions in use (oneDNN's bits). */
void np_onednn_version(char ret_text[32]);
unsigned np_onednn_isa(void);

extern const struct np_kernel np_onednn_linear_f32, np_onednn_linear_dgrad_f32,
    np_onednn_linear_wgrad_f32, np_onednn_linear_bf16, np_onednn_linear_dgrad_bf16,
    np_onednn_linear_wgrad_bf16;

#endif
