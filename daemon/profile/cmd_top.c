/* `nnpipe top [ID | RUN]`: the running runs, one line each, or one with its stages; once a second, or once. They are
 * those of the service where one answers, else those of the folders below `runs`; both come as the RUNs of
 * docs/SERVICE.md. What is drawn is what was read last. Main thread. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

#define EVERY_MS   1000
#define TAIL       "1000000" /* bytes of metrics: a window of the pipeline is among them */
#define LINES_ELSE 4         /* of a frame, beside the runs */
#define RUN_ID     PATH_MAX

struct top {
    struct np_client *client; /* NULL: there is no service */
    const char *runs;         /* the folder of runs, where there is no service */
    bool live, json, colour;
    bool unasked; /* --runs was given: no service was looked for */
    struct np_terminal screen;
    struct np_node *answer;            /* {"runs": [RUN...]}; NULL: none yet */
    char tag[96];                      /* of the answer, as the service marked it; "": not known */
    char chosen[RUN_ID], open[RUN_ID]; /* as id_of(); open "": the list */
    int chosen_at;                     /* the row of the chosen run */
    const char *verb;                  /* the action that waits for a yes; NULL: none */
    bool away;                         /* the service does not answer: what is shown is old */
    char said[256];                    /* on the last line, until the next key */
    int64_t next;                      /* of the open run's metrics; -1: its end is not read yet */
    struct np_node *pipeline;          /* the open run's newest pipeline line; NULL: none */
};

static const struct np_node *runs_of(const struct top *top)
{
    const struct np_node *runs = top->answer ? np_node_get(top->answer, "runs") : NULL;

    return runs && runs->kind == NP_NODE_LIST ? runs : NULL;
}

static int nr_runs(const struct top *top)
{
    return runs_of(top) ? runs_of(top)->nr_items : 0;
}

/* What a run is named by: its number, or without a service its folder. */
static const char *id_of(const struct np_node *run)
{
    return np_node_get(run, "id") ? np_node_text(run, "id") : np_node_text(run, "dir");
}

/* -1: it is not among the runs. */
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

/* --- reading ------------------------------------------------------------------------------------ */

static void take_line(struct top *top, struct np_node *line)
{
    if (line) {
        np_node_free(top->pipeline);
        top->pipeline = line;
    }
}

/* A folder's run as a RUN, as far as the folder tells. */
static void write_run(struct np_json *json, const struct np_found_run *run)
{
    const struct np_node *knobs = run->pipeline ? np_node_get(run->pipeline, "knobs") : NULL;
    const char *device = np_node_text(knobs, "device");

    np_json_open(json, NULL, '{');
    np_json_text(json, "name", run->name);
    np_json_text(json, "state", np_run_states[run->state]);
    np_json_int(json, "pid", run->pid);
    np_json_text(json, "dir", run->dir);
    np_json_text(json, "assigned", *device ? device : NULL);
    np_json_open(json, "progress", '{');
    np_progress_write(json, &run->progress, false);
    np_json_close(json, '}');
    np_json_close(json, '}');
}

static int by_name(const void *left, const void *right)
{
    return strcmp(
        ((const struct np_found_run *)left)->dir, ((const struct np_found_run *)right)->dir);
}

/* The running runs below `runs`, or the open one and its pipeline. */
static int take_folders(struct top *top, struct np_node **ret_answer, struct np_err *err)
{
    struct np_found_runs runs = {0};
    struct np_json json = {0};
    struct np_err unread = {0};
    int code = np_runs_find(*top->open ? top->open : top->runs, true, &runs, &unread);

    if (code == -ENOENT && !*top->open)
        code = 0; /* no run was started here */
    if (runs.nr_runs > 0)
        qsort(runs.runs, (size_t)runs.nr_runs, sizeof(*runs.runs), by_name);
    np_json_begin(&json, NULL);
    np_json_open(&json, "runs", '[');
    for (int i = 0; i < runs.nr_runs; i++)
        write_run(&json, &runs.runs[i]);
    np_json_close(&json, ']');
    const char *text = np_json_end(&json);
    if (code < 0)
        *err = unread;
    else
        code = text ? np_json_parse(text, strlen(text), ret_answer, err)
                    : np_err_set(err, -ENOMEM, "out of memory");
    if (code == 0 && *top->open && runs.nr_runs == 1) {
        take_line(top, runs.runs[0].pipeline);
        runs.runs[0].pipeline = NULL;
    }
    np_json_fini(&json);
    np_runs_free(&runs);
    return code;
}

