/* `nnpipe stop|pause|resume|rm ID...`: what is wished of runs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/asking.h"
#include "daemon/cmd.h"

static int ask(
    struct np_client *client, const char *command, int64_t id, bool json, struct np_err *err)
{
    const bool removes = strcmp(command, "rm") == 0;
    struct np_answer answer;
    struct np_node *run = NULL;
    char target[64];

    snprintf(target, sizeof(target), removes ? "/v1/runs/%lld" : "/v1/runs/%lld/%s", (long long)id,
        command);
    int code = np_client_ask(client, removes ? "DELETE" : "POST", target, NULL, &answer, err);
    if (code == 0 && !removes)
        code = np_json_parse(answer.body, answer.bytes, &run, err);
    if (code < 0)
        return code;
    if (removes && json)
        printf("{\"event\": \"removed\", \"id\": %lld}\n", (long long)id);
    else if (removes)
        printf("run %lld: removed; its folder stays\n", (long long)id);
    else if (json)
        np_run_print_json(run, stdout);
    else
        printf("run %lld: %s\n", (long long)id, np_node_text(run, "state"));
    np_node_free(run);
    return 0;
}

static int for_each(const char *command, int argc, char **argv)
{
    const char *socket = NULL;
    bool json = false;
    const struct np_flag flags[] = {
        {"--json", NULL, &json, NULL},
        {"--socket", &socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_client *client = NULL;
    struct np_err err = {0};
    int64_t id;
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr), failed = 0;

    if (code)
        return code;
    for (int i = 1; i <= nr; i++)
        if (!np_run_id(argv[i], &id)) {
            fprintf(stderr,
                "nnpipe %s: expected a run's number, as `nnpipe ls` shows it, not '%s'\n", command,
                argv[i]);
            return NP_EXIT_USAGE;
        }
    if (nr == 0) {
        fprintf(stderr, "nnpipe %s: which run? `nnpipe ls` shows them\n", command);
        return NP_EXIT_USAGE;
    }
    if (np_client_open(socket, &client, &err) < 0) {
        np_complain(&err);
        return NP_EXIT_FAILED;
    }
    for (int i = 1; i <= nr; i++) { /* one that is refused does not keep the others */
        np_run_id(argv[i], &id);
        if (ask(client, command, id, json, &err) < 0) {
            np_complain(&err);
            failed = 1;
        }
    }
    np_client_close(client);
    return failed ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

int np_cmd_stop(int argc, char **argv)
{
    return for_each("stop", argc, argv);
}
int np_cmd_pause(int argc, char **argv)
{
    return for_each("pause", argc, argv);
}
int np_cmd_resume(int argc, char **argv)
{
    return for_each("resume", argc, argv);
}
int np_cmd_rm(int argc, char **argv)
{
    return for_each("rm", argc, argv);
}
