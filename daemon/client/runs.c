/* See runs.h. */
#include "daemon/client/runs.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "daemon/ui/progress.h"
#include "loader/base/mem.h"

const char *np_node_text(const struct np_node *map, const char *key)
{
    const struct np_node *node = map && map->kind == NP_NODE_MAP ? np_node_get(map, key) : NULL;

    return node && node->kind == NP_NODE_SCALAR ? node->text : "";
}

static double number(const struct np_node *map, const char *key)
{
    return map && map->kind == NP_NODE_MAP ? np_node_number(map, key, NAN) : NAN;
}

static const struct np_node *progress_of(const struct np_node *run)
{
    const struct np_node *progress = np_node_get(run, "progress");

    return progress && progress->kind == NP_NODE_MAP ? progress : NULL;
}

static bool is_in(const struct np_node *run, const char *state)
{
    return strcmp(np_node_text(run, "state"), state) == 0;
}

bool np_run_is_over(const struct np_node *run)
{
    return is_in(run, "done") || is_in(run, "failed") || is_in(run, "stopped") ||
           is_in(run, "timeout");
}

static const char *device_of(const struct np_node *run)
{
    const char *device = np_node_text(run, "assigned");

    return *device ? device : np_node_text(run, "device");
}

/* --- a table ------------------------------------------------------------------------------------ */

enum {
    ID,
    NAME,
    STATE,
    OWNER,
    DEVICE,
    PRIORITY,
    STEP,
    LOSS,
    ACCURACY,
    RATE,
    STALL,
    TIME,
    TRIES,
    WHY
};

/* Names leave the table last, and are cut before. */
static const struct np_column list_columns[] = {
    {"id", true, false, 0, false},
    {"name", false, true, 0, false},
    {"state", false, false, 0, false},
    {"owner", false, false, 5, false},
    {"device", false, false, 0, false},
    {"prio", true, false, 6, false},
    {"step", true, false, 0, false},
    {"loss", true, false, 7, false},
    {"acc", true, false, 8, false},
    {"img/s", true, false, 0, false},
    {"stall", false, false, 9, false},
    {"since", true, false, 1, false},
    {"tries", true, false, 2, true},
    {"why", false, true, 3, true},
    {NULL, false, false, 0, false},
};
static const struct np_column live_columns[] = {
    {"id", true, false, 0, false},
    {"name", false, true, 0, false},
    {"state", false, false, 0, false},
    {"owner", false, false, 8, false},
    {"device", false, false, 5, false},
    {"prio", true, false, 9, false},
    {"step", true, false, 0, false},
    {"loss", true, false, 0, false},
    {"acc", true, false, 7, false},
    {"img/s", true, false, 0, false},
    {"stall", false, false, 0, false},
    {"ETA", true, false, 1, false},
    {NULL, false, false, 0, false},
};

void np_runs_table(bool live, struct np_table *ret_table)
{
    *ret_table =
        (struct np_table){.columns = live ? live_columns : list_columns, .coloured = STATE};
}

static const char *colour_of(const struct np_node *run)
{
    return is_in(run, "failed")                            ? "\033[31m"
           : is_in(run, "done")                            ? "\033[32m"
           : is_in(run, "running")                         ? "\033[36m"
           : is_in(run, "queued") || is_in(run, "stopped") ? NULL
                                                           : "\033[33m";
}

static void put(struct np_table_row *row, int column, const char *text)
{
    if (snprintf(row->cells[column], NP_TABLE_CELL, "%s", *text ? text : "-") >= NP_TABLE_CELL)
        row->cells[column][NP_TABLE_CELL - 2] = '~'; /* it is cut */
    np_text_clean(row->cells[column]);
}

static void put_number(struct np_table_row *row, int column, const char *format, double value,
    double factor) __attribute__((format(printf, 3, 0)));
static void put_number(
    struct np_table_row *row, int column, const char *format, double value, double factor)
{
    if (isnan(value))
        strcpy(row->cells[column], "-");
    else
        snprintf(row->cells[column], NP_TABLE_CELL, format, value * factor);
}

/* "120/7820" */
static void step_text(const struct np_node *run, char *text, size_t bytes)
{
    const struct np_node *progress = progress_of(run);
    const double step = number(progress, "step"), total = number(progress, "total_steps");

    if (isnan(step) || isnan(total))
        snprintf(text, bytes, "-");
    else
        snprintf(text, bytes, "%.0f/%.0f", step, total);
}

