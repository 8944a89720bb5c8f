/* Rows of oneDNN's table that live beside it. Internal to kernels_onednn*.c. */
#ifndef NP_KERNELS_ONEDNN_H
#define NP_KERNELS_ONEDNN_H

#include "trainer/cpu/kernels.h"

extern const struct np_kernel np_onednn_linear_f32, np_onednn_linear_dgrad_f32,
    np_onednn_linear_wgrad_f32, np_onednn_linear_bf16, np_onednn_linear_dgrad_bf16,
    np_onednn_linear_wgrad_bf16;

#endif
