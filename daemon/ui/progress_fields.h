/* A run's progress: one struct for the live line, a worker's report, the service's responses,
 * metrics.jsonl, `ls`, `top` and the page; and one table to write and read its JSON. Any thread. */
#ifndef NP_PROGRESS_FIELDS_H
#define NP_PROGRESS_FIELDS_H

#include "loader/base/json.h"

struct np_progress { /* unknown numbers: NAN; unknown texts: "" */
    double step, total_steps, epoch;
    double loss, accuracy; /* loss: of the last seconds; accuracy: of the last evaluation */
    double images_per_second, stall_ratio; /* of the last seconds */
    char cause[16];                        /* the stage that causes most of the stall */
    double eta_seconds;
    char doing[48]; /* "opening", "training", "evaluating", "saving" */
    double said;    /* Unix time when the service read this */
    /* For the live line only, not in the JSON: */
    double total_epochs;
    const char *evaluated; /* the set of the accuracy: "val"; NULL: not shown */
};
extern const struct np_progress np_progress_unknown;

/* Writes the fields to the open object. Unknown fields are null, or left out with `known_only`. */
void np_progress_write(struct np_json *json, const struct np_progress *progress, bool known_only);
/* Reads the fields of map, which may be NULL. A missing key leaves its field unchanged; null
 * makes it unknown. Removes control characters from texts. */
void np_progress_read(const struct np_node *map, struct np_progress *progress);

#endif
