/* The networks of `nnpipe selftest`: one for each layer and odd shape. */
#ifndef NP_SELFTEST_CASES_H
#define NP_SELFTEST_CASES_H

#include <stdbool.h>

struct np_selftest_row {
    const char *what;
    const char *yaml; /* model:, blocks:, loss: of a config */
    int batch, height, width, channels, classes, nr_masked;
    double loose; /* see np_selftest_case */
    bool trains;  /* the short training, not one step */
};

/* Ends with a NULL name. */
extern const struct np_selftest_row np_selftest_rows[];

#endif
