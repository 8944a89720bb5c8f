/* What a network answered for each image of a set, and the figures that follow: per class, by rank,
 * calibration, confusions. No files and no device; one thread. */
#ifndef NP_OUTCOMES_H
#define NP_OUTCOMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_outcome {
    uint64_t sample;   /* index in its set */
    int32_t label;     /* the true class */
    int32_t predicted; /* the class with the largest output; of equal ones the first */
    int32_t rank;      /* classes ranked before the true one; 0: correct */
    float probability; /* of the predicted class: softmax or, with sigmoids, its sigmoid */
    float own;         /* of the true class */
    double loss;       /* without smoothing: -ln(own), exact where own is 0 */
};

struct np_outcomes {
    struct np_outcome *rows; /* (nr_rows), in the order of np_outcomes_add() */
    uint64_t nr_rows;
    size_t room;
    int nr_classes; /* set by the caller, as sigmoids; the caller zeroes the rest */
    bool sigmoids;  /* np_graph_has_sigmoids() */
};
/* logits: (nr_classes), finite. -ENOMEM. */
int np_outcomes_add(struct np_outcomes *outcomes, uint64_t sample, int32_t label,
    const float *logits, struct np_err *err);
void np_outcomes_fini(struct np_outcomes *outcomes);

/* As scikit-learn's precision_recall_fscore_support with zero_division=0. */
struct np_class_figures {
    uint64_t support, predicted, correct; /* images of the class, predicted as it, both */
    double precision, recall, f1;
};
/* Means over the classes that occur (as a label or a prediction), plain and weighted by support. */
struct np_class_means {
    struct np_class_figures macro, weighted; /* their counts are 0 */
    int nr_classes;                          /* that occur */
};
/* ret_classes: (nr_classes). */
void np_outcomes_classes(const struct np_outcomes *outcomes, struct np_class_figures *ret_classes,
    struct np_class_means *ret_means);

/* The share of images whose true class is among the first k. 0 without images. */
double np_outcomes_top(const struct np_outcomes *outcomes, int k);

/* Bin b holds the images whose probability is in (b, b + 1] / NP_CALIBRATION_BINS. Expected
 * calibration error: Guo et al. 2017, arXiv 1706.04599, equation 3. */
#define NP_CALIBRATION_BINS 15
struct np_calibration {
    struct {
        uint64_t images;
        double confidence, accuracy; /* means; 0 without images */
    } bins[NP_CALIBRATION_BINS];
    double error, max_error; /* expected and largest |accuracy - confidence| */
};
void np_outcomes_calibration(
    const struct np_outcomes *outcomes, struct np_calibration *ret_calibration);

/* The confusion matrix without its zeros, by label, then by prediction. */
struct np_confusion {
    int32_t label, predicted;
    uint64_t images;
};
/* *ret_cells: (*ret_nr), np_free. -ENOMEM. */
int np_outcomes_confusions(const struct np_outcomes *outcomes, struct np_confusion **ret_cells,
    uint64_t *ret_nr, struct np_err *err);

/* The places in rows of the outcomes with the highest losses, highest first, of equal ones the
 * earlier row first. Returns their number, at most n. */
int np_outcomes_worst(const struct np_outcomes *outcomes, int n, uint64_t *ret_places);
/* The same of any losses: that of row i lies i * stride bytes behind the first. */
int np_worst_rows(
    const double *losses, size_t stride, uint64_t nr_rows, int n, uint64_t *ret_places);

#endif
