/* The networks of `nnpipe selftest`: one for each layer and odd shape. */
#ifndef NP_SELFTEST_CASES_H
#define NP_SELFTEST_CASES_H

#include <stdbool.h>

struct np_selftest_row {
    const char *what;
    const char *yaml; /* model:, blocks:, loss: of a config */
    int batch, height, width, channels, classes, nr_masked;
    double loose;     /* times the tolerances of the half precisions */
    double loose_f32; /* times those of f32, where the row has a meaning in f32 alone */
    bool trains;      /* the short training, not one step */
    bool big;         /* for devices other than the CPU, against its fast kernels */
};

/* Ends with a NULL name. */
extern const struct np_selftest_row np_selftest_rows[];

#endif
