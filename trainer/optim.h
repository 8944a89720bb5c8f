/* Optimizers over one flat f32 buffer, and the clipping before them. Formulas as in
 * torch.optim: SGD (Sutskever et al. 2013, PMLR 28), AdamW (arXiv:1711.05101). */
#ifndef NP_OPTIM_H
#define NP_OPTIM_H

#include "loader/base/option.h"
#include "trainer/device.h"

enum np_optimizer { NP_SGD, NP_ADAMW };
struct np_optim_options {
    int kind; /* enum np_optimizer */
    double lr, momentum, weight_decay, beta1, beta2, eps, clip_norm;
    bool nesterov;
    bool decay_all; /* decay biases and batchnorm too (torch's way); false: weights only */
};
/* `optimizer: {sgd: {...}}`; clip_norm stands in `train:`. */
int np_optim_parse(
    const struct np_node *node, struct np_optim_options *ret_options, struct np_report *report);
struct np_node *np_optim_node(const struct np_optim_options *options);
int np_optim_states(const struct np_optim_options
        *options); /* arrays of state: sgd 1 (0 without momentum), adamw 2 */

/* Elements first..last of the flat buffers. decay: 1 or 0 an element range's weight decay. */
void np_sgd_update(float *params, float *state, const float *grads, uint64_t n,
    const struct np_hyper *hyper, float grad_scale, bool decay);
void np_adamw_update(float *params, float *m, float *v, const float *grads, uint64_t n,
    const struct np_hyper *hyper, float grad_scale, bool decay);

#endif
