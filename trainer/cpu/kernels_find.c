/* See kernels_find.h. Any thread. */
#include "trainer/cpu/kernels_find.h"

#include <errno.h>

/* Returns the dtype that selects the row: that of the node's activations. */
static enum np_dtype dtype_of(const struct np_graph *graph, const struct np_op_node *node)
{
    for (int i = 0; i < node->nr_ins + node->nr_outs; i++) {
        int t = i < node->nr_ins ? node->ins[i] : node->outs[i - node->nr_ins];

        if (t >= 0 && graph->tensors[t].role == NP_ROLE_ACTIVATION)
            return graph->tensors[t].dtype;
    }
    return NP_F32;
}

/* Tables in order of preference; the reference supports every node. */
static const struct np_kernel *const *const tables[] = {
    np_kernels_cpu, np_kernels_onednn, np_kernels_ref};
enum { REFERENCE = 2, NR_TABLES };

/* checked NULL: nothing is checked. *ret_wrong: a row that was found wrong. */
static int find(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    int first_table, struct np_checked *checked, const struct np_kernel **ret_kernel,
    const struct np_kernel **ret_wrong, void **ret_state, struct np_needs *ret_needs,
    struct np_err *err)
{
    enum np_dtype dtype = dtype_of(graph, node);

    for (int t = first_table; t < NR_TABLES; t++)
        for (const struct np_kernel *const *row = tables[t]; *row; row++) {
            int code = 1;
            bool found = false;

            if ((*row)->op != node->op || (*row)->dtype != dtype)
                continue;
            if (checked && t < REFERENCE && np_kernel_checkable(node->op))
                code = np_checked_usable(checked, *row, graph, node, max_rows, &found, err);
            if (found)
                *ret_wrong = *row;
            if (code > 0)
                code = (*row)->prepare(graph, node, max_rows, ret_state, ret_needs, err);
            else if (code == 0)
                continue;
            if (code == -ENOTSUP)
                continue;
            *ret_kernel = code == 0 ? *row : NULL;
            return code;
        }
    return np_err_set(err, -ENOTSUP, "the CPU has no kernel for %s in %s", np_op_names[node->op],
        dtype == NP_F32    ? "f32"
        : dtype == NP_BF16 ? "bf16"
                           : "f16");
}

int np_kernel_find(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    bool reference, const struct np_kernel **ret_kernel, void **ret_state,
    struct np_needs *ret_needs, struct np_err *err)
{
    return find(graph, node, max_rows, reference ? REFERENCE : 0, NULL, ret_kernel, NULL, ret_state,
        ret_needs, err);
}

int np_kernel_find_right(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    struct np_checked *checked, const struct np_kernel **ret_kernel, void **ret_state,
    struct np_needs *ret_needs, struct np_err *err)
{
    const struct np_kernel *wrong = NULL;
    int code =
        find(graph, node, max_rows, 0, checked, ret_kernel, &wrong, ret_state, ret_needs, err);

    if (code == 0 && wrong)
        np_checked_say(checked, node, wrong, *ret_kernel);
    return code;
}
