/* Commands that change runs: `nnpipe stop|pause|resume|retry|hold|release|rm ID...`, `nnpipe
 * priority ID... N`; and devices: `nnpipe drain|undrain DEVICE...`. One request per operand.
 * Main thread. */
#include <stdio.h>
#include <string.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "loader/base/json.h"
#include "loader/base/text.h"

struct action {
    int (*send)(struct np_client *client, const struct action *action, const char *operand,
        struct np_err *err);
    const char *method, *verb; /* of /v1/runs/ID/verb; verb NULL: /v1/runs/ID */
    const char *body;          /* JSON, or NULL */
    const char *socket;
    bool json;
    bool on; /* hold or drain; else release or undrain */
};

static int send_run(
    struct np_client *client, const struct action *action, const char *operand, struct np_err *err)
{
    const bool removes = !action->verb && !action->body;
    struct np_response response;
    struct np_node *run = NULL;
    char target[64];

    snprintf(target, sizeof(target), "/v1/runs/%s%s%s", operand, action->verb ? "/" : "",
        action->verb ? action->verb : "");
    const int code =
        removes ? np_client_request(client, action->method, target, NULL, &response, err)
                : np_client_request_node(client, action->method, target, action->body, &run, err);
    if (code < 0)
        return code;
    if (removes && action->json)
        printf("{\"event\": \"removed\", \"id\": %s}\n", operand);
    else if (removes)
        printf("run %s: removed; its folder stays\n", operand);
    else if (action->json)
        np_run_print_json(run, stdout);
    else
        printf("run %s: %s\n", operand, np_node_text(run, "state"));
    np_node_free(run);
    return 0;
}

/* Sends a PATCH, then prints the response with --json, else text. */
static int patch(struct np_client *client, const struct action *action, const char *target,
    const char *text, struct np_err *err)
{
    struct np_response response;
    const int code = np_client_request(client, "PATCH", target, action->body, &response, err);

    if (code == 0 && action->json)
        fwrite(response.body, 1, response.bytes, stdout);
    else if (code == 0)
        printf("%s\n", text);
    return code;
}

static int send_device(
    struct np_client *client, const struct action *action, const char *operand, struct np_err *err)
{
    struct action one = *action;
    struct np_json body = {0};
    char text[256];

    np_json_begin(&body, NULL);
    np_json_text(&body, "device", operand);
    np_json_bool(&body, "drained", action->on);
    one.body = np_json_end(&body);
    snprintf(text, sizeof(text), "%s: %s", operand,
        action->on ? "drained: no new run is started there; running runs continue"
                   : "not drained: runs start there again");
    const int code = patch(client, &one, "/v1/devices", text, err);
    np_json_fini(&body);
    return code;
}

/* After a refused request, sends the others. */
static int for_each(const struct action *action, char **operands, int nr)
{
    struct np_client *client = np_client_open(action->socket);
    int exit_code = NP_EXIT_DONE;

    for (int i = 0; i < nr; i++) {
        struct np_err err = {0};

        if (action->send(client, action, operands[i], &err) < 0) {
            np_complain(&err);
            exit_code = NP_EXIT_FAILED;
        }
    }
    np_client_close(client);
    return exit_code;
}

/* stop, pause, resume, retry, rm */
int np_cmd_change(int argc, char **argv)
{
    const bool removes = strcmp(argv[0], "rm") == 0, retries = strcmp(argv[0], "retry") == 0;
    struct action action = {
        .send = send_run, .method = removes ? "DELETE" : "POST", .verb = removes ? NULL : argv[0]};
    const char *limit = NULL;
    const struct np_flag flags[] = {
        {"--time-limit", &limit, NULL, NULL}, NP_SERVICE_FLAGS(action.json, action.socket)};
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
        action.body = body;
    }
    return for_each(&action, argv + 1, nr);
}

/* Removes a negative number from argv, because np_flags_parse() would take it for a flag. NULL:
 * none. */
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
    struct action action = {.send = send_run, .method = "PATCH"};
    const struct np_flag flags[] = {NP_SERVICE_FLAGS(action.json, action.socket)};
    const char *number = take_number(&argc, argv);
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);
    char body[64];
    int64_t value;

    if (code)
        return code;
    if (!number && nr > 0)
        number = argv[nr--];
    if (nr == 0 || !np_text_int(number, INT64_MIN, INT64_MAX, &value)) {
        fprintf(stderr, "nnpipe priority: expected run numbers, then their priority: "
                        "`nnpipe priority 7 -5`\n");
        return NP_EXIT_USAGE;
    }
    if ((code = np_run_ids("priority", argv + 1, nr)))
        return code;
    snprintf(body, sizeof(body), "{\"priority\": %lld}", (long long)value);
    action.body = body;
    return for_each(&action, argv + 1, nr);
}

/* hold, release */
int np_cmd_hold(int argc, char **argv)
{
    const bool held = strcmp(argv[0], "hold") == 0;
    struct action action = {
        .send = send_run, .method = "POST", .verb = held ? "hold" : "resume", .on = held};
    bool all = false;
    const struct np_flag flags[] = {
        {"--all", NULL, &all, NULL}, NP_SERVICE_FLAGS(action.json, action.socket)};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code == 0 && !all)
        code = np_run_ids(argv[0], argv + 1, nr);
    if (code)
        return code;
    if (!all)
        return for_each(&action, argv + 1, nr);
    if (nr > 0) {
        fprintf(stderr, "nnpipe %s: give run numbers or --all, not both\n", argv[0]);
        return NP_EXIT_USAGE;
    }
    struct np_client *client = np_client_open(action.socket);
    struct np_err err = {0};
    action.body = held ? "{\"held\": true}" : "{\"held\": false}";
    code = patch(client, &action, "/v1/service",
        held ? "the queue is held: no run is started until `nnpipe release --all`"
             : "the queue is released: runs start again",
        &err);
    return np_client_end(client, code, &err);
}

/* drain, undrain */
int np_cmd_drain(int argc, char **argv)
{
    struct action action = {.send = send_device, .on = strcmp(argv[0], "drain") == 0};
    const struct np_flag flags[] = {NP_SERVICE_FLAGS(action.json, action.socket)};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr == 0) {
        fprintf(stderr, "nnpipe %s: expected a device, as `nnpipe status` shows it\n", argv[0]);
        return NP_EXIT_USAGE;
    }
    return for_each(&action, argv + 1, nr);
}
