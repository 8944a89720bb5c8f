/* See top_service.h. What is drawn is what the service told last; what is asked of it goes through the same
 * calls as `nnpipe pause` and the others. */
#include "daemon/client/top_service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/retry.h"
#include "daemon/client/top.h"
#include "daemon/ui/terminal.h"
#include "loader/base/mem.h"

#define EVERY_MS   1000
#define TAIL       "1000000" /* bytes of metrics: a window of the pipeline is among them */
#define LINES_ELSE 4         /* of a frame, beside the runs */

struct top {
    const struct np_top_service *options;
    struct np_terminal screen;
    struct np_node *answer;     /* of /v1/runs; owned; NULL: none yet */
    char tag[96];               /* of the answer, as the service marked it; "": not known */
    int64_t chosen, open;       /* ids; open 0: the list */
    const char *verb;           /* that is asked about; NULL: none */
    bool away;                  /* the service does not answer: what is shown is old */
    char said[256];             /* on the last line, until the next key */
    int64_t next;               /* of the open run's metrics; -1: its end is not read yet */
    struct np_top_run pipeline; /* of the open run; seen: there is something */
};

static const struct np_node *runs_of(const struct top *top)
{
    const struct np_node *runs = top->answer ? np_node_get(top->answer, "runs") : NULL;

    return runs && runs->kind == NP_NODE_LIST ? runs : NULL;
}

static int64_t id_of(const struct np_node *run)
{
    return (int64_t)np_node_number(run, "id", 0);
}

static const struct np_node *run_of(const struct top *top, int64_t id)
{
    const struct np_node *runs = runs_of(top);

    for (int i = 0; runs && i < runs->nr_items; i++)
        if (id_of(runs->items[i]) == id)
            return runs->items[i];
    return NULL;
}

/* --- asking ------------------------------------------------------------------------------------- */

/* The open run, where it is over and so not among the others; one that was removed is left out. */
static int take_open(struct top *top, struct np_err *err)
{
    struct np_node *runs = (struct np_node *)runs_of(top),
                   *run = NULL; /* of answer, which is ours */
    char target[64];

    if (!top->open || !runs || run_of(top, top->open))
        return 0;
    snprintf(target, sizeof(target), "/v1/runs/%lld", (long long)top->open);
    const int code = np_client_ask_node(top->options->client, "GET", target, NULL, &run, err);
    if (code == 0)
        np_node_add(runs, NULL, run);
    return code == -EREMOTEIO ? 0 : code;
}

/* The runs that are not over, and the one that is looked at. What has not changed is not sent again. */
static int take_runs(struct top *top, struct np_err *err)
{
    struct np_client *client = top->options->client;
    struct np_answer answer;
    struct np_node *node = NULL;

    np_client_unless(client, top->answer ? top->tag : "");
    int code = np_client_ask(client, "GET",
        "/v1/runs?state=queued,running,pausing,yielding,stopping,paused", NULL, &answer, err);
    if (code == 0 && answer.status != 304 &&
        (code = np_json_parse(answer.body, answer.bytes, &node, err)) == 0) {
        np_node_free(top->answer);
        top->answer = node;
        snprintf(top->tag, sizeof(top->tag), "%s", answer.tag);
    }
    return code < 0 ? code : take_open(top, err);
}

/* What is new of the open run's pipeline. Its metrics are its owner's: others see the run's line alone. */
static int take_pipeline(struct top *top, struct np_err *err)
{
    struct np_node *answer = NULL;
    char target[128];
    int code;

    if (top->next < 0)
        snprintf(target, sizeof(target), "/v1/runs/%lld/metrics?tail=" TAIL "&most=100000",
            (long long)top->open);
    else
        snprintf(target, sizeof(target), "/v1/runs/%lld/metrics?from=%lld&most=100000",
            (long long)top->open, (long long)top->next);
    code = np_client_ask_node(top->options->client, "GET", target, NULL, &answer, err);
    if (code < 0)
        return code;
    const struct np_node *points = np_node_get(answer, "points");
    const int64_t next = (int64_t)np_node_number(answer, "next", 0);
    if (points && points->kind == NP_NODE_LIST)
        np_top_take(points, &top->pipeline);
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

    top->away = is_away(code) && top->answer;
    if (code == 0 && top->open && run_of(top, top->open) &&
        (code = take_pipeline(top, &fresh)) == -EREMOTEIO) {
        snprintf(top->said, sizeof(top->said), "%s", fresh.text);
        code = 0;
    }
    if (is_away(code) && top->answer)
        return 0;
    if (code < 0)
        *err = fresh;
    return code;
}

