/* What is asked of runs by their numbers: `nnpipe stop|pause|resume|retry|hold|release|rm ID...`,
 * `nnpipe priority ID... N`; and of devices: `nnpipe drain|undrain DEVICE...`. Main thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "loader/base/json.h"
#include "loader/base/text.h"

/* One request for each operand. */
struct wish {
    int (*ask)(
        struct np_client *client, const struct wish *wish, const char *operand, struct np_err *err);
    const char *method, *verb; /* of ask_run(): verb NULL: nothing behind /v1/runs/ID */
    const char *body;          /* JSON, or NULL */
    const char *socket;
    bool json;
    bool on; /* hold, not release; drain, not undrain */
};

static int ask_run(
    struct np_client *client, const struct wish *wish, const char *operand, struct np_err *err)
{
    const bool removes = !wish->verb && !wish->body;
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

/* A PATCH whose answer is printed with --json, else the text. */
static int patch(struct np_client *client, const struct wish *wish, const char *target,
    const char *text, struct np_err *err)
{
    struct np_answer answer;
    const int code = np_client_ask(client, "PATCH", target, wish->body, &answer, err);

    if (code == 0 && wish->json)
        fwrite(answer.body, 1, answer.bytes, stdout);
    else if (code == 0)
        printf("%s\n", text);
    return code;
}

static int ask_queue(
    struct np_client *client, const struct wish *wish, const char *operand, struct np_err *err)
{
    (void)operand;
    return patch(client, wish, "/v1/service",
        wish->on ? "the queue is held: no run is started until `nnpipe release --all`"
                 : "the queue is released",
        err);
}

static int ask_device(
    struct np_client *client, const struct wish *wish, const char *operand, struct np_err *err)
{
    struct wish to = *wish;
    struct np_json body = {0};
    char text[256];

    np_json_begin(&body, NULL);
    np_json_text(&body, "device", operand);
    np_json_bool(&body, "drained", wish->on);
    to.body = np_json_end(&body);
    snprintf(text, sizeof(text), "%s: %s", operand,
        wish->on ? "drained: no new run is started there; running runs continue" : "takes runs");
    const int code = patch(client, &to, "/v1/devices", text, err);
    np_json_fini(&body);
    return code;
}

/* A request that is refused does not keep the others from being sent. */
static int for_each(const struct wish *wish, char **operands, int nr)
{
    struct np_client *client = NULL;
    struct np_err err = {0};
    int code = np_client_open(wish->socket, &client, &err), failed = 0;

    for (int i = 0; code == 0 && i < nr; i++) {
        err = (struct np_err){0};
        if (wish->ask(client, wish, operands[i], &err) < 0) {
            np_complain(&err);
            failed = NP_EXIT_FAILED;
        }
    }
    return np_client_end(client, code < 0 ? code : failed, &err);
}

/* stop, pause, resume, retry, rm */
int np_cmd_change(int argc, char **argv)
{
    const bool removes = strcmp(argv[0], "rm") == 0, retries = strcmp(argv[0], "retry") == 0;
    struct wish wish = {
        .ask = ask_run, .method = removes ? "DELETE" : "POST", .verb = removes ? NULL : argv[0]};
    const char *limit = NULL;
    const struct np_flag flags[] = {
        {"--time-limit", &limit, NULL, NULL}, NP_SERVICE_FLAGS(wish.json, wish.socket)};
    int nr, code = np_flags_parse(argc, argv, retries ? flags : flags + 1, NULL, &nr);
    double seconds;
    char body[64];

    if (code == 0)
        code = np_run_ids(argv[0], argv + 1, nr);
    if (code)
        return code;
    if (limit && !np_parse_span(limit, &seconds)) {
        fprintf(stderr, "nnpipe retry: --time-limit: expected " NP_SPAN_EXPECTED ", not \'%s\'\n",
            limit);
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
    struct wish wish = {.ask = ask_run, .method = "PATCH"};
    const struct np_flag flags[] = {NP_SERVICE_FLAGS(wish.json, wish.socket)};
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

/* hold, release */
int np_cmd_hold(int argc, char **argv)
{
    const bool held = strcmp(argv[0], "hold") == 0;
    struct wish wish = {
        .ask = ask_run, .method = "POST", .verb = held ? "hold" : "resume", .on = held};
    bool all = false;
    const struct np_flag flags[] = {
        {"--all", NULL, &all, NULL}, NP_SERVICE_FLAGS(wish.json, wish.socket)};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code == 0 && !all)
        code = np_run_ids(argv[0], argv + 1, nr);
    if (code)
        return code;
    if (!all)
        return for_each(&wish, argv + 1, nr);
    if (nr > 0) {
        fprintf(stderr, "nnpipe %s: --all is the whole queue; no runs beside it\n", argv[0]);
        return NP_EXIT_USAGE;
    }
    wish.ask = ask_queue;
    wish.body = held ? "{\"held\": true}" : "{\"held\": false}";
    return for_each(&wish, argv, 1);
}

/* drain, undrain */
int np_cmd_drain(int argc, char **argv)
{
    struct wish wish = {.ask = ask_device, .on = strcmp(argv[0], "drain") == 0};
    const struct np_flag flags[] = {NP_SERVICE_FLAGS(wish.json, wish.socket)};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr == 0) {
        fprintf(stderr, "nnpipe %s: which device? `nnpipe status` shows them\n", argv[0]);
        return NP_EXIT_USAGE;
    }
    return for_each(&wish, argv + 1, nr);
}
