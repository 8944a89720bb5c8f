/* See geometry.h. axis.h has the arithmetic of one position. */
#include "loader/pixels/geometry.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "loader/pixels/axis.h"

void np_geometry_order(struct np_geometry *g, enum np_pixels_rule rule)
{
    const int64_t fewer_columns = (int64_t)g->right - g->left - g->scaled_w;
    const int64_t fewer_rows = (int64_t)g->bottom - g->top - g->scaled_h;

    g->down_first = rule == NP_RULE_PILLOW_13 && fewer_rows > 0 && fewer_rows > 2 * fewer_columns;
}

bool np_axis_has_border(const struct np_axis *axis)
{
    return axis->window < axis->shown ||
           axis->window + axis->window_n > axis->shown + axis->shown_n;
}

void np_axis_span(const struct np_axis *axis, int *ret_lo, int *ret_hi)
{
    const int window_end = axis->window + axis->window_n, shown_end = axis->shown + axis->shown_n;
    int lo = axis->window > axis->shown ? axis->window : axis->shown;
    int hi = window_end < shown_end ? window_end : shown_end;

    if (lo >= hi) {
        lo = INT32_MAX;
        hi = 0;
    }
    if (axis->border == NP_BORDER_REFLECT && np_axis_has_border(axis))
        for (int i = axis->window; i < window_end; i++) {
            const int at = np_axis_place(axis, i);

            lo = at < lo ? at : lo;
            hi = at >= hi ? at + 1 : hi;
        }
    *ret_lo = lo < hi ? lo : axis->shown;
    *ret_hi = lo < hi ? hi : axis->shown;
}

int np_axis_max_taps(const struct np_axis *axis)
{
    struct np_reach reach = np_axis_reach(axis);

    return (int)ceil(reach.support) * 2 + 1;
}

static void position_taps(const struct np_axis *axis, const struct np_reach *reach, int position,
    double *scratch, int *ret_start, int *ret_count, int32_t *weight)
{
    struct np_position at = np_axis_position(axis, reach, position);
    const int count = at.end - at.start;

    for (int k = 0; k < count; k++) {
        scratch[k] = np_axis_raw_weight(axis, &at, k);
        at.sum += scratch[k];
    }
    for (int k = 0; k < count; k++)
        weight[k] = np_axis_weight(&at, scratch[k]);
    *ret_start = at.start;
    *ret_count = count;
}

void np_axis_taps(const struct np_axis *axis, int first, int n, struct np_taps *taps)
{
    struct np_reach reach = np_axis_reach(axis);
    int room = np_axis_max_taps(axis);

    assert(!np_filter_is_nearest(axis->filter) && axis->scaled > 0 && axis->box > 0);
    taps->n = n;
    taps->max_count = 0;
    for (int i = 0; i < n; i++) {
        int32_t *weight = taps->weight + (size_t)i * room;

        position_taps(
            axis, &reach, first + i, taps->scratch, &taps->start[i], &taps->count[i], weight);
        if (taps->count[i] > taps->max_count)
            taps->max_count = taps->count[i];
    }
    taps->room = room;
}

/* As np_axis_nearest_at() of each position, but adds each step only once. */
void np_axis_nearest(const struct np_axis *axis, int *ret_source)
{
    double step = (double)axis->box / axis->scaled, at = step * 0.5;

    for (int i = 0; i < axis->scaled; i++, at += step) {
        const int source = (int)at < axis->box ? (int)at : axis->box - 1;

        if (axis->filter == NP_FILTER_NEAREST_FLIPPED)
            ret_source[axis->scaled - 1 - i] = axis->box - 1 - source;
        else
            ret_source[i] = source;
    }
}

void np_axis_source(
    const struct np_axis *axis, int scaled_lo, int scaled_hi, int *ret_lo, int *ret_hi)
{
    struct np_reach reach = np_axis_reach(axis);
    int unused;

    if (axis->box == axis->scaled) {
        *ret_lo = scaled_lo;
        *ret_hi = scaled_hi;
    } else if (np_filter_is_nearest(axis->filter)) {
        *ret_lo = np_axis_nearest_at(axis, scaled_lo);
        *ret_hi = np_axis_nearest_at(axis, scaled_hi - 1) + 1;
    } else {
        np_axis_bounds(axis, &reach, (scaled_lo + 0.5) * reach.scale, ret_lo, &unused);
        np_axis_bounds(axis, &reach, (scaled_hi - 1 + 0.5) * reach.scale, &unused, ret_hi);
    }
}

void np_geometry_need(const struct np_geometry *geometry, struct np_rect *ret_need)
{
    const struct np_axis x = np_axis_across(geometry), y = np_axis_down(geometry);
    int lo, hi;

    np_axis_span(&x, &lo, &hi);
    np_axis_source(&x, lo, hi > lo ? hi : lo + 1, &ret_need->left, &ret_need->right);
    np_axis_span(&y, &lo, &hi);
    np_axis_source(&y, lo, hi > lo ? hi : lo + 1, &ret_need->top, &ret_need->bottom);
    ret_need->left += geometry->left;
    ret_need->right += geometry->left;
    ret_need->top += geometry->top;
    ret_need->bottom += geometry->top;
}
