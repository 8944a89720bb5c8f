/* Reference pooling, forward and backward. Windows as in torch: padding counts in the average, what
 * lies beyond it with ceil_mode does not. */
#include "trainer/cpu/kernels_ref.h"

#include <math.h>

/* Finds the input pixel of element k of output (oy, ox)'s window; false: padding. */
static bool window_at(
    const struct np_window *w, struct np_nhwc x, int oy, int ox, int k, int *ret_y, int *ret_x)
{
    *ret_y = oy * w->stride_h - w->pad_h + k / w->kernel_w;
    *ret_x = ox * w->stride_w - w->pad_w + k % w->kernel_w;
    return *ret_y >= 0 && *ret_y < x.h && *ret_x >= 0 && *ret_x < x.w;
}

/* Elements of output (oy, ox)'s window that count in an average: not those beyond the padding. */
static float area_of(const struct np_window *w, struct np_nhwc x, int oy, int ox)
{
    const int bottom = x.h + w->pad_h, right = x.w + w->pad_w;
    const int top = oy * w->stride_h - w->pad_h, left = ox * w->stride_w - w->pad_w;
    const int h = top + w->kernel_h > bottom ? bottom - top : w->kernel_h;
    const int v = left + w->kernel_w > right ? right - left : w->kernel_w;

    return (float)(h * v);
}

void np_ref_pool(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    const struct np_window *w = &node->attrs.window;
    struct np_nhwc x = np_ref_shape(ref, node->ins[0]), y = np_ref_shape(ref, node->outs[0]);
    uint8_t *argmax = node->nr_outs > 1 ? run->operands->ptr[node->nr_ins + 1] : NULL;

    for (int n = run->first_row; n < run->first_row + run->nr_rows; n++)
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int c = 0; c < y.c; c++) {
                    size_t at = np_ref_at(y, n, oy, ox, c);
                    float max = -INFINITY, sum = 0;
                    int best = 0, iy, ix;

                    for (int k = 0; k < w->kernel_h * w->kernel_w; k++) {
                        if (!window_at(w, x, oy, ox, k, &iy, &ix))
                            continue;
                        const float value = np_ref_in(ref, run, 0, np_ref_at(x, n, iy, ix, c));
                        sum += value;
                        if (value > max || isnan(value)) {
                            max = value;
                            best = k;
                        }
                    }
                    np_ref_out(ref, run, 0, at,
                        node->op == NP_OP_MAXPOOL ? max : sum / area_of(w, x, oy, ox));
                    if (argmax)
                        argmax[at] = (uint8_t)best;
                }
}

/* Adds each output's gradient to its window: to the maximum, or a share to each element. */
void np_ref_pool_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const uint8_t *argmax = ref->node->op == NP_OP_MAXPOOL_DGRAD ? run->operands->ptr[1] : NULL;
    const struct np_window *w = &ref->node->attrs.window;
    struct np_nhwc x = np_ref_shape(ref, ref->node->outs[0]);
    struct np_nhwc y = np_ref_shape(ref, ref->node->ins[0]);
    float *row = run->scratch;

    for (int n = run->first_row; n < run->first_row + run->nr_rows; n++) {
        memset(row, 0, np_ref_row(x) * sizeof(float));
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int c = 0; c < y.c; c++) {
                    size_t at = np_ref_at(y, n, oy, ox, c);
                    bool passed = ref->node->nr_ins < 3 || np_ref_in(ref, run, 2, at) > 0;
                    float dy = passed ? np_ref_in(ref, run, 0, at) : 0;
                    float share = 1.0f / area_of(w, x, oy, ox);
                    int iy, ix;

                    for (int k = 0; k < w->kernel_h * w->kernel_w; k++)
                        if ((!argmax || argmax[at] == k) && window_at(w, x, oy, ox, k, &iy, &ix))
                            row[np_ref_at(x, 0, iy, ix, c)] += argmax ? dy : dy * share;
                }
        for (size_t i = 0; i < np_ref_row(x); i++)
            np_ref_out(ref, run, 0, (size_t)n * np_ref_row(x) + i, row[i]);
    }
}

void np_ref_global_avgpool(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);

    for (int n = run->first_row; n < run->first_row + run->nr_rows; n++)
        for (int c = 0; c < x.c; c++) {
            float sum = 0;

            for (int p = 0; p < x.h * x.w; p++)
                sum += np_ref_in(
                    ref, run, 0, (size_t)n * np_ref_row(x) + (size_t)p * (size_t)x.c + (size_t)c);
            np_ref_out(ref, run, 0, (size_t)n * (size_t)x.c + (size_t)c, sum / (float)(x.h * x.w));
        }
}

void np_ref_global_avgpool_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->outs[0]);
    float share = 1.0f / (float)(x.h * x.w);

    for (int n = run->first_row; n < run->first_row + run->nr_rows; n++)
        for (size_t i = 0; i < np_ref_row(x); i++)
            np_ref_out(ref, run, 0, (size_t)n * np_ref_row(x) + i,
                share * np_ref_in(ref, run, 0, (size_t)n * (size_t)x.c + i % (size_t)x.c));
}
