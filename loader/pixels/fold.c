/* See fold.h. */
#include "loader/pixels/fold.h"

#include <assert.h>
#include <string.h>

/* The geometry that leaves a picture as it is. */
static struct np_geometry nothing_of(int w, int h)
{
    return (struct np_geometry){.right = w,
        .bottom = h,
        .scaled_w = w,
        .scaled_h = h,
        .window_w = w,
        .window_h = h,
        .shown_w = w,
        .shown_h = h};
}

static void begin(struct np_fold *fold)
{
    fold->resized = false;
    fold->cut_width = fold->width;
    fold->cut_height = fold->height;
    fold->geometry = nothing_of(fold->width, fold->height);
}

void np_fold_init(struct np_fold *fold, int source_w, int source_h)
{
    *fold = (struct np_fold){.width = source_w, .height = source_h};
    begin(fold);
}

static void add_step(struct np_fold *fold, const struct np_step *step)
{
    if (fold->steps) {
        assert(fold->nr_steps < fold->max_steps);
        fold->steps[fold->nr_steps] = *step;
    }
    fold->nr_steps++;
}

void np_fold_cut(struct np_fold *fold)
{
    const struct np_step step = {.geometry = fold->geometry};
    const struct np_geometry nothing = nothing_of(fold->cut_width, fold->cut_height);

    if (!fold->is_cut)
        fold->first = step.geometry;
    else if (memcmp(&step.geometry, &nothing, sizeof(nothing)) != 0)
        add_step(fold, &step);
    fold->is_cut = true;
    begin(fold);
}

void np_fold_pixels(
    struct np_fold *fold, const struct np_pixel_op *op, const double *values, int nr_values)
{
    struct np_step step = {.op = op};

    assert(fold->is_cut && nr_values <= NP_STEP_VALUES);
    if (nr_values)
        memcpy(step.values, values, (size_t)nr_values * sizeof(*values));
    add_step(fold, &step);
}

struct side {
    int32_t *box_lo, *box_hi, *scaled, *window, *window_n, *shown, *shown_n;
};

/* Crops the window to at..at+n-1. Before the resize a crop makes the box smaller, so that the
 * resize reads pixels of the crop alone. A window that is all black stays outside of what is
 * shown, wherever later crops put it. */
static void crop_side(const struct side *side, bool resized, int at, int n, enum np_border border)
{
    const int shown_end = *side->shown + *side->shown_n;
    const bool was_outside =
        *side->window >= shown_end || *side->window + *side->window_n <= *side->shown;
    bool inside;
    int lo, hi;

    *side->window += at;
    *side->window_n = n;
    inside = *side->window >= *side->shown && *side->window + n <= shown_end;
    if (!inside && border == NP_BORDER_REFLECT)
        return; /* the border may mirror any pixel */
    if (was_outside) {
        *side->window = *side->shown - n;
        return;
    }
    lo = *side->window > *side->shown ? *side->window : *side->shown;
    hi = *side->window + n < shown_end ? *side->window + n : shown_end;
    if (lo >= hi)
        return; /* all black */
    *side->shown = lo;
    *side->shown_n = hi - lo;
    if (resized)
        return;
    *side->box_hi = *side->box_lo + hi;
    *side->box_lo += lo;
    *side->scaled = hi - lo;
    *side->window -= lo;
    *side->shown = 0;
}

void np_fold_crop(struct np_fold *fold, int x, int y, int w, int h, enum np_border border)
{
    struct np_geometry *g = &fold->geometry;

    assert(w > 0 && h > 0);
    if (g->flip) /* the flip comes last, so count from the other side */
        x = fold->width - x - w;
    if (x < 0 || y < 0 || x + w > fold->width || y + h > fold->height)
        g->border = border;
    crop_side(&(struct side){&g->left, &g->right, &g->scaled_w, &g->window_x, &g->window_w,
                  &g->shown_x, &g->shown_w},
        fold->resized, x, w, g->border);
    crop_side(&(struct side){&g->top, &g->bottom, &g->scaled_h, &g->window_y, &g->window_h,
                  &g->shown_y, &g->shown_h},
        fold->resized, y, h, g->border);
    fold->width = w;
    fold->height = h;
}

static void cut_axis(int32_t *box_lo, int32_t *box_hi, int32_t window, int32_t window_n)
{
    int side = *box_hi - *box_lo, lo = window < 0 ? 0 : window, hi = window + window_n;

    lo = lo >= side ? side - 1 : lo;
    hi = hi > side ? side : hi <= lo ? lo + 1 : hi;
    *box_hi = *box_lo + hi;
    *box_lo += lo;
}

void np_fold_resize(struct np_fold *fold, int w, int h, enum np_filter filter)
{
    struct np_geometry *g = &fold->geometry;

    assert(!fold->resized && w > 0 && h > 0);
    cut_axis(&g->left, &g->right, g->window_x, g->window_w);
    cut_axis(&g->top, &g->bottom, g->window_y, g->window_h);
    g->scaled_w = g->window_w = g->shown_w = w;
    g->scaled_h = g->window_h = g->shown_h = h;
    g->window_x = g->window_y = g->shown_x = g->shown_y = 0;
    g->filter = filter == NP_FILTER_NEAREST && g->flip ? NP_FILTER_NEAREST_FLIPPED : filter;
    fold->resized = true;
    fold->width = w;
    fold->height = h;
}

void np_fold_flip(struct np_fold *fold)
{
    fold->geometry.flip = !fold->geometry.flip;
}
