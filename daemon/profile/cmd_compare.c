/* `nnpipe compare RUN...`: runs side by side, from their folders and from the service. A word is a
 * run's number or name in the service, or its folder. Main thread. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "daemon/profile/compared.h"
#include "daemon/ui/curves.h"
#include "daemon/ui/progress.h"
#include "daemon/ui/table.h"
#include "daemon/ui/terminal.h"
#include "loader/base/mem.h"
#include "loader/base/yaml.h"

struct request {
    const char *sweep, *runs, *html, *svg, *socket;
    bool json;
    struct np_client *client; /* NULL: not needed yet */
    struct np_compared_runs compared;
};

/* --- finding the runs ------------------------------------------------------------------------- */

static bool is_there(const struct np_compared_runs *c, const char *dir)
{
    for (int i = 0; i < c->nr_runs; i++)
        if (strcmp(np_compared_run(c, i)->dir, dir) == 0)
            return true;
    return false;
}

/* Adds found run `at`. run: of the service, or NULL. */
static void add(struct np_compared_runs *c, int at, const struct np_node *run)
{
    np_grow(&c->runs, &c->room, (size_t)c->nr_runs + 1, sizeof(*c->runs));
    struct np_compared *compared = &c->runs[c->nr_runs++];

    *compared = (struct np_compared){.found = at};
    snprintf(compared->id, sizeof(compared->id), "%s", np_node_text(run, "id"));
    snprintf(compared->state, sizeof(compared->state), "%s",
        run ? np_node_text(run, "state") : np_run_states[c->found.runs[at].state]);
    np_compared_measure(c, c->nr_runs - 1, np_node_number(run, "ran", NAN));
}

/* The run in dir, or the runs in the folders in it. */
static int add_folder(struct request *request, const char *dir, struct np_err *err)
{
    struct np_compared_runs *c = &request->compared;
    const int first = c->found.nr_runs, code = np_runs_find(dir, false, &c->found, err);

    if (code < 0)
        return code;
    for (int i = first; i < c->found.nr_runs; i++)
        if (!is_there(c, c->found.runs[i].dir))
            add(c, i, NULL);
    return c->found.nr_runs > first ? 0
                                    : np_err_set(err, -ENOENT, "%s: there is no run in it", dir);
}

/* The resolved config of a run that has no folder yet. */
static int read_config(
    struct request *request, const char *id, struct np_node **ret_config, struct np_err *err)
{
    struct np_response response;
    struct np_report report;
    char target[64];

    snprintf(target, sizeof(target), "/v1/runs/%s/config", id);
    int code = np_client_request(request->client, "GET", target, NULL, &response, err);
    if (code < 0)
        return code;
    np_report_init(&report, target);
    if (np_yaml_parse(response.body, response.bytes, ret_config, &report) < 0)
        code = np_err_set(err, -EBADMSG, "the service's config is damaged");
    np_report_fini(&report);
    return code;
}

/* A run of the service. Until its process has begun it has no folder, or an empty one, but a
 * config. */
static int add_served(struct request *request, const struct np_node *run, struct np_err *err)
{
    struct np_compared_runs *c = &request->compared;
    const char *dir = np_node_text(run, "dir"), *id = np_node_text(run, "id");
    struct np_err why = {0};
    struct np_node *config = NULL;

    if (is_there(c, dir))
        return 0;
    const int first = c->found.nr_runs;
    int code = np_runs_find(dir, false, &c->found, &why);
    if (code == -ENOENT || (code == 0 && c->found.nr_runs == first)) {
        code = read_config(request, id, &config, &why);
        np_runs_add_unstarted(&c->found, dir, config);
    }
    if (code < 0)
        return np_err_set(err, code, "run %s, %s: %s", id, np_node_text(run, "name"), why.text);
    add(c, first, run);
    return 0;
}

/* Adds the runs of the service that a query names. *ret_nr: their number. */
static int add_queried(
    struct request *request, const char *key, const char *value, int *ret_nr, struct np_err *err)
{
    struct np_node *response = NULL;
    char *target = np_client_filter(np_strdup("/v1/runs?"), key, value);

    if (!request->client)
        request->client = np_client_open(request->socket);
    int code = np_client_request_node(request->client, "GET", target, NULL, &response, err);
    const struct np_node *runs = code == 0 ? np_node_get(response, "runs") : NULL;
    *ret_nr = runs && runs->kind == NP_NODE_LIST ? runs->nr_items : 0;
    for (int i = 0; i < *ret_nr && code == 0; i++)
        code = add_served(request, runs->items[i], err);
    np_node_free(response);
    np_free(target);
    return code;
}

