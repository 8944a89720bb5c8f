/* `nnpipe ls` and `nnpipe status [ID]`: what the service has. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/retry.h"
#include "daemon/cmd.h"
#include "daemon/ui/terminal.h"
#include "loader/base/mem.h"

static int end(struct np_client *client, int code, const struct np_err *err)
{
    np_client_close(client);
    if (code < 0)
        np_complain(err);
    return code < 0 ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

/* A terminal gets a table as wide as it is, a pipe all of it. */
static int print_list(const struct np_node *answer, bool json, bool all)
{
    const struct np_node *runs = np_node_get(answer, "runs");
    const int nr = runs && runs->kind == NP_NODE_LIST ? runs->nr_items : 0;
    struct np_table_look look = {.chosen = -1,
        .width = np_terminal_columns(STDOUT_FILENO),
        .colour = np_terminal_colour(STDOUT_FILENO)};
    struct np_table table;
    int code = 0;

    np_runs_table(false, &table);
    for (int i = 0; i < nr && code == 0; i++)
        if (json)
            np_run_print_json(runs->items[i], stdout);
        else
            code = np_runs_add(&table, false, runs->items[i]);
    if (!json && nr > 0)
        np_table_print(&table, &look, stdout);
    else if (!json)
        puts(all ? "no such run; `nnpipe submit CONFIG` adds one"
                 : "no such run is queued or running; `nnpipe ls --all` shows finished ones, too");
    np_table_fini(&table);
    return code;
}

struct choice { /* of runs; NULL: any */
    const char *state, *owner, *name, *number;
};

/* What the service is asked for it; np_free. NULL: no memory. */
static char *target_of(const struct choice *choice)
{
    const char *const pairs[][2] = {{"state", choice->state}, {"owner", choice->owner},
        {"name", choice->name}, {"tail", choice->number}};
    char *target = np_strdup("/v1/runs?");

    for (size_t i = 0; target && i < sizeof(pairs) / sizeof(*pairs); i++) {
        char *value = pairs[i][1] ? np_client_escape(pairs[i][1]) : NULL;
        char *longer = value ? np_format("%s&%s=%s", target, pairs[i][0], value) : NULL;

        if (longer || pairs[i][1]) {
            np_free(target);
            target = longer;
        }
        np_free(value);
    }
    return target;
}

int np_cmd_ls(int argc, char **argv)
{
    const char *socket = NULL;
    struct choice choice = {0};
    bool all = false, mine = false, json = false;
    const struct np_flag flags[] = {
        {"--all", NULL, &all, NULL},
        {"--state", &choice.state, NULL, NULL},
        {"--owner", &choice.owner, NULL, NULL},
        {"--name", &choice.name, NULL, NULL},
        {"-n", &choice.number, NULL, NULL},
        {"--mine", NULL, &mine, NULL},
        {"--json", NULL, &json, NULL},
        {"--socket", &socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_client *client = NULL;
    struct np_node *answer = NULL;
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr != 0) {
        fprintf(stderr, "nnpipe ls: no operands are expected; `nnpipe status ID` shows one run\n");
        return NP_EXIT_USAGE;
    }
    char own[24];
    snprintf(own, sizeof(own), "%u", (unsigned)getuid());
    if (mine)
        choice.owner = own;
    if (!all && !choice.state)
        choice.state = "queued,running,pausing,yielding,stopping,paused";
    char *target = target_of(&choice);
    code =
        target ? np_client_open(socket, &client, &err) : np_err_set(&err, -ENOMEM, "out of memory");
    if (code == 0)
        code = np_client_ask_node(client, "GET", target, NULL, &answer, &err);
    if (code == 0 && print_list(answer, json, all) < 0)
        code = np_err_set(&err, -ENOMEM, "out of memory");
    np_node_free(answer);
    np_free(target);
    return end(client, code, &err);
}

static void print_devices(const struct np_node *answer)
{
    const struct np_node *devices = np_node_get(answer, "devices");

    for (int i = 0; devices && devices->kind == NP_NODE_LIST && i < devices->nr_items; i++) {
        const struct np_node *device = devices->items[i], *runs = np_node_get(device, "runs");

        printf("  %s  %s, %d of %s runs\n", np_node_text(device, "name"),
            np_node_text(device, "state"), runs ? runs->nr_items : 0,
            np_node_text(device, "slots"));
    }
}

static void print_service(const struct np_node *service, bool json)
{
    if (json) {
        struct np_json line = {0};

        np_json_begin(&line, "service");
        for (int i = 0; i < service->nr_items; i++)
            np_json_node(&line, service->items[i]->key, service->items[i]);
        const char *text = np_json_end(&line);
        fputs(text ? text : "", stdout);
        np_json_fini(&line);
        return;
    }
    printf("nnpipe %s, process %s, for %s\n  running %s, queued %s; the queue is in %s\n",
        np_node_text(service, "version"), np_node_text(service, "pid"),
        strcmp(np_node_text(service, "mode"), "box") == 0 ? "the box" : "one user",
        np_node_text(service, "running"), np_node_text(service, "queued"),
        np_node_text(service, "state_dir"));
    if (np_node_is(np_node_get(service, "held"), "true"))
        puts("  the queue is held: no run is started until `nnpipe release --all`");
}

int np_cmd_status(int argc, char **argv)
{
    const char *socket = NULL;
    bool json = false;
    const struct np_flag flags[] = {
        {"--json", NULL, &json, NULL},
        {"--socket", &socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_client *client = NULL;
    struct np_node *answer = NULL, *devices = NULL;
    struct np_err err = {0};
    int64_t id = 0;
    char target[64] = "/v1/service";
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 1 || (nr == 1 && !np_run_id(argv[1], &id))) {
        fprintf(
            stderr, "nnpipe status: expected at most one run's number, as `nnpipe ls` shows it\n");
        return NP_EXIT_USAGE;
    }
    if (id > 0)
        snprintf(target, sizeof(target), "/v1/runs/%lld", (long long)id);
    code = np_client_open(socket, &client, &err);
    if (code == 0)
        code = np_client_ask_node(client, "GET", target, NULL, &answer, &err);
    if (code == 0 && id == 0) {
        print_service(answer, json);
        if (!json)
            code = np_client_ask_node(client, "GET", "/v1/devices", NULL, &devices, &err);
        if (code == 0 && !json)
            print_devices(devices);
    }
    if (code == 0 && id > 0 && json)
        np_run_print_json(answer, stdout);
    else if (code == 0 && id > 0)
        np_run_print_whole(answer, stdout);
    np_node_free(devices);
    np_node_free(answer);
    return end(client, code, &err);
}
