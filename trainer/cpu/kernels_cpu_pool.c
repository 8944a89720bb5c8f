/* Pooling, forward and backward: eight channels at a time. Max pooling stores which element of
 * the window was the maximum and routes the gradient there. */
#include "trainer/cpu/kernels_cpu.h"

#include <errno.h>
#include <math.h>

#include "trainer/cpu/simd.h"

struct windows {
    int h, w, c;      /* of the larger side */
    int out_h, out_w; /* of the smaller side */
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};

static struct windows windows_of(const struct np_cpu *cpu, bool back)
{
    const struct np_window *w = &cpu->attrs.window;

    return (struct windows){back ? cpu->out_h : cpu->h, back ? cpu->out_w : cpu->w, cpu->c,
        back ? cpu->h : cpu->out_h, back ? cpu->w : cpu->out_w, w->kernel_h, w->kernel_w,
        w->stride_h, w->stride_w, w->pad_h, w->pad_w};
}

/* One window: its origin, and its elements y0..y1, x0..x1 inside the picture. */
struct window {
    int top, left, y0, y1, x0, x1;
    float area;   /* padding counts, what lies beyond it (ceil_mode) does not */
    size_t small; /* its first channel on the smaller side */
};

static inline struct window window_at(const struct windows *g, int oy, int ox)
{
    const int top = oy * g->stride_h - g->pad_h, left = ox * g->stride_w - g->pad_w;

    const int beyond_h = top + g->kernel_h - g->h, beyond_w = left + g->kernel_w - g->w;
    const int out_h = beyond_h - g->pad_h, out_w = beyond_w - g->pad_w;

    return (struct window){top, left, top < 0 ? -top : 0,
        g->kernel_h - (beyond_h > 0 ? beyond_h : 0), left < 0 ? -left : 0,
        g->kernel_w - (beyond_w > 0 ? beyond_w : 0),
        (float)((g->kernel_h - (out_h > 0 ? out_h : 0)) * (g->kernel_w - (out_w > 0 ? out_w : 0))),
        ((size_t)oy * (size_t)g->out_w + (size_t)ox) * (size_t)g->c};
}

/* Visits the elements of window v inside the picture; NaN counts as the largest, as in torch. */
#define EACH_IN_WINDOW(visit_)                                                                     \
    for (int ky = v.y0; ky < v.y1; ky++)                                                           \
        for (int kx = v.x0; kx < v.x1; kx++) {                                                     \
            size_t at =                                                                            \
                ((size_t)(v.top + ky) * (size_t)g->w + (size_t)(v.left + kx)) * (size_t)g->c +     \
                (size_t)k;                                                                         \
            visit_                                                                                 \
        }

NP_LOOP_HALF(max_picture, (void *out, uint8_t *argmax, const void *x, const struct windows *g),
    (out, argmax, x, g))
{
    for (int oy = 0; oy < g->out_h; oy++)
        for (int ox = 0; ox < g->out_w; ox++) {
            const struct window v = window_at(g, oy, ox);
            const size_t to = v.small;
            int k = 0;

            for (; k + 8 <= g->c; k += 8) {
                np_v8 max = np_set(-INFINITY);
                np_v8i best = {0};

                EACH_IN_WINDOW({
                    np_v8 got = np_get(x, at, half);
                    np_v8i more = (got > max) | (got != got);

                    max = (np_v8)(((np_v8i)got & more) | ((np_v8i)max & ~more));
                    best = ((ky * g->kernel_w + kx) & more) | (best & ~more);
                })
                np_put(out, to + (size_t)k, half, max);
                if (argmax) {
                    np_v8b bytes = __builtin_convertvector(best, np_v8b);

                    memcpy(argmax + to + k, &bytes, sizeof(bytes));
                }
            }
            for (; k < g->c; k++) {
                float max = -INFINITY;
                int best = 0;

                EACH_IN_WINDOW({
                    float got = np_get1(x, at, half);

                    if (got > max || got != got) {
                        max = got;
                        best = ky * g->kernel_w + kx;
                    }
                })
                np_put1(out, to + (size_t)k, half, max);
                if (argmax)
                    argmax[to + (size_t)k] = (uint8_t)best;
            }
        }
}

