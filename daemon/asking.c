/* See asking.h. */
#include "daemon/asking.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/cmd.h"
#include "daemon/ui/progress.h"
#include "loader/base/mem.h"

bool np_run_id(const char *text, int64_t *ret_id)
{
    char *end;

    errno = 0;
    *ret_id = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *ret_id > 0;
}

const char *np_node_text(const struct np_node *map, const char *key)
{
    const struct np_node *node = map && map->kind == NP_NODE_MAP ? np_node_get(map, key) : NULL;

    return node && node->kind == NP_NODE_SCALAR ? node->text : "";
}

static double number(const struct np_node *map, const char *key)
{
    return map && map->kind == NP_NODE_MAP ? np_node_number(map, key, NAN) : NAN;
}

/* --- a run -------------------------------------------------------------------------------------- */

/* "120/7820", "82.1%", "-". */
static void progress_text(const struct np_node *run, char *text, size_t bytes)
{
    const struct np_node *progress = np_node_get(run, "progress");
    const double step = number(progress, "step"), total = number(progress, "total_steps");

    if (isnan(step) || isnan(total))
        snprintf(text, bytes, "-");
    else
        snprintf(text, bytes, "%.0f/%.0f", step, total);
}

static void rate_text(const struct np_node *run, char *text, size_t bytes)
{
    const double rate = number(np_node_get(run, "progress"), "images_per_second");

    if (isnan(rate) || strcmp(np_node_text(run, "state"), "running") != 0)
        snprintf(text, bytes, "-");
    else
        snprintf(text, bytes, "%.0f", rate);
}

/* How long it has waited, run, or been over. */
static void age_text(const struct np_node *run, char *text, size_t bytes)
{
    const double ended = number(run, "ended"), started = number(run, "started");
    const double since = !isnan(ended)     ? ended
                         : !isnan(started) ? started
                                           : number(run, "submitted");
    const double age = (double)time(NULL) - since;

    np_duration_text(age > 0 ? age : 0, text, bytes);
}

void np_print_run_head(void)
{
    printf("%5s %-20s %-9s %-10s %-8s %4s %16s %9s %10s\n", "id", "name", "state", "owner",
        "device", "prio", "step", "img/s", "since");
}

void np_print_run(const struct np_node *run, bool json)
{
    char step[48], rate[32], age[32];
    const char *device = np_node_text(run, "assigned");

    if (json) {
        struct np_json line = {0};

        np_json_begin(&line, "run");
        for (int i = 0; i < run->nr_items; i++)
            np_json_node(&line, run->items[i]->key, run->items[i]);
        const char *text = np_json_end(&line);
        fputs(text ? text : "", stdout);
        np_json_fini(&line);
        return;
    }
    progress_text(run, step, sizeof(step));
    rate_text(run, rate, sizeof(rate));
    age_text(run, age, sizeof(age));
    printf("%5.0f %-20.20s %-9s %-10.10s %-8s %4.0f %16s %9s %10s\n", number(run, "id"),
        np_node_text(run, "name"), np_node_text(run, "state"), np_node_text(run, "owner"),
        *device ? device : np_node_text(run, "device"), number(run, "priority"), step, rate, age);
}

static void print_time(const char *what, double when)
{
    const time_t seconds = (time_t)when;
    struct tm local;
    char text[64];

    if (isnan(when))
        return;
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &local));
    printf("  %-12s %s\n", what, text);
}

static void print_after(const struct np_node *after)
{
    if (!after || after->kind != NP_NODE_LIST || after->nr_items == 0)
        return;
    printf("  %-12s", "after");
    for (int i = 0; i < after->nr_items; i++)
        printf(" %s", after->items[i]->text ? after->items[i]->text : "?");
    putchar('\n');
}

static void print_progress(const struct np_node *run)
{
    const struct np_node *progress = np_node_get(run, "progress");
    char step[48], eta[32];

    if (!progress || progress->kind != NP_NODE_MAP)
        return;
    progress_text(run, step, sizeof(step));
    printf("  %-12s %s, step %s, epoch %.2f", "progress", np_node_text(progress, "doing"), step,
        number(progress, "epoch"));
    if (!isnan(number(progress, "loss")))
        printf(", loss %.4f", number(progress, "loss"));
    if (!isnan(number(progress, "accuracy")))
        printf(", accuracy %.2f%%", 100 * number(progress, "accuracy"));
    if (!isnan(number(progress, "images_per_second")))
        printf(", %.0f img/s", number(progress, "images_per_second"));
    if (!isnan(number(progress, "stall_ratio")))
        printf(", stall %.0f%% %s", 100 * number(progress, "stall_ratio"),
            np_node_text(progress, "cause"));
    if (!isnan(number(progress, "eta_seconds"))) {
        np_duration_text(number(progress, "eta_seconds"), eta, sizeof(eta));
        printf(", %s to go", eta);
    }
    putchar('\n');
}

void np_print_run_whole(const struct np_node *run)
{
    printf("run %.0f: %s, %s\n", number(run, "id"), np_node_text(run, "name"),
        np_node_text(run, "state"));
    if (*np_node_text(run, "reason"))
        printf("  %-12s %s\n", "why", np_node_text(run, "reason"));
    print_progress(run);
    printf("  %-12s %s\n", "owner", np_node_text(run, "owner"));
    printf("  %-12s %s\n", "config", np_node_text(run, "path"));
    printf("  %-12s %s\n", "folder", np_node_text(run, "dir"));
    printf("  %-12s %s%s%s\n", "device", np_node_text(run, "device"),
        *np_node_text(run, "assigned") ? ", on " : "", np_node_text(run, "assigned"));
    printf("  %-12s %.0f\n", "priority", number(run, "priority"));
    print_after(np_node_get(run, "after"));
    printf("  %-12s %.0f of %.0f\n", "retries", number(run, "retries"), number(run, "max_retries"));
    print_time("submitted", number(run, "submitted"));
    print_time("started", number(run, "started"));
    print_time("ended", number(run, "ended"));
    print_time("not before", number(run, "not_before"));
}

/* --- its end ------------------------------------------------------------------------------------ */

static bool is_over(const struct np_node *run)
{
    const char *state = np_node_text(run, "state");

    return strcmp(state, "done") == 0 || strcmp(state, "failed") == 0 ||
           strcmp(state, "stopped") == 0;
}

int np_exit_of_run(const struct np_node *run)
{
    const char *state = np_node_text(run, "state");

    return strcmp(state, "done") == 0      ? NP_EXIT_DONE
           : strcmp(state, "stopped") == 0 ? NP_EXIT_STOPPED
                                           : NP_EXIT_FAILED;
}

int np_await_end(struct np_client *client, int64_t id, struct np_node **ret_run, struct np_err *err)
{
    for (;;) {
        char *target =
            np_format("/v1/runs/%lld?wait=50&state=queued,running,pausing,yielding,stopping,"
                      "paused",
                (long long)id);
        struct np_node *run = NULL;
        const int code = target ? np_client_ask_node(client, "GET", target, NULL, &run, err)
                                : np_err_set(err, -ENOMEM, "out of memory");

        np_free(target);
        if (code < 0)
            return code;
        if (is_over(run)) {
            *ret_run = run;
            return 0;
        }
        np_node_free(run);
    }
}
