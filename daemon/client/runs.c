#include "daemon/client/runs.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/cmd.h"
#include "daemon/ui/progress.h"
#include "loader/base/text.h"

static double number(const struct np_node *map, const char *key)
{
    return np_node_number(map, key, NAN);
}

static struct np_progress progress_of(const struct np_node *run)
{
    struct np_progress progress = np_progress_unknown;

    np_progress_read(np_node_get(run, "progress"), &progress);
    return progress;
}

static bool has_state(const struct np_node *run, const char *state)
{
    return strcmp(np_node_text(run, "state"), state) == 0;
}

bool np_run_is_finished(const struct np_node *run)
{
    return has_state(run, "done") || has_state(run, "failed") || has_state(run, "stopped") ||
           has_state(run, "timeout");
}

static const char *device_of(const struct np_node *run)
{
    const char *device = np_node_text(run, "assigned");

    return *device ? device : np_node_text(run, "device");
}

/* "cpu", "cpu x4", "cuda:0-3", "cuda:0,2-3": ranges of GPUs for people. */
static void shorten(const char *devices, int processes, char *text, size_t room)
{
    int first = -1, last = -1, number, bytes;
    size_t used = (size_t)snprintf(text, room, "cuda:");

    if (!strchr(devices, ',')) {
        snprintf(text, room, processes > 1 ? "%s x%d" : "%s", devices, processes);
        return;
    }
    for (const char *at = devices; used < room && sscanf(at, "cuda:%d%n", &number, &bytes) == 1;
         at += bytes, at += *at == ',') {
        const bool ends =
            strncmp(at + bytes, ",cuda:", 6) != 0 || atoi(at + bytes + 6) != number + 1;

        first = first < 0 ? number : first;
        last = number;
        if (!ends)
            continue;
        used += (size_t)snprintf(text + used, room - used, first == last ? "%s%d" : "%s%d-%d",
            text[used - 1] == ':' ? "" : ",", first, last);
        first = -1;
    }
}

static const char *short_device(const struct np_node *run, char *text, size_t room)
{
    shorten(device_of(run), (int)np_node_number(run, "processes", 1), text, room);
    return text;
}

/* --- words of a command line ------------------------------------------------------------------ */

bool np_run_id(const char *text, int64_t *ret_id)
{
    return np_text_int(text, 1, INT64_MAX, ret_id);
}

int np_run_ids(const char *command, char **words, int nr)
{
    int64_t id;

    for (int i = 0; i < nr; i++)
        if (!np_run_id(words[i], &id)) {
            fprintf(stderr, "nnpipe %s: expected a run number, as `nnpipe ls` shows it, not '%s'\n",
                command, words[i]);
            return NP_EXIT_USAGE;
        }
    if (nr == 0) {
        fprintf(stderr, "nnpipe %s: expected a run number, as `nnpipe ls` shows it\n", command);
        return NP_EXIT_USAGE;
    }
    return 0;
}

bool np_parse_span(const char *text, double *ret_seconds)
{
    static const char units[] = "smhd";
    static const double seconds[] = {1, 60, 3600, 86400};
    double sum = 0;

    do {
        double value;
        const char *end = np_text_real_end(text, &value);
        const char *unit = end && *end ? strchr(units, *end) : NULL;

        if (!unit || end != text + strspn(text, "0123456789."))
            return false;
        sum += value * seconds[unit - units];
        text = end + 1;
    } while (*text);
    if (sum > 0)
        *ret_seconds = sum;
    return sum > 0;
}

int np_run_exit_code(const struct np_node *run)
{
    const bool gave_up = np_node_number(run, "exit_code", -1) == NP_EXIT_GAVE_UP;

    return has_state(run, "done")                                   ? NP_EXIT_DONE
           : has_state(run, "stopped") || has_state(run, "timeout") ? NP_EXIT_STOPPED
           : gave_up                                                ? NP_EXIT_GAVE_UP
                                                                    : NP_EXIT_FAILED;
}

