/* `nnpipe runs [DIR...]`: lists the runs in folders, with their progress and differences. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "loader/base/json.h"
#include "daemon/run/runs_found.h"
#include "daemon/ui/terminal.h"
#include "daemon/ui/table.h"
#include "loader/base/text.h"

/* Larger first; unknown last. */
static int larger(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return a > b ? -1 : a < b;
}

enum order { BY_WHEN, BY_ACCURACY, BY_LOSS, BY_SIZE, BY_NAME, NR_ORDERS };
static const char *const orders[NR_ORDERS] = {"when", "accuracy", "loss", "size", "name"};

static double value_of(const struct np_found_run *run, enum order order)
{
    return order == BY_ACCURACY ? run->best_accuracy
           : order == BY_LOSS   ? -run->loss
           : order == BY_SIZE   ? (double)run->bytes
                                : (double)run->started;
}

/* For qsort_r(). Of equal runs the newest comes first, then the last name. */
static int compare(const void *left, const void *right, void *context)
{
    const enum order order = *(const enum order *)context;
    const struct np_found_run *a = left, *b = right;
    const int names = strcmp(a->name, b->name);
    int result = larger(value_of(a, order), value_of(b, order));

    if (order == BY_NAME)
        return names;
    if (result == 0)
        result = larger((double)a->started, (double)b->started);
    return result ? result : -names;
}

static void print_json(struct np_json *line, const struct np_found_run *run)
{
    char when[32] = "";
    struct tm utc;

    if (run->started && gmtime_r(&run->started, &utc))
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &utc);
    np_json_begin(line, "run");
    np_json_text(line, "run", run->name);
    np_json_text(line, "run_dir", run->dir);
    np_json_text(line, "state", np_run_states[run->state]);
    np_json_text(line, "started_at", *when ? when : NULL);
    np_json_real(line, "step", run->progress.step);
    np_json_real(line, "total_steps", run->progress.total_steps);
    np_json_real(line, "epoch", run->progress.epoch);
    np_json_real(line, "train_loss", run->train_loss);
    np_json_real(line, "lr", run->lr);
    np_run_write_result(line, run);
    np_json_int(line, "bytes", (int64_t)run->bytes);
    np_json_node(line, "overrides", run->overrides);
    np_json_node(line, "differs", run->differs);
    np_json_text(line, "message", run->message);
    np_json_text(line, "reason", run->reason);
    np_json_print(line, stdout);
}

enum { NAME, WHEN, STATE, STEP, BEST, LAST, LOSS, SIZE, CHANGED, NR_COLUMNS };
static const struct np_column columns[NR_COLUMNS + 1] = {
    [NAME] = {"run", false, true, 0},
    [WHEN] = {"when", false, false, 2},
    [STATE] = {"state", false, false, 0},
    [STEP] = {"step", true, false, 4},
    [BEST] = {"best", true, false, 0},
    [LAST] = {"last", true, false, 3},
    [LOSS] = {"loss", true, false, 1},
    [SIZE] = {"size", true, false, 5},
    [CHANGED] = {"changed", false, false, 0},
};

static void put_number(char *cell, const char *format, double value)
{
    if (isnan(value))
        snprintf(cell, NP_TABLE_CELL, "-");
    else
        snprintf(cell, NP_TABLE_CELL, format, value);
}

static void put_size(char *cell, uint64_t bytes)
{
    const double mib = (double)bytes / (1 << 20);

    snprintf(cell, NP_TABLE_CELL,
        mib >= 10240 ? "%.1f GiB"
        : mib >= 10  ? "%.0f MiB"
                     : "%.1f MiB",
        mib >= 10240 ? mib / 1024 : mib);
}

/* "lr=0.1 batch=64": the last word of each key that differs; the -o texts if there is no other
 * run. */
static void put_changed(char *cell, const struct np_found_run *run)
{
    const struct np_node *list = run->differs ? run->differs : run->overrides;
    size_t used = 0;

    cell[0] = '\0';
    for (int i = 0; list && i < list->nr_items && used + 1 < NP_TABLE_CELL; i++) {
        const struct np_node *item = list->items[i];
        const char *dot = item->key ? strrchr(item->key, '.') : NULL;

        if (item->kind != NP_NODE_SCALAR)
            continue;
        used += (size_t)snprintf(cell + used, NP_TABLE_CELL - used, "%s%s%s%s", used ? " " : "",
            dot         ? dot + 1
            : item->key ? item->key
                        : "",
            item->key ? "=" : "", item->text);
    }
    np_text_clean(cell);
}

