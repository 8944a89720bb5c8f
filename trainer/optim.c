/* Optimizers: their option tables, and the numbers of an update. optim_update.c has the loops. */
#include "trainer/optim.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>

#define AT(field) offsetof(struct np_optim_options, field)

/* Rows that several optimizers share. */
#define LR(value)                                                                                  \
    {                                                                                              \
        "lr", NP_OPT_FLOAT, AT(lr), value, 0, 1e6, NULL,                                           \
            "Peak learning rate; `schedule` scales it."                                            \
    }
#define BETA1                                                                                      \
    {                                                                                              \
        "beta1", NP_OPT_FLOAT, AT(beta1), "0.9", 0, 0.99999999, NULL,                              \
            "Decay of the mean of gradients."                                                      \
    }
#define BETA2                                                                                      \
    {                                                                                              \
        "beta2", NP_OPT_FLOAT, AT(beta2), "0.999", 0, 0.99999999, NULL,                            \
            "Decay of the mean of squared gradients."                                              \
    }
#define EPS(value)                                                                                 \
    {                                                                                              \
        "eps", NP_OPT_FLOAT, AT(eps), value, 0, 1, NULL, "Added to the root in the denominator."   \
    }
#define L2(value)                                                                                  \
    {                                                                                              \
        "weight_decay", NP_OPT_FLOAT, AT(weight_decay), value, 0, 1e6, NULL,                       \
            "Adds `weight_decay * parameter` to the gradient."                                     \
    }
#define SHRINKS(value)                                                                             \
    {                                                                                              \
        "weight_decay", NP_OPT_FLOAT, AT(weight_decay), value, 0, 1e6, NULL,                       \
            "Shrinks parameters by `lr * weight_decay` per update, separately from the gradient."  \
    }
#define DECAY_ALL                                                                                  \
    {                                                                                              \
        "decay_all", NP_OPT_BOOL, AT(decay_all), "true", 0, 0, NULL,                               \
            "Decay biases and batchnorm too, as torch does; `false`: weights of conv and linear "  \
            "only."                                                                                \
    }

#define LAYER_DECAY                                                                                \
    {                                                                                              \
        "layer_decay", NP_OPT_FLOAT, AT(layer_decay), "1", 0, 1, NULL,                             \
            "Factor on the rate from each entry of `model:` with parameters to the one before "    \
            "it: "                                                                                 \
            "the last one keeps `lr`, the first ones learn slowest."                               \
    }

static const struct np_option sgd_table[] = {
    LR("0.1"),
    {"momentum", NP_OPT_FLOAT, AT(momentum), "0.9", 0, 0.999999, NULL,
        "`buffer = momentum * buffer + gradient`, as in torch.optim.SGD; 0: no buffer."},
    {"nesterov", NP_OPT_BOOL, AT(nesterov), "false", 0, 0, NULL,
        "Steps along `gradient + momentum * buffer`; needs a momentum."},
    L2("0"),
    DECAY_ALL,
    LAYER_DECAY,
    NP_OPTIONS_END,
};

static const struct np_option adamw_table[] = {
    LR("1e-3"), BETA1, BETA2, EPS("1e-8"), SHRINKS("0.01"), DECAY_ALL, LAYER_DECAY, NP_OPTIONS_END};

static const struct np_option adam_table[] = {
    LR("1e-3"), BETA1, BETA2, EPS("1e-8"), L2("0"), DECAY_ALL, LAYER_DECAY, NP_OPTIONS_END};

static const struct np_option nadam_table[] = {
    LR("2e-3"),
    BETA1,
    BETA2,
    EPS("1e-8"),
    {"momentum_decay", NP_OPT_FLOAT, AT(momentum_decay), "4e-3", 0, 1e6, NULL,
        "How fast the momentum rises: `beta1 * (1 - 0.5 * 0.96 ^ (update * momentum_decay))`."},
    L2("0"),
    DECAY_ALL,
    LAYER_DECAY,
    NP_OPTIONS_END,
};

