/* Reference adaptive average pool, upsampling and blur, forward and backward: sums over the inputs of each
 * output's blend (resample.h). */
#include "trainer/cpu/kernels_ref.h"

/* Calls visit for each input of each output of a row, with the product of the two weights. */
static void each_term(const struct np_ref *ref, struct np_nhwc x, struct np_nhwc y,
    void (*visit)(void *context, size_t in, size_t out, float weight), void *context)
{
    const int mode = (int)ref->node->attrs.resample;

    for (int oy = 0; oy < y.h; oy++)
        for (int ox = 0; ox < y.w; ox++) {
            const struct np_blend down = np_resample_blend(mode, oy, x.h, y.h);
            const struct np_blend along = np_resample_blend(mode, ox, x.w, y.w);

            for (int i = 0; i < down.count * along.count; i++) {
                const int ix = along.first + i % along.count, iy = down.first + i / along.count;
                const float weight = np_blend_weight(down, iy) * np_blend_weight(along, ix);

                for (int c = 0; c < x.c; c++)
                    visit(context, np_ref_at(x, 0, iy, ix, c), np_ref_at(y, 0, oy, ox, c), weight);
            }
        }
}

struct row {
    const struct np_ref *ref;
    const struct np_run *run;
    size_t from; /* first element of the operand's row */
    float *sums;
};

static void gather(void *context, size_t in, size_t out, float weight)
{
    const struct row *row = context;

    row->sums[out] += weight * np_ref_in(row->ref, row->run, 0, row->from + in);
}

static void scatter(void *context, size_t in, size_t out, float weight)
{
    const struct row *row = context;

    row->sums[in] += weight * np_ref_in(row->ref, row->run, 0, row->from + out);
}

void np_ref_resample(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const bool back = ref->node->op == NP_OP_RESAMPLE_DGRAD;
    const struct np_nhwc from = np_ref_shape(ref, ref->node->ins[0]);
    const struct np_nhwc to = np_ref_shape(ref, ref->node->outs[0]);
    const size_t n = np_ref_row(to);
    struct row row = {ref, run, 0, run->scratch};

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        row.from = (size_t)r * np_ref_row(from);
        memset(row.sums, 0, n * sizeof(float));
        each_term(ref, back ? to : from, back ? from : to, back ? scatter : gather, &row);
        for (size_t i = 0; i < n; i++)
            np_ref_out(ref, run, 0, (size_t)r * n + i, row.sums[i]);
    }
}
