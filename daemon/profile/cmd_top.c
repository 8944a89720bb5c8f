/* `nnpipe top [ID | RUN]`: lists the running runs, or shows one run with its stages; every
 * second, or once. The runs come from the service if there is one, else from the folders below
 * `runs`; both as RUN of docs/SERVICE.md. Main thread. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/analysis/profile_fields.h"
#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "daemon/profile/trial.h"
#include "daemon/run/runs_found.h"
#include "daemon/ui/terminal.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"

#define EVERY_MS  1000
#define TAIL      1000000ll /* bytes of metrics: enough to hold a pipeline line */
#define NR_OTHERS 4         /* lines of the screen that are not runs */
#define RUN_ID    PATH_MAX

struct top {
    struct np_client *client; /* NULL: there is no service */
    const char *sweep;        /* show only its runs; NULL: all */
    const char *runs;         /* the folder of runs if there is no service */
    bool live, json, colour;
    bool folders_only; /* --runs was given: do not look for a service */
    struct np_terminal screen;
    struct np_node *response;          /* {"runs": [RUN...]}; NULL: none yet */
    char tag[96];                      /* the response's ETag; "": none */
    char chosen[RUN_ID], open[RUN_ID]; /* as id_of(); open "": the list is shown */
    int chosen_at;                     /* the row of the chosen run */
    const char *verb;                  /* the action that waits for confirmation; NULL: none */
    bool away;                         /* the service does not answer: the screen is old */
    char message[256];                 /* on the last line, until the next key */
    int64_t next;                      /* byte of the open run's metrics; -1: read their end */
    struct np_node *pipeline;          /* the open run's newest pipeline line; NULL: none */
};

static const struct np_node *runs_of(const struct top *top)
{
    const struct np_node *runs = top->response ? np_node_get(top->response, "runs") : NULL;

    return runs && runs->kind == NP_NODE_LIST ? runs : NULL;
}

static int nr_runs(const struct top *top)
{
    return runs_of(top) ? runs_of(top)->nr_items : 0;
}

/* A run's number, or without a service its folder. */
static const char *id_of(const struct np_node *run)
{
    return np_node_get(run, "id") ? np_node_text(run, "id") : np_node_text(run, "dir");
}

/* -1: not found. */
static int index_of(const struct top *top, const char *id)
{
    for (int i = 0; *id && i < nr_runs(top); i++)
        if (strcmp(id_of(runs_of(top)->items[i]), id) == 0)
            return i;
    return -1;
}

static const struct np_node *run_of(const struct top *top, const char *id)
{
    const int i = index_of(top, id);

    return i < 0 ? NULL : runs_of(top)->items[i];
}

/* --- reading ------------------------------------------------------------------------------- */

static void set_pipeline(struct top *top, struct np_node *line)
{
    np_node_free(top->pipeline);
    top->pipeline = line;
}

/* Reads the running runs below `runs`, or the open run and its pipeline line. */
static int read_folders(struct top *top, struct np_node **ret_response, struct np_err *err)
{
    struct np_found_runs runs = {0};
    struct np_json json = {0};
    int code = np_runs_find(*top->open ? top->open : top->runs, true, &runs, err);

    if (code == -ENOENT && !*top->open) { /* no run was ever started here */
        *err = (struct np_err){0};
        code = 0;
    }
    np_json_begin(&json, NULL);
    np_runs_write(&json, &runs);
    char *text = np_json_take(&json, err);
    if (code == 0)
        code = text ? np_json_parse(text, strlen(text), ret_response, err) : -ENOMEM;
    if (code == 0 && *top->open && runs.nr_runs == 1 && runs.runs[0].pipeline) {
        set_pipeline(top, runs.runs[0].pipeline);
        runs.runs[0].pipeline = NULL;
    }
    np_free(text);
    np_runs_free(&runs);
    return code;
}

/* Adds the open run to the list if it has finished; a removed run is left out. */
static int read_open_run(struct top *top, struct np_err *err)
{
    struct np_node *runs = (struct np_node *)runs_of(top), *run = NULL;
    char target[RUN_ID + 16];

    if (!*top->open || !runs || run_of(top, top->open))
        return 0;
    snprintf(target, sizeof(target), "/v1/runs/%s", top->open);
    const int code = np_client_request_node(top->client, "GET", target, NULL, &run, err);
    if (code == 0)
        np_node_add(runs, NULL, run);
    return code == -EREMOTEIO ? 0 : code;
}