/* The open run, where it is over and so not among the others; a run that was removed is left out. */
static int take_open(struct top *top, struct np_err *err)
{
    struct np_node *runs = (struct np_node *)runs_of(top),
                   *run = NULL; /* of answer, which is ours */
    char target[RUN_ID + 16];

    if (!*top->open || !runs || run_of(top, top->open))
        return 0;
    snprintf(target, sizeof(target), "/v1/runs/%s", top->open);
    const int code = np_client_ask_node(top->client, "GET", target, NULL, &run, err);
    if (code == 0)
        np_node_add(runs, NULL, run);
    return code == -EREMOTEIO ? 0 : code;
}

/* The runs that are not over, and the open one. An answer that has not changed is not sent again. */
static int take_runs(struct top *top, struct np_err *err)
{
    struct np_answer answer = {0};
    struct np_node *node = NULL;
    int code;

    if (top->client) {
        np_client_unless(top->client, top->answer ? top->tag : "");
        code = np_client_ask(
            top->client, "GET", "/v1/runs?state=" NP_RUN_NOT_OVER, NULL, &answer, err);
        if (code == 0 && answer.status != 304)
            code = np_json_parse(answer.body, answer.bytes, &node, err);
    } else {
        code = take_folders(top, &node, err);
    }
    if (node) {
        np_node_free(top->answer);
        top->answer = node;
        snprintf(top->tag, sizeof(top->tag), "%s", answer.tag);
    }
    return code < 0 || !top->client ? code : take_open(top, err);
}

/* Of lines of a metrics.jsonl, oldest first: the newest pipeline line; NULL: there is none. */
static const struct np_node *newest_pipeline(const struct np_node *points)
{
    for (int i = points && points->kind == NP_NODE_LIST ? points->nr_items - 1 : -1; i >= 0; i--) {
        const struct np_node *line = points->items[i];

        if (line->kind == NP_NODE_MAP && np_node_is(np_node_get(line, "event"), "pipeline"))
            return line;
    }
    return NULL;
}

/* What is new of the open run's pipeline. Its metrics are its owner's: others see the run's line alone. */
static int take_pipeline(struct top *top, struct np_err *err)
{
    struct np_node *answer = NULL;
    char target[RUN_ID + 64];
    int code;

    if (top->next < 0)
        snprintf(
            target, sizeof(target), "/v1/runs/%s/metrics?tail=" TAIL "&most=100000", top->open);
    else
        snprintf(target, sizeof(target), "/v1/runs/%s/metrics?from=%lld&most=100000", top->open,
            (long long)top->next);
    if ((code = np_client_ask_node(top->client, "GET", target, NULL, &answer, err)) < 0)
        return code;
    take_line(top, np_node_copy(newest_pipeline(np_node_get(answer, "points"))));
    const int64_t next = (int64_t)np_node_number(answer, "next", 0);
    top->next = next < top->next ? -1 : next; /* cut back: its end again, the next time */
    np_node_free(answer);
    return 0;
}

static bool is_away(int code)
{
    return code == -ECONNREFUSED || code == -EIO;
}

/* 0, also where the service is away; what it says about the open run's metrics is on the last line. */
static int look(struct top *top, struct np_err *err)
{
    struct np_err fresh = {0};
    int code = take_runs(top, &fresh);

    top->away = top->client && is_away(code) && top->answer;
    if (code == 0 && top->client && run_of(top, top->open) &&
        (code = take_pipeline(top, &fresh)) == -EREMOTEIO) {
        snprintf(top->said, sizeof(top->said), "%s", fresh.text);
        code = 0;
    }
    if (top->client && is_away(code) && top->answer)
        return 0;
    if (code < 0)
        *err = fresh;
    return code;
}

static void change(struct top *top, const char *verb, const char *id)
{
    struct np_answer answer;
    struct np_err err = {0};
    char target[RUN_ID + 32];

    snprintf(target, sizeof(target), "/v1/runs/%s/%s", id, verb);
    if (np_client_ask(top->client, "POST", target, NULL, &answer, &err) < 0)
        snprintf(top->said, sizeof(top->said), "%s", err.text);
    else
        snprintf(top->said, sizeof(top->said), "run %.40s: told to %s", id, verb);
}

