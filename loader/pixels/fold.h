/* What one sample's draws come to: geometry that is known before decoding, and steps behind it.
 * A chain's geometry folds into one np_geometry up to the first operation on pixels; what comes
 * behind that operation is done in its order, one step each, where geometry between two of them
 * folds again. */
#ifndef NP_FOLD_H
#define NP_FOLD_H

#include "loader/batch.h"
#include "loader/pixels/pixel_op.h"

struct np_step {
    const struct np_pixel_op *op; /* NULL: the geometry */
    union {
        struct np_geometry geometry;
        double values[NP_STEP_VALUES];
    };
};

/* A chain being folded: the result of its first operations. */
struct np_fold {
    int width, height;           /* of the result */
    int cut_width, cut_height;   /* of the result at the last cut */
    struct np_geometry geometry; /* since the last cut */
    bool resized;                /* since the last cut */
    struct np_geometry first;    /* up to the first cut */
    bool is_cut;
    struct np_step *steps; /* (max_steps), borrowed; NULL: they are only counted */
    int nr_steps, max_steps;
};

/* Without steps: the caller may set them. */
void np_fold_init(struct np_fold *fold, int source_w, int source_h);
/* Crops to x..x+w, y..y+h, which may exceed the result so far: `border` fills the rest. Any number
 * of crops may have a zero border. A reflected one must be the only border since the cut: the last
 * crop's kind applies to all. */
void np_fold_crop(struct np_fold *fold, int x, int y, int w, int h, enum np_border border);
/* At most once between cuts. filter: one of the config's. Borders of earlier crops are removed
 * first. */
void np_fold_resize(struct np_fold *fold, int w, int h, enum np_filter filter);
void np_fold_flip(struct np_fold *fold);
/* Ends the geometry: what follows works on its pixels. */
void np_fold_cut(struct np_fold *fold);
/* Behind a cut only. values: (nr_values). */
void np_fold_pixels(
    struct np_fold *fold, const struct np_pixel_op *op, const double *values, int nr_values);

#endif
