/* Files of a list that are not there: one message names the first few of them, and counts them. */
#ifndef NP_MISSING_H
#define NP_MISSING_H

#include <stdbool.h>

#include "loader/base/err.h"

#define NP_MAX_MISSING 16 /* enough: nobody mends more of them one by one */

struct np_missing {
    int nr, numbers[NP_MAX_MISSING]; /* ascending */
    struct np_err why;               /* of the first */
};

/* Takes the number of a name in the list and its error; the order is free. False: these are enough. */
bool np_missing_add(struct np_missing *missing, int number, const struct np_err *why);
/* 0: none is missing; else -ENOENT, and the text. A single one has its own text. */
int np_missing_err(
    const struct np_missing *missing, char *const *names, int nr_names, struct np_err *err);

#endif
