/* What an evaluation says beyond loss and accuracy: figures per class, the confusion matrix,
 * calibration, the images with the highest losses. As JSON, as a page of one file, as a table, and
 * image by image. Main thread. */
#ifndef NP_EVAL_REPORT_H
#define NP_EVAL_REPORT_H

#include <stdio.h>

#include "daemon/run/eval_facts.h"
#include "loader/base/json.h"

/* Of labels that are not classes (evaluation->kept) JSON and page are those of eval_kept.h, and the
 * lines have path, and for each class or number its label and output. */

/* Adds the figures to an open object. err: -ENOMEM. */
int np_eval_put(struct np_json *json, const struct np_eval_facts *facts, struct np_err *err);
/* Writes the page: the same figures and small pictures of the worst images, which are read again. */
int np_eval_html(const struct np_eval_facts *facts, const char *path, struct np_err *err);
/* Writes a line for each image, in the set's order, as CSV: path, label, predicted (classes by
 * name), probability (of the predicted class), own (of the label), rank (0: correct), loss. */
int np_eval_predictions(const struct np_eval_facts *facts, const char *path, struct np_err *err);
/* Prints a line for each class, the lowest F1 first. err: -ENOMEM. */
int np_eval_table(const struct np_eval_facts *facts, FILE *out, struct np_err *err);

#endif