/* Orders the values of np_run_exit_code() from good to bad. */
static int badness(int code)
{
    return code == NP_EXIT_FAILED    ? 3
           : code == NP_EXIT_GAVE_UP ? 2
           : code == NP_EXIT_STOPPED ? 1
                                     : 0;
}

int np_run_worse_exit(int a, int b)
{
    return badness(b) > badness(a) ? b : a;
}

/* --- a table ---------------------------------------------------------------------------------- */

enum {
    ID,
    NAME,
    SWEEP,
    STATE,
    OWNER,
    DEVICE,
    PRIORITY,
    STEP,
    EPOCH,
    LOSS,
    ACCURACY,
    RATE,
    STALL,
    ETA,
    SINCE,
    TRIES,
    WHY
};

/* The two numbers: the order in which `ls` and `top` drop columns from a narrow table
 * (daemon/ui/table.h). */
static const struct np_column columns[] = {
    [ID] = {"id", true, false, 0, false, 0},
    [NAME] = {"name", false, true, 0, true, 0},
    [SWEEP] = {"sweep", false, true, 9, true, 11},
    [STATE] = {"state", false, false, 0, false, 0},
    [OWNER] = {"owner", false, false, 5, true, 8},
    [DEVICE] = {"device", false, false, 0, false, 5},
    [PRIORITY] = {"prio", true, false, 6, true, 9},
    [STEP] = {"step", true, false, 0, false, 0},
    [EPOCH] = {"epoch", true, false, -1, false, 10},
    [LOSS] = {"loss", true, false, 7, false, 0},
    [ACCURACY] = {"acc", true, false, 8, false, 7},
    [RATE] = {"img/s", true, false, 0, false, 0},
    [STALL] = {"stall", false, false, 9, false, 0},
    [ETA] = {"ETA", true, false, -1, false, 1},
    [SINCE] = {"since", true, false, 1, false, -1},
    [TRIES] = {"tries", true, false, 2, true, -1},
    [WHY] = {"why", false, true, 3, true, -1},
    {NULL, false, false, 0, false, 0},
};

void np_runs_table(bool live, struct np_table *ret_table)
{
    *ret_table = (struct np_table){.columns = columns, .live = live, .coloured = STATE};
}

static const char *colour_of(const struct np_node *run)
{
    return has_state(run, "failed")                                ? "\033[31m"
           : has_state(run, "done")                                ? "\033[32m"
           : has_state(run, "running")                             ? "\033[36m"
           : has_state(run, "queued") || has_state(run, "stopped") ? NULL
                                                                   : "\033[33m";
}

static void put(struct np_table_row *row, int column, const char *text)
{
    if (snprintf(row->cells[column], NP_TABLE_CELL, "%s", *text ? text : "-") >= NP_TABLE_CELL)
        row->cells[column][NP_TABLE_CELL - 2] = '~'; /* truncated */
    np_text_clean(row->cells[column]);
}

__attribute__((format(printf, 3, 0))) static void put_number(
    struct np_table_row *row, int column, const char *format, double value)
{
    snprintf(row->cells[column], NP_TABLE_CELL, isnan(value) ? "-" : format, value);
}

static void put_key(
    struct np_table_row *row, int column, const struct np_node *run, const char *key)
{
    if (np_node_get(run, key))
        put(row, column, np_node_text(run, key));
}

/* "120/7820" */
static void step_text(const struct np_progress *progress, char *text, size_t bytes)
{
    if (isnan(progress->step))
        snprintf(text, bytes, "-");
    else if (isnan(progress->total_steps))
        snprintf(text, bytes, "%.0f", progress->step);
    else
        snprintf(text, bytes, "%.0f/%.0f", progress->step, progress->total_steps);
}

/* Since it finished, started or was queued: the latest of these. */
static void put_age(struct np_table_row *row, const struct np_node *run)
{
    const double ended = number(run, "ended"), started = number(run, "started");
    const double since = !isnan(ended)     ? ended
                         : !isnan(started) ? started
                                           : number(run, "submitted");

    np_duration_text((double)time(NULL) - since, row->cells[SINCE], NP_TABLE_CELL);
}

