/* What the commands that ask the service have in common. Main thread. */
#ifndef NP_RETRY_H
#define NP_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"

/* "7": a run's number, above 0; else false. */
bool np_run_id(const char *text, int64_t *ret_id);
/* "90s", "30m", "8h", "2d" (more than one: "1h30m"): seconds, above 0; else false. */
bool np_span(const char *text, double *ret_seconds);
/* With a command, a flag and a word that np_span() does not take. */
#define NP_SPAN_EXPECTED "nnpipe %s: %s: expected a time as 90s, 30m, 8h or 2d, not '%s'\n"
/* Are all words runs' numbers, and is there one? 0, or NP_EXIT_USAGE, said on standard error. */
int np_run_ids(const char *command, char **words, int nr);
/* Of an answer that did not come: is the service gone, so that asking again later may help? */
bool np_is_away(int code, const struct np_answer *answer);
/* GET, again and again while the service is away, which is said once on standard error. */
int np_ask_patiently(
    struct np_client *client, const char *target, struct np_answer *ret_answer, struct np_err *err);
/* Waits until a run is over, restarts of the service included, or until until_s (np_now_ns() in seconds; INFINITY: however
 * long): -ETIMEDOUT. *ret_run: the last RUN; np_node_free. */
int np_await_end(struct np_client *client, int64_t id, double until_s, struct np_node **ret_run,
    struct np_err *err);
/* Of a run that is over: 0 done, 1 failed, 74 failed and its last try had given up with a checkpoint, 75
 * stopped, by somebody or by its time limit. */
int np_exit_of_run(const struct np_node *run);

#endif
