/* Adaptive average pool, upsampling and blur (resample.h), forward and backward: a row is summed in f32,
 * all channels of a pixel at a time. Any pool thread, each its own lane. */
#include "trainer/cpu/kernels_cpu.h"
#include "trainer/cpu/simd.h"

/* sum (n, f32) += weight * x (n) */
NP_LOOP_HALF(add_weighted, (float *sum, const void *x, size_t n, float weight), (sum, x, n, weight))
{
    size_t k = 0;

    for (; k + 8 <= n; k += 8)
        np_store(sum + k, np_load(sum + k) + np_get(x, k, half) * np_set(weight));
    for (; k < n; k++)
        sum[k] += np_get1(x, k, half) * weight;
}

struct side { /* of the large picture, which forward reads, and of the small one */
    int h, w;
};

/* sums: of the picture that is written; from: the other one. */
static void add_row(const struct np_cpu *cpu, float *sums, void *from)
{
    const bool back = cpu->op == NP_OP_RESAMPLE_DGRAD;
    const struct side ins = {cpu->h, cpu->w}, outs = {cpu->out_h, cpu->out_w};
    const struct side x = back ? outs : ins, y = back ? ins : outs;
    const int mode = (int)cpu->attrs.resample;
    const size_t c = (size_t)cpu->c;

    for (int oy = 0; oy < y.h; oy++)
        for (int ox = 0; ox < y.w; ox++) {
            const struct np_blend down = np_resample_blend(mode, oy, x.h, y.h);
            const struct np_blend along = np_resample_blend(mode, ox, x.w, y.w);
            const size_t out = ((size_t)oy * (size_t)y.w + (size_t)ox) * c;

            for (int i = 0; i < down.count * along.count; i++) {
                const int ix = along.first + i % along.count, iy = down.first + i / along.count;
                const float weight = np_blend_weight(down, iy) * np_blend_weight(along, ix);
                const size_t in = ((size_t)iy * (size_t)x.w + (size_t)ix) * c;

                add_weighted(cpu->half, sums + (back ? in : out),
                    np_cpu_at(cpu, from, back ? out : in), c, weight);
            }
        }
}

static void resample_run(void *state, const struct np_run *run)
{
    const struct np_cpu *cpu = state;
    const size_t row = np_cpu_row(cpu), out_row = np_cpu_out_row(cpu);

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++) {
        void *out = np_cpu_at(cpu, run->operands->ptr[1], r * out_row);
        float *sums = cpu->half ? run->scratch : out;

        memset(sums, 0, out_row * sizeof(float));
        add_row(cpu, sums, np_cpu_at(cpu, run->operands->ptr[0], r * row));
        if (cpu->half)
            np_bf16_from_f32(out, sums, out_row);
    }
}

static int resample_prepare(const struct np_graph *graph, const struct np_op_node *node,
    int max_rows, void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    int code = np_cpu_prepare(graph, node, max_rows, ret_state, ret_needs, err);

    if (code == 0) { /* a picture in f32; sums are rounded to bf16 at the end */
        const struct np_cpu *cpu = *ret_state;

        ret_needs->scratch_bytes = cpu->half ? np_cpu_out_row(cpu) * sizeof(float) : 0;
    }
    return code;
}

const struct np_kernel np_kernels_resample[] = {
    NP_KERNEL_ROWS("cpu resample", NP_OP_RESAMPLE, resample_prepare, NULL, resample_run, NULL),
    NP_KERNEL_ROWS(
        "cpu resample_dgrad", NP_OP_RESAMPLE_DGRAD, resample_prepare, NULL, resample_run, NULL),
    {NULL},
};
