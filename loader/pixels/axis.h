/* The source pixels and weights of one position of an axis. Inline, for the loader (C) and for a
 * device that makes rows itself (C++, CUDA). Keep the order of operations in each expression, and
 * let no compiler contract them to a fused multiply-add: another rounding gives other bytes than
 * Pillow's. */
#ifndef NP_AXIS_H
#define NP_AXIS_H

#include <math.h>

#include "loader/batch.h"

#ifdef __CUDACC__
#define NP_AXIS static __host__ __device__ inline
#else
#define NP_AXIS static inline
#endif

#define NP_RESIZE_BITS 22 /* fraction bits of a weight */

/* A geometry along x or y. Source positions count from the box. */
struct np_axis {
    int box, scaled;      /* lengths in pixels */
    int window, window_n; /* may exceed the scaled picture */
    int shown, shown_n;
    enum np_border border;
    enum np_filter filter;
};

NP_AXIS bool np_filter_is_nearest(int filter)
{
    return filter == NP_FILTER_NEAREST || filter == NP_FILTER_NEAREST_FLIPPED;
}

NP_AXIS struct np_axis np_axis_across(const struct np_geometry *g)
{
    const bool all = g->shown_w == 0 || g->shown_h == 0;
    const struct np_axis axis = {g->right - g->left, g->scaled_w, g->window_x, g->window_w,
        all ? 0 : g->shown_x, all ? g->scaled_w : g->shown_w, (enum np_border)g->border,
        (enum np_filter)g->filter};

    return axis;
}

NP_AXIS struct np_axis np_axis_down(const struct np_geometry *g)
{
    const bool all = g->shown_w == 0 || g->shown_h == 0;
    const struct np_axis axis = {g->bottom - g->top, g->scaled_h, g->window_y, g->window_h,
        all ? 0 : g->shown_y, all ? g->scaled_h : g->shown_h, (enum np_border)g->border,
        g->filter == NP_FILTER_NEAREST_FLIPPED ? NP_FILTER_NEAREST : (enum np_filter)g->filter};

    return axis;
}

/* The scaled position, inside `shown`, of a window position's pixel; -1 for a zero border.
 * Reflection does not repeat the edge pixel. */
NP_AXIS int np_axis_place(const struct np_axis *axis, int position)
{
    const int n = axis->shown_n;
    int at = position - axis->shown;

    if (at >= 0 && at < n)
        return position;
    if (axis->border == NP_BORDER_ZERO)
        return -1;
    if (n == 1)
        return axis->shown;
    at = (at < 0 ? -at : at) % (2 * (n - 1));
    return axis->shown + (at < n ? at : 2 * (n - 1) - at);
}

/* Adds the step repeatedly instead of multiplying, as Pillow does. */
NP_AXIS int np_axis_nearest_at(const struct np_axis *axis, int position)
{
    const double step = (double)axis->box / axis->scaled;
    const bool flipped = axis->filter == NP_FILTER_NEAREST_FLIPPED;
    double at = step * 0.5;
    int source;

    for (int i = 0; i < (flipped ? axis->scaled - 1 - position : position); i++)
        at += step;
    source = (int)at < axis->box ? (int)at : axis->box - 1;
    return flipped ? axis->box - 1 - source : source;
}

/* --- weights ------------------------------------------------------------------------------- */

struct np_reach {
    double scale, filter_scale, support;
};

NP_AXIS struct np_reach np_axis_reach(const struct np_axis *axis)
{
    struct np_reach reach;

    reach.scale = (double)axis->box / axis->scaled;
    reach.filter_scale = reach.scale < 1.0 ? 1.0 : reach.scale;
    reach.support = (axis->filter == NP_FILTER_BICUBIC ? 2.0 : 1.0) * reach.filter_scale;
    return reach;
}

NP_AXIS void np_axis_bounds(const struct np_axis *axis, const struct np_reach *reach, double center,
    int *ret_start, int *ret_end)
{
    const int start = (int)(center - reach->support + 0.5);
    const int end = (int)(center + reach->support + 0.5);

    *ret_start = start < 0 ? 0 : start;
    *ret_end = end > axis->box ? axis->box : end;
}

NP_AXIS double np_axis_triangle(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Keys, "Cubic convolution interpolation for digital image processing", IEEE ASSP 29 (1981),
 * equation 4 with a = -1/2. */
NP_AXIS double np_axis_cubic(double x)
{
    const double a = -0.5;

    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

/* The weights of one scaled position: sources start..end-1. */
struct np_position {
    double center, inverse, sum;
    int start, end;
};

NP_AXIS double np_axis_raw_weight(
    const struct np_axis *axis, const struct np_position *position, int k)
{
    const double x = (k + position->start - position->center + 0.5) * position->inverse;

    return axis->filter == NP_FILTER_BICUBIC ? np_axis_cubic(x) : np_axis_triangle(x);
}

/* Sets all but `sum`: the caller adds the raw weights in order. */
NP_AXIS struct np_position np_axis_position(
    const struct np_axis *axis, const struct np_reach *reach, int position)
{
    struct np_position at;

    at.center = (position + 0.5) * reach->scale;
    at.inverse = 1.0 / reach->filter_scale;
    at.sum = 0.0;
    np_axis_bounds(axis, reach, at.center, &at.start, &at.end);
    return at;
}

/* Fixed point with NP_RESIZE_BITS. */
NP_AXIS int32_t np_axis_weight(const struct np_position *position, double raw)
{
    const double w = position->sum != 0.0 ? raw / position->sum : raw;

    return (int32_t)((w < 0 ? -0.5 : 0.5) + w * (1 << NP_RESIZE_BITS));
}

#endif