/* Reads the unfinished runs and the open one. The service does not send an unchanged list again. */
static int read_runs(struct top *top, struct np_err *err)
{
    struct np_response response = {0};
    struct np_node *node = NULL;
    int code;

    if (top->client) {
        np_client_if_changed(top->client, top->response ? top->tag : "");
        char *target =
            np_client_filter(np_strdup("/v1/runs?state=" NP_RUN_UNFINISHED), "sweep", top->sweep);
        code = np_client_request(top->client, "GET", target, NULL, &response, err);
        np_free(target);
        if (code == 0 && response.status != 304)
            code = np_json_parse(response.body, response.bytes, &node, err);
    } else {
        code = read_folders(top, &node, err);
    }
    if (node) {
        np_node_free(top->response);
        top->response = node;
        snprintf(top->tag, sizeof(top->tag), "%s", response.tag);
    }
    return code < 0 || !top->client ? code : read_open_run(top, err);
}

/* The last pipeline line of a list of metrics, oldest first; NULL: none. */
static const struct np_node *newest_pipeline(const struct np_node *points)
{
    for (int i = points && points->kind == NP_NODE_LIST ? points->nr_items - 1 : -1; i >= 0; i--) {
        const struct np_node *line = points->items[i];

        if (line->kind == NP_NODE_MAP && np_node_is(np_node_get(line, "event"), "pipeline"))
            return line;
    }
    return NULL;
}

/* Reads the open run's new pipeline lines. -EREMOTEIO: the metrics belong to another user. */
static int read_pipeline(struct top *top, struct np_err *err)
{
    struct np_node *response = NULL;
    char target[RUN_ID + 64];

    snprintf(target, sizeof(target), "/v1/runs/%s/metrics?%s=%lld&most=100000", top->open,
        top->next < 0 ? "tail" : "from", top->next < 0 ? TAIL : (long long)top->next);
    const int code = np_client_request_node(top->client, "GET", target, NULL, &response, err);
    if (code < 0)
        return code;
    const struct np_node *line = newest_pipeline(np_node_get(response, "points"));
    if (line)
        set_pipeline(top, np_node_copy(line));
    const int64_t next = (int64_t)np_node_number(response, "next", 0);
    top->next = next < top->next ? -1 : next; /* the file was truncated: read its end again */
    np_node_free(response);
    return 0;
}

/* Returns 0 also if the service does not answer. */
static int refresh(struct top *top, struct np_err *err)
{
    struct np_err fresh = {0};
    int code = read_runs(top, &fresh);

    if (code == 0 && top->client && run_of(top, top->open) &&
        (code = read_pipeline(top, &fresh)) == -EREMOTEIO) {
        snprintf(top->message, sizeof(top->message), "%s", fresh.text);
        code = 0;
    }
    top->away = top->client && top->response && (code == -ECONNREFUSED || code == -EIO);
    if (code == 0 || top->away)
        return 0;
    *err = fresh;
    return code;
}

static void change(struct top *top, const char *verb, const char *id)
{
    struct np_response response;
    struct np_err err = {0};
    char target[RUN_ID + 32];

    snprintf(target, sizeof(target), "/v1/runs/%s/%s", id, verb);
    if (np_client_request(top->client, "POST", target, NULL, &response, &err) < 0)
        snprintf(top->message, sizeof(top->message), "%s", err.text);
    else
        snprintf(top->message, sizeof(top->message), "run %.40s: %s requested", id, verb);
}

/* --- drawing ------------------------------------------------------------------------------- */

static void put_summary(const struct top *top, FILE *out)
{
    static const char *const states[] = {"running", "queued", "paused"};

    fputs("nnpipe:", out);
    for (size_t s = 0; s < (top->client ? 3 : 1); s++) {
        int n = 0;

        for (int i = 0; i < nr_runs(top); i++)
            n += strcmp(np_node_text(runs_of(top)->items[i], "state"), states[s]) == 0;
        fprintf(out, "%s %d %s", s ? "," : "", n, states[s]);
    }
    fputs("\n\n", out);
}

