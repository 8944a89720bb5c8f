/* Holds the kernels of convolutions and linear layers against plain sums before a plan uses them: a
 * library's kernel may be wrong for some shapes on some CPUs, silently. Kernels found wrong are passed
 * over by np_kernel_find_right(). Internal to the CPU device. */
#ifndef NP_KERNELS_CHECK_H
#define NP_KERNELS_CHECK_H

#include "trainer/cpu/kernels.h"
#include "trainer/plan.h"

/* Memory that one check leaves to the next; zeroed before the first. */
struct np_check_room {
    void *arrays, *kernel;
    size_t arrays_bytes, kernel_bytes;
};

/* Is the operation one that is checked? CONV, LINEAR and their gradients. */
bool np_kernel_checkable(enum np_op op);
/* Runs the kernel for this node on made-up rows, at most max_rows of them at a time, and holds every
 * element of its output against plain sums. *ret_error: the largest difference, as a share of what such
 * a sum typically is; NaN where the kernel gives one. -ENOTSUP: the kernel does not take the node. */
int np_kernel_error(const struct np_kernel *kernel, const struct np_graph *graph,
    const struct np_op_node *node, int max_rows, struct np_check_room *room, double *ret_error,
    struct np_err *err);
void np_check_room_fini(struct np_check_room *room);
#define NP_KERNEL_ERROR 1e-3 /* at most, of a right kernel */

/* The kernels and shapes that were checked, and which of them are wrong. One thread. */
struct np_checked;
/* options->state: what np_checked_state() gave when the run began (NULL: a new run). With the same
 * oneDNN and the same vectors nothing is checked again, so that a resumed run uses the same kernels;
 * else what was wrong stays so and the rest is checked anew. */
struct np_checked *np_checked_new(const struct np_plan_options *options);
void np_checked_free(struct np_checked *checked);
/* May the kernel be used for this node? Checks it where that is not known yet. *ret_found: it was just
 * found wrong. Returns 1, 0, -ENOTSUP as above, or another negative errno with err filled. */
int np_checked_usable(struct np_checked *checked, const struct np_kernel *kernel,
    const struct np_graph *graph, const struct np_op_node *node, int max_rows, bool *ret_found,
    struct np_err *err);
/* The plan has its kernels: memory that checks left is given back. */
void np_checked_settle(struct np_checked *checked);
/* Says through options->note that `wrong` is not used for this layer, and which kernel is. */
void np_checked_say(const struct np_checked *checked, const struct np_op_node *node,
    const struct np_kernel *wrong, const struct np_kernel *instead);
/* A line on what was checked with, then a line a wrong kernel. np_free. */
char *np_checked_state(const struct np_checked *checked);

#endif