/* How long it has waited, run, or been over. */
static void put_age(struct np_table_row *row, const struct np_node *run)
{
    const double ended = number(run, "ended"), started = number(run, "started");
    const double since = !isnan(ended)     ? ended
                         : !isnan(started) ? started
                                           : number(run, "submitted");

    np_duration_text((double)time(NULL) - since, row->cells[TIME], NP_TABLE_CELL);
}

int np_runs_add(struct np_table *table, bool live, const struct np_node *run)
{
    const struct np_node *progress = progress_of(run);
    const bool goes = is_in(run, "running");
    struct np_table_row *row = np_table_add(table);

    if (!row)
        return -ENOMEM;
    row->colour = colour_of(run);
    put(row, ID, np_node_text(run, "id"));
    put(row, NAME, np_node_text(run, "name"));
    put(row, STATE, np_node_text(run, "state"));
    put(row, OWNER, np_node_text(run, "owner"));
    put(row, DEVICE, device_of(run));
    put(row, PRIORITY, np_node_text(run, "priority"));
    step_text(run, row->cells[STEP], NP_TABLE_CELL);
    put_number(row, LOSS, "%.4f", number(progress, "loss"), 1);
    put_number(row, ACCURACY, "%.1f%%", number(progress, "accuracy"), 100);
    put_number(row, RATE, "%.0f", goes ? number(progress, "images_per_second") : NAN, 1);
    put_number(row, STALL, "%.0f%%", goes ? number(progress, "stall_ratio") : NAN, 100);
    if (goes && *np_node_text(progress, "cause")) {
        strncat(row->cells[STALL], " ", 2);
        strncat(row->cells[STALL], np_node_text(progress, "cause"), 16);
    }
    if (!live && number(run, "attempts") > 1)
        put(row, TRIES, np_node_text(run, "attempts"));
    if (!live && *np_node_text(run, "reason"))
        put(row, WHY, np_node_text(run, "reason"));
    if (!live)
        put_age(row, run);
    else if (!goes || isnan(number(progress, "eta_seconds")))
        strcpy(row->cells[TIME], "-");
    else
        np_duration_text(number(progress, "eta_seconds"), row->cells[TIME], NP_TABLE_CELL);
    return 0;
}

/* --- JSON --------------------------------------------------------------------------------------- */

/* From's key as JSON's: a text as a text, null where there is none. */
static void copy(struct np_json *json, const char *as, const struct np_node *from, const char *key)
{
    const struct np_node *node = from ? np_node_get(from, key) : NULL;

    if (node)
        np_json_node(json, as, node);
    else
        np_json_null(json, as);
}

void np_run_print_json(const struct np_node *run, FILE *out)
{
    static const char *const rest[] = {"owner", "uid", "priority", "after", "max_retries",
        "retries", "attempts", "exit_code", "time_limit", "ran", "memory", "cpus", "overrides",
        "on_end"};
    static const char *const more[] = {"doing", "total_steps", "accuracy", "eta_seconds", "cause"};
    const struct np_node *progress = progress_of(run);
    struct np_json json = {0};

    np_json_begin(&json, "run");
    copy(&json, "id", run, "id");
    copy(&json, "name", run, "name");
    copy(&json, "state", run, "state");
    copy(&json, "config", run, "path");
    np_json_text(&json, "device", device_of(run));
    copy(&json, "step", progress, "step");
    copy(&json, "epoch", progress, "epoch");
    np_json_real(&json, "progress", number(progress, "step") / number(progress, "total_steps"));
    copy(&json, "images_per_second", progress, "images_per_second");
    copy(&json, "stall_ratio", progress, "stall_ratio");
    copy(&json, "loss", progress, "loss");
    copy(&json, "submitted_at", run, "submitted");
    copy(&json, "started_at", run, "started");
    copy(&json, "ended_at", run, "ended");
    copy(&json, "not_before", run, "not_before");
    copy(&json, "run_dir", run, "dir");
    copy(&json, "reason", run, "reason");
    for (size_t i = 0; i < sizeof(rest) / sizeof(*rest); i++)
        copy(&json, rest[i], run, rest[i]);
    for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++)
        copy(&json, more[i], progress, more[i]);
    const char *text = np_json_end(&json);
    fputs(text ? text : "", out);
    np_json_fini(&json);
}

/* --- all of it ---------------------------------------------------------------------------------- */

static void tell(FILE *out, const char *what, const char *text)
{
    char clean[4200];

    snprintf(clean, sizeof(clean), "%s", text);
    np_text_clean(clean);
    fprintf(out, "  %-11s %s\n", what, clean);
}

