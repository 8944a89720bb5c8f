/* What is asked of runs by their numbers: `nnpipe stop|pause|resume|retry|hold|release|rm ID...`,
 * `nnpipe priority ID... N`; and of devices: `nnpipe drain|undrain DEVICE...`. Main thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

/* One request for each operand. */
struct wish {
    const char *command, *method;
    const char *verb; /* behind /v1/runs/ID/; NULL: nothing */
    const char *body; /* JSON, or NULL */
    const char *socket;
    bool json;
};

static int ask_run(
    struct np_client *client, const struct wish *wish, const char *operand, struct np_err *err)
{
    const bool removes = strcmp(wish->method, "DELETE") == 0;
    struct np_answer answer;
    struct np_node *run = NULL;
    char target[64];

    snprintf(target, sizeof(target), "/v1/runs/%s%s%s", operand, wish->verb ? "/" : "",
        wish->verb ? wish->verb : "");
    int code = np_client_ask(client, wish->method, target, wish->body, &answer, err);
    if (code == 0 && !removes)
        code = np_json_parse(answer.body, answer.bytes, &run, err);
    if (code < 0)
        return code;
    if (removes && wish->json)
        printf("{\"event\": \"removed\", \"id\": %s}\n", operand);
    else if (removes)
        printf("run %s: removed; its folder stays\n", operand);
    else if (wish->json)
        np_run_print_json(run, stdout);
    else
        printf("run %s: %s\n", operand, np_node_text(run, "state"));
    np_node_free(run);
    return 0;
}

