/* Optimizers: their option tables, and their updates as loops over flat f32 buffers.
 *
 * Every update is elementwise and in f32, so that a result does not depend on how the
 * buffers are split over threads; the compiler turns the loops into vectors, which give
 * the same bits as one element at a time (no fused multiply-add, no reassociation). Only
 * the gradient's norm is a sum: in double, by fixed blocks, added in order. */
#include "trainer/optim.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>

/* gcc 12 at -O2 does not vectorise loops of unknown length. */
#define NP_VECTOR __attribute__((optimize("O3")))

#define AT(field) offsetof(struct np_optim_options, field)

static const struct np_option sgd_table[] = {
    {"lr", NP_OPT_FLOAT, AT(lr), "0.1", 0, 1e6, NULL, "Peak learning rate; `schedule` scales it."},
    {"momentum", NP_OPT_FLOAT, AT(momentum), "0.9", 0, 0.999999, NULL,
        "`buffer = momentum * buffer + gradient`, as in torch.optim.SGD; 0: no buffer."},
    {"nesterov", NP_OPT_BOOL, AT(nesterov), "false", 0, 0, NULL,
        "Steps along `gradient + momentum * buffer`; needs a momentum."},
    {"weight_decay", NP_OPT_FLOAT, AT(weight_decay), "0", 0, 1e6, NULL,
        "Adds `weight_decay * parameter` to the gradient."},
    {"decay_all", NP_OPT_BOOL, AT(decay_all), "true", 0, 0, NULL,
        "Decay biases and batchnorm too, as torch does; `false`: weights of conv and linear only."},
    NP_OPTIONS_END,
};

static const struct np_option adamw_table[] = {
    {"lr", NP_OPT_FLOAT, AT(lr), "1e-3", 0, 1e6, NULL, "Peak learning rate; `schedule` scales it."},
    {"beta1", NP_OPT_FLOAT, AT(beta1), "0.9", 0, 0.99999999, NULL,
        "Decay of the mean of gradients."},
    {"beta2", NP_OPT_FLOAT, AT(beta2), "0.999", 0, 0.99999999, NULL,
        "Decay of the mean of squared gradients."},
    {"eps", NP_OPT_FLOAT, AT(eps), "1e-8", 0, 1, NULL, "Added to the root in the denominator."},
    {"weight_decay", NP_OPT_FLOAT, AT(weight_decay), "0.01", 0, 1e6, NULL,
        "Shrinks parameters by `lr * weight_decay` per update, separately from the gradient."},
    {"decay_all", NP_OPT_BOOL, AT(decay_all), "true", 0, 0, NULL,
        "Decay biases and batchnorm too, as torch does; `false`: weights of conv and linear only."},
    NP_OPTIONS_END,
};

const struct np_choice np_optim_choices[] = {
    {"sgd", sgd_table, "Stochastic gradient descent, as torch.optim.SGD."},
    {"adamw", adamw_table, "Adam with decoupled weight decay, as torch.optim.AdamW."},
    {NULL, NULL, NULL},
};

int np_optim_parse(
    const struct np_node *node, struct np_optim_options *ret_options, struct np_report *report)
{
    struct np_optim_options options = {0};
    const struct np_node *args = NULL;
    int kind = np_choice_find(np_optim_choices, node, "optimizer", "sgd", &args, report);

    if (kind < 0)
        return -EINVAL;
    options.kind = kind;
    if (np_options_parse(np_optim_choices[kind].table, args, np_optim_choices[kind].name, NULL,
            &options, report) < 0)
        return -EINVAL;
    if (options.nesterov && options.momentum == 0) {
        const struct np_node *at = args ? np_node_get(args, "nesterov") : NULL;
        return np_report_add(report, at ? at->line : 0, at ? at->column : 0,
            "sgd.nesterov: needs a momentum above 0");
    }
    *ret_options = options;
    return 0;
}

struct np_node *np_optim_node(const struct np_optim_options *options)
{
    return np_choice_node(&np_optim_choices[options->kind], options);
}

int np_optim_states(const struct np_optim_options *options)
{
    if (options->kind == NP_ADAMW)
        return 2;
    return options->momentum > 0 ? 1 : 0;
}

void np_optim_hyper(const struct np_optim_options *options, double factor, uint64_t update,
    struct np_hyper *ret_hyper)
{
    *ret_hyper = (struct np_hyper){
        .lr = (float)(options->lr * factor),
        .momentum = (float)options->momentum,
        .weight_decay = (float)options->weight_decay,
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .eps = (float)options->eps,
        .clip_norm = (float)options->clip_norm,
        .nesterov = options->nesterov,
        .decoupled = options->kind == NP_ADAMW,
        .update = update,
    };
}