/* dx (f32, zeroed) += dy at each window's maximum. */
NP_LOOP_HALF(max_scatter,
    (float *dx, const void *dy, const uint8_t *argmax, const struct windows *g),
    (dx, dy, argmax, g))
{
    for (int oy = 0; oy < g->out_h; oy++)
        for (int ox = 0; ox < g->out_w; ox++) {
            const struct window v = window_at(g, oy, ox);
            const size_t from = v.small;
            int k = 0;

            for (; k + 8 <= g->c; k += 8) {
                np_v8 d = np_get(dy, from + (size_t)k, half);
                np_v8b bytes;
                np_v8i best;

                memcpy(&bytes, argmax + from + k, sizeof(bytes));
                best = __builtin_convertvector(bytes, np_v8i);
                EACH_IN_WINDOW({
                    np_v8i here = best == ky * g->kernel_w + kx;

                    np_store(dx + at, np_load(dx + at) + np_mask(here, d));
                })
            }
            for (; k < g->c; k++)
                EACH_IN_WINDOW({
                    if (argmax[from + (size_t)k] == ky * g->kernel_w + kx)
                        dx[at] += np_get1(dy, from + (size_t)k, half);
                })
        }
}

/* Sums in the window's order, then one division: the reference's bits. */
NP_LOOP_HALF(mean_picture, (void *out, const void *x, const struct windows *g), (out, x, g))
{
    for (int oy = 0; oy < g->out_h; oy++)
        for (int ox = 0; ox < g->out_w; ox++) {
            const struct window v = window_at(g, oy, ox);
            const size_t to = v.small;
            int k = 0;

            for (; k + 8 <= g->c; k += 8) {
                np_v8 sum = np_zero();

                EACH_IN_WINDOW({ sum += np_get(x, at, half); })
                np_put(out, to + (size_t)k, half, sum / np_set(v.area));
            }
            for (; k < g->c; k++) {
                float sum = 0;

                EACH_IN_WINDOW({ sum += np_get1(x, at, half); })
                np_put1(out, to + (size_t)k, half, sum / v.area);
            }
        }
}

static void window_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    const struct windows g = windows_of(cpu, false);
    const size_t row = np_cpu_row(cpu), out_row = np_cpu_out_row(cpu);
    uint8_t *argmax = cpu->nr_outs > 1 ? run->operands->ptr[2] : NULL;

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++) {
        const void *x = np_cpu_at(cpu, run->operands->ptr[0], r * row);
        void *out = np_cpu_at(cpu, run->operands->ptr[1], r * out_row);

        if (cpu->op == NP_OP_MAXPOOL)
            max_picture(cpu->half, out, argmax ? argmax + r * out_row : NULL, x, &g);
        else
            mean_picture(cpu->half, out, x, &g);
    }
}

/* dx (f32, zeroed) += each window's share of dy. */
NP_LOOP_HALF(mean_scatter, (float *dx, const void *dy, const struct windows *g), (dx, dy, g))
{
    for (int oy = 0; oy < g->out_h; oy++)
        for (int ox = 0; ox < g->out_w; ox++) {
            const struct window v = window_at(g, oy, ox);
            const size_t from = v.small;
            const float share = 1.0f / v.area;
            int k = 0;

            for (; k + 8 <= g->c; k += 8) {
                np_v8 d = np_get(dy, from + (size_t)k, half) * np_set(share);

                EACH_IN_WINDOW({ np_store(dx + at, np_load(dx + at) + d); })
            }
            for (; k < g->c; k++) {
                float d = np_get1(dy, from + (size_t)k, half) * share;

                EACH_IN_WINDOW({ dx[at] += d; })
            }
        }
}