/* --- drawing ------------------------------------------------------------------------------------ */

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

static void put_no_runs(const struct top *top, FILE *out)
{
    if (top->client)
        fputs("no run waits or goes on; `nnpipe submit CONFIG` adds one\n", out);
    else
        fprintf(out, "no run is running below %s%s\n", top->runs,
            top->unasked ? "" : ", and no service answers");
}

/* only: one run's line, or NULL: all, at most `max` of them (0: any number) with the chosen one among them. */
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
    else if (code == 0)
        put_no_runs(top, out);
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
        fprintf(out, "run %s is not there any more\n", top->open);
        return 0;
    }
    if ((code = put_table(top, run, 0, out, err)) < 0)
        return code;
    if (*np_node_text(run, "reason"))
        fprintf(out, "\n%s\n", np_node_text(run, "reason"));
    fputc('\n', out);
    if (!top->pipeline ||
        !np_fields_read_profile(top->pipeline, &profile, missing, sizeof(missing))) {
        fputs("nothing of its pipeline is told yet: a line comes every two seconds of training\n",
            out);
        return 0;
    }
    np_profile_screen(&profile, width >= 40 ? width : 100, top->colour, out);
    if (*missing)
        fprintf(out, " not measured alone: %s; `nnpipe profile` measures it\n", missing);
    return 0;
}

static void bottom(const struct top *top, char *text, size_t bytes)
{
    const struct np_node *run = run_of(top, *top->open ? top->open : top->chosen);
    const char *bold = top->colour ? "\033[1m" : "", *dim = top->colour ? "\033[2m" : "";

    if (top->verb && run)
        snprintf(text, bytes, "%s%s run %s, %s? y: yes, any other key: no", bold, top->verb,
            np_node_text(run, "id"), np_node_text(run, "name"));
    else if (*top->said)
        snprintf(text, bytes, "%s%s", bold, top->said);
    else if (top->away)
        snprintf(text, bytes, "%sthe service does not answer: this is from before", bold);
    else
        snprintf(text, bytes, "%s%s %sq: end", dim,
            *top->open ? "escape: all runs " : "j, k: choose  enter: its stages ",
            top->client ? "p: pause  r: resume  s: stop  " : "");
}

static int draw(struct top *top, struct np_err *err)
{
    FILE *out = np_terminal_begin(&top->screen);
    const int max = top->screen.lines - LINES_ELSE;
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
    bottom(top, text, sizeof(text));
    return np_terminal_show(&top->screen, text);
}

/* --- keys --------------------------------------------------------------------------------------- */

static void choose(struct top *top, int at)
{
    if (at < 0 || at >= nr_runs(top))
        return;
    top->chosen_at = at;
    snprintf(top->chosen, sizeof(top->chosen), "%s", id_of(runs_of(top)->items[at]));
}

/* The chosen run, or the one that stands where it stood. */
static void keep_chosen(struct top *top)
{
    const int at = index_of(top, top->chosen), last = nr_runs(top) - 1;

    choose(top, at >= 0 ? at : top->chosen_at > last ? last : top->chosen_at);
}

static void open_run(struct top *top, const char *id)
{
    snprintf(top->open, sizeof(top->open), "%s", id);
    top->tag[0] = '\0'; /* the list had the run that was open before, and may lack this one */
    top->next = -1;
    np_node_free(top->pipeline);
    top->pipeline = NULL;
}

static void ask(struct top *top, const char *verb)
{
    if (top->client && run_of(top, *top->open ? top->open : top->chosen))
        top->verb = verb;
}

/* true: it ends. */
static bool take_key(struct top *top, int key)
{
    if (key == NP_KEY_NONE || key == NP_KEY_SIZE)
        return false;
    if (key == NP_KEY_END)
        return true;
    top->said[0] = '\0';
    if (top->verb) {
        if (key == 'y' || key == 'Y')
            change(top, top->verb, *top->open ? top->open : top->chosen);
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
    case 'p': ask(top, "pause"); break;
    case 'r': ask(top, "resume"); break;
    case 's': ask(top, "stop"); break;
    default: break;
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
        ends = take_key(top, key);
        if (!ends && key != NP_KEY_SIZE)
            code = look(top, err);
    }
    np_terminal_close(&top->screen);
    return code == -EPIPE ? 0 : code;
}