int np_runs_add(struct np_table *table, const struct np_node *run, struct np_err *err)
{
    const struct np_progress p = progress_of(run);
    const bool runs = has_state(run, "running");
    struct np_table_row *row = np_table_add(table, err);
    char device[128];

    if (!row)
        return -ENOMEM;
    row->colour = colour_of(run);
    if (np_node_get(run, "id")) {
        put_key(row, ID, run, "id");
        put_key(row, NAME, run, "name");
        put_key(row, SWEEP, run, "sweep");
    } else { /* without a service the ID is the folder's name */
        put_key(row, ID, run, "name");
    }
    put(row, STATE, np_node_text(run, "state"));
    put_key(row, OWNER, run, "owner");
    put(row, DEVICE, short_device(run, device, sizeof(device)));
    put_key(row, PRIORITY, run, "priority");
    step_text(&p, row->cells[STEP], NP_TABLE_CELL);
    put_number(row, EPOCH, "%.2f", p.epoch);
    put_number(row, LOSS, "%.4f", p.loss);
    put_number(row, ACCURACY, "%.1f%%", 100 * p.accuracy);
    put_number(row, RATE, "%.0f", runs ? p.images_per_second : NAN);
    put_number(row, STALL, "%.0f%%", runs ? 100 * p.stall_ratio : NAN);
    if (runs && *p.cause)
        strcat(strcat(row->cells[STALL], " "), p.cause);
    if (runs && !isnan(p.eta_seconds))
        np_duration_text(p.eta_seconds, row->cells[ETA], NP_TABLE_CELL);
    else
        strcpy(row->cells[ETA], "-");
    put_age(row, run);
    if (number(run, "attempts") > 1)
        put_key(row, TRIES, run, "attempts");
    if (*np_node_text(run, "reason"))
        put_key(row, WHY, run, "reason");
    return 0;
}

/* --- JSON ------------------------------------------------------------------------------------- */

void np_run_print_json(const struct np_node *run, FILE *out)
{
    static const char *const keys[][2] = {{"id", "id"}, {"name", "name"}, {"run", "name"},
        {"state", "state"}, {"pid", "pid"}, {"config", "path"}, {"run_dir", "dir"},
        {"submitted_at", "submitted"}, {"started_at", "started"}, {"ended_at", "ended"},
        {"not_before", "not_before"}, {"reason", "reason"}, {"owner", "owner"}, {"uid", "uid"},
        {"priority", "priority"}, {"after", "after"}, {"max_retries", "max_retries"},
        {"retries", "retries"}, {"attempts", "attempts"}, {"exit_code", "exit_code"},
        {"time_limit", "time_limit"}, {"ran", "ran"}, {"memory", "memory"}, {"cpus", "cpus"},
        {"overrides", "overrides"}, {"on_end", "on_end"}, {"sweep", "sweep"},
        {"processes", "processes"}, {"devices", "devices"}, {"reserved", "reserved"}};
    const struct np_progress progress = progress_of(run);
    struct np_json json = {0};

    np_json_begin(&json, "run");
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        np_json_node(&json, keys[i][0], np_node_get(run, keys[i][1]));
    np_json_bool(&json, "running", has_state(run, "running"));
    np_json_text(&json, "device", *device_of(run) ? device_of(run) : NULL);
    np_progress_write(&json, &progress, false);
    np_json_text(&json, "stall_cause", *progress.cause ? progress.cause : NULL);
    np_json_real(&json, "progress", progress.step / progress.total_steps);
    np_json_print(&json, out);
    np_json_fini(&json);
}

void np_run_print_state(const struct np_node *run, bool json, FILE *out)
{
    const char *reason = np_node_text(run, "reason");

    if (json)
        np_run_print_json(run, out);
    else
        fprintf(out, "run %s: %s, %s%s%s\n", np_node_text(run, "id"), np_node_text(run, "name"),
            np_node_text(run, "state"), *reason ? ": " : "", reason);
    fflush(out);
}

