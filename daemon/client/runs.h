/* Prints runs of the service: the JSON object RUN of docs/SERVICE.md. Main thread. */
#ifndef NP_RUNS_H
#define NP_RUNS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/ui/table.h"
#include "loader/base/node.h"

#define NP_RUN_UNFINISHED "queued,running,pausing,yielding,stopping,paused"
bool np_run_is_finished(const struct np_node *run);
/* The exit code for a finished run: 0 done, 1 failed, 74 failed after a last attempt that had
 * ended with a checkpoint, 75 stopped or timeout. */
int np_run_exit_code(const struct np_node *run);
/* The worse of two such codes: 1, then 74, 75, 0. */
int np_run_worse_exit(int a, int b);

/* Parses a run number, above 0. */
bool np_run_id(const char *text, int64_t *ret_id);
/* Checks that words are run numbers, at least one. Returns 0, or NP_EXIT_USAGE after a message. */
int np_run_ids(const char *command, char **words, int nr);
/* Parses a positive time, "90s", "1h30m", "2d", into seconds. */
bool np_parse_span(const char *text, double *ret_seconds);
#define NP_SPAN_EXPECTED "a time as 90s, 30m, 8h or 2d"

/* An empty table with the columns of `nnpipe ls`, or of `nnpipe top` if live. */
void np_runs_table(bool live, struct np_table *ret_table);
/* Adds a run's row. -ENOMEM. */
int np_runs_add(struct np_table *table, const struct np_node *run, struct np_err *err);
/* Prints an object on one line. */
void np_run_print_json(const struct np_node *run, FILE *out);
/* Prints "run 7: NAME, STATE: REASON", or the line of np_run_print_json() if json, and flushes
 * out. */
void np_run_print_state(const struct np_node *run, bool json, FILE *out);
/* Prints all fields, one per line. */
void np_run_print_whole(const struct np_node *run, FILE *out);

#endif