/* One that is refused does not keep the others. */
static int for_each(const struct wish *wish, char **operands, int nr)
{
    struct np_client *client = NULL;
    struct np_err err = {0};
    int failed = 0;

    if (np_client_open(wish->socket, &client, &err) < 0) {
        np_complain(&err);
        return NP_EXIT_FAILED;
    }
    for (int i = 0; i < nr; i++) {
        err = (struct np_err){0};
        if (ask_run(client, wish, operands[i], &err) < 0) {
            np_complain(&err);
            failed = 1;
        }
    }
    np_client_close(client);
    return failed ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

static int ask_runs(int argc, char **argv, const char *method, const char *verb)
{
    struct wish wish = {.command = argv[0], .method = method, .verb = verb};
    const struct np_flag flags[] = {
        {"--json", NULL, &wish.json, NULL},
        {"--socket", &wish.socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code == 0)
        code = np_run_ids(argv[0], argv + 1, nr);
    return code ? code : for_each(&wish, argv + 1, nr);
}

int np_cmd_stop(int argc, char **argv)
{
    return ask_runs(argc, argv, "POST", "stop");
}
int np_cmd_pause(int argc, char **argv)
{
    return ask_runs(argc, argv, "POST", "pause");
}
int np_cmd_resume(int argc, char **argv)
{
    return ask_runs(argc, argv, "POST", "resume");
}
int np_cmd_rm(int argc, char **argv)
{
    return ask_runs(argc, argv, "DELETE", NULL);
}

int np_cmd_retry(int argc, char **argv)
{
    struct wish wish = {.command = "retry", .method = "POST", .verb = "retry"};
    const char *limit = NULL;
    const struct np_flag flags[] = {
        {"--time-limit", &limit, NULL, NULL},
        {"--json", NULL, &wish.json, NULL},
        {"--socket", &wish.socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);
    double seconds;
    char body[64];

    if (code == 0)
        code = np_run_ids("retry", argv + 1, nr);
    if (code)
        return code;
    if (limit && !np_parse_span(limit, &seconds)) {
        fprintf(stderr, NP_SPAN_EXPECTED, "retry", "--time-limit", limit);
        return NP_EXIT_USAGE;
    }
    if (limit) {
        snprintf(body, sizeof(body), "{\"time_limit\": %.15g}", seconds);
        wish.body = body;
    }
    return for_each(&wish, argv + 1, nr);
}

/* The number may be below 0, which is no flag here: it is taken out of the words. */
static const char *take_number(int *argc, char **argv)
{
    for (int i = 1; i < *argc; i++)
        if (argv[i][0] == '-' && argv[i][1] >= '0' && argv[i][1] <= '9') {
            const char *number = argv[i];

            for ((*argc)--; i < *argc; i++)
                argv[i] = argv[i + 1];
            return number;
        }
    return NULL;
}

int np_cmd_priority(int argc, char **argv)
{
    struct wish wish = {.command = "priority", .method = "PATCH"};
    const struct np_flag flags[] = {
        {"--json", NULL, &wish.json, NULL},
        {"--socket", &wish.socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    const char *number = take_number(&argc, argv);
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);
    char body[64];
    int64_t value;

    if (code)
        return code;
    if (!number && nr > 0)
        number = argv[nr--];
    if (nr == 0 || !np_text_int(number, INT64_MIN, INT64_MAX, &value)) {
        fprintf(stderr, "nnpipe priority: expected runs' numbers, then their priority: "
                        "`nnpipe priority 7 -5`\n");
        return NP_EXIT_USAGE;
    }
    if ((code = np_run_ids("priority", argv + 1, nr)))
        return code;
    snprintf(body, sizeof(body), "{\"priority\": %lld}", (long long)value);
    wish.body = body;
    return for_each(&wish, argv + 1, nr);
}

/* --- the queue and its devices ------------------------------------------------------------------ */

static int ask_service(const struct wish *wish, const char *target, struct np_err *err)
{
    struct np_client *client = NULL;
    struct np_answer answer;
    int code = np_client_open(wish->socket, &client, err);

    if (code == 0)
        code = np_client_ask(client, "PATCH", target, wish->body, &answer, err);
    if (code == 0 && wish->json)
        fwrite(answer.body, 1, answer.bytes, stdout);
    np_client_close(client);
    return code;
}

static int hold(int argc, char **argv, bool held)
{
    struct wish wish = {.command = argv[0], .method = "POST", .verb = held ? "hold" : "resume"};
    bool all = false;
    const struct np_flag flags[] = {
        {"--all", NULL, &all, NULL},
        {"--json", NULL, &wish.json, NULL},
        {"--socket", &wish.socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (!all)
        return (code = np_run_ids(argv[0], argv + 1, nr)) ? code : for_each(&wish, argv + 1, nr);
    if (nr > 0) {
        fprintf(stderr, "nnpipe %s: --all is the whole queue; no runs beside it\n", argv[0]);
        return NP_EXIT_USAGE;
    }
    wish.body = held ? "{\"held\": true}" : "{\"held\": false}";
    if (ask_service(&wish, "/v1/service", &err) < 0) {
        np_complain(&err);
        return NP_EXIT_FAILED;
    }
    if (!wish.json)
        puts(held ? "the queue is held: no run is started until `nnpipe release --all`"
                  : "the queue is released");
    return NP_EXIT_DONE;
}

int np_cmd_hold(int argc, char **argv)
{
    return hold(argc, argv, true);
}
int np_cmd_release(int argc, char **argv)
{
    return hold(argc, argv, false);
}

static int drain(int argc, char **argv, bool drained)
{
    struct wish wish = {.command = argv[0]};
    const struct np_flag flags[] = {
        {"--json", NULL, &wish.json, NULL},
        {"--socket", &wish.socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr), failed = 0;

    if (code)
        return code;
    if (nr == 0) {
        fprintf(stderr, "nnpipe %s: which device? `nnpipe status` shows them\n", argv[0]);
        return NP_EXIT_USAGE;
    }
    for (int i = 1; i <= nr; i++) {
        struct np_json body = {0};
        struct np_err err = {0};

        np_json_begin(&body, NULL);
        np_json_text(&body, "device", argv[i]);
        np_json_bool(&body, "drained", drained);
        wish.body = np_json_end(&body);
        if (ask_service(&wish, "/v1/devices", &err) < 0) {
            np_complain(&err);
            failed = 1;
        } else if (!wish.json) {
            printf("%s: %s\n", argv[i],
                drained ? "drained: no new run is started there; running runs continue"
                        : "takes runs");
        }
        np_json_fini(&body);
    }
    return failed ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

int np_cmd_drain(int argc, char **argv)
{
    return drain(argc, argv, true);
}
int np_cmd_undrain(int argc, char **argv)
{
    return drain(argc, argv, false);
}
