/* The jobs of `nnpipe submit --sweep KEY=VALUES`, given several times their product. One thread. */
#ifndef NP_SWEEP_H
#define NP_SWEEP_H

#include "loader/base/err.h"

#define NP_SWEEP_MAX_AXES 8
#define NP_SWEEP_MAX_JOBS 256
#define NP_SWEEP_NAME     64 /* bytes of a name, its end included */

struct np_sweep_axis {
    const char *key; /* "optimizer.sgd.lr"; owned */
    char **texts;    /* "optimizer.sgd.lr=0.1" for each value; owned */
    int nr_texts;
};

/* All zeros: one job without an override. */
struct np_sweep {
    struct np_sweep_axis axes[NP_SWEEP_MAX_AXES];
    int nr_axes, nr_jobs;
};

/* Adds the axis of "KEY=VALUE,VALUE,FIRST..LAST". A comma in brackets or quotes is part of a value;
 * FIRST..LAST stands for all integers from FIRST to LAST. -EINVAL: no key, no value, a value or a
 * key that is there twice; -E2BIG: too many axes or jobs. After an error only np_sweep_fini(). */
int np_sweep_add(struct np_sweep *sweep, const char *text, struct np_err *err);
void np_sweep_fini(struct np_sweep *sweep);
/* The override of a job on an axis; borrowed. The last axis changes fastest. */
const char *np_sweep_text(const struct np_sweep *sweep, int job, int axis);
/* Fills names, one for each job: "BASE-lr0.1-seed2", the last word of each key and its value. Other
 * characters than letters, digits, - _ . become '-', long names are cut, and equal ones get a
 * number. */
void np_sweep_names(const struct np_sweep *sweep, const char *base, char (*names)[NP_SWEEP_NAME]);

#endif