static int add_row(struct np_table *table, const struct np_found_run *run, struct np_err *err)
{
    struct np_table_row *row = np_table_add(table, err);
    struct tm local;

    if (!row)
        return err->code;
    snprintf(row->cells[NAME], NP_TABLE_CELL, "%s", run->name);
    np_text_clean(row->cells[NAME]);
    if (run->started && localtime_r(&run->started, &local))
        strftime(row->cells[WHEN], NP_TABLE_CELL, "%Y-%m-%d %H:%M", &local);
    snprintf(row->cells[STATE], NP_TABLE_CELL, "%s%s", np_run_states[run->state],
        run->reason ? " early" : "");
    if (isnan(run->progress.total_steps))
        put_number(row->cells[STEP], "%.0f", run->progress.step);
    else
        snprintf(row->cells[STEP], NP_TABLE_CELL, "%.0f/%.0f",
            isnan(run->progress.step) ? 0 : run->progress.step, run->progress.total_steps);
    put_number(row->cells[BEST], "%.2f%%", 100 * run->best_accuracy);
    put_number(row->cells[LAST], "%.2f%%", 100 * run->accuracy);
    put_number(row->cells[LOSS], "%.4f", run->loss);
    put_size(row->cells[SIZE], run->bytes);
    put_changed(row->cells[CHANGED], run);
    return 0;
}

static int print_table(const struct np_found_runs *runs, int nr, struct np_err *err)
{
    const struct np_table_look look = {.chosen = -1,
        .width = np_terminal_columns(STDOUT_FILENO),
        .colour = np_terminal_colour(STDOUT_FILENO)};
    struct np_table table = {.columns = columns, .coloured = -1};
    uint64_t bytes = 0;
    char size[NP_TABLE_CELL];
    int code = 0;

    for (int i = 0; i < nr && code == 0; i++) {
        code = add_row(&table, &runs->runs[i], err);
        bytes += runs->runs[i].bytes;
    }
    if (code == 0) {
        np_table_print(&table, &look, stdout);
        put_size(size, bytes);
        printf("%d run%s, %s\n", nr, nr == 1 ? "" : "s", size);
    }
    np_table_fini(&table);
    return code;
}

struct request {
    enum order order;
    int max_runs;
    bool json;
};

static int parse(const char *sort, const char *number, struct request *request)
{
    int64_t value = INT32_MAX;

    while (sort && request->order < NR_ORDERS && strcmp(orders[request->order], sort) != 0)
        request->order++;
    if (request->order == NR_ORDERS)
        return np_usage("runs", "--sort takes when, accuracy, loss, size or name, not %s", sort);
    if (number && !np_text_int(number, 1, INT32_MAX, &value))
        return np_usage("runs", "-n takes a number of at least 1, not %s", number);
    request->max_runs = (int)value;
    return 0;
}

static int show(struct np_found_runs *runs, struct request *request, struct np_err *err)
{
    const int nr = runs->nr_runs < request->max_runs ? runs->nr_runs : request->max_runs;
    struct np_json line = {0};

    np_runs_differ(runs, false);
    if (runs->nr_runs)
        qsort_r(runs->runs, (size_t)runs->nr_runs, sizeof(struct np_found_run), compare,
            &request->order);
    if (!request->json)
        return print_table(runs, nr, err);
    for (int i = 0; i < nr; i++)
        print_json(&line, &runs->runs[i]);
    np_json_fini(&line);
    return 0;
}

int np_cmd_runs(int argc, char **argv)
{
    static char *const here[] = {"runs"};
    const char *sort = NULL, *number = NULL;
    struct request request = {0};
    const struct np_flag flags[] = {{"--sort", &sort, NULL, NULL}, {"-n", &number, NULL, NULL},
        {"--json", NULL, &request.json, NULL}, {NULL, NULL, NULL, NULL}};
    struct np_found_runs runs = {0};
    struct np_err err = {0};
    int nr, exit_code = NP_EXIT_DONE, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code == 0)
        code = parse(sort, number, &request);
    if (code)
        return code;
    char *const *dirs = nr ? argv + 1 : here;
    for (int i = 0; i < (nr ? nr : 1); i++) {
        struct np_err one = {0};

        if (np_runs_find(dirs[i], false, &runs, &one) < 0) {
            if (nr == 0 && one.code == -ENOENT)
                fputs("nnpipe: no run was started here: there is no folder 'runs'; `nnpipe runs "
                      "DIR` lists the runs in DIR\n",
                    stderr);
            else
                np_complain(&one);
            exit_code = NP_EXIT_FAILED;
        }
    }
    if (runs.nr_runs == 0 && exit_code == NP_EXIT_DONE && !request.json)
        printf("no runs in %s%s\n", dirs[0], nr > 1 ? " and the other folders" : "");
    else if (runs.nr_runs && show(&runs, &request, &err) < 0) {
        np_complain(&err);
        exit_code = NP_EXIT_FAILED;
    }
    np_runs_free(&runs);
    return exit_code;
}
