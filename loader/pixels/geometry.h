/* The scaled positions that a row shows, their source pixels, and the weights. The codec learns
 * from them which pixels to decode, and the resizer which to compute. Pure arithmetic, any
 * thread. */
#ifndef NP_GEOMETRY_H
#define NP_GEOMETRY_H

#include <stddef.h>

#include "loader/batch.h"

/* Decoded pixels: u8, interleaved (height, width, channels). Owned by the codec's state and valid
 * until its next call. origin_*: the position of pixel (0, 0) in the source. */
struct np_pixels {
    const uint8_t *data;
    int width, height, channels;
    ptrdiff_t stride; /* bytes from row to row */
    int origin_x, origin_y;
};

struct np_rect {
    int left, top, right, bottom; /* right and bottom are outside */
};

struct np_axis; /* axis.h */

/* The weights of scaled positions first..first+n of an axis; the owner frees the arrays. */
struct np_taps {
    int n;
    int max_count;
    int room;        /* row length of weight */
    int *start;      /* (n) first source position */
    int *count;      /* (n) */
    int32_t *weight; /* (n, room), NP_RESIZE_BITS fixed point; past count undefined */
    double *scratch; /* (room) */
};

/* Sets down_first, the order of the two passes; pixels are rounded to u8 between them. Pillow
 * before 13: the horizontal pass first. Pillow 13: the vertical pass first if it removes more than
 * twice as many rows as the other removes columns (src/libImaging/Resample.c). */
void np_geometry_order(struct np_geometry *geometry, enum np_pixels_rule rule);
/* The source pixels that the row depends on: never empty, inside the box. */
void np_geometry_need(const struct np_geometry *geometry, struct np_rect *ret_need);
/* True if the window exceeds `shown`. */
bool np_axis_has_border(const struct np_axis *axis);
/* Scaled positions lo..hi-1 that the window shows; lo == hi if it is all border. */
void np_axis_span(const struct np_axis *axis, int *ret_lo, int *ret_hi);
/* Source positions lo..hi-1 of scaled positions scaled_lo..scaled_hi-1. */
void np_axis_source(
    const struct np_axis *axis, int scaled_lo, int scaled_hi, int *ret_lo, int *ret_hi);
/* The maximum number of weights of a scaled position. */
int np_axis_max_taps(const struct np_axis *axis);
/* Computes the weights of positions first..first+n-1. The arrays of taps hold n, n *
 * np_axis_max_taps() (weight) and np_axis_max_taps() (scratch) items. The arithmetic is Pillow's
 * (antialiased: support grows with the scale), and weights are equal to the last bit. Not for
 * NEAREST. */
void np_axis_taps(const struct np_axis *axis, int first, int n, struct np_taps *taps);
/* Source position of each scaled position 0..scaled-1 under NEAREST. */
void np_axis_nearest(const struct np_axis *axis, int *ret_source);

#endif
