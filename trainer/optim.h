/* Optimizers over flat f32 buffers, and the clipping before them. Formulas as in torch.optim where
 * it has them: SGD (Sutskever et al. 2013, PMLR 28), Adam (arXiv:1412.6980), AdamW
 * (arXiv:1711.05101), NAdam (Dozat 2016, ICLR workshop), RMSprop (Hinton's lecture 6e, and
 * arXiv:1308.0850 without the centering); Lion (arXiv:2302.06675, algorithm 2), LAMB
 * (arXiv:1904.00962, algorithm 2, phi(z) = z); muon.h has Muon's. */
#ifndef NP_OPTIM_H
#define NP_OPTIM_H

#include "loader/base/option.h"
#include "trainer/device.h"

struct np_optim_options {
    int kind; /* enum np_optimizer */
    double lr, momentum, weight_decay, beta1, beta2 /* also rmsprop's alpha */, eps, clip_norm;
    double momentum_decay; /* nadam */
    double layer_decay;    /* of struct np_rules */
    double rest_lr;        /* muon, and its iterations */
    int64_t iterations;
    double sam_rho; /* 0: off; it and sam_adaptive are keys of `train.sam` */
    bool nesterov, sam_adaptive;
    bool decay_all; /* decay biases and batchnorm too, as torch does; false: weights only */
};
extern const struct np_choice np_optim_choices[];
/* `optimizer: {sgd: {...}}`; NULL node: sgd with its defaults. clip_norm is a key of `train:`. */
int np_optim_parse(
    const struct np_node *node, struct np_optim_options *ret_options, struct np_report *report);
struct np_node *np_optim_node(const struct np_optim_options *options);
/* Returns the number of state arrays: 0 to 2. */
int np_optim_states(const struct np_optim_options *options);
int np_hyper_states(const struct np_hyper *hyper); /* the same */
/* Fills the parameters of update number `update` (from 0); factor: the schedule's, on the peak
 * rate. */
void np_optim_hyper(const struct np_optim_options *options, double factor, uint64_t update,
    struct np_hyper *ret_hyper);
/* What updates a parameter: under muon its matrices have hyper itself, all else AdamW at rest_lr. */
struct np_hyper np_hyper_of(const struct np_hyper *hyper, bool matrix);
/* Sets the momentum of this update, where a schedule moves it: beta1, if the optimizer has it. */
void np_optim_set_momentum(double momentum, struct np_hyper *hyper);
/* Can a schedule move the momentum? nadam has a schedule of its own; sgd and rmsprop may have no
 * momentum. */
bool np_optim_has_momentum(const struct np_optim_options *options);
/* Of a parameter with this rule; its updates count from the one that thaws it, as torch counts
 * them. */
void np_optim_scalars(
    const struct np_hyper *hyper, const struct np_rule *rule, struct np_scalars *ret_scalars);

/* A range of one parameter; lamb, and matrices of muon: the whole parameter. */
struct np_update {
    float *params, *state[2]; /* (n); state: NULL if the optimizer has no such array */
    const float *grads;       /* (n) */
    uint64_t n;
    float grad_scale; /* gradients are multiplied by it first */
    struct np_rule rule;
    uint64_t rows;  /* muon: of a matrix, with n / rows columns; 0: not a matrix for it */
    float *scratch; /* muon: np_muon_scratch() floats, for a matrix */
    const struct np_muon_means *means; /* muon: for a matrix */
};
/* Updates parameters and states. Elementwise, but for lamb's norms: the same bits however a buffer
 * is cut into ranges; a frozen parameter stays as it is, and its states. g = grad_scale * grad;
 * t = updates since it thawed + 1; lr, wd: times the rule's factors. Any thread.
 *
 *   sgd      g += wd * p;  b = momentum * b + g;  p -= lr * b
 *            nesterov: p -= lr * (g + momentum * b);  state: b, none without momentum
 *   adamw    m += (1 - beta1) * (g - m);  v = beta2 * v + (1 - beta2) * g^2
 *            p = (1 - lr * wd) * p - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
 *   adam     g += wd * p;  the rest as adamw with wd = 0
 *   nadam    g += wd * p;  m, v as adamw;  p -= lr * ((1 - mu_t) / (1 - M_t) * g +
 *            mu_(t+1) / (1 - M_(t+1)) * m) / (sqrt(v / (1 - beta2^t)) + eps)
 *            mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2);  M_t = mu_1 * ... * mu_t
 *   rmsprop  g += wd * p;  v = alpha * v + (1 - alpha) * g^2;  d = g / (sqrt(v) + eps)
 *            p -= lr * d;  with momentum: b = momentum * b + d;  p -= lr * b;  states: v, b
 *   lion     p = (1 - lr * wd) * p - lr * sign(beta1 * m + (1 - beta1) * g)
 *            m = beta2 * m + (1 - beta2) * g
 *   lamb     m, v as adamw;  r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + wd * p
 *            p -= lr * |p| / |r| * r;  the ratio is 1 if a norm is 0, and, as in timm, for
 *            parameters that do not decay
 *   muon     matrices: m += (1 - momentum) * (g - m);  o = np_muon_orthogonal(m), nesterov: of
 *            g + momentum * (m - g);  p = (1 - lr * wd) * p - lr * sqrt(max(1, rows / cols)) * o
 *            all else: adamw at rest_lr */
void np_optim_update(const struct np_hyper *hyper, const struct np_update *update);

/* lamb's |p| / |r| from the sums of their squares; 1 if one is 0. */
float np_lamb_ratio(double param_squares, double way_squares);

/* Sum of squares in double: blocks of NP_NORM_BLOCK elements, added in order. Threads may sum a
 * block each: their sums, added in order, give the same bits as one call over all. */
#define NP_NORM_BLOCK 16384
double np_square_sum(const float *x, uint64_t n);
/* Returns the factor that clips gradients of this norm, as torch's clip_grad_norm_: at most 1;
 * with clip_norm 0 always 1. */
float np_clip_scale(double norm, double clip_norm);

#endif
