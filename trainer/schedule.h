/* Learning-rate schedules: a pure function of the update's number. */
#ifndef NP_SCHEDULE_H
#define NP_SCHEDULE_H

#include "loader/base/option.h"

/* The order of np_schedule_choices. */
enum np_schedule_kind {
    NP_CONSTANT,
    NP_MULTISTEP,
    NP_COSINE,
    NP_ONE_CYCLE,
    NP_STEP_DECAY,
    NP_EXPONENTIAL,
    NP_POLYNOMIAL,
    NP_RESTARTS,
    NP_PLATEAU,
    NP_NR_SCHEDULES,
    NP_RANGE = NP_NR_SCHEDULES /* of `nnpipe lr`, in no config: growth ^ update */
};
enum np_anneal { NP_ANNEAL_COSINE, NP_ANNEAL_LINEAR };
/* Of an evaluation; the last four are those of labels that are several classes or numbers. */
enum np_metric {
    NP_METRIC_LOSS,
    NP_METRIC_ACCURACY,
    NP_METRIC_MAP,
    NP_METRIC_MAE,
    NP_METRIC_RMSE,
    NP_METRIC_R2,
    NP_NR_METRICS
};
extern const char *const np_metric_names[]; /* "loss", ..., by enum np_metric; NULL-ended */
/* The words of a key `metric`, and its help. */
#define NP_METRIC_WORDS "loss|accuracy|map|mae|rmse|r2"
#define NP_METRIC_HELP                                                                             \
    "Number of the evaluations that shall improve: those of `train.eval_every`. `map` is for "     \
    "`label_type: multi`; `mae`, `rmse` and `r2` are for `value`, which has no accuracy."
struct np_schedule_options {
    int kind;
    double warmup;        /* share of the run, linear from warmup_from * lr */
    double warmup_epochs; /* or epochs, or updates; 0: not given */
    int64_t warmup_steps;
    double warmup_from;          /* share of the peak */
    double final;                /* share of the peak at the end; restarts: of each cycle */
    int anneal;                  /* one_cycle: enum np_anneal, of both halves */
    double momentum_high;        /* one_cycle: at both ends; 0: not cycled */
    double momentum_low;         /* one_cycle: at the rate's peak */
    double gamma;                /* multistep, step, exponential, plateau */
    struct np_floats milestones; /* multistep: epochs */
    double every;                /* step, restarts: epochs */
    double growth;               /* restarts: of a cycle from the one before; range: an update */
    double power;                /* polynomial */
    int metric;                  /* plateau: enum np_metric of an evaluation, and the rest */
    int64_t patience, cooldown;
    double threshold, min;
};
extern const struct np_choice np_schedule_choices[];
/* `schedule: {cosine: {warmup: 5%}}`; NULL node: constant. */
int np_schedule_parse(
    const struct np_node *node, struct np_schedule_options *ret_options, struct np_report *report);
struct np_node *np_schedule_node(const struct np_schedule_options *options);
void np_schedule_fini(struct np_schedule_options *options);

/* Factor on the peak rate at update u of n (0 <= u < n); updates_per_epoch turns epochs into
 * updates. Pure. With W, the updates of the warm-up:
 *
 *   u < W (all but one_cycle): from + (1 - from) * u / W, as torch's LinearLR; times what follows
 *   constant     1
 *   multistep    gamma ^ (milestones reached), as torch's MultiStepLR
 *   step         gamma ^ floor(epochs / every), as StepLR
 *   exponential  gamma ^ epochs, as ExponentialLR with gamma ^ (1 / updates_per_epoch)
 *   plateau      1: np_plateau_step() has its factor
 * and, from update W on:
 *   cosine       final + (1 - final) * (1 + cos(pi * (u - W) / (n - W))) / 2, as CosineAnnealingLR
 *                (Loshchilov and Hutter, arXiv:1608.03983, eq. 5, without restarts)
 *   restarts     the same in cycles of `every` epochs, each `growth` times as long as the one
 *                before, as CosineAnnealingWarmRestarts
 *   polynomial   final + (1 - final) * (1 - (u - W) / (n - W)) ^ power, as PolynomialLR
 *   one_cycle    from warmup_from at update 0 to 1 at update W - 1, then to final at update n - 1,
 *                along half a cosine or a line, as torch's OneCycleLR (Smith and Topin,
 *                arXiv:1708.07120) with div_factor = 1 / warmup_from, pct_start = warmup and
 *                final_div_factor = warmup_from / final */
double np_schedule_factor(const struct np_schedule_options *options, uint64_t update,
    uint64_t nr_updates, double updates_per_epoch);
/* The momentum at update u of n: from momentum_high to momentum_low at the rate's peak, and back,
 * as torch's OneCycleLR with cycle_momentum. 0: the optimizer's own. */
double np_schedule_momentum(
    const struct np_schedule_options *options, uint64_t update, uint64_t nr_updates);
/* True if a longer run has the same rates so far: no option is a share of the run. */
bool np_schedule_extends(const struct np_schedule_options *options);

#endif
