/* What the commands that ask the service have in common. Main thread. */
#ifndef NP_ASKING_H
#define NP_ASKING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/json.h"
#include "daemon/service/client.h"

/* "7": a run's number, above 0; else false. */
bool np_run_id(const char *text, int64_t *ret_id);
const char *np_node_text(const struct np_node *map, const char *key); /* "" where there is none */
/* A RUN of docs/SERVICE.md as a line of a table, below np_print_run_head(); as JSON with json, event `run`. */
void np_print_run_head(void);
void np_print_run(const struct np_node *run, bool json);
/* All that is known of it, a line each. */
void np_print_run_whole(const struct np_node *run);
/* Waits until a run is over, however long. *ret_run: the last RUN; np_node_free. */
int np_await_end(
    struct np_client *client, int64_t id, struct np_node **ret_run, struct np_err *err);
/* Of a run that is over: 0 done, 1 failed, 75 stopped. */
int np_exit_of_run(const struct np_node *run);

#endif
