/* What oneDNN is, and rows of its table that live beside it. */
#ifndef NP_KERNELS_ONEDNN_H
#define NP_KERNELS_ONEDNN_H

#include "trainer/cpu/kernels.h"

/* What rounding depends on: "2.6.3", and the instructions that it uses (its own bits). */
void np_onednn_version(char ret_text[32]);
unsigned np_onednn_isa(void);

extern const struct np_kernel np_onednn_linear_f32, np_onednn_linear_dgrad_f32,
    np_onednn_linear_wgrad_f32, np_onednn_linear_bf16, np_onednn_linear_dgrad_bf16,
    np_onednn_linear_wgrad_bf16;

#endif