static void change(struct top *top, const char *verb, int64_t id)
{
    struct np_answer answer;
    struct np_err err = {0};
    char target[64];

    snprintf(target, sizeof(target), "/v1/runs/%lld/%s", (long long)id, verb);
    if (np_client_ask(top->options->client, "POST", target, NULL, &answer, &err) < 0)
        snprintf(top->said, sizeof(top->said), "%s", err.text);
    else
        snprintf(top->said, sizeof(top->said), "run %lld: told to %s", (long long)id, verb);
}

/* --- drawing ------------------------------------------------------------------------------------ */

static void put_summary(const struct top *top, FILE *out)
{
    static const char *const states[] = {"running", "queued", "paused"};
    const struct np_node *runs = runs_of(top);

    fputs("nnpipe:", out);
    for (size_t s = 0; s < sizeof(states) / sizeof(*states); s++) {
        int n = 0;

        for (int i = 0; runs && i < runs->nr_items; i++)
            n += strcmp(np_node_text(runs->items[i], "state"), states[s]) == 0;
        fprintf(out, "%s %d %s", s ? "," : "", n, states[s]);
    }
    fputs("\n\n", out);
}

/* only: one run's line, or NULL: all. Index of the chosen row, so that it stays on the screen. */
static int put_table(
    const struct top *top, const struct np_node *only, int width, int most, FILE *out)
{
    const struct np_node *runs = runs_of(top);
    struct np_table_look look = {
        .width = width, .most = most, .chosen = -1, .colour = top->options->colour};
    struct np_table table;
    int code = 0;

    np_runs_table(true, &table);
    for (int i = 0; runs && i < runs->nr_items && code == 0; i++) {
        if (only && runs->items[i] != only)
            continue;
        if (!only && top->options->live && id_of(runs->items[i]) == top->chosen)
            look.chosen = table.nr_rows;
        code = np_runs_add(&table, true, runs->items[i]);
    }
    if (most > 0 && look.chosen >= most)
        look.first = look.chosen - most + 1;
    if (table.nr_rows > 0)
        np_table_print(&table, &look, out);
    else if (code == 0)
        fputs("no run waits or goes on; `nnpipe submit CONFIG` adds one\n", out);
    np_table_fini(&table);
    return code;
}

static int put_stages(const struct top *top, int width, FILE *out)
{
    const struct np_node *run = run_of(top, top->open);
    struct np_profile profile;
    char missing[128];
    int code;

    if (!run) {
        fprintf(out, "run %lld is not there any more\n", (long long)top->open);
        return 0;
    }
    if ((code = put_table(top, run, width, 0, out)) < 0)
        return code;
    if (*np_node_text(run, "reason"))
        fprintf(out, "\n%s\n", np_node_text(run, "reason"));
    fputc('\n', out);
    if (!top->pipeline.seen) {
        fputs("nothing of its pipeline is told yet: a line comes every two seconds of training\n",
            out);
        return 0;
    }
    np_top_profile(&top->pipeline, &profile, missing, sizeof(missing));
    np_profile_screen(&profile, width > 0 ? width : 100, top->options->colour, out);
    if (*missing)
        fprintf(out, " not measured alone: %s; `nnpipe profile` measures it\n", missing);
    return 0;
}

static void bottom(const struct top *top, char *text, size_t bytes)
{
    const struct np_node *run = run_of(top, top->open ? top->open : top->chosen);
    const char *bold = top->options->colour ? "\033[1m" : "",
               *dim = top->options->colour ? "\033[2m" : "";

    if (top->verb && run)
        snprintf(text, bytes, "%s%s run %s, %s? y: yes, any other key: no", bold, top->verb,
            np_node_text(run, "id"), np_node_text(run, "name"));
    else if (*top->said)
        snprintf(text, bytes, "%s%s", bold, top->said);
    else if (top->away)
        snprintf(text, bytes, "%sthe service does not answer: this is from before", bold);
    else
        snprintf(text, bytes, "%s%s p: pause  r: resume  s: stop  q: end", dim,
            top->open ? "escape: all runs " : "j, k: choose  enter: its stages ");
}

