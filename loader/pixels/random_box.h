/* Boxes of random area and shape, as torchvision draws them. Pure, any thread. */
#ifndef NP_RANDOM_BOX_H
#define NP_RANDOM_BOX_H

#include "loader/pixels/augment.h"

/* round(sqrt(area * ratio)) and round(sqrt(area / ratio)). */
void np_box_of(double area, double ratio, int *ret_w, int *ret_h);
/* The same for torch.exp(log_ratio). */
void np_box_of_log(
    const struct np_torch_draws *draws, double area, float log_ratio, int *ret_w, int *ret_h);

#endif