static int add_number(struct request *request, const char *id, struct np_err *err)
{
    struct np_err why = {0};
    struct np_node *run = NULL;
    char target[64];

    if (!request->client)
        request->client = np_client_open(request->socket);
    snprintf(target, sizeof(target), "/v1/runs/%s", id);
    int code = np_client_request_node(request->client, "GET", target, NULL, &run, &why);
    if (code == 0)
        code = add_served(request, run, err);
    else
        np_err_set(err, code, "run %s: %s", id, why.text);
    np_node_free(run);
    return code;
}

/* A number; else a folder, or the beginning of its name below `runs`; else a name in the
 * service. */
static int add_word(struct request *request, const char *word, struct np_err *err)
{
    struct np_err why = {0};
    int64_t id;
    int nr = 0, code;

    if (np_run_id(word, &id) && access(word, F_OK) < 0)
        return add_number(request, word, err);
    char *dir = np_runs_folder(request->runs, word);
    const bool is = access(dir, F_OK) == 0;
    code = is ? add_folder(request, dir, err) : 0;
    np_free(dir);
    if (is || code < 0)
        return code;
    code = strchr(word, '/') ? 0 : add_queried(request, "name", word, &nr, &why);
    if (code < 0 && code != -ECONNREFUSED)
        return np_err_set(err, code, "%s", why.text);
    if (nr == 0)
        return np_err_set(err, -ENOENT,
            "there is no run '%s': expected a folder, the beginning of its name below %s, or a "
            "number or name of `nnpipe ls --all`",
            word, request->runs);
    return 0;
}

static int find(struct request *request, char **words, int nr, struct np_err *err)
{
    int code = 0, found = 0;

    if (request->sweep) {
        code = add_queried(request, "sweep", request->sweep, &found, err);
        if (code == 0 && found == 0)
            code = np_err_set(err, -ENOENT,
                "there is no sweep '%s'; `nnpipe ls --all` shows the sweeps of runs",
                request->sweep);
    }
    for (int i = 0; i < nr && code == 0; i++)
        code = add_word(request, words[i], err);
    if (code == 0 && !request->sweep && request->compared.nr_runs > NP_OVERLAY_MAX_RUNS)
        code = np_err_set(err, -E2BIG, "%d runs; at most %d can be compared",
            request->compared.nr_runs, NP_OVERLAY_MAX_RUNS);
    if (code == 0 && request->compared.nr_runs < 2)
        code = np_err_set(err, -EINVAL, "only one run, %s: nothing to compare",
            np_compared_run(&request->compared, 0)->name);
    return code;
}

/* --- the table -------------------------------------------------------------------------------- */

enum { ID, NAME, STATE, BEST, LAST, LOSS, EPOCH, PER_EPOCH, RATE, TIME, KEYS };
static const struct np_column fixed[KEYS] = {
    [ID] = {"id", true, false, 0, true, 0},
    [NAME] = {"run", false, true, 0, false, 0},
    [STATE] = {"state", false, false, 0, false, 0},
    [BEST] = {"best", true, false, 0, false, 0},
    [LAST] = {"last", true, false, 3, false, 0},
    [LOSS] = {"loss", true, false, 0, false, 0},
    [EPOCH] = {"epoch", true, false, 1, false, 0},
    [PER_EPOCH] = {"s/epoch", true, false, 4, false, 0},
    [RATE] = {"img/s", true, false, 2, false, 0},
    [TIME] = {"time", true, false, 5, false, 0},
};

__attribute__((format(printf, 2, 0))) static void put(
    char cell[NP_TABLE_CELL], const char *format, double value)
{
    snprintf(cell, NP_TABLE_CELL, isfinite(value) ? format : "-", value);
}

static int add_row(
    struct np_table *table, const struct np_compared_runs *c, int i, struct np_err *err)
{
    const struct np_compared *compared = &c->runs[i];
    const struct np_found_run *run = np_compared_run(c, i);
    struct np_table_row *row = np_table_add(table, err);

