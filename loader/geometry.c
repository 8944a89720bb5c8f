/* Spans and weights of a geometry. Pure, any thread. Every expression keeps the order of its
 * operations: another order rounds differently, and then bytes differ from Pillow's. */
#include "loader/geometry.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

void np_geometry_axes(const struct np_geometry *g, struct np_axis *ret_x, struct np_axis *ret_y)
{
    bool all = g->shown_w == 0 || g->shown_h == 0;

    *ret_x = (struct np_axis){g->right - g->left, g->scaled_w, g->window_x, g->window_w,
        all ? 0 : g->shown_x, all ? g->scaled_w : g->shown_w, g->border, g->filter};
    *ret_y = (struct np_axis){g->bottom - g->top, g->scaled_h, g->window_y, g->window_h,
        all ? 0 : g->shown_y, all ? g->scaled_h : g->shown_h, g->border, g->filter};
}

bool np_axis_has_border(const struct np_axis *axis)
{
    return axis->window < axis->shown ||
           axis->window + axis->window_n > axis->shown + axis->shown_n;
}

int np_axis_map(const struct np_axis *axis, int position)
{
    int n = axis->shown_n, at = position - axis->shown;

    if (at >= 0 && at < n)
        return position;
    if (axis->border == NP_BORDER_ZERO)
        return -1;
    if (n == 1)
        return axis->shown;
    at = abs(at) % (2 * (n - 1));
    return axis->shown + (at < n ? at : 2 * (n - 1) - at);
}

void np_axis_span(const struct np_axis *axis, int *ret_lo, int *ret_hi)
{
    int lo = INT32_MAX, hi = 0;

    if (!np_axis_has_border(axis)) {
        *ret_lo = axis->window;
        *ret_hi = axis->window + axis->window_n;
        return;
    }
    for (int i = 0; i < axis->window_n; i++) {
        int at = np_axis_map(axis, axis->window + i);

        if (at >= 0 && at < lo)
            lo = at;
        if (at >= hi)
            hi = at + 1;
    }
    *ret_lo = lo < hi ? lo : axis->shown;
    *ret_hi = lo < hi ? hi : axis->shown;
}

/* --- weights ------------------------------------------------------------------------------- */

static double filter_support(enum np_filter filter)
{
    return filter == NP_FILTER_BICUBIC ? 2.0 : 1.0;
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Keys, "Cubic convolution interpolation for digital image processing", IEEE ASSP 29 (1981),
 * equation 4 with a = -1/2. */
static double cubic(double x)
{
    const double a = -0.5;

    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

struct reach {
    double scale, filter_scale, support;
};

static struct reach reach_of(const struct np_axis *axis)
{
    struct reach reach;

    reach.scale = (double)axis->box / axis->scaled;
    reach.filter_scale = reach.scale < 1.0 ? 1.0 : reach.scale;
    reach.support = filter_support(axis->filter) * reach.filter_scale;
    return reach;
}

static void bounds(const struct np_axis *axis, const struct reach *reach, double center,
    int *ret_start, int *ret_end)
{
    int start = (int)(center - reach->support + 0.5);
    int end = (int)(center + reach->support + 0.5);

    *ret_start = start < 0 ? 0 : start;
    *ret_end = end > axis->box ? axis->box : end;
}

int np_axis_most_taps(const struct np_axis *axis)
{
    struct reach reach = reach_of(axis);

    return (int)ceil(reach.support) * 2 + 1;
}

static void position_taps(const struct np_axis *axis, const struct reach *reach, int position,
    double *scratch, int *ret_start, int *ret_count, int32_t *weight)
{
    double center = (position + 0.5) * reach->scale, inverse = 1.0 / reach->filter_scale;
    double sum = 0.0;
    int start, end;

    bounds(axis, reach, center, &start, &end);
    for (int k = 0; k < end - start; k++) {
        double x = (k + start - center + 0.5) * inverse;

        scratch[k] = axis->filter == NP_FILTER_BICUBIC ? cubic(x) : triangle(x);
        sum += scratch[k];
    }
    for (int k = 0; k < end - start; k++) {
        double w = sum != 0.0 ? scratch[k] / sum : scratch[k];

        weight[k] = (int)((w < 0 ? -0.5 : 0.5) + w * (1 << NP_RESIZE_BITS));
    }
    *ret_start = start;
    *ret_count = end - start;
}

void np_axis_taps(const struct np_axis *axis, int first, int n, struct np_taps *taps)
{
    struct reach reach = reach_of(axis);
    int room = np_axis_most_taps(axis);

    assert(axis->filter != NP_FILTER_NEAREST && axis->scaled > 0 && axis->box > 0);
    taps->n = n;
    taps->most = 0;
    for (int i = 0; i < n; i++) {
        int32_t *weight = taps->weight + (size_t)i * room;

        position_taps(
            axis, &reach, first + i, taps->scratch, &taps->start[i], &taps->count[i], weight);
        if (taps->count[i] > taps->most)
            taps->most = taps->count[i];
    }
    taps->room = room;
}

/* Pillow adds the step up instead of multiplying; so do we. */
void np_axis_nearest(const struct np_axis *axis, int *ret_source)
{
    double step = (double)axis->box / axis->scaled, at = step * 0.5;

    for (int i = 0; i < axis->scaled; i++, at += step)
        ret_source[i] = (int)at < axis->box ? (int)at : axis->box - 1;
}

static int nearest_at(const struct np_axis *axis, int position)
{
    double step = (double)axis->box / axis->scaled, at = step * 0.5;

    for (int i = 0; i < position; i++)
        at += step;
    return (int)at < axis->box ? (int)at : axis->box - 1;
}

void np_axis_source(
    const struct np_axis *axis, int scaled_lo, int scaled_hi, int *ret_lo, int *ret_hi)
{
    struct reach reach = reach_of(axis);
    int unused;

    if (axis->box == axis->scaled) {
        *ret_lo = scaled_lo;
        *ret_hi = scaled_hi;
    } else if (axis->filter == NP_FILTER_NEAREST) {
        *ret_lo = nearest_at(axis, scaled_lo);
        *ret_hi = nearest_at(axis, scaled_hi - 1) + 1;
    } else {
        bounds(axis, &reach, (scaled_lo + 0.5) * reach.scale, ret_lo, &unused);
        bounds(axis, &reach, (scaled_hi - 1 + 0.5) * reach.scale, &unused, ret_hi);
    }
}

void np_geometry_need(const struct np_geometry *geometry, struct np_rect *ret_need)
{
    struct np_axis x, y;
    int lo, hi;

    np_geometry_axes(geometry, &x, &y);
    np_axis_span(&x, &lo, &hi);
    np_axis_source(&x, lo, hi > lo ? hi : lo + 1, &ret_need->left, &ret_need->right);
    np_axis_span(&y, &lo, &hi);
    np_axis_source(&y, lo, hi > lo ? hi : lo + 1, &ret_need->top, &ret_need->bottom);
    ret_need->left += geometry->left;
    ret_need->right += geometry->left;
    ret_need->top += geometry->top;
    ret_need->bottom += geometry->top;
}
