/* RUNs of docs/SERVICE.md as people and scripts read them. Main thread. */
#ifndef NP_RUNS_H
#define NP_RUNS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/ui/table.h"
#include "loader/base/node.h"

const char *np_node_text(const struct np_node *map, const char *key); /* "" where there is none */
#define NP_RUN_NOT_OVER "queued,running,pausing,yielding,stopping,paused" /* states */
bool np_run_is_over(const struct np_node *run);
/* Of a run that is over: 0 done, 1 failed, 74 failed and its last try had given up with a checkpoint, 75 stopped or
 * ended by its time limit. */
int np_run_exit_code(const struct np_node *run);

/* "7": a run's number, above 0; else false. */
bool np_run_id(const char *text, int64_t *ret_id);
/* Are all words runs' numbers, and is there at least one? 0, or NP_EXIT_USAGE with a message. */
int np_run_ids(const char *command, char **words, int nr);
/* "90s", "30m", "8h", "2d" (more than one: "1h30m"): seconds, above 0; else false. */
bool np_parse_span(const char *text, double *ret_seconds);
#define NP_SPAN_EXPECTED "a time as 90s, 30m, 8h or 2d"

/* Columns of `nnpipe ls`, or with live of `nnpipe top`. */
void np_runs_table(bool live, struct np_table *ret_table);
/* Adds a run's row. -ENOMEM. */
int np_runs_add(struct np_table *table, const struct np_node *run, struct np_err *err);
/* One object, one line: docs/SERVICE.md has its fields. */
void np_run_print_json(const struct np_node *run, FILE *out);
/* All that is known of it, a line each. */
void np_run_print_whole(const struct np_node *run, FILE *out);

#endif