/* Draws the row of one run, or if only is NULL up to `max` rows (0: all), with the chosen one. */
static int put_table(
    const struct top *top, const struct np_node *only, int max, FILE *out, struct np_err *err)
{
    struct np_table_look look = {
        .width = top->screen.columns, .max = max, .chosen = -1, .colour = top->colour};
    struct np_table table;
    int code = 0;

    np_runs_table(true, &table);
    for (int i = 0; i < nr_runs(top) && code == 0; i++) {
        const struct np_node *run = runs_of(top)->items[i];

        if (only && run != only)
            continue;
        if (!only && top->live && strcmp(id_of(run), top->chosen) == 0)
            look.chosen = table.nr_rows;
        code = np_runs_add(&table, run, err);
    }
    if (max > 0 && look.chosen >= max)
        look.first = look.chosen - max + 1;
    if (table.nr_rows > 0)
        np_table_print(&table, &look, out);
    else if (code == 0 && top->client)
        fputs("no queued or running runs; `nnpipe submit CONFIG` queues one\n", out);
    else if (code == 0)
        fprintf(out, "no running runs below %s%s\n", top->runs,
            top->folders_only ? "" : ", and no service answers");
    np_table_fini(&table);
    return code;
}

static int put_stages(const struct top *top, FILE *out, struct np_err *err)
{
    const struct np_node *run = run_of(top, top->open);
    const int width = top->screen.columns;
    struct np_profile profile;
    char missing[128];
    int code;

    if (!run) {
        fprintf(out, "run %s no longer exists\n", top->open);
        return 0;
    }
    if ((code = put_table(top, run, 0, out, err)) < 0)
        return code;
    if (*np_node_text(run, "reason"))
        fprintf(out, "\n%s\n", np_node_text(run, "reason"));
    fputc('\n', out);
    if (!top->pipeline ||
        !np_fields_read_profile(top->pipeline, &profile, missing, sizeof(missing))) {
        fputs("no pipeline measurements yet: they come every two seconds of training\n", out);
        return 0;
    }
    np_profile_screen(&profile, width >= 40 ? width : 100, top->colour, out);
    if (*missing)
        fprintf(out, " not measured alone: %s; `nnpipe profile` measures it\n", missing);
    return 0;
}

static void write_bottom(const struct top *top, char *text, size_t bytes)
{
    const struct np_node *run = run_of(top, *top->open ? top->open : top->chosen);
    const char *bold = top->colour ? "\033[1m" : "", *dim = top->colour ? "\033[2m" : "";

    if (top->verb && run)
        snprintf(text, bytes, "%s%s run %s, %s? y: yes, any other key: no", bold, top->verb,
            np_node_text(run, "id"), np_node_text(run, "name"));
    else if (*top->message || top->away)
        snprintf(text, bytes, "%s%s", bold,
            *top->message ? top->message
                          : "the service does not answer: this screen is not up to date");
    else
        snprintf(text, bytes, "%s%s %sq: end", dim,
            *top->open ? "escape: all runs " : "j, k: choose  enter: stages ",
            top->client ? "p: pause  r: resume  s: stop  " : "");
}

static int draw(struct top *top, struct np_err *err)
{
    FILE *out = np_terminal_begin(&top->screen);
    const int max = top->screen.lines - NR_OTHERS;
    char text[400];
    int code;

    if (!out)
        return np_err_set(err, -ENOMEM, "out of memory");
    if (!*top->open)
        put_summary(top, out);
    code =
        *top->open ? put_stages(top, out, err) : put_table(top, NULL, max > 0 ? max : 1, out, err);
    if (code < 0)
        return code;
    write_bottom(top, text, sizeof(text));
    return np_terminal_show(&top->screen, text);
}

/* --- keys ---------------------------------------------------------------------------------- */

static void choose(struct top *top, int at)
{
    if (at < 0 || at >= nr_runs(top))
        return;
    top->chosen_at = at;
    snprintf(top->chosen, sizeof(top->chosen), "%s", id_of(runs_of(top)->items[at]));
}

/* Keeps the choice when rows move; if the run has gone, chooses the row in its place. */
static void keep_chosen(struct top *top)
{
    const int at = index_of(top, top->chosen), last = nr_runs(top) - 1;

    choose(top, at >= 0 ? at : top->chosen_at > last ? last : top->chosen_at);
}

static void open_run(struct top *top, const char *id)
{
    snprintf(top->open, sizeof(top->open), "%s", id);
    top->tag[0] = '\0'; /* the list must be read again: this run may not be in it */
    top->next = -1;
    set_pipeline(top, NULL);
}

