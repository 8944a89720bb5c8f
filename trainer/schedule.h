/* Learning-rate schedules: a pure function of the update's number. */
#ifndef NP_SCHEDULE_H
#define NP_SCHEDULE_H

#include "loader/base/option.h"

enum np_schedule_kind { NP_CONSTANT, NP_MULTISTEP, NP_COSINE, NP_ONE_CYCLE };
enum np_anneal { NP_ANNEAL_COSINE, NP_ANNEAL_LINEAR };
struct np_schedule_options {
    int kind;
    double warmup;               /* share of the run, linear from warmup_from * lr */
    double warmup_from;          /* share of the peak */
    double final;                /* cosine, one_cycle: share of the peak at the end */
    int anneal;                  /* one_cycle: enum np_anneal, of both halves */
    double gamma;                /* multistep */
    struct np_floats milestones; /* multistep: epochs */
};
extern const struct np_choice np_schedule_choices[];
/* `schedule: {cosine: {warmup: 5%}}`; NULL node: constant. */
int np_schedule_parse(
    const struct np_node *node, struct np_schedule_options *ret_options, struct np_report *report);
struct np_node *np_schedule_node(const struct np_schedule_options *options);
void np_schedule_fini(struct np_schedule_options *options);

/* Factor on the peak rate at update u of n (0 <= u < n); updates_per_epoch turns milestones into
 * updates. Pure. With W = warmup * n:
 *
 *   u < W (all but one_cycle): from + (1 - from) * u / W, as torch's LinearLR; times what follows
 *   constant   1
 *   multistep  gamma ^ (milestones reached), as torch's MultiStepLR
 *   cosine     final + (1 - final) * (1 + cos(pi * (u - W) / (n - W))) / 2, as CosineAnnealingLR
 *              (Loshchilov and Hutter, arXiv:1608.03983, eq. 5, without restarts)
 *   one_cycle  from warmup_from at update 0 to 1 at update W - 1, then to final at update n - 1,
 *              along half a cosine or a line, as torch's OneCycleLR (Smith and Topin,
 *              arXiv:1708.07120) with div_factor = 1 / warmup_from, pct_start = warmup and
 *              final_div_factor = warmup_from / final; momentum is not cycled (torch's
 *              cycle_momentum=False) */
double np_schedule_factor(const struct np_schedule_options *options, uint64_t update,
    uint64_t nr_updates, double updates_per_epoch);
/* True if a longer run has the same rates so far: no option is a share of the run. */
bool np_schedule_extends(const struct np_schedule_options *options);

#endif
