/* curves.svg: loss and accuracy of a run in one self-contained picture, light or dark like the
 * viewer. Memory is fixed: values of the same column of the picture are averaged. Main thread. */
#ifndef NP_CURVES_H
#define NP_CURVES_H

#include "loader/base/err.h"

#define NP_CURVE_COLUMNS 512

struct np_curve {
    double sum[NP_CURVE_COLUMNS];
    int nr[NP_CURVE_COLUMNS];
    int nr_points, last; /* number of columns with a value; the last of these columns */
};

/* All zeros: empty. eval_*: of the set evaluated while training. */
struct np_curves {
    struct np_curve train_loss, eval_loss, train_accuracy, eval_accuracy, lr;
    const char *evaluated; /* its name: "val" or "test"; borrowed. NULL: test */
    const char *title;     /* borrowed */
    double nr_epochs;      /* of the whole run; 0: 1 */
};

/* at: the share of the run that is done, 0 to 1. Ignores numbers that are not finite. */
void np_curve_add(struct np_curve *curve, double at, double y);
/* Writes the picture and replaces path by rename. A few losses far above all others are marked
 * at the upper edge, so that they do not stretch the axis. */
int np_curves_write(const struct np_curves *curves, const char *path, struct np_err *err);

/* Several runs in one picture: their training losses in one panel, the accuracies of their
 * evaluations in the other, and their names below. */
#define NP_OVERLAY_MAX_RUNS 16
struct np_overlay_run {
    const char *name; /* borrowed */
    double best;      /* accuracy, 0 to 1; NAN: none */
    struct np_curve loss, accuracy;
};
struct np_overlay {
    const char *title;           /* borrowed */
    double nr_epochs;            /* of the longest run; np_curve_add() has shares of it. 0: 1 */
    struct np_overlay_run *runs; /* borrowed */
    int nr_runs;                 /* at most NP_OVERLAY_MAX_RUNS */
};
int np_overlay_write(const struct np_overlay *overlay, const char *path, struct np_err *err);
/* The mean of column i; NAN: it has no value. */
double np_curve_mean(const struct np_curve *curve, int i);

#endif
