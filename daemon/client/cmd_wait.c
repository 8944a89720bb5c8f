/* `nnpipe wait ID...`: waits until runs have finished; exits with the worst of their exit codes.
 * Main thread. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "loader/base/clock.h"

#define EXIT_TIMED_OUT 124 /* as timeout(1) */

static int wait_all(
    struct np_client *client, char **words, int nr, double until_s, bool json, struct np_err *err)
{
    int worst = NP_EXIT_DONE;
    int64_t id;

    for (int i = 0; i < nr; i++) {
        struct np_node *run = NULL;

        np_run_id(words[i], &id);
        const int code = np_client_wait_end(client, id, until_s, &run, err);
        if (code < 0)
            return code;
        np_run_print_state(run, json, stdout);
        const int exit_code = np_run_exit_code(run);
        worst = np_run_worse_exit(worst, exit_code);
        np_node_free(run);
    }
    return worst;
}

int np_cmd_wait(int argc, char **argv)
{
    const char *socket = NULL, *timeout = NULL;
    bool json = false;
    const struct np_flag flags[] = {
        {"--timeout", &timeout, NULL, NULL}, NP_SERVICE_FLAGS(json, socket)};
    struct np_err err = {0};
    double seconds = INFINITY;
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code == 0)
        code = np_run_ids("wait", argv + 1, nr);
    if (code)
        return code;
    if (timeout && !np_parse_span(timeout, &seconds)) {
        fprintf(
            stderr, "nnpipe wait: --timeout: expected " NP_SPAN_EXPECTED ", not \'%s\'\n", timeout);
        return NP_EXIT_USAGE;
    }
    struct np_client *client = np_client_open(socket);
    code = wait_all(client, argv + 1, nr, (double)np_now_ns() * 1e-9 + seconds, json, &err);
    const int exit_code = np_client_end(client, code, &err);
    return code == -ETIMEDOUT ? EXIT_TIMED_OUT : exit_code;
}
