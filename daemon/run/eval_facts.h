/* What a report of an evaluation is made of, and the names of its images. Main thread. */
#ifndef NP_EVAL_FACTS_H
#define NP_EVAL_FACTS_H

#include "daemon/run/evaluate.h"

#define NP_WORST 24 /* images with the highest losses */

/* Borrows all. */
struct np_eval_facts {
    const char *set, *name, *weights, *precision; /* for the page's head */
    const struct np_evaluation *evaluation;       /* with outcomes */
    const struct np_eval_report *report;
};

/* The name of a sample of the set, or its number. */
void np_eval_sample_name(
    const struct np_eval_facts *facts, uint64_t sample, char *name, size_t name_bytes);

#endif