/* True: the user wants to quit. */
static bool handle_key(struct top *top, int key)
{
    static const struct {
        int key;
        const char *verb;
    } verbs[] = {{'p', "pause"}, {'r', "resume"}, {'s', "stop"}};
    const char *id = *top->open ? top->open : top->chosen;

    if (key == NP_KEY_NONE || key == NP_KEY_SIZE)
        return false;
    if (key == NP_KEY_END)
        return true;
    top->message[0] = '\0';
    if (top->verb) {
        if (key == 'y' || key == 'Y')
            change(top, top->verb, id);
        top->verb = NULL;
        return false;
    }
    switch (key) {
    case 'q':
    case 'Q': return true;
    case 'j':
    case NP_KEY_DOWN: choose(top, *top->open ? -1 : top->chosen_at + 1); break;
    case 'k':
    case NP_KEY_UP: choose(top, *top->open ? -1 : top->chosen_at - 1); break;
    case '\r':
    case '\n': open_run(top, *top->open ? "" : top->chosen); break;
    case NP_KEY_ESCAPE:
    case 127:
    case 8: open_run(top, ""); break;
    default:
        for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
            if (verbs[i].key == key && top->client && run_of(top, id))
                top->verb = verbs[i].verb;
    }
    return false;
}

static int run_live(struct top *top, struct np_err *err)
{
    int code = np_terminal_open(&top->screen, err);

    if (code < 0)
        return code;
    for (bool ends = false; !ends && code == 0;) {
        keep_chosen(top);
        if ((code = draw(top, err)) < 0)
            break;
        const int key = np_terminal_key(&top->screen, EVERY_MS);
        ends = handle_key(top, key);
        if (!ends && key != NP_KEY_SIZE)
            code = refresh(top, err);
    }
    np_terminal_close(&top->screen);
    return code == -EPIPE ? 0 : code;
}

/* --- once ---------------------------------------------------------------------------------- */

static int print_once(struct top *top, struct np_err *err)
{
    const struct np_node *only = run_of(top, top->open);

    top->screen.columns = np_terminal_columns(STDOUT_FILENO);
    for (int i = 0; top->json && i < nr_runs(top); i++)
        if (!only || runs_of(top)->items[i] == only)
            np_run_print_json(runs_of(top)->items[i], stdout);
    return top->json    ? 0
           : *top->open ? put_stages(top, stdout, err)
                        : put_table(top, NULL, 0, stdout, err);
}

/* Connects to the service, unless the user named a folder; leaves client NULL if there is none. */
static void find_service(struct top *top, const char *run, const char *socket)
{
    struct np_response response;
    struct np_err ignored = {0};
    int64_t id = 0;

    if (top->folders_only || (run && !np_run_id(run, &id)))
        return;
    top->client = np_client_open(socket);
    if (np_client_request(top->client, "GET", "/v1/service", NULL, &response, &ignored) < 0 &&
        !socket) {
        np_client_close(top->client);
        top->client = NULL;
    } else if (id > 0) {
        snprintf(top->open, sizeof(top->open), "%lld", (long long)id);
    }
}

int np_cmd_top(int argc, char **argv)
{
    struct top top = {.next = -1};
    const char *socket = NULL;
    bool once = false;
    const struct np_flag flags[] = {{"--runs", &top.runs, NULL, NULL},
        {"--once", NULL, &once, NULL}, {"--sweep", &top.sweep, NULL, NULL},
        NP_SERVICE_FLAGS(top.json, socket)};
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 1) {
        fprintf(stderr, "nnpipe top: expected at most one ID or RUN, not %d\n", nr);
        return NP_EXIT_USAGE;
    }
    if (top.sweep && top.runs)
        return np_usage("top", "--sweep is for the runs of a service, --runs for folders");
    top.folders_only = top.runs != NULL;
    top.runs = top.runs ? top.runs : "runs";
    top.live = isatty(STDOUT_FILENO) && !once && !top.json;
    top.colour = np_terminal_colour(STDOUT_FILENO);
    find_service(&top, nr ? argv[1] : NULL, socket);
    if (!top.client && nr) {
        char *dir = np_runs_folder(top.runs, argv[1]);

        snprintf(top.open, sizeof(top.open), "%s", dir);
        np_free(dir);
    }
    code = !top.sweep || top.client ? refresh(&top, &err)
                                    : np_err_set(&err, -ECONNREFUSED,
                                          "--sweep: no service answers; see `nnpipe help top`");
    if (code == 0 && *top.open && !run_of(&top, top.open))
        code = np_err_set(&err, -ENOENT, "there is no run %s; `nnpipe %s` shows them", top.open,
            top.client ? "ls --all" : "runs");
    if (code == 0)
        code = top.live ? run_live(&top, &err) : print_once(&top, &err);
    np_node_free(top.pipeline);
    np_node_free(top.response);
    return np_client_end(top.client, code, &err);
}
