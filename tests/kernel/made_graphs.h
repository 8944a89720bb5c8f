/* Graphs for tests: from YAML text with `model:`, `blocks:` and `loss:`, or from a shipped config. */
#ifndef NP_MADE_GRAPHS_H
#define NP_MADE_GRAPHS_H

#include "trainer/graph/graph.h"

struct made {
    int batch, height, width, channels, classes;
    enum np_dtype precision;
};

/* NULL if there are mistakes; report has all of them (np_report_fini). */
struct np_graph *made_graph(const char *text, struct made made, struct np_report *report);
struct np_graph *made_typed_graph(
    const char *text, struct made made, enum np_label_type type, struct np_report *report);
/* The same; prints mistakes to stderr. */
struct np_graph *made_good_graph(const char *text, struct made made);
struct np_graph *made_good_typed_graph(const char *text, struct made made, enum np_label_type type);
/* Text of a file below the tree's root (free). */
char *made_read(const char *path);
/* The number of a parameter or buffer, or -1. */
int made_tensor(const struct np_graph *graph, const char *name);

#endif
