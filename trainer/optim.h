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
    bool decay_all; /* decay biases and batchnorm too, as torch does; false: weights only */
};
extern const struct np_choice np_optim_choices[];
/* `optimizer: {sgd: {...}}`; NULL node: sgd with its defaults. clip_norm is a key of `train:`. */
int np_optim_parse(
    const struct np_node *node, struct np_optim_options *ret_options, struct np_report *report);
struct np_node *np_optim_node(const struct np_optim_options *options);
/* Returns the number of state arrays: sgd 1 (0 without momentum), adamw 2. */
int np_optim_states(const struct np_optim_options *options);
/* Fills the parameters of update number `update` (from 0); factor: the schedule's, on the peak
 * rate. */
void np_optim_hyper(const struct np_optim_options *options, double factor, uint64_t update,
    struct np_hyper *ret_hyper);

/* Update n elements of the flat buffers, a range of one parameter; gradients are multiplied by
 * grad_scale first; decay: weight decay applies to this parameter. Elementwise: the same bits
 * however a buffer is cut into ranges. Any thread.
 *
 *   sgd    g = scale * grad + wd * p;  b = momentum * b + g;  p -= lr * b
 *          nesterov: p -= lr * (g + momentum * b);  state: b, NULL without momentum
 *   adamw  m += (1 - beta1) * (g - m);  v = beta2 * v + (1 - beta2) * g^2
 *          p = (1 - lr * wd) * p - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
 *          with t = update + 1 */
void np_sgd_update(float *params, float *state, const float *grads, uint64_t n,
    const struct np_hyper *hyper, float grad_scale, bool decay);
void np_adamw_update(float *params, float *m, float *v, const float *grads, uint64_t n,
    const struct np_hyper *hyper, float grad_scale, bool decay);

/* Sum of squares in double: blocks of NP_NORM_BLOCK elements, added in order. Threads may sum a
 * block each: their sums, added in order, give the same bits as one call over all. */
#define NP_NORM_BLOCK 16384
double np_square_sum(const float *x, uint64_t n);
/* Returns the factor that clips gradients of this norm, as torch's clip_grad_norm_: at most 1;
 * with clip_norm 0 always 1. */
float np_clip_scale(double norm, double clip_norm);

#endif