static const struct np_option rmsprop_table[] = {
    LR("0.01"),
    {"alpha", NP_OPT_FLOAT, AT(beta2), "0.99", 0, 0.99999999, NULL,
        "Decay of the mean of squared gradients."},
    EPS("1e-8"),
    {"momentum", NP_OPT_FLOAT, AT(momentum), "0", 0, 0.999999, NULL,
        "`buffer = momentum * buffer + gradient / root`, as in torch.optim.RMSprop; 0: no buffer."},
    L2("0"),
    DECAY_ALL,
    LAYER_DECAY,
    NP_OPTIONS_END,
};

static const struct np_option lion_table[] = {
    LR("1e-4"),
    {"beta1", NP_OPT_FLOAT, AT(beta1), "0.9", 0, 0.99999999, NULL,
        "Weight of the mean in the step's sign."},
    {"beta2", NP_OPT_FLOAT, AT(beta2), "0.99", 0, 0.99999999, NULL,
        "Decay of the mean of gradients."},
    SHRINKS("0"),
    DECAY_ALL,
    LAYER_DECAY,
    NP_OPTIONS_END,
};

static const struct np_option lamb_table[] = {
    LR("1e-3"),
    BETA1,
    BETA2,
    EPS("1e-6"),
    {"weight_decay", NP_OPT_FLOAT, AT(weight_decay), "0.01", 0, 1e6, NULL,
        "Adds `weight_decay * parameter` to the step, before the step gets the parameter's norm."},
    {"decay_all", NP_OPT_BOOL, AT(decay_all), "true", 0, 0, NULL,
        "Decay biases and batchnorm and give their steps their norms, as in the paper; `false`: "
        "weights of conv and linear only, as in timm."},
    LAYER_DECAY,
    NP_OPTIONS_END,
};

static const struct np_option muon_table[] = {
    LR("1e-3"),
    {"momentum", NP_OPT_FLOAT, AT(momentum), "0.95", 1e-6, 0.999999, NULL,
        "Decay of the mean of gradients, whose matrix is made orthogonal."},
    {"nesterov", NP_OPT_BOOL, AT(nesterov), "true", 0, 0, NULL,
        "Takes `gradient + momentum * (mean - gradient)` instead of the mean."},
    {"iterations", NP_OPT_INT, AT(iterations), "5", 1, 20, NULL, "Newton-Schulz iterations."},
    SHRINKS("0.1"),
    {"rest_lr", NP_OPT_FLOAT, AT(rest_lr), "1e-3", 0, 1e6, NULL,
        "Peak rate of AdamW for all that is no matrix, and for the layer of the logits."},
    BETA1,
    BETA2,
    EPS("1e-8"),
    DECAY_ALL,
    LAYER_DECAY,
    NP_OPTIONS_END,
};