/* --- once --------------------------------------------------------------------------------------- */

static int run_once(struct top *top, struct np_err *err)
{
    int code = look(top, err);
    const struct np_node *only = run_of(top, top->open);

    top->screen.columns = np_terminal_columns(STDOUT_FILENO);
    if (code == 0 && *top->open && !only)
        code =
            np_err_set(err, -ENOENT, "there is no run %s; `nnpipe ls --all` shows them", top->open);
    if (code < 0)
        return code;
    for (int i = 0; top->json && i < nr_runs(top); i++)
        if (!only || runs_of(top)->items[i] == only)
            np_run_print_json(runs_of(top)->items[i], stdout);
    if (!top->json)
        code = *top->open ? put_stages(top, stdout, err) : put_table(top, NULL, 0, stdout, err);
    return code;
}

/* NULL: no name begins with the word. np_free. */
static char *find_prefix(const char *runs, const char *word)
{
    DIR *folder = *word ? opendir(runs) : NULL;
    char *found = NULL;
    time_t newest = 0;

    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat status;
        char *metrics = np_format("%s/%s/metrics.jsonl", runs, entry->d_name);

        if (strncmp(entry->d_name, word, strlen(word)) == 0 && stat(metrics, &status) == 0 &&
            (!found || status.st_mtime >= newest)) {
            np_free(found);
            found = np_format("%s/%s", runs, entry->d_name);
            newest = status.st_mtime;
        }
        np_free(metrics);
    }
    if (folder)
        closedir(folder);
    return found;
}

/* The folder that RUN names: a folder below `runs`, a path, or the beginning of a name below `runs`. np_free. */
static char *find_folder(const char *runs, const char *word)
{
    char *below = strchr(word, '/') ? NULL : np_format("%s/%s", runs, word);

    if (below && access(below, F_OK) == 0)
        return below;
    if (below && access(word, F_OK) != 0) {
        np_free(below);
        below = find_prefix(runs, word);
        return below ? below : np_strdup(word);
    }
    np_free(below);
    return np_strdup(word);
}

/* Does a service answer? A caller that names folders does not ask it. */
static bool has_service(struct top *top, const char *run, const char *socket)
{
    struct np_answer answer;
    struct np_err unasked = {0};
    int64_t id = 0;

    if (top->unasked || (run && !np_run_id(run, &id)) ||
        np_client_open(socket, &top->client, &unasked) < 0)
        return false;
    const int code = np_client_ask(top->client, "GET", "/v1/service", NULL, &answer, &unasked);
    if (code == 0 || socket) {
        if (id > 0)
            snprintf(top->open, sizeof(top->open), "%lld", (long long)id);
        return true;
    }
    np_client_close(top->client);
    top->client = NULL;
    return false;
}

int np_cmd_top(int argc, char **argv)
{
    struct top top = {.next = -1};
    const char *socket = NULL;
    bool once = false;
    const struct np_flag flags[] = {{"--runs", &top.runs, NULL, NULL},
        {"--once", NULL, &once, NULL}, NP_SERVICE_FLAGS(top.json, socket)};
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 1) {
        fprintf(stderr, "nnpipe top: expected one RUN at most, not %d\n", nr);
        return NP_EXIT_USAGE;
    }
    top.unasked = top.runs != NULL;
    top.runs = top.runs ? top.runs : "runs";
    top.live = isatty(STDOUT_FILENO) && !once && !top.json;
    top.colour = np_terminal_colour(STDOUT_FILENO);
    if (!has_service(&top, nr ? argv[1] : NULL, socket) && nr) {
        char *dir = find_folder(top.runs, argv[1]);

        snprintf(top.open, sizeof(top.open), "%s", dir);
        for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--)
            top.open[n - 1] = '\0';
        np_free(dir);
    }
    code = look(&top, &err);
    if (code == 0 && *top.open && !run_of(&top, top.open))
        code = np_err_set(&err, -ENOENT, "there is no run %s; `nnpipe %s` shows them", top.open,
            top.client ? "ls --all" : "runs");
    if (code == 0)
        code = top.live ? run_live(&top, &err) : run_once(&top, &err);
    np_node_free(top.pipeline);
    np_node_free(top.answer);
    return np_client_end(top.client, code, &err);
}
