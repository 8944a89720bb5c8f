/* Checks the kernels of convolutions and linear layers against plain sums before a plan uses
 * them: a library's kernel may be silently wrong for some shapes on some CPUs.
 * np_kernel_find() skips such kernels. Internal to the CPU device. */
#ifndef NP_KERNELS_CHECK_H
#define NP_KERNELS_CHECK_H

#include "trainer/cpu/kernels.h"
#include "trainer/plan.h"

/* Memory that checks reuse; the caller zeroes it before the first check. */
struct np_check_room {
    void *arrays, *kernel;
    size_t arrays_bytes, kernel_bytes;
};

/* True for CONV, LINEAR and their gradients: the operations that are checked. */
bool np_kernel_checkable(enum np_op op);
/* Runs the kernel for this node on random rows, at most max_rows at a time, and compares every
 * output element with plain sums. *ret_error: the largest difference, relative to such a sum's
 * typical size; NaN if the kernel gives one. -ENOTSUP: the kernel does not support the node. */
int np_kernel_error(const struct np_kernel *kernel, const struct np_graph *graph,
    const struct np_op_node *node, int max_rows, struct np_check_room *room, double *ret_error,
    struct np_err *err);
void np_check_room_fini(struct np_check_room *room);
#define NP_KERNEL_ERROR 1e-3 /* maximum of a correct kernel */

/* The checked kernels and shapes, and their verdicts. One thread. */
struct np_checked;
/* options->state: the result of np_checked_state() when the run began (NULL: a new run). With the
 * same oneDNN and vectors nothing is checked again, so that a resumed run uses the same kernels;
 * otherwise wrong kernels stay excluded and the others are checked again. */
struct np_checked *np_checked_new(const struct np_plan_options *options);
void np_checked_free(struct np_checked *checked);
/* Returns 1 if the kernel may be used for this node, else 0; checks it if the result is not known
 * yet. *ret_found: this call found it wrong. -ENOTSUP as above, or another negative errno with err
 * filled. */
int np_checked_usable(struct np_checked *checked, const struct np_kernel *kernel,
    const struct np_graph *graph, const struct np_op_node *node, int max_rows, bool *ret_found,
    struct np_err *err);
/* Frees the checks' memory; call it when the plan has its kernels. */
void np_checked_settle(struct np_checked *checked);
/* Reports through options->note that `instead` replaces the kernel `wrong` for this layer. */
void np_checked_report(const struct np_checked *checked, const struct np_op_node *node,
    const struct np_kernel *wrong, const struct np_kernel *instead);
/* Returns a line with oneDNN's version and vectors, then a line per wrong kernel. np_free. */
char *np_checked_state(const struct np_checked *checked);

/* A kernel prepared for a node. The caller frees it with kernel->free(state). */
struct np_prepared {
    const struct np_kernel *kernel; /* NULL: not found */
    void *state;
    struct np_needs needs;
};
/* Prepares the first row of the lists that supports the node; reference: of np_kernels_ref alone.
 * checked: skips a convolution's or linear layer's kernel with wrong results for the node's shape,
 * and reports it through options->note when it finds it; NULL: nothing is checked. */
int np_kernel_find(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    bool reference, struct np_checked *checked, struct np_prepared *ret_prepared,
    struct np_err *err);

#endif
