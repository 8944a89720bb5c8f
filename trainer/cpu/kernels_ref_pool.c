/* Reference pooling, forward and backward. Windows as in torch: floor, padding counts in the
 * average. */
#include "trainer/cpu/kernels_ref.h"

#include <math.h>

static void *operand(const struct np_ref *ref, const struct np_run *run, int out)
{
    return run->operands->ptr[ref->node->nr_ins + out];
}

/* Finds the input pixel of element k of output (oy, ox)'s window; false: padding. */
static bool window_at(
    const struct np_window *w, struct np_nhwc x, int oy, int ox, int k, int *ret_y, int *ret_x)
{
    *ret_y = oy * w->stride - w->pad + k / w->kernel_w;
    *ret_x = ox * w->stride - w->pad + k % w->kernel_w;
    return *ret_y >= 0 && *ret_y < x.h && *ret_x >= 0 && *ret_x < x.w;
}

void np_ref_maxpool(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_window *w = &ref->node->attrs.window;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    struct np_nhwc y = np_ref_shape(ref, ref->node->outs[0]);
    uint8_t *argmax = ref->node->nr_outs > 1 ? operand(ref, run, 1) : NULL;

    for (int n = run->first_row; n < run->first_row + run->nr_rows; n++)
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int c = 0; c < y.c; c++) {
                    float max = -INFINITY;
                    size_t at = np_ref_at(y, n, oy, ox, c);
                    int best = 0, iy, ix;

                    for (int k = 0; k < w->kernel_h * w->kernel_w; k++) {
                        float value;

                        if (!window_at(w, x, oy, ox, k, &iy, &ix))
                            continue;
                        value = np_ref_get(
                            run->operands->ptr[0], ref->dtype, np_ref_at(x, n, iy, ix, c));
                        if (value > max || isnan(value)) {
                            max = value;
                            best = k;
                        }
                    }
                    np_ref_put(operand(ref, run, 0), ref->dtype, at, max);
                    if (argmax)
                        argmax[at] = (uint8_t)best;
                }
}

/* Adds each output's gradient to element k of its window; share(k, at) of dy. */
static void scatter(struct np_ref *ref, const struct np_run *run, const uint8_t *argmax)
{
    const struct np_window *w = &ref->node->attrs.window;
    struct np_nhwc x = np_ref_shape(ref, ref->node->outs[0]);
    struct np_nhwc y = np_ref_shape(ref, ref->node->ins[0]);
    float share = 1.0f / (float)(w->kernel_h * w->kernel_w);
    float *row = run->scratch;

    for (int n = run->first_row; n < run->first_row + run->nr_rows; n++) {
        memset(row, 0, np_ref_row(x) * sizeof(float));
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int c = 0; c < y.c; c++) {
                    size_t at = np_ref_at(y, n, oy, ox, c);
                    float dy = np_ref_get(run->operands->ptr[0], ref->dtype, at);
                    int iy, ix;

                    for (int k = 0; k < w->kernel_h * w->kernel_w; k++)
                        if ((!argmax || argmax[at] == k) && window_at(w, x, oy, ox, k, &iy, &ix))
                            row[np_ref_at(x, 0, iy, ix, c)] += argmax ? dy : dy * share;
                }
        for (size_t i = 0; i < np_ref_row(x); i++)
            np_ref_put(operand(ref, run, 0), ref->dtype, (size_t)n * np_ref_row(x) + i, row[i]);
    }
}

void np_ref_maxpool_dgrad(void *state, const struct np_run *run)
{
    scatter(state, run, run->operands->ptr[1]);
}

void np_ref_avgpool_dgrad(void *state, const struct np_run *run)
{
    scatter(state, run, NULL);
}

void np_ref_avgpool(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_window *w = &ref->node->attrs.window;
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);
    struct np_nhwc y = np_ref_shape(ref, ref->node->outs[0]);

    for (int n = run->first_row; n < run->first_row + run->nr_rows; n++)
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int c = 0; c < y.c; c++) {
                    float sum = 0;
                    int iy, ix;

                    for (int k = 0; k < w->kernel_h * w->kernel_w; k++)
                        if (window_at(w, x, oy, ox, k, &iy, &ix))
                            sum += np_ref_get(
                                run->operands->ptr[0], ref->dtype, np_ref_at(x, n, iy, ix, c));
                    np_ref_put(operand(ref, run, 0), ref->dtype, np_ref_at(y, n, oy, ox, c),
                        sum / (float)(w->kernel_h * w->kernel_w));
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
                sum += np_ref_get(run->operands->ptr[0], ref->dtype,
                    (size_t)n * np_ref_row(x) + (size_t)p * (size_t)x.c + (size_t)c);
            np_ref_put(operand(ref, run, 0), ref->dtype, (size_t)n * (size_t)x.c + (size_t)c,
                sum / (float)(x.h * x.w));
        }
}

void np_ref_global_avgpool_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_nhwc x = np_ref_shape(ref, ref->node->outs[0]);
    float share = 1.0f / (float)(x.h * x.w);

    for (int n = run->first_row; n < run->first_row + run->nr_rows; n++)
        for (size_t i = 0; i < np_ref_row(x); i++)
            np_ref_put(operand(ref, run, 0), ref->dtype, (size_t)n * np_ref_row(x) + i,
                share * np_ref_get(run->operands->ptr[0], ref->dtype,
                            (size_t)n * (size_t)x.c + i % (size_t)x.c));
}
