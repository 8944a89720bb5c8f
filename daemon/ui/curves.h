/* curves.svg: loss and accuracy of a run, in one self-contained picture, light and dark as
 * the viewer's. Memory is fixed: a long run is thinned out, neighbours merged. */
#ifndef NP_CURVES_H
#define NP_CURVES_H

#include <stdint.h>

#include "loader/base/err.h"

#define NP_CURVE_POINTS 512

struct np_curve {
    double x[NP_CURVE_POINTS], y[NP_CURVE_POINTS];
    int nr_points;
    uint64_t stride; /* values merged into one point; 0: as 1 */
    uint64_t nr_pending;
    double sum_x, sum_y; /* of the point under way */
};

/* Zeroed: empty. x in epochs. eval_*: of what is evaluated while training. */
struct np_curves {
    struct np_curve train_loss, eval_loss, train_accuracy, eval_accuracy, lr;
    const char *evaluated; /* what that is: "val" or "test"; borrowed. NULL: test */
};

void np_curve_add(struct np_curve *curve, double x, double y);
/* Writes the picture beside and renames it; nr_epochs: the whole run's. A few losses far above all others
 * do not stretch the axis: they are marked at its upper end. */
int np_curves_write(const struct np_curves *curves, const char *title, double nr_epochs,
    const char *path, struct np_err *err);

#endif
