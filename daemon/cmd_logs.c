/* `nnpipe logs ID [-f]`: what a run has said, and what it goes on saying. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/asking.h"
#include "daemon/cmd.h"
#include "loader/base/mem.h"

/* Until there is nothing more; with follow, until the run is over. */
static int print_log(
    struct np_client *client, int64_t id, const char *tail, bool follow, struct np_err *err)
{
    char next[64] = "0:0";
    bool first = true;

    for (;;) {
        struct np_answer answer;
        struct np_node *run = NULL;
        char target[160];
        int code;

        snprintf(target, sizeof(target), "/v1/runs/%lld/log?from=%s%s%s%s", (long long)id, next,
            first && tail ? "&tail=" : "", first && tail ? tail : "",
            follow && !first ? "&wait=50" : "");
        if ((code = np_client_ask(client, "GET", target, NULL, &answer, err)) < 0)
            return code;
        fwrite(answer.body, 1, answer.bytes, stdout);
        if (fflush(stdout) != 0)
            return 0; /* nobody reads any more */
        const bool more = answer.bytes > 0;
        snprintf(next, sizeof(next), "%s", answer.next);
        first = false;
        if (more)
            continue;
        if (!follow)
            return 0;
        snprintf(target, sizeof(target), "/v1/runs/%lld", (long long)id);
        if ((code = np_client_ask_node(client, "GET", target, NULL, &run, err)) < 0)
            return code;
        const char *state = np_node_text(run, "state");
        const bool over = strcmp(state, "done") == 0 || strcmp(state, "failed") == 0 ||
                          strcmp(state, "stopped") == 0;
        np_node_free(run);
        if (over)
            return 0;
    }
}

int np_cmd_logs(int argc, char **argv)
{
    const char *socket = NULL, *tail = NULL;
    bool follow = false, short_follow = false;
    const struct np_flag flags[] = {
        {"--follow", NULL, &follow, NULL},
        {"-f", NULL, &short_follow, NULL},
        {"--tail", &tail, NULL, NULL},
        {"--socket", &socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_client *client = NULL;
    struct np_err err = {0};
    int64_t id = 0;
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr != 1 || !np_run_id(argv[1], &id) ||
        (tail && (!*tail || strspn(tail, "0123456789") != strlen(tail)))) {
        fprintf(stderr, "nnpipe logs: expected one run's number; --tail takes bytes\n");
        return NP_EXIT_USAGE;
    }
    code = np_client_open(socket, &client, &err);
    if (code == 0)
        code = print_log(client, id, tail, follow || short_follow, &err);
    np_client_close(client);
    if (code < 0)
        np_complain(&err);
    return code < 0 ? NP_EXIT_FAILED : NP_EXIT_DONE;
}