/* torch.optim.SGD, dampening 0. Its first update sets the buffer to the gradient; a buffer
 * of zeros gives the same. */
NP_VECTOR static void sgd_momentum(float *restrict params, float *restrict state,
    const float *restrict grads, uint64_t n, const struct np_hyper *hyper, float decay, float scale)
{
    const float lr = hyper->lr, momentum = hyper->momentum;
    const bool nesterov = hyper->nesterov;

    for (uint64_t i = 0; i < n; i++) {
        float grad = grads[i] * scale + decay * params[i];
        float buffer = momentum * state[i] + grad;
        state[i] = buffer;
        params[i] -= lr * (nesterov ? grad + momentum * buffer : buffer);
    }
}

NP_VECTOR static void sgd_plain(float *restrict params, const float *restrict grads, uint64_t n,
    float lr, float decay, float scale)
{
    for (uint64_t i = 0; i < n; i++)
        params[i] -= lr * (grads[i] * scale + decay * params[i]);
}

void np_sgd_update(float *params, float *state, const float *grads, uint64_t n,
    const struct np_hyper *hyper, float grad_scale, bool decay)
{
    float weight_decay = decay ? hyper->weight_decay : 0;

    assert(!hyper->decoupled && (state || hyper->momentum == 0));
    if (hyper->momentum == 0)
        sgd_plain(params, grads, n, hyper->lr, weight_decay, grad_scale);
    else
        sgd_momentum(params, state, grads, n, hyper, weight_decay, grad_scale);
}

struct adamw_scalars { /* of one update, calculated in double */
    float keep;        /* 1 - lr * weight_decay */
    float one_minus_beta1, beta2, one_minus_beta2;
    float step;      /* lr / (1 - beta1^t) */
    float root_bias; /* sqrt(1 - beta2^t) */
    float eps, scale;
};

NP_VECTOR static void adamw_loop(float *restrict params, float *restrict m, float *restrict v,
    const float *restrict grads, uint64_t n, const struct adamw_scalars s)
{
    for (uint64_t i = 0; i < n; i++) {
        float grad = grads[i] * s.scale;
        float mean = m[i] + s.one_minus_beta1 * (grad - m[i]);
        float square = s.beta2 * v[i] + s.one_minus_beta2 * (grad * grad);
        m[i] = mean;
        v[i] = square;
        params[i] = params[i] * s.keep - s.step * (mean / (sqrtf(square) / s.root_bias + s.eps));
    }
}

void np_adamw_update(float *params, float *m, float *v, const float *grads, uint64_t n,
    const struct np_hyper *hyper, float grad_scale, bool decay)
{
    double t = (double)hyper->update + 1;
    double bias1 = 1 - pow(hyper->beta1, t), bias2 = 1 - pow(hyper->beta2, t);

    assert(hyper->decoupled && m && v);
    adamw_loop(params, m, v, grads, n,
        (struct adamw_scalars){
            .keep = (float)(decay ? 1 - (double)hyper->lr * hyper->weight_decay : 1),
            .one_minus_beta1 = (float)(1 - hyper->beta1),
            .beta2 = (float)hyper->beta2,
            .one_minus_beta2 = (float)(1 - hyper->beta2),
            .step = (float)(hyper->lr / bias1),
            .root_bias = (float)sqrt(bias2),
            .eps = hyper->eps,
            .scale = grad_scale,
        });
}

/* Eight partial sums: the same order for every vector width. */
NP_VECTOR static double square_sum_block(const float *x, uint64_t n)
{
    double sums[8] = {0};
    uint64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += (double)x[i + lane] * x[i + lane];
    for (; i < n; i++)
        sums[i % 8] += (double)x[i] * x[i];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

double np_square_sum(const float *x, uint64_t n)
{
    double sum = 0;

    for (uint64_t first = 0; first < n; first += NP_NORM_BLOCK)
        sum += square_sum_block(x + first, n - first < NP_NORM_BLOCK ? n - first : NP_NORM_BLOCK);
    return sum;
}

float np_clip_scale(double norm, double clip_norm)
{
    if (clip_norm <= 0)
        return 1;
    double scale = clip_norm / (norm + 1e-6);
    return scale < 1 ? (float)scale : 1; /* a NaN norm gives 1; the loss shows it */
}
