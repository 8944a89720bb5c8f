/* The CPU's graph of a batch in lanes: all lanes of a process at once. Trainer thread. */
#ifndef NP_LANES_CPU_H
#define NP_LANES_CPU_H

#include "trainer/plan.h"

/* Lanes of this process; 1 if batches are whole. */
int np_lanes_own(const struct np_plan_options *options);
/* Does the plan compute in lanes? */
bool np_lanes_on(const struct np_plan_options *options);
/* Tells each node the rows of a lane, and each batchnorm the rows of its groups: their statistics and
 * sums become tensors of (1, groups, c). No effect on whole batches. -EINVAL: groups that are neither
 * whole lanes nor a part of one, or more rows than a process has. */
int np_lanes_prepare(
    struct np_graph *graph, const struct np_plan_options *options, struct np_err *err);
/* Groups that batchnorm averages over, in all processes. */
int np_lanes_groups(const struct np_graph *graph, const struct np_plan_options *options);

#endif
