/* Test-time augmentation (train.tta): an evaluation computes a picture several times, mirrored and
 * shifted, and takes the weighted mean of the logits. NP_OP_INPUT makes a view of a batch,
 * NP_OP_VIEWS adds its logits; a device runs the evaluation graph once for each view of a batch, in
 * order. Plain types: .cu files include this. Any thread. */
#ifndef NP_VIEWS_H
#define NP_VIEWS_H

#ifdef __CUDACC__
#define NP_VIEW_FN static __host__ __device__ inline
#else
#define NP_VIEW_FN static inline
#endif

enum np_tta { NP_TTA_NONE, NP_TTA_FLIP, NP_TTA_FLIP_SHIFT };
#define NP_TTA_WORDS "none|flip|flip_shift"
extern const char *const np_tta_names[]; /* of enum np_tta */

/* The views of a picture: itself and its mirror image; with FLIP_SHIFT also the picture shifted by
 * one pixel to the upper left and to the lower right, and the mirror image of each. */
static inline int np_tta_views(int tta)
{
    return tta == NP_TTA_FLIP_SHIFT ? 6 : tta == NP_TTA_FLIP ? 2 : 1;
}

/* Shares of the logits; their sum is 1: the unshifted pair counts as much as both shifted ones, as
 * in airbench (arXiv:2404.00498, section 3.5). */
NP_VIEW_FN float np_view_weight(int tta, int view)
{
    return tta == NP_TTA_FLIP_SHIFT ? (view < 2 ? 0.25f : 0.125f) : tta == NP_TTA_FLIP ? 0.5f : 1;
}

/* Where pixel i of n comes from when the picture moves by `shift`; reflected at the edge, without
 * the edge itself. n is at least 2 where shift is not 0. */
NP_VIEW_FN int np_view_from(int i, int shift, int n)
{
    const int from = i + shift;

    return from < 0 ? -from : from >= n ? 2 * n - 2 - from : from;
}

/* Pixel (y, x) of a view is pixel (*ret_y, *ret_x) of the picture (h, w). */
NP_VIEW_FN void np_view_pixel(int view, int y, int x, int h, int w, int *ret_y, int *ret_x)
{
    const int shift = view < 2 ? 0 : view < 4 ? -1 : 1;

    *ret_y = np_view_from(y, shift, h);
    *ret_x = np_view_from(view % 2 ? w - 1 - x : x, shift, w);
}

struct np_graph;
/* Makes an evaluation graph (np_graph_eval()) one of views: sets attrs.tta of its input, and adds
 * NP_OP_VIEWS, whose output becomes the logits. NONE: it stays as it is. */
void np_graph_views(struct np_graph *eval, enum np_tta tta);

#endif