    if (!row)
        return -ENOMEM;
    snprintf(row->cells[ID], NP_TABLE_CELL, "%s", compared->id);
    snprintf(row->cells[NAME], NP_TABLE_CELL, "%s", run->name);
    np_text_clean(row->cells[NAME]);
    snprintf(row->cells[STATE], NP_TABLE_CELL, "%s", compared->state);
    put(row->cells[BEST], "%.2f%%", 100 * run->best_accuracy);
    put(row->cells[LAST], "%.2f%%", 100 * run->accuracy);
    put(row->cells[LOSS], "%.4f", isfinite(run->loss) ? run->loss : run->train_loss);
    put(row->cells[EPOCH], "%.2f", run->progress.epoch);
    put(row->cells[PER_EPOCH], "%.3g", compared->epoch_seconds);
    put(row->cells[RATE], "%.0f", compared->images_per_second);
    if (isfinite(compared->seconds))
        np_duration_text(compared->seconds, row->cells[TIME], NP_TABLE_CELL);
    else
        strcpy(row->cells[TIME], "-");
    for (int k = 0; table->columns[KEYS + k].head; k++) {
        const char *key = c->keys->items[k]->text;
        const bool has = run->differs && np_node_get(run->differs, key);

        snprintf(
            row->cells[KEYS + k], NP_TABLE_CELL, "%s", has ? np_node_text(run->differs, key) : "-");
        np_text_clean(row->cells[KEYS + k]);
    }
    return 0;
}

static const char *last_word(const char *key)
{
    const char *dot = strrchr(key, '.');

    return dot ? dot + 1 : key;
}

/* "lr" of "optimizer.sgd.lr", unless another key ends with it, too. */
static const char *head_of(const struct np_node *keys, int k)
{
    const char *word = last_word(keys->items[k]->text);

    for (int i = 0; i < keys->nr_items; i++)
        if (i != k && strcmp(last_word(keys->items[i]->text), word) == 0)
            return keys->items[k]->text;
    return word;
}

static int print_table(const struct np_compared_runs *c, struct np_err *err)
{
    const struct np_table_look look = {.chosen = -1,
        .width = np_terminal_columns(STDOUT_FILENO),
        .colour = np_terminal_colour(STDOUT_FILENO)};
    struct np_column columns[NP_TABLE_MAX_COLUMNS + 1] = {0};
    struct np_table table = {.columns = columns, .coloured = -1};
    const int max = NP_TABLE_MAX_COLUMNS - KEYS - 1, nr = c->keys->nr_items;
    int code = 0;

    memcpy(columns, fixed, sizeof(fixed));
    for (int k = 0; k < nr && k < max; k++)
        columns[KEYS + k] = (struct np_column){head_of(c->keys, k), false, true, 0, false, 0};
    for (int i = 0; i < c->nr_runs && code == 0; i++)
        code = add_row(&table, c, i, err);
    if (code == 0)
        np_table_print(&table, &look, stdout);
    if (code == 0 && nr > max)
        printf("%d more keys differ; --json prints them\n", nr - max);
    else if (code == 0 && nr == 0)
        puts("no key of the configs differs");
    np_table_fini(&table);
    return code;
}

/* --- the command ------------------------------------------------------------------------------ */

static int show(struct request *request, struct np_err *err)
{
    const struct np_compared_runs *c = &request->compared;
    char title[128];
    int code = 0;

    np_compared_sort(&request->compared);
    snprintf(title, sizeof(title), "%d runs", c->nr_runs);
    if (request->sweep)
        snprintf(title, sizeof(title), "sweep %s: %d runs", request->sweep, c->nr_runs);
    if (c->nr_runs > NP_OVERLAY_MAX_RUNS)
        snprintf(title, sizeof(title), "sweep %s: the best %d of %d runs", request->sweep,
            NP_OVERLAY_MAX_RUNS, c->nr_runs);
    if (request->html)
        code = np_compared_html(c, title, request->html, err);
    if (request->svg && code == 0)
        code = np_compared_svg(c, title, request->svg, err);
    if (code < 0 || !request->json)
        return code < 0 ? code : print_table(c, err);
    struct np_json line = {0};
    for (int i = 0; i < c->nr_runs; i++) {
        np_json_begin(&line, "run");
        np_compared_write(&line, c, i);
        np_json_print(&line, stdout);
    }
    np_json_fini(&line);
    return 0;
}

int np_cmd_compare(int argc, char **argv)
{
    struct request request = {.runs = "runs"};
    const struct np_flag flags[] = {{"--sweep", &request.sweep, NULL, NULL},
        {"--html", &request.html, NULL, NULL}, {"--svg", &request.svg, NULL, NULL},
        {"--runs", &request.runs, NULL, NULL}, NP_SERVICE_FLAGS(request.json, request.socket)};
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr == 0 && !request.sweep)
        return np_usage("compare", "expected runs, or --sweep NAME; see `nnpipe help compare`");
    code = find(&request, argv + 1, nr, &err);
    if (code == 0)
        code = show(&request, &err);
    np_free(request.compared.runs);
    np_node_free(request.compared.keys);
    np_runs_free(&request.compared.found);
    return np_client_end(request.client, code, &err);
}
