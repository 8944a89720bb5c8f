/* One graph prepared for the CPU: kernels in groups, and their arena. kernels.h explains how a step
 * runs. Trainer thread; the pool's threads inside. */
#ifndef NP_PROGRAM_H
#define NP_PROGRAM_H

#include "trainer/cpu/kernels_check.h"
#include "trainer/plan.h"
#include "trainer/cpu/pool.h"

struct np_program;

/* Flat f32 arrays in the files' layouts; NULL: not used by the graph. Borrowed. */
struct np_arrays {
    float *params, *buffers, *grads;
};

/* checked: excludes wrong kernels; NULL: nothing is checked, as with options->reference. graph
 * is borrowed and must stay. arena: at least np_program_arena_bytes(), set before the first run;
 * several programs may share it. */
int np_program_new(const struct np_graph *graph, const struct np_plan_options *options,
    struct np_pool *pool, const struct np_arrays *arrays, struct np_checked *checked,
    struct np_program **ret_program, struct np_err *err);
void np_program_free(struct np_program *program);
uint64_t np_program_arena_bytes(const struct np_program *program);
void np_program_set_arena(struct np_program *program, void *arena);
/* In lanes of several processes the sums of the gradients over all of them are under way afterwards: the
 * caller ends them with np_comm_sum_end(). Fails only where batchnorm joins its sums with other
 * processes: the errors of np_comm_join(). */
int np_program_run(struct np_program *program, const void *images, const void *labels,
    const struct np_step_info *info, struct np_err *err);
/* Call after each change of the parameters: kernels keep weights in layouts of their own from run to
 * run. NULL: nothing. */
void np_program_weights_changed(struct np_program *program);
/* Returns a tensor's memory, valid until the next run; NULL for the batch. */
void *np_program_tensor(const struct np_program *program, int tensor);

#endif