/* --- all fields ------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void print(
    FILE *out, const char *what, const char *format, ...)
{
    char text[4200];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    np_text_clean(text);
    fprintf(out, "  %-11s %s\n", what, text);
}

static void print_key(FILE *out, const char *what, const struct np_node *run, const char *key)
{
    print(out, what, "%s", np_node_text(run, key));
}

static void print_time(FILE *out, const char *what, double when)
{
    const time_t seconds = (time_t)when;
    struct tm local;
    char text[64];

    if (isnan(when))
        return;
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &local));
    print(out, what, "%s", text);
}

static void print_after(FILE *out, const struct np_node *after)
{
    if (!after || after->kind != NP_NODE_LIST || after->nr_items == 0)
        return;
    fprintf(out, "  %-11s", "after");
    for (int i = 0; i < after->nr_items; i++)
        fprintf(out, " %s", after->items[i]->text ? after->items[i]->text : "?");
    fputc('\n', out);
}

static void print_overrides(FILE *out, const struct np_node *list)
{
    for (int i = 0; list && list->kind == NP_NODE_LIST && i < list->nr_items; i++)
        print(out, i == 0 ? "overrides" : "", "%s", list->items[i]->text);
}

/* "0:12 of 8:00:00" */
static void print_time_run(FILE *out, const struct np_node *run)
{
    const double limit = number(run, "time_limit");
    char ran[32], max[32];

    np_duration_text(number(run, "ran"), ran, sizeof(ran));
    np_duration_text(limit, max, sizeof(max));
    if (!isnan(limit))
        print(out, "ran", "%s of %s", ran, max);
    else if (number(run, "attempts") > 0)
        print(out, "ran", "%s", ran);
}

static void print_progress(FILE *out, const struct np_node *run)
{
    const struct np_progress p = progress_of(run);
    const bool runs = has_state(run, "running");
    char step[48], eta[32];

    if (isnan(p.said))
        return;
    step_text(&p, step, sizeof(step));
    print(out, "at", "%s%sstep %s, epoch %.2f", runs ? p.doing : "", runs ? ", " : "", step,
        isnan(p.epoch) ? 0 : p.epoch);
    if (!isnan(p.loss))
        print(out, "loss", "%.4f", p.loss);
    if (!isnan(p.accuracy))
        print(out, "accuracy", "%.2f%%", 100 * p.accuracy);
    if (runs && !isnan(p.images_per_second))
        print(out, "speed", "%.0f img/s, stall %.0f%% %s", p.images_per_second, 100 * p.stall_ratio,
            p.cause);
    np_duration_text(p.eta_seconds, eta, sizeof(eta));
    if (runs && !isnan(p.eta_seconds))
        print(out, "time left", "%s", eta);
}

void np_run_print_whole(const struct np_node *run, FILE *out)
{
    char device[128];

    fprintf(out, "run %s: %s, %s\n", np_node_text(run, "id"), np_node_text(run, "name"),
        np_node_text(run, "state"));
    if (*np_node_text(run, "reason"))
        print_key(out, "reason", run, "reason");
    print_progress(out, run);
    if (*np_node_text(run, "sweep"))
        print_key(out, "sweep", run, "sweep");
    print_key(out, "owner", run, "owner");
    print_key(out, "config", run, "path");
    print_key(out, "folder", run, "dir");
    print(out, "device", "%s", short_device(run, device, sizeof(device)));
    print_key(out, "priority", run, "priority");
    print_after(out, np_node_get(run, "after"));
    print_overrides(out, np_node_get(run, "overrides"));
    if (*np_node_text(run, "on_end"))
        print_key(out, "on end", run, "on_end");
    print_time_run(out, run);
    if (!isnan(number(run, "memory")))
        print(out, "memory", "at most %.4g GiB", number(run, "memory") / (1 << 30));
    if (!isnan(number(run, "cpus")))
        print(out, "CPUs", "at most %g", number(run, "cpus"));
    print_key(out, "attempts", run, "attempts");
    print(
        out, "retries", "%s of %s", np_node_text(run, "retries"), np_node_text(run, "max_retries"));
    print_time(out, "submitted", number(run, "submitted"));
    print_time(out, "started", number(run, "started"));
    print_time(out, "ended", number(run, "ended"));
    print_time(out, "not before", number(run, "not_before"));
}
