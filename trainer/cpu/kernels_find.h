/* Finds the kernel for a node in the CPU's tables. */
#ifndef NP_KERNELS_FIND_H
#define NP_KERNELS_FIND_H

#include "trainer/cpu/kernels_check.h"

/* First row of the tables that takes the node; `reference` asks kernels_ref alone. */
int np_kernel_find(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    bool reference, const struct np_kernel **ret_kernel, void **ret_state,
    struct np_needs *ret_needs, struct np_err *err);

/* The same, but a convolution's or linear layer's kernel that gives wrong numbers for the node's shape is
 * passed over, and that is said when it is found. checked: borrowed; kernels_check.h. */
int np_kernel_find_right(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    struct np_checked *checked, const struct np_kernel **ret_kernel, void **ret_state,
    struct np_needs *ret_needs, struct np_err *err);

#endif
