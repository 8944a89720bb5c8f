/* What a geometry asks of its source: which scaled positions a row shows, which source
 * pixels these are made of, and with what weights. Pure arithmetic, any thread; the codec
 * learns from it what to decode and the resizer what to compute. */
#ifndef NP_GEOMETRY_H
#define NP_GEOMETRY_H

#include <stddef.h>

#include "loader/batch.h"

/* Decoded pixels: u8, interleaved (height, width, channels). Owned by the codec's state
 * and valid until its next call. origin_* is where pixel (0, 0) lies in the source. */
struct np_pixels {
    const uint8_t *data;
    int width, height, channels;
    ptrdiff_t stride; /* bytes from row to row */
    int origin_x, origin_y;
};

#define NP_RESIZE_BITS 22 /* of a weight behind the point */

struct np_rect {
    int left, top, right, bottom; /* right and bottom are outside */
};

/* A geometry along x or y. Source positions count from the box. */
struct np_axis {
    int box, scaled;      /* sides in pixels */
    int window, window_n; /* may stick out */
    int shown, shown_n;
    enum np_border border;
    enum np_filter filter;
};

/* The weights of scaled positions first..first+n of an axis; the owner frees the arrays. */
struct np_taps {
    int n;
    int most;        /* weights of the position that has most */
    int room;        /* from position to position in weight */
    int *start;      /* (n) first source position */
    int *count;      /* (n) */
    int32_t *weight; /* (n, room), NP_RESIZE_BITS fixed point; past count undefined */
    double *scratch; /* (room) */
};

void np_geometry_axes(
    const struct np_geometry *geometry, struct np_axis *ret_x, struct np_axis *ret_y);
/* Decides the order of the two passes, between which pixels are rounded to u8. Pillow before 13:
 * the horizontal one first. Pillow 13: the vertical one first where it takes away more than twice
 * the rows that the other takes away columns (src/libImaging/Resample.c). Any other field stays. */
void np_geometry_order(struct np_geometry *geometry, enum np_pixels_rule rule);
/* The source pixels the row depends on: never empty, inside the box. */
void np_geometry_need(const struct np_geometry *geometry, struct np_rect *ret_need);
/* True if the window sticks out of what is shown. */
bool np_axis_has_border(const struct np_axis *axis);
/* Where a window position finds its pixel: a scaled position inside `shown`, or -1 for a zero
 * border. Reflection does not repeat the edge pixel. */
int np_axis_map(const struct np_axis *axis, int position);
/* Scaled positions lo..hi-1 that the window shows; empty (lo == hi) where it is all border. */
void np_axis_span(const struct np_axis *axis, int *ret_lo, int *ret_hi);
/* Source positions lo..hi-1 that scaled positions scaled_lo..scaled_hi-1 are made of. */
void np_axis_source(
    const struct np_axis *axis, int scaled_lo, int scaled_hi, int *ret_lo, int *ret_hi);
/* The most weights a scaled position can have. */
int np_axis_most_taps(const struct np_axis *axis);
/* Fills taps for positions first..first+n-1; its arrays hold n, n * np_axis_most_taps() and
 * np_axis_most_taps(). Pillow's
 * arithmetic (antialiased: support grows with the scale), so that the weights are equal to the
 * last bit. Not for NEAREST. */
void np_axis_taps(const struct np_axis *axis, int first, int n, struct np_taps *taps);
/* Source position of each scaled position 0..scaled-1 under NEAREST. */
void np_axis_nearest(const struct np_axis *axis, int *ret_source);

#endif