static int draw(struct top *top, struct np_err *err)
{
    FILE *out = np_terminal_begin(&top->screen);
    const int width = top->screen.columns, most = top->screen.lines - LINES_ELSE;
    char text[400];
    int code = out ? 0 : -ENOMEM;

    if (code == 0 && !top->open)
        put_summary(top, out);
    if (code == 0)
        code = top->open ? put_stages(top, width, out)
                         : put_table(top, NULL, width, most > 0 ? most : 1, out);
    if (code < 0)
        return np_err_set(err, code, "out of memory");
    bottom(top, text, sizeof(text));
    return np_terminal_show(&top->screen, text);
}

/* --- keys --------------------------------------------------------------------------------------- */

/* The chosen run, or the one that stands where it stood. */
static void keep_chosen(struct top *top)
{
    const struct np_node *runs = runs_of(top);
    int at = 0;

    if (!runs || runs->nr_items == 0 || run_of(top, top->chosen))
        return;
    while (at + 1 < runs->nr_items && id_of(runs->items[at]) < top->chosen)
        at++;
    top->chosen = id_of(runs->items[at]);
}

static void move(struct top *top, int by)
{
    const struct np_node *runs = runs_of(top);

    for (int i = 0; runs && !top->open && i < runs->nr_items; i++)
        if (id_of(runs->items[i]) == top->chosen) {
            if (i + by >= 0 && i + by < runs->nr_items)
                top->chosen = id_of(runs->items[i + by]);
            return;
        }
}

static void open_run(struct top *top, int64_t id)
{
    top->open = id;
    top->tag[0] = '\0'; /* the list had the run that was open before, and may lack this one */
    top->next = -1;
    top->pipeline = (struct np_top_run){0};
}

/* true: it ends. */
static bool take_key(struct top *top, int key)
{
    const int64_t id = top->open ? top->open : top->chosen;

    if (key == NP_KEY_NONE || key == NP_KEY_SIZE)
        return false;
    if (key == NP_KEY_END)
        return true;
    top->said[0] = '\0';
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
    case NP_KEY_DOWN: move(top, 1); break;
    case 'k':
    case NP_KEY_UP: move(top, -1); break;
    case '\r':
    case '\n': open_run(top, top->open ? 0 : top->chosen); break;
    case NP_KEY_ESCAPE:
    case 127:
    case 8: open_run(top, 0); break;
    case 'p': top->verb = run_of(top, id) ? "pause" : NULL; break;
    case 'r': top->verb = run_of(top, id) ? "resume" : NULL; break;
    case 's': top->verb = run_of(top, id) ? "stop" : NULL; break;
    default: break;
    }
    return false;
}

static int run_live(struct top *top, struct np_err *err)
{
    int code = look(top, err);

    if (code == 0)
        code = np_terminal_open(&top->screen, err);
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
    const struct np_node *runs = runs_of(top), *only = run_of(top, top->open);
    const int width = np_terminal_columns(STDOUT_FILENO);

    if (code == 0 && top->open && !only)
        code = np_err_set(err, -ENOENT, "there is no run %lld; `nnpipe ls --all` shows them",
            (long long)top->open);
    if (code < 0)
        return code;
    for (int i = 0; top->options->json && runs && i < runs->nr_items; i++)
        if (!only || runs->items[i] == only)
            np_run_print_json(runs->items[i], stdout);
    if (!top->options->json)
        code = top->open ? put_stages(top, width, stdout) : put_table(top, NULL, width, 0, stdout);
    return code < 0 ? np_err_set(err, code, "out of memory") : 0;
}

int np_top_service(const struct np_top_service *options, struct np_err *err)
{
    struct top top = {.options = options};

    open_run(&top, options->id);
    const int code = options->live ? run_live(&top, err) : run_once(&top, err);
    np_node_free(top.answer);
    return code;
}
