/* A batch in lanes on the CPU, all lanes of a process at once: its graph, and what a step does with
 * the other processes, but for the batchnorms' sums, which are program.c's. Trainer thread. */
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

/* --- steps ---------------------------------------------------------------------------------- */

struct np_step_info;

struct np_cpu_lanes {       /* of a plan */
    int nr;                 /* of this process; 0: batches are whole */
    int over, nr_groups;    /* np_plan_options.batchnorm_over, and its groups in all processes */
    struct np_comm *comm;   /* NULL: one process */
    struct np_block *block; /* of the trainer: waits for other processes are named there */
    float *first_buffers;   /* before the step, readable until its update; NULL: not yet */
    bool unapplied;         /* a step has no update yet; the plan's, too */
};

/* options->comm and block are borrowed. */
void np_cpu_lanes_init(struct np_cpu_lanes *lanes, const struct np_graph *graph,
    const struct np_plan_options *options);
void np_cpu_lanes_fini(struct np_cpu_lanes *lanes);
/* Copies the running statistics (n) before a step. -ENOMEM. */
int np_cpu_lanes_keep(
    struct np_cpu_lanes *lanes, const float *buffers, uint64_t n, struct np_err *err);
/* Sets what a pass takes from all processes: the first row, and the scale of class weights. Blocks
 * for the others with class weights only: the errors of np_comm_join(). */
int np_cpu_lanes_start(const struct np_cpu_lanes *lanes, const struct np_graph *graph,
    const int32_t *labels, struct np_step_info *info, struct np_err *err);
/* The gradients, sums over this process's lanes that np_program_run() has handed over, become those
 * over all processes, and running statistics what train.batchnorm_over makes of them. arrays: by
 * NP_ARRAY_*; behind the gradients is room for the buffers. Blocks. Fails as np_comm_sum_end(). */
int np_cpu_lanes_sum(const struct np_cpu_lanes *lanes, const struct np_graph *graph,
    float *const *arrays, uint64_t step, struct np_err *err);

#endif