/* Indices are enum np_optimizer. */
const struct np_choice np_optim_choices[] = {
    {"sgd", sgd_table, "Stochastic gradient descent, as torch.optim.SGD."},
    {"adamw", adamw_table, "Adam with decoupled weight decay, as torch.optim.AdamW."},
    {"adam", adam_table, "Adam, as torch.optim.Adam: weight decay is part of the gradient."},
    {"nadam", nadam_table, "Adam with Nesterov's momentum, as torch.optim.NAdam."},
    {"rmsprop", rmsprop_table,
        "Gradients divided by the root of their mean square, as torch.optim.RMSprop."},
    {"lion", lion_table,
        "Steps by the sign of a mean of gradients (arXiv:2302.06675). Its rate is a tenth to a "
        "third of AdamW's, its weight decay as many times greater."},
    {"lamb", lamb_table,
        "Adam's step, scaled for each parameter to that parameter's norm, for large batches "
        "(arXiv:1904.00962)."},
    {"muon", muon_table,
        "Steps of orthogonal matrices for the weights of conv (one row for each output) and linear "
        "layers, as torch.optim.Muon, but in f32; AdamW for the rest."},
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

static int nr_states(int kind, bool moves)
{
    switch (kind) {
    case NP_SGD: return moves;
    case NP_RMSPROP: return 1 + moves;
    case NP_LION: return 1;
    default: return 2;
    }
}

int np_optim_states(const struct np_optim_options *options)
{
    return nr_states(options->kind, options->momentum > 0);
}

int np_hyper_states(const struct np_hyper *hyper)
{
    return nr_states(hyper->kind, hyper->momentum > 0);
}

void np_optim_hyper(const struct np_optim_options *options, double factor, uint64_t update,
    struct np_hyper *ret_hyper)
{
    *ret_hyper = (struct np_hyper){
        .kind = options->kind,
        .lr = (float)(options->lr * factor),
        .momentum = (float)options->momentum,
        .weight_decay = (float)options->weight_decay,
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .eps = (float)options->eps,
        .clip_norm = (float)options->clip_norm,
        .momentum_decay = options->momentum_decay,
        .nesterov = options->nesterov,
        .sam_rho = (float)options->sam_rho,
        .sam_adaptive = options->sam_adaptive,
        .rest_lr = (float)(options->rest_lr * factor),
        .iterations = (int)options->iterations,
        .update = update,
    };
}

struct np_hyper np_hyper_of(const struct np_hyper *hyper, bool matrix)
{
    struct np_hyper own = *hyper;

    if (hyper->kind == NP_MUON && !matrix) {
        own.kind = NP_ADAMW;
        own.lr = hyper->rest_lr;
    }
    return own;
}

static bool has_beta1(int kind)
{
    return kind != NP_SGD && kind != NP_RMSPROP && kind != NP_MUON;
}

void np_optim_set_momentum(double momentum, struct np_hyper *hyper)
{
    if (has_beta1(hyper->kind))
        hyper->beta1 = momentum;
    else
        hyper->momentum = (float)momentum;
}

bool np_optim_has_momentum(const struct np_optim_options *options)
{
    return has_beta1(options->kind) ? options->kind != NP_NADAM : options->momentum > 0;
}

/* Does weight decay shrink the parameter itself? */
static bool decoupled(int kind)
{
    return kind == NP_ADAMW || kind == NP_LION || kind == NP_MUON;
}

static double nadam_mu(const struct np_hyper *hyper, double t)
{
    return hyper->beta1 * (1 - 0.5 * pow(0.96, t * hyper->momentum_decay));
}

/* torch keeps the product as a state; calculated anew, a resumed run needs none. A product this
 * small no longer changes 1 - product. */
static void nadam_steps(
    const struct np_hyper *hyper, double t, double lr, struct np_scalars *scalars)
{
    const double mu = nadam_mu(hyper, t), next = nadam_mu(hyper, t + 1);
    double product = 1;

    for (double before = 1; before <= t && product > 1e-20; before++)
        product *= nadam_mu(hyper, before);
    scalars->step = (float)(lr * next / (1 - product * next));
    scalars->grad_step = (float)(lr * (1 - mu) / (1 - product));
}

void np_optim_scalars(
    const struct np_hyper *hyper, const struct np_rule *rule, struct np_scalars *ret_scalars)
{
    const bool frozen = np_rule_freezes(rule, hyper->update);
    const double t = hyper->update < rule->thaw ? 1 : (double)(hyper->update - rule->thaw) + 1;
    const double lr = hyper->lr * rule->lr, decay = hyper->weight_decay * rule->decay;
    const double bias1 = 1 - pow(hyper->beta1, t), bias2 = 1 - pow(hyper->beta2, t);
    const bool shrinks = decoupled(hyper->kind);

    *ret_scalars = (struct np_scalars){
        .kind = hyper->kind,
        .nesterov = hyper->nesterov,
        .moves = hyper->momentum > 0,
        .frozen = frozen,
        .decays = rule->decay > 0,
        .lr = (float)lr,
        .momentum = hyper->momentum,
        .eps = hyper->eps,
        .l2 = shrinks ? 0 : (float)decay,
        .keep = (float)(shrinks ? 1 - lr * decay : 1),
        .beta1 = (float)hyper->beta1,
        .one_minus_beta1 = (float)(1 - hyper->beta1),
        .beta2 = (float)hyper->beta2,
        .one_minus_beta2 = (float)(1 - hyper->beta2),
        .step = (float)(hyper->kind == NP_LAMB ? 1 / bias1 : lr / bias1),
        .root_bias = (float)sqrt(bias2),
    };
    if (hyper->kind == NP_NADAM)
        nadam_steps(hyper, t, lr, ret_scalars);
}