/* dx of rows of a max or average pool, summed in f32. */
static void dgrad_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    const struct windows g = windows_of(cpu, true);
    const size_t dy_row = np_cpu_row(cpu), row = np_cpu_out_row(cpu);
    const uint8_t *argmax = cpu->op == NP_OP_MAXPOOL_DGRAD ? run->operands->ptr[1] : NULL;

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++) {
        const void *dy = np_cpu_at(cpu, run->operands->ptr[0], r * dy_row);
        void *out = np_cpu_at(cpu, run->operands->ptr[cpu->nr_ins], r * row);
        float *sum = cpu->half ? run->scratch : out;

        memset(sum, 0, row * sizeof(float));
        if (argmax)
            max_scatter(cpu->half, sum, dy, argmax + r * dy_row, &g);
        else
            mean_scatter(cpu->half, sum, dy, &g);
        if (cpu->half)
            np_bf16_from_f32(out, sum, row);
    }
}

/* sum (c) = mean over n pixels of x */
NP_LOOP_HALF(mean_pixels, (float *mean, const void *x, size_t n, size_t c), (mean, x, n, c))
{
    float share = 1.0f / (float)n;
    size_t k = 0;

    for (; k + 8 <= c; k += 8) {
        np_v8 sum = np_zero();

        for (size_t p = 0; p < n; p++)
            sum += np_get(x, p * c + k, half);
        np_store(mean + k, sum * np_set(share));
    }
    for (; k < c; k++) {
        float sum = 0;

        for (size_t p = 0; p < n; p++)
            sum += np_get1(x, p * c + k, half);
        mean[k] = sum * share;
    }
}

static void global_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    size_t pixels = (size_t)(cpu->h * cpu->w), c = (size_t)cpu->c;

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++) {
        void *y = np_cpu_at(cpu, run->operands->ptr[1], r * c);
        float *mean = cpu->half ? run->scratch : y;

        mean_pixels(
            cpu->half, mean, np_cpu_at(cpu, run->operands->ptr[0], r * pixels * c), pixels, c);
        if (cpu->half)
            np_bf16_from_f32(y, mean, c);
    }
}

static void global_dgrad_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    size_t pixels = (size_t)(cpu->out_h * cpu->out_w), c = (size_t)cpu->c;
    size_t bytes = c * (cpu->half ? sizeof(uint16_t) : sizeof(float));
    float share = 1.0f / (float)pixels;

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++) {
        void *dx = np_cpu_at(cpu, run->operands->ptr[1], r * pixels * c);
        const void *dy = np_cpu_at(cpu, run->operands->ptr[0], r * c);

        for (size_t k = 0; k < c; k++)
            np_put1(dx, k, cpu->half, np_get1(dy, k, cpu->half) * share);
        for (size_t p = 1; p < pixels; p++)
            memcpy((char *)dx + p * bytes, dx, bytes);
    }
}

static int pool_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    int code;

    if (node->attrs.relu) /* np_fusions.relu_pool */
        return -ENOTSUP;
    code = np_cpu_prepare(graph, node, max_rows, ret_state, ret_needs, err);
    if (code == 0) { /* a picture in f32; sums are rounded to bf16 at the end */
        struct np_cpu *cpu = *ret_state;

        ret_needs->scratch_bytes = cpu->half ? np_cpu_out_row(cpu) * sizeof(float) : 0;
    }
    return code;
}

const struct np_kernel np_kernels_pool[] = {
    NP_KERNEL_ROWS("cpu maxpool", NP_OP_MAXPOOL, pool_prepare, NULL, window_run, NULL),
    NP_KERNEL_ROWS("cpu maxpool_dgrad", NP_OP_MAXPOOL_DGRAD, pool_prepare, NULL, dgrad_run, NULL),
    NP_KERNEL_ROWS("cpu avgpool", NP_OP_AVGPOOL, pool_prepare, NULL, window_run, NULL),
    NP_KERNEL_ROWS("cpu avgpool_dgrad", NP_OP_AVGPOOL_DGRAD, pool_prepare, NULL, dgrad_run, NULL),
    NP_KERNEL_ROWS(
        "cpu global_avgpool", NP_OP_GLOBAL_AVGPOOL, pool_prepare, NULL, global_run, NULL),
    NP_KERNEL_ROWS("cpu global_avgpool_dgrad", NP_OP_GLOBAL_AVGPOOL_DGRAD, pool_prepare, NULL,
        global_dgrad_run, NULL),
    {NULL},
};
