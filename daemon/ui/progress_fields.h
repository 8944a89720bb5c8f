/* How far a run has come: one struct for the live line, a worker's report, the service's answers, metrics.jsonl, `ls`,
 * `top` and the page; and its JSON, by one table for writing and reading. Any thread. */
#ifndef NP_PROGRESS_FIELDS_H
#define NP_PROGRESS_FIELDS_H

#include "loader/base/json.h"

struct np_progress { /* numbers not known: NAN; texts not known: "" */
    double step, total_steps, epoch;
    double loss, accuracy;                 /* loss: lately; accuracy: of the last evaluation */
    double images_per_second, stall_ratio; /* lately */
    char cause[16];                        /* the stage that most of the stall is due to */
    double eta_seconds;
    char doing[48]; /* "opening", "training", "evaluating", "saving" */
    double said;    /* Unix time when the service read this */
    /* Of the live line alone, and not in the JSON: */
    double total_epochs;
    const char *evaluated; /* the set that the accuracy is of: "val"; NULL: not named */
};
extern const struct np_progress np_progress_unknown;

/* The fields into the object under way. Those not known are null, or with `known_only` left out. */
void np_progress_write(struct np_json *json, const struct np_progress *progress, bool known_only);
/* The fields of map, which may be NULL. A key that is missing leaves its field as it was; null makes it unknown. Texts
 * are cleaned of control characters. */
void np_progress_read(const struct np_node *map, struct np_progress *progress);

#endif
