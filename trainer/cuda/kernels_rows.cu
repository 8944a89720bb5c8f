/* Makes rows of a batch from pictures in the GPU's memory: crop, scale, window, border and flip
 * by each row's geometry, byte for byte as loader/pixels/resize.c, so that a run's weights do
 * not depend on the place of its pictures. One thread per pixel. Compiled without contraction to
 * fused multiply-adds (Makefile), see axis.h. */
#include "loader/pixels/axis.h"
#include "trainer/cuda/kernels_half.cuh"

#define NP_KEPT_WEIGHTS                                                                            \
    16 /* first pass: enough for a scale of 7.5 with triangle; beyond, computed for each line */

/* One axis of the current pixel. */
struct np_side {
    struct np_axis axis;
    struct np_position at;
};

static __device__ inline void np_side_sum(struct np_side *side)
{
    for (int k = 0; k < side->at.end - side->at.start; k++)
        side->at.sum += np_axis_raw_weight(&side->axis, &side->at, k);
}

static __device__ inline struct np_side np_side_of(struct np_axis axis, int position)
{
    const struct np_reach reach = np_axis_reach(&axis);
    struct np_side side = {axis, np_axis_position(&axis, &reach, position)};

    if (axis.box == axis.scaled) { /* not scaled along this axis: one pixel, all of it */
        side.at.start = position;
        side.at.end = position + 1;
    } else {
        np_side_sum(&side);
    }
    return side;
}

static __device__ inline int32_t np_side_weight(const struct np_side *side, int k)
{
    return np_axis_weight(&side->at, np_axis_raw_weight(&side->axis, &side->at, k));
}

static __device__ inline int np_clip(int32_t sum)
{
    sum >>= NP_RESIZE_BITS;
    return sum < 0 ? 0 : sum > 255 ? 255 : sum;
}

/* The two passes for one pixel, a byte between them. `in` is the axis of the first pass, and bytes
 * lie in_step apart along it; `from` is the box's first pixel. */
static __device__ void np_scale_pixel(const struct np_side *in, uint64_t in_step,
    const struct np_side *out, uint64_t out_step, const uint8_t *from, int c, uint8_t *to)
{
    const bool first = in->axis.box != in->axis.scaled, second = out->axis.box != out->axis.scaled;
    const int nr_in = in->at.end - in->at.start, nr_out = out->at.end - out->at.start;
    int32_t kept[NP_KEPT_WEIGHTS], sums[4];

    for (int k = 0; first && k < nr_in && k < NP_KEPT_WEIGHTS; k++)
        kept[k] = np_side_weight(in, k);
    for (int i = 0; i < c; i++)
        sums[i] = 1 << (NP_RESIZE_BITS - 1);
    for (int l = 0; l < nr_out; l++) {
        const uint8_t *line =
            from + (uint64_t)(out->at.start + l) * out_step + (uint64_t)in->at.start * in_step;
        const int32_t weight = second ? np_side_weight(out, l) : 0;
        int32_t parts[4];

        for (int i = 0; i < c; i++)
            parts[i] = 1 << (NP_RESIZE_BITS - 1);
        for (int k = 0; first && k < nr_in; k++) {
            const int32_t part = k < NP_KEPT_WEIGHTS ? kept[k] : np_side_weight(in, k);

            for (int i = 0; i < c; i++)
                parts[i] += line[k * in_step + i] * part;
        }
        for (int i = 0; i < c; i++) {
            const int byte = first ? np_clip(parts[i]) : line[i];

            if (second)
                sums[i] += byte * weight;
            else
                to[i] = (uint8_t)byte;
        }
    }
    for (int i = 0; second && i < c; i++)
        to[i] = (uint8_t)np_clip(sums[i]);
}

/* Position (x, y) of the row, flip undone. */
static __device__ void np_row_pixel(
    const struct np_row *row, const uint8_t *picture, int x, int y, int c, uint8_t *to)
{
    const struct np_geometry *g = &row->geometry;
    const struct np_axis across = np_axis_across(g), down = np_axis_down(g);
    const uint64_t stride = (uint64_t)row->source_w * c;
    const uint8_t *box = picture + g->top * stride + (uint64_t)g->left * c;
    const int at_x = np_axis_place(&across, across.window + x);
    const int at_y = np_axis_place(&down, down.window + y);

    if (at_x < 0 || at_y < 0) {
        for (int i = 0; i < c; i++)
            to[i] = 0;
        return;
    }
    if (across.box == across.scaled && down.box == down.scaled) {
        for (int i = 0; i < c; i++)
            to[i] = box[at_y * stride + (uint64_t)at_x * c + i];
    } else if (np_filter_is_nearest(g->filter)) {
        const int from_x = np_axis_nearest_at(&across, at_x);
        const int from_y = np_axis_nearest_at(&down, at_y);

        for (int i = 0; i < c; i++)
            to[i] = box[from_y * stride + (uint64_t)from_x * c + i];
    } else {
        const struct np_side side_x = np_side_of(across, at_x), side_y = np_side_of(down, at_y);

        if (g->down_first)
            np_scale_pixel(&side_y, stride, &side_x, (uint64_t)c, box, c, to);
        else
            np_scale_pixel(&side_x, (uint64_t)c, &side_y, stride, box, c, to);
    }
}

static __global__ void make_rows(const struct np_row *rows, int h, int w, int c,
    const uint8_t *arena, uint8_t *images, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        const struct np_row *row = &rows[i / ((uint64_t)h * w)];
        const int at = (int)(i % ((uint64_t)h * w)), x = at % w, y = at / w;
        uint8_t *to = images + i * c;

        if (row->sample == UINT64_MAX)
            for (int k = 0; k < c; k++)
                to[k] = 0;
        else if (row->resident != NP_NOT_RESIDENT)
            np_row_pixel(row, arena + row->resident, row->geometry.flip ? w - 1 - x : x, y, c, to);
    }
}

extern "C" void np_cuda_make_rows(void *stream, const struct np_row *rows, int n, int h, int w,
    int c, const uint8_t *arena, uint8_t *images)
{
    const uint64_t all = (uint64_t)n * h * w;

    NP_LAUNCH(make_rows, np_blocks(all), NP_THREADS, 0, stream, rows, h, w, c, arena, images, all);
}
