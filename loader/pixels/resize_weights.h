/* The weights of one axis, computed again only if a sample needs others. Private to resize*.c. */
#ifndef NP_RESIZE_WEIGHTS_H
#define NP_RESIZE_WEIGHTS_H

#include <errno.h>
#include <stdbool.h>

#include "loader/base/mem.h"
#include "loader/pixels/resize_kernels.h"

static inline int np_hold_n(void *memory, size_t *room, size_t n, size_t bytes)
{
    size_t total;

    return __builtin_mul_overflow(n, bytes, &total) ? -ENOMEM : np_hold(memory, room, total, NULL);
}

/* Scaled positions lo..hi-1 of an axis, and their source positions. */
struct np_span {
    const struct np_axis *axis;
    int lo, hi, from, to;
    bool resizes;
};

/* All zeros: empty. */
struct np_weights {
    struct np_axis axis;
    int lo, hi; /* scaled positions */
    bool flip, valid;
    const struct np_resize_kernels *kernels; /* that packed is for, or NULL */
    struct np_taps taps;
    struct np_packed packed;
    int min_start, max_start; /* of taps.start */
    size_t start_bytes, count_bytes, weight_bytes, scratch_bytes;
};

/* across: for the horizontal pass, else the vertical one. flip: positions in reverse order.
 * kernels: pack the weights for them; NULL: do not pack. 0 or -ENOMEM. */
int np_weights_set(struct np_weights *weights, const struct np_span *span, bool across, bool flip,
    const struct np_resize_kernels *kernels);
void np_weights_fini(struct np_weights *weights);

#endif