static void tell_time(FILE *out, const char *what, double when)
{
    const time_t seconds = (time_t)when;
    struct tm local;
    char text[64];

    if (isnan(when))
        return;
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &local));
    tell(out, what, text);
}

static void tell_after(FILE *out, const struct np_node *after)
{
    if (!after || after->kind != NP_NODE_LIST || after->nr_items == 0)
        return;
    fprintf(out, "  %-11s", "after");
    for (int i = 0; i < after->nr_items; i++)
        fprintf(out, " %s", after->items[i]->text ? after->items[i]->text : "?");
    fputc('\n', out);
}

/* -o's of its submission. */
static void tell_overrides(FILE *out, const struct np_node *list)
{
    for (int i = 0; list && list->kind == NP_NODE_LIST && i < list->nr_items; i++)
        tell(out, i == 0 ? "with -o" : "", list->items[i]->text);
}

/* "0:12 of 8:00:00" */
static void tell_time_run(FILE *out, const struct np_node *run)
{
    const double limit = number(run, "time_limit");
    char text[80], most[32];

    if (!(number(run, "attempts") > 0) && isnan(limit))
        return;
    np_duration_text(number(run, "ran"), text, 32);
    if (!isnan(limit)) {
        np_duration_text(limit, most, sizeof(most));
        strcat(strcat(text, " of "), most);
    }
    tell(out, "ran", text);
}

static void tell_progress(FILE *out, const struct np_node *run)
{
    const struct np_node *progress = progress_of(run);
    const bool goes = is_in(run, "running");
    char step[48], eta[32];

    if (!progress)
        return;
    step_text(run, step, sizeof(step));
    fprintf(out, "  %-11s %s%sstep %s, epoch %.2f\n", "at",
        goes ? np_node_text(progress, "doing") : "", goes ? ", " : "", step,
        isnan(number(progress, "epoch")) ? 0 : number(progress, "epoch"));
    if (!isnan(number(progress, "loss")))
        fprintf(out, "  %-11s %.4f\n", "loss", number(progress, "loss"));
    if (!isnan(number(progress, "accuracy")))
        fprintf(out, "  %-11s %.2f%%\n", "accuracy", 100 * number(progress, "accuracy"));
    if (!goes)
        return;
    if (!isnan(number(progress, "images_per_second")))
        fprintf(out, "  %-11s %.0f img/s, stall %.0f%% %s\n", "speed",
            number(progress, "images_per_second"), 100 * number(progress, "stall_ratio"),
            np_node_text(progress, "cause"));
    if (!isnan(number(progress, "eta_seconds"))) {
        np_duration_text(number(progress, "eta_seconds"), eta, sizeof(eta));
        tell(out, "to go", eta);
    }
}

void np_run_print_whole(const struct np_node *run, FILE *out)
{
    fprintf(out, "run %s: %s, %s\n", np_node_text(run, "id"), np_node_text(run, "name"),
        np_node_text(run, "state"));
    if (*np_node_text(run, "reason"))
        tell(out, "why", np_node_text(run, "reason"));
    tell_progress(out, run);
    tell(out, "owner", np_node_text(run, "owner"));
    tell(out, "config", np_node_text(run, "path"));
    tell(out, "folder", np_node_text(run, "dir"));
    tell(out, "device", device_of(run));
    tell(out, "priority", np_node_text(run, "priority"));
    tell_after(out, np_node_get(run, "after"));
    tell_overrides(out, np_node_get(run, "overrides"));
    if (*np_node_text(run, "on_end"))
        tell(out, "at its end", np_node_text(run, "on_end"));
    tell_time_run(out, run);
    if (!isnan(number(run, "memory")))
        fprintf(out, "  %-11s at most %.4g GiB\n", "memory", number(run, "memory") / (1 << 30));
    if (!isnan(number(run, "cpus")))
        fprintf(out, "  %-11s at most %g\n", "CPUs", number(run, "cpus"));
    tell(out, "attempts", np_node_text(run, "attempts"));
    fprintf(out, "  %-11s %s of %s\n", "retries", np_node_text(run, "retries"),
        np_node_text(run, "max_retries"));
    tell_time(out, "submitted", number(run, "submitted"));
    tell_time(out, "started", number(run, "started"));
    tell_time(out, "ended", number(run, "ended"));
    tell_time(out, "not before", number(run, "not_before"));
}
