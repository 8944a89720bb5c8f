/* curves.svg: loss and accuracy of a run in one self-contained picture, light or dark like the
 * viewer. Memory is fixed: in a long run neighbouring points are merged. */
#ifndef NP_CURVES_H
#define NP_CURVES_H

#include <stdint.h>

#include "loader/base/err.h"

#define NP_CURVE_POINTS 512

struct np_curve {
    double x[NP_CURVE_POINTS], y[NP_CURVE_POINTS];
    int nr_points;
    uint64_t stride; /* values per point; 0: as 1 */
    uint64_t nr_pending;
    double sum_x, sum_y; /* of the unfinished point */
};

/* All zeros: empty. x in epochs. eval_*: of the set evaluated while training. */
struct np_curves {
    struct np_curve train_loss, eval_loss, train_accuracy, eval_accuracy, lr;
    const char *evaluated; /* its name: "val" or "test"; borrowed. NULL: test */
    const char *title;     /* borrowed */
    double nr_epochs;      /* of the whole run; 0: 1 */
};

void np_curve_add(struct np_curve *curve, double x, double y);
/* Writes the picture and replaces path by rename. A few losses far above all others are marked
 * at the upper edge, so that they do not stretch the axis. */
int np_curves_write(const struct np_curves *curves, const char *path, struct np_err *err);

#endif
