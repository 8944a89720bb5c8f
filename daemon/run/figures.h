/* What a network answered for images whose labels are several classes or numbers, and the figures that
 * follow. No files and no device; one thread. */
#ifndef NP_FIGURES_H
#define NP_FIGURES_H

#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/json.h"
#include "loader/batch.h"

struct np_kept {
    enum np_label_type type; /* set by the caller, as width; the caller zeroes the rest */
    int width;               /* classes, or numbers of a label */
    uint64_t nr_rows;
    uint64_t *samples;        /* (nr_rows): index in the set */
    float *outputs, *targets; /* (nr_rows, width): of the network; of the labels */
    size_t samples_room, outputs_room, targets_room;
};
/* outputs, targets: (width), outputs finite. -ENOMEM. */
int np_kept_add(struct np_kept *kept, uint64_t sample, const float *outputs, const float *targets,
    struct np_err *err);
void np_kept_fini(struct np_kept *kept);

/* Of NP_LABEL_MULTI: a class is predicted if its output is above 0, a probability above 0.5. As
 * scikit-learn's, with zero_division=0. */
struct np_multi_figures {
    uint64_t images, predicted, correct; /* images of the class, predicted as it, both */
    double precision, recall, f1;
    double ap; /* average precision; NAN without images of the class */
};
/* Of NP_LABEL_VALUE. */
struct np_value_figures {
    double mae, rmse;
    double r2; /* 1 - squares of the differences / squares around the mean; all labels alike: 1 if
                  all answers are right, else 0 */
};
struct np_figures {
    double accuracy; /* share of the images whose classes are all right */
    double map;      /* mean of the average precisions of the classes that occur; 0: none does */
    double f1, f1_micro;           /* mean of the classes; of all answers together */
    struct np_value_figures value; /* of all numbers; r2: the mean of the numbers' own */
};
/* each: (width) struct np_multi_figures or np_value_figures, by type; NULL: not wanted. Zeros without
 * rows. -ENOMEM. */
int np_figures_make(
    const struct np_kept *kept, void *each, struct np_figures *ret_figures, struct np_err *err);
/* The images whose answers are the furthest from their labels, the furthest first, of equal ones the
 * earlier first: *ret_nr of them, at most n, and how far. NP_LABEL_MULTI: the mean over the classes of
 * the binary cross-entropy. NP_LABEL_VALUE: the root of the mean, over the numbers, of the square of
 * the difference divided by the standard deviation of this number's labels (1 if it is 0). */
int np_kept_worst(const struct np_kept *kept, int n, uint64_t *ret_places, double *ret_losses,
    int *ret_nr, struct np_err *err);
/* How often a number's answer less its label lies in each of NP_ERROR_BINS equal parts of -most to
 * most, the largest difference; 0: all are right, and the images are in the middle. */
#define NP_ERROR_BINS 21
struct np_error_bins {
    double most;
    uint64_t images[NP_ERROR_BINS];
};
void np_kept_errors(const struct np_kept *kept, int value, struct np_error_bins *ret_bins);
/* Adds the figures of this type to an open object, with prefix before their names: "val_". */
void np_figures_put(struct np_json *json, const char *prefix, enum np_label_type type,
    const struct np_figures *figures);
/* The figures that np_figures_put() has added to a line; NAN: they are not in it. */
void np_figures_read(
    const struct np_node *line, const char *prefix, struct np_figures *ret_figures);
/* ", mAP 71.32%, F1 ..." or ", MAE 0.12, ...". */
#define NP_FIGURES_TEXT 160
void np_figures_text(
    enum np_label_type type, const struct np_figures *figures, char text[NP_FIGURES_TEXT]);

#endif
