/* Finding a kernel for a node, and bf16. Any thread. */
#include "trainer/kernels.h"

#include <errno.h>

#include "trainer/simd.h"

/* The dtype that decides the row: of the activations the node works on. */
static enum np_dtype dtype_of(const struct np_graph *graph, const struct np_op_node *node)
{
    for (int i = 0; i < node->nr_ins + node->nr_outs; i++) {
        int t = i < node->nr_ins ? node->ins[i] : node->outs[i - node->nr_ins];

        if (t >= 0 && graph->tensors[t].role == NP_ROLE_ACTIVATION)
            return graph->tensors[t].dtype;
    }
    return NP_F32;
}

int np_kernel_find(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    bool reference, const struct np_kernel **ret_kernel, void **ret_state,
    struct np_needs *ret_needs, struct np_err *err)
{
    const struct np_kernel *const *const tables[] = {
        np_kernels_cpu, np_kernels_onednn, np_kernels_ref};
    enum np_dtype dtype = dtype_of(graph, node);

    for (int t = reference ? 2 : 0; t < 3; t++)
        for (const struct np_kernel *const *row = tables[t]; *row; row++) {
            int code;

            if ((*row)->op != node->op || (*row)->dtype != dtype)
                continue;
            code = (*row)->prepare(graph, node, max_rows, ret_state, ret_needs, err);
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

/* Round to nearest, ties to even; a NaN stays one. */
NP_LOOP(bf16_from_f32, (uint16_t * out, const float *in, size_t n), (out, in, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_store_bf16(out + i, np_load(in + i));
    for (; i < n; i++)
        out[i] = np_to_bf16(in[i]);
}

NP_LOOP(f32_from_bf16, (float *out, const uint16_t *in, size_t n), (out, in, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_store(out + i, np_load_bf16(in + i));
    for (; i < n; i++)
        out[i] = np_from_bf16(in[i]);
}

void np_bf16_from_f32(uint16_t *out, const float *in, size_t n)
{
    bf16_from_f32(out, in, n);
}

void np_f32_from_bf16(float *out, const uint16_t *in, size_t n)
{
    f32_from_bf16(out, in, n);
}
