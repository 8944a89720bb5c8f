/* What an evaluation says of labels that are several classes or numbers: np_eval_report.h's functions for
 * them. Main thread. */
#ifndef NP_EVAL_KEPT_H
#define NP_EVAL_KEPT_H

#include "daemon/run/eval_report.h"

/* Adds images, loss, the figures of all, and `classes` or `values`, a list of those of each. */
int np_eval_kept_put(struct np_json *json, const struct np_eval_facts *facts, struct np_err *err);
/* CSV, a line for each image: path, and for each class or number NAME (the label) and
 * NAME_predicted (a probability, or the output). For np_page_write(). */
void np_eval_kept_lines(FILE *out, const void *facts);
/* Prints a line for each class or number, in their order. */
int np_eval_kept_table(const struct np_eval_facts *facts, FILE *out, struct np_err *err);

#endif
