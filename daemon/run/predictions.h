/* Writes what `predict` finds: a line for each image, as text, JSON or CSV, to standard output or a
 * file. Main thread. */
#ifndef NP_PREDICTIONS_H
#define NP_PREDICTIONS_H

#include "daemon/ui/progress.h"

enum np_prediction_format { NP_PREDICT_TEXT, NP_PREDICT_JSONL, NP_PREDICT_CSV };
extern const char *const np_prediction_formats[]; /* "text", "jsonl", "csv", NULL */

struct np_predictions {
    enum np_prediction_format format;
    int top;                       /* classes for each image */
    bool sigmoids;                 /* np_graph_has_sigmoids() */
    bool several;                  /* an image may have several: JSON has `classes`, CSV each */
    bool numbers;                  /* outputs are numbers by name, not classes: all are written */
    const struct np_node *classes; /* borrowed, as ui */
    struct np_ui *ui;              /* standard output, and errors */
    FILE *file;                    /* NULL: standard output */
    const char *path;              /* of file; borrowed */
    double *odds;                  /* (classes) */
};

/* Fills the odds, opens the file (path NULL: none) and writes CSV's first line. The caller has set
 * the other fields, and calls np_predictions_close() in any case. */
int np_predictions_open(struct np_predictions *predictions, const char *path, struct np_err *err);
/* logits: (classes), finite. A reader of standard output that has gone ends the output, not the
 * command. */
int np_predictions_put(
    struct np_predictions *predictions, const char *path, const float *logits, struct np_err *err);
/* The last write may fail, too: a full disk. */
int np_predictions_close(struct np_predictions *predictions, struct np_err *err);

#endif
