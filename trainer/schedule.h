/* Learning-rate schedules: a pure function of the update's number. */
#ifndef NP_SCHEDULE_H
#define NP_SCHEDULE_H

#include "loader/base/option.h"

enum np_schedule_kind { NP_CONSTANT, NP_MULTISTEP, NP_COSINE, NP_ONE_CYCLE };
struct np_schedule_options {
    int kind;
    double warmup; /* share of the run, linear from warmup_from * lr */
    double warmup_from;
    double final;                /* cosine, one_cycle: share of the peak at the end */
    double gamma;                /* multistep */
    struct np_floats milestones; /* multistep: epochs */
};
int np_schedule_parse(
    const struct np_node *node, struct np_schedule_options *ret_options, struct np_report *report);
struct np_node *np_schedule_node(const struct np_schedule_options *options);
void np_schedule_fini(struct np_schedule_options *options);
/* Factor on the peak rate at update u of n; updates_per_epoch turns milestones into updates. */
double np_schedule_factor(const struct np_schedule_options *options, uint64_t update,
    uint64_t nr_updates, double updates_per_epoch);
/* May a run of old_updates be prolonged to new_updates with the same rates so far? */
bool np_schedule_extends(const struct np_schedule_options *options);

#endif
