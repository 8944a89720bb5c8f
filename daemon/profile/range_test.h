/* The learning-rate range test (Smith, arXiv:1506.01186, section 3.3; fastai's lr_find): the losses
 * of a short run whose rate grows exponentially, and the rates that follow from them. Main thread. */
#ifndef NP_RANGE_TEST_H
#define NP_RANGE_TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define NP_RANGE_MAX_POINTS 10000

struct np_range_point { /* of an update */
    double lr, loss;
    double smooth; /* mean of the losses so far, older ones fading by 0.98 an update */
};
struct np_range_test {
    struct np_range_point *points; /* (room), the caller's */
    int nr_points, room;
    double mean;    /* smooth, before it is divided by the sum of its weights */
    double best;    /* the lowest smooth */
    bool diverged;  /* smooth exceeded 4 times the best, or a number was not finite */
    double steep;   /* middle of the tenth in which smooth falls most; NAN: it does not */
    double minimum; /* a tenth of the rate with the lowest smooth; NAN: too few points */
};

/* Adds an update's loss; a full test or one that diverged ignores it. True: the test is over. */
bool np_range_add(struct np_range_test *test, double lr, double loss);
/* Sets steep and minimum, from all points but the first tenth of `room` (there the mean still
 * settles) and, if it diverged, the last five. */
void np_range_judge(struct np_range_test *test);
/* Draws smooth over log(rate) in so many columns, at least 40, with axes. */
void np_range_plot(const struct np_range_test *test, int columns, FILE *out);

#endif
