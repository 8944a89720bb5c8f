/* The numbers of one update that its loops read: calculated in double on the host, rounded once.
 * Plain types: .cu files include this. */
#ifndef NP_OPTIM_SCALARS_H
#define NP_OPTIM_SCALARS_H

#include <stdint.h>

/* The order of np_optim_choices. */
enum np_optimizer {
    NP_SGD,
    NP_ADAMW,
    NP_ADAM,
    NP_NADAM,
    NP_RMSPROP,
    NP_LION,
    NP_LAMB,
    NP_MUON,
    NP_NR_OPTIMIZERS
};

struct np_scalars {
    int32_t kind, nesterov, moves; /* kind: enum np_optimizer; moves: rmsprop has a momentum */
    int32_t frozen, decays;        /* decays: weight decay applies, and lamb's ratio */
    float lr, momentum, eps;
    float l2;   /* gradient += l2 * parameter */
    float keep; /* parameter *= keep: 1 - lr * weight_decay */
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float step;      /* adam: lr / (1 - beta1^t); nadam: the factor of m; lamb: 1 / (1 - beta1^t) */
    float grad_step; /* nadam: the factor of the gradient */
    float root_bias; /* sqrt(1 - beta2^t) */
};

#endif
