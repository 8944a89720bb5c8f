/* What an evaluation says of labels that are several classes or numbers: eval_report.h's functions for
 * them. Main thread. */
#ifndef NP_EVAL_KEPT_H
#define NP_EVAL_KEPT_H

#include <stdio.h>

#include "daemon/run/eval_facts.h"
#include "loader/base/json.h"

/* Adds label_type, images, loss, the figures of all, `classes` or `values`, a list of those of each,
 * and the worst images. pictures: (NP_WORST) of these, for the page, which also has `points`: the
 * labels and outputs of some of the images, [[LABEL, OUTPUT], ...] for each number. NULL: no page. */
int np_eval_kept_put(struct np_json *json, const struct np_eval_facts *facts, char *const *pictures,
    struct np_err *err);
/* CSV, a line for each image: path, and for each class or number NAME (the label) and
 * NAME_predicted (a probability, or the output). For np_page_write(). */
void np_eval_kept_lines(FILE *out, const void *facts);
/* Prints a line for each class or number, in their order. */
int np_eval_kept_table(const struct np_eval_facts *facts, FILE *out, struct np_err *err);

#endif
