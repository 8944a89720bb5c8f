/* Finds the kernel for a node in the CPU's tables. */
#ifndef NP_KERNELS_FIND_H
#define NP_KERNELS_FIND_H

#include "trainer/cpu/kernels_check.h"

/* Finds the first row of the tables that supports the node; reference: only kernels_ref. */
int np_kernel_find(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    bool reference, const struct np_kernel **ret_kernel, void **ret_state,
    struct np_needs *ret_needs, struct np_err *err);

/* The same, but skips a convolution's or linear layer's kernel that gives wrong numbers for the
 * node's shape, and reports it when first found. checked: borrowed; kernels_check.h. */
int np_kernel_find_right(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    struct np_checked *checked, const struct np_kernel **ret_kernel, void **ret_state,
    struct np_needs *ret_needs, struct np_err *err);

#endif
