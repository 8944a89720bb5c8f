/* See asking.h. */
#include "daemon/asking.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/cmd.h"
#include "loader/base/mem.h"

#define AGAIN_NS 500000000

bool np_run_id(const char *text, int64_t *ret_id)
{
    char *end;

    errno = 0;
    *ret_id = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *ret_id > 0;
}

/* One that is told to end answers what waits with 503. */
bool np_is_away(int code, const struct np_answer *answer)
{
    return code == -ECONNREFUSED || code == -EIO || (code == -EREMOTEIO && answer->status == 503);
}

int np_ask_patiently(
    struct np_client *client, const char *target, struct np_answer *ret_answer, struct np_err *err)
{
    for (bool told = false;; told = true) {
        struct np_err fresh = {0};
        const int code = np_client_ask(client, "GET", target, NULL, ret_answer, &fresh);

        if (!np_is_away(code, ret_answer)) {
            if (code < 0)
                *err = fresh;
            else if (told)
                fputs("nnpipe: the service is back\n", stderr);
            return code;
        }
        if (!told)
            fputs("nnpipe: the service does not answer; waiting until it is back\n", stderr);
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
    }
}

int np_exit_of_run(const struct np_node *run)
{
    const char *state = np_node_text(run, "state");
    const bool gave_up = np_node_number(run, "exit_code", -1) == NP_EXIT_GAVE_UP;

    return strcmp(state, "done") == 0      ? NP_EXIT_DONE
           : strcmp(state, "stopped") == 0 ? NP_EXIT_STOPPED
           : gave_up                       ? NP_EXIT_GAVE_UP
                                           : NP_EXIT_FAILED;
}

int np_await_end(struct np_client *client, int64_t id, struct np_node **ret_run, struct np_err *err)
{
    for (;;) {
        char *target =
            np_format("/v1/runs/%lld?wait=50&state=queued,running,pausing,yielding,stopping,"
                      "paused",
                (long long)id);
        struct np_node *run = NULL;
        struct np_answer answer;
        int code = target ? np_ask_patiently(client, target, &answer, err)
                          : np_err_set(err, -ENOMEM, "out of memory");

        np_free(target);
        if (code == 0)
            code = np_json_parse(answer.body, answer.bytes, &run, err);
        if (code < 0)
            return code;
        if (np_run_is_over(run)) {
            *ret_run = run;
            return 0;
        }
        np_node_free(run);
    }
}
