/* RUNs of docs/SERVICE.md as people and scripts read them. Main thread. */
#ifndef NP_RUNS_H
#define NP_RUNS_H

#include "loader/base/json.h"
#include "daemon/ui/table.h"

const char *np_node_text(const struct np_node *map, const char *key); /* "" where there is none */
bool np_run_is_over(const struct np_node *run);
/* Columns of `nnpipe ls`, or with live of `nnpipe top`. */
void np_runs_table(bool live, struct np_table *ret_table);
int np_runs_add(struct np_table *table, bool live, const struct np_node *run); /* -ENOMEM */
/* One object, one line: docs/SERVICE.md has its fields. */
void np_run_print_json(const struct np_node *run, FILE *out);
/* All that is known of it, a line each. */
void np_run_print_whole(const struct np_node *run, FILE *out);

#endif
