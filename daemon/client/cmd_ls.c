/* `nnpipe ls` and `nnpipe status [ID]`: the runs of the service, and its state. Main thread. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "daemon/ui/terminal.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"

/* The table is as wide as a terminal; in a pipe it has all columns. */
static int print_list(const struct np_node *response, bool json, bool all, struct np_err *err)
{
    const struct np_node *runs = np_node_get(response, "runs");
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
            code = np_runs_add(&table, runs->items[i], err);
    if (!json && nr > 0)
        np_table_print(&table, &look, stdout);
    else if (!json)
        puts(all ? "no runs; `nnpipe submit CONFIG` queues one"
                 : "no queued or running runs; `nnpipe ls --all` lists finished ones, too");
    np_table_fini(&table);
    return code;
}

int np_cmd_ls(int argc, char **argv)
{
    const char *socket = NULL;
    const char *state = NULL, *owner = NULL, *name = NULL, *number = NULL, *sweep = NULL;
    bool all = false, mine = false, json = false;
    const struct np_flag flags[] = {{"--all", NULL, &all, NULL}, {"--state", &state, NULL, NULL},
        {"--owner", &owner, NULL, NULL}, {"--name", &name, NULL, NULL}, {"-n", &number, NULL, NULL},
        {"--sweep", &sweep, NULL, NULL}, {"--mine", NULL, &mine, NULL},
        NP_SERVICE_FLAGS(json, socket)};
    struct np_node *response = NULL;
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr != 0) {
        fprintf(stderr, "nnpipe ls: it takes no operands; `nnpipe status ID` shows one run\n");
        return NP_EXIT_USAGE;
    }
    char own[24];
    snprintf(own, sizeof(own), "%u", (unsigned)getuid());
    if (mine)
        owner = own;
    if (!all && !state)
        state = NP_RUN_UNFINISHED;
    char *target = np_strdup("/v1/runs?");
    target = np_client_filter(target, "state", state);
    target = np_client_filter(target, "owner", owner);
    target = np_client_filter(target, "name", name);
    target = np_client_filter(target, "sweep", sweep);
    target = np_client_filter(target, "tail", number);
    struct np_client *client = np_client_open(socket);
    code = np_client_request_node(client, "GET", target, NULL, &response, &err);
    if (code == 0)
        code = print_list(response, json, all, &err);
    np_node_free(response);
    np_free(target);
    return np_client_end(client, code, &err);
}

static void print_devices(const struct np_node *response)
{
    const struct np_node *devices = np_node_get(response, "devices");

    for (int i = 0; devices && devices->kind == NP_NODE_LIST && i < devices->nr_items; i++) {
        const struct np_node *device = devices->items[i];
        const char *waiting = np_node_text(device, "reserved_for");

        printf("  %s  %s, %s of %s slots in use", np_node_text(device, "name"),
            np_node_text(device, "state"), np_node_text(device, "busy"),
            np_node_text(device, "slots"));
        if (np_node_number(device, "reserved", 0) > 0)
            printf(", %s kept free for run %s", np_node_text(device, "reserved"), waiting);
        putchar('\n');
    }
}

static void print_service(const struct np_node *service, bool json)
{
    if (json) {
        struct np_json line = {0};

        np_json_begin(&line, "service");
        for (int i = 0; i < service->nr_items; i++)
            np_json_node(&line, service->items[i]->key, service->items[i]);
        np_json_print(&line, stdout);
        np_json_fini(&line);
        return;
    }
    printf("nnpipe %s, process %s, for %s\n  %s running, %s queued; the queue is in %s\n",
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
    const struct np_flag flags[] = {NP_SERVICE_FLAGS(json, socket)};
    struct np_node *response = NULL, *devices = NULL;
    struct np_err err = {0};
    int64_t id = 0;
    char target[64] = "/v1/service";
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 1 || (nr == 1 && !np_run_id(argv[1], &id))) {
        fprintf(
            stderr, "nnpipe status: expected at most one run number, as `nnpipe ls` shows it\n");
        return NP_EXIT_USAGE;
    }
    if (id > 0)
        snprintf(target, sizeof(target), "/v1/runs/%lld", (long long)id);
    struct np_client *client = np_client_open(socket);
    code = np_client_request_node(client, "GET", target, NULL, &response, &err);
    if (code == 0 && id == 0) {
        print_service(response, json);
        if (!json)
            code = np_client_request_node(client, "GET", "/v1/devices", NULL, &devices, &err);
        print_devices(devices);
    } else if (code == 0) {
        (json ? np_run_print_json : np_run_print_whole)(response, stdout);
    }
    np_node_free(devices);
    np_node_free(response);
    return np_client_end(client, code, &err);
}
