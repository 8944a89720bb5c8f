/* See asking.h. */
#include "daemon/client/retry.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/cmd.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define AGAIN_NS 500000000
#define POLL_S   50.0 /* that one request waits */

bool np_run_id(const char *text, int64_t *ret_id)
{
    char *end;

    errno = 0;
    *ret_id = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *ret_id > 0;
}

int np_run_ids(const char *command, char **words, int nr)
{
    int64_t id;

    for (int i = 0; i < nr; i++)
        if (!np_run_id(words[i], &id)) {
            fprintf(stderr,
                "nnpipe %s: expected a run's number, as `nnpipe ls` shows it, not '%s'\n", command,
                words[i]);
            return NP_EXIT_USAGE;
        }
    if (nr == 0) {
        fprintf(stderr, "nnpipe %s: which run? `nnpipe ls` shows them\n", command);
        return NP_EXIT_USAGE;
    }
    return 0;
}

bool np_span(const char *text, double *ret_seconds)
{
    static const char units[] = "smhd";
    static const double seconds[] = {1, 60, 3600, 86400};
    double sum = 0;

    do {
        const size_t digits = strspn(text, "0123456789.");
        char *end;
        const double value = strtod(text, &end);
        const char *unit = digits > 0 && *end ? strchr(units, *end) : NULL;

        if (!unit || end != text + digits)
            return false;
        sum += value * seconds[unit - units];
        text = end + 1;
    } while (*text);
    if (sum > 0)
        *ret_seconds = sum;
    return sum > 0;
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

    if (strcmp(state, "done") == 0)
        return NP_EXIT_DONE;
    if (strcmp(state, "stopped") == 0 || strcmp(state, "timeout") == 0)
        return NP_EXIT_STOPPED;
    return gave_up ? NP_EXIT_GAVE_UP : NP_EXIT_FAILED;
}

int np_await_end(struct np_client *client, int64_t id, double until_s, struct np_node **ret_run,
    struct np_err *err)
{
    for (;;) {
        const double left_s = until_s - (double)np_now_ns() * 1e-9;
        char *target =
            np_format("/v1/runs/%lld?wait=%.3f&state=queued,running,pausing,yielding,stopping,"
                      "paused",
                (long long)id, fmin(fmax(left_s, 0), POLL_S));
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
        if (left_s <= 0)
            return np_err_set(err, -ETIMEDOUT, "run %lld is not over yet", (long long)id);
    }
}
