/* The networks that `nnpipe selftest` compares. */
#ifndef NP_SELFTEST_CASES_H
#define NP_SELFTEST_CASES_H

#include <stdbool.h>

#include "loader/batch.h"

struct np_selftest_case {
    const char *what; /* name of the network */
    const char *yaml; /* model:, blocks:, loss: of a config */
    int batch, height, width, channels, classes;
    bool mixes; /* mixup and cutmix */
    enum np_label_type label_type;
    int nr_masked;    /* rows at the end without a label */
    double loose;     /* at least this many times the half precisions' tolerances; 0: 1 */
    double loose_f32; /* the same for f32; such a case runs in f32 only */
    bool trains;      /* runs the short training, not single steps */
    bool big;         /* not for the CPU device; the reference is its fast kernels */
};
/* A network for each layer and odd shape. Ends with a NULL name. */
extern const struct np_selftest_case np_selftest_cases[];

#endif
