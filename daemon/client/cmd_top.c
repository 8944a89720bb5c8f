/* `nnpipe top [RUN]`: the running runs, one line each, or one with its stages; once a second, or once. Of
 * the service where one answers, else of the folders below `runs`. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/client/retry.h"
#include "daemon/cmd.h"
#include "loader/base/json.h"
#include "daemon/client/top.h"
#include "daemon/client/top_service.h"
#include "daemon/ui/progress.h"
#include "daemon/ui/terminal.h"
#include "loader/base/mem.h"

#define MAX_RUNS 256

struct top {
    const char *run, *runs, *socket;
    bool once, json, live, colour;
    bool asked; /* a service was, and there is none */
    FILE *out;
    int columns; /* of the terminal; 0: none */
    struct np_json line;
};

/* --- one run ---------------------------------------------------------------------------------- */

static void print_json(struct top *top, const struct np_top_run *run)
{
    struct np_json *line = &top->line;

    np_json_begin(line, "run");
    np_json_text(line, "run", run->name);
    np_json_bool(line, "running", run->pid > 0);
    np_json_int(line, "pid", run->pid);
    np_json_real(line, "step", run->step < 0 ? NAN : run->step);
    np_json_real(line, "total_steps", run->total_steps < 0 ? NAN : run->total_steps);
    np_json_real(line, "epoch", run->epoch < 0 ? NAN : run->epoch);
    np_json_real(line, "loss", run->loss);
    np_json_real(line, "images_per_second", run->seen ? run->images_per_second : NAN);
    np_json_real(line, "stall_ratio", run->seen ? run->stall_ratio : NAN);
    np_json_text(line, "stall_cause", *run->cause ? run->cause : NULL);
    np_json_text(line, "device", run->seen ? run->knobs.device : NULL);
    np_json_real(line, "eta_seconds", run->seen ? run->eta_seconds : NAN);
    const char *text = np_json_end(line);
    fputs(text ? text : "", stdout);
}

static void print_head(FILE *out)
{
    fprintf(out, "%-36s %16s %9s %9s  %-20s %-8s %8s %9s\n", "run", "step", "epoch", "img/s",
        "stall", "device", "loss", "ETA");
}

static void print_line(const struct np_top_run *run, FILE *out)
{
    char loss[32] = "-", step[48] = "-", stall[40] = "-", rate[32] = "-", eta[32] = "-";

    if (run->step >= 0 && run->total_steps > 0)
        snprintf(step, sizeof(step), "%.0f/%.0f", run->step, run->total_steps);
    else if (run->step >= 0)
        snprintf(step, sizeof(step), "%.0f", run->step);
    if (isfinite(run->loss))
        snprintf(loss, sizeof(loss), "%.4f", run->loss);
    if (run->seen) {
        snprintf(rate, sizeof(rate), "%.0f", run->images_per_second);
        snprintf(stall, sizeof(stall), "%.0f%% %s", 100 * run->stall_ratio,
            run->stall_ratio >= 0.005 ? run->cause : "");
        np_duration_text(run->eta_seconds, eta, sizeof(eta));
    }
    fprintf(out, "%-36s %16s %9.2f %9s  %-20s %-8s %8s %9s%s\n", run->name, step,
        run->epoch < 0 ? 0 : run->epoch, rate, stall, run->seen ? run->knobs.device : "-", loss,
        eta, run->pid ? "" : "  (not running)");
}

static int show_one(struct top *top, const char *dir, struct np_err *err)
{
    struct np_top_run run;
    struct np_profile profile;
    char missing[128];
    int code = np_top_read(dir, &run, err);

    if (code < 0)
        return code;
    if (top->json) {
        print_json(top, &run);
        return 0;
    }
    print_head(top->out);
    print_line(&run, top->out);
    if (!run.seen) {
        fputs("nothing of its pipeline is told yet: a line comes every two seconds of training\n",
            top->out);
        return 0;
    }
    np_top_profile(&run, &profile, missing, sizeof(missing));
    fputc('\n', top->out);
    np_profile_screen(&profile, top->columns >= 40 ? top->columns : 100, top->colour, top->out);
    if (*missing)
        fprintf(top->out, " not measured alone: %s; `nnpipe profile` measures it\n", missing);
    return 0;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static int show_all(struct top *top, struct np_err *err)
{
    char *dirs[MAX_RUNS];
    int n = 0, nr_running = 0;
    DIR *folder = opendir(top->runs);

    if (!folder && errno != ENOENT)
        return np_err_set(err, -errno, "%s: cannot be read: %s", top->runs, strerror(errno));
    for (struct dirent *entry; folder && n < MAX_RUNS && (entry = readdir(folder));) {
        char *dir = entry->d_name[0] == '.' ? NULL : np_format("%s/%s", top->runs, entry->d_name);
        struct np_top_run run;

        if (dir && np_top_read(dir, &run, NULL) == 0 && run.pid > 0)
            dirs[n++] = dir;
        else
            np_free(dir);
    }
    if (folder)
        closedir(folder);
    qsort(dirs, (size_t)n, sizeof(*dirs), compare_names);
    for (int i = 0; i < n; i++) {
        struct np_top_run run;

        if (np_top_read(dirs[i], &run, NULL) == 0) {
            if (!top->json && nr_running++ == 0)
                print_head(top->out);
            if (top->json)
                print_json(top, &run);
            else
                print_line(&run, top->out);
        }
        np_free(dirs[i]);
    }
    if (!top->json && nr_running == 0)
        fprintf(top->out, "no run is running below %s%s\n", top->runs,
            top->asked ? ", and no service answers" : "");
    return 0;
}

/* The folder below `runs` whose name begins with the word, the one that wrote its metrics last where there
 * are several. NULL: none. np_free. */
static char *begins_with(const char *runs, const char *word)
{
    DIR *folder = *word ? opendir(runs) : NULL;
    char *found = NULL;
    time_t newest = 0;

    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat stat_;
        char *dir = strncmp(entry->d_name, word, strlen(word)) == 0
                        ? np_format("%s/%s", runs, entry->d_name)
                        : NULL;
        char *metrics = dir ? np_format("%s/metrics.jsonl", dir) : NULL;

        if (metrics && stat(metrics, &stat_) == 0 && (!found || stat_.st_mtime >= newest)) {
            np_free(found);
            found = dir;
            newest = stat_.st_mtime;
        } else {
            np_free(dir);
        }
        np_free(metrics);
    }
    if (folder)
        closedir(folder);
    return found;
}

/* RUN as a path, a name below `runs`, or the beginning of one. */
static int show(struct top *top, struct np_err *err)
{
    if (!top->run)
        return show_all(top, err);
    char *below = np_format("%s/%s", top->runs, top->run);
    if (!strchr(top->run, '/') && below && access(below, F_OK) != 0 &&
        access(top->run, F_OK) != 0) {
        np_free(below);
        below = begins_with(top->runs, top->run);
    }
    const bool is_below = below && !strchr(top->run, '/') && access(below, F_OK) == 0;
    const int code = show_one(top, is_below ? below : top->run, err);
    np_free(below);
    return code;
}

/* --- the terminal ----------------------------------------------------------------------------- */

static int show_live(struct top *top, struct np_err *err)
{
    struct np_terminal screen;
    int code = np_terminal_open(&screen, err), key = NP_KEY_NONE;

    if (code < 0)
        return code;
    while (code == 0 && key != NP_KEY_END && key != 'q' && key != 'Q') {
        top->out = np_terminal_begin(&screen);
        top->columns = screen.columns;
        code = top->out ? show(top, err) : np_err_set(err, -ENOMEM, "out of memory");
        if (code == 0 && (code = np_terminal_show(&screen, "q: end")) == 0)
            key = np_terminal_key(&screen, 1000);
    }
    np_terminal_close(&screen);
    return code == -EPIPE ? 0 : code;
}

/* --- the service's ---------------------------------------------------------------------------- */

/* Does one answer? Who names folders does not ask it. */
static bool has_service(const struct top *top, struct np_client **ret_client, int64_t *ret_id)
{
    struct np_answer answer;
    struct np_err unasked = {0};

    *ret_id = 0;
    if (top->runs || (top->run && !np_run_id(top->run, ret_id)) ||
        np_client_open(top->socket, ret_client, &unasked) < 0)
        return false;
    const int code = np_client_ask(*ret_client, "GET", "/v1/service", NULL, &answer, &unasked);
    return code == 0 || (top->socket && code < 0);
}

static int show_any(struct top *top, struct np_err *err)
{
    struct np_top_service of_service = {
        .live = top->live, .json = top->json, .colour = top->colour};
    int code;

    if (has_service(top, &of_service.client, &of_service.id)) {
        code = np_top_service(&of_service, err);
    } else {
        top->asked = !top->runs;
        if (top->asked)
            top->runs = "runs";
        code = top->live ? show_live(top, err) : show(top, err);
    }
    np_client_close(of_service.client);
    return code;
}

int np_cmd_top(int argc, char **argv)
{
    struct top top = {.out = stdout};
    const struct np_flag flags[] = {{"--runs", &top.runs, NULL, NULL},
        {"--once", NULL, &top.once, NULL}, {"--json", NULL, &top.json, NULL},
        {"--socket", &top.socket, NULL, NULL}, {NULL, NULL, NULL, NULL}};
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 1) {
        fprintf(stderr, "nnpipe top: expected one RUN at most, not %d\n", nr);
        return NP_EXIT_USAGE;
    }
    top.run = nr ? argv[1] : NULL;
    top.live = isatty(STDOUT_FILENO) && !top.once && !top.json;
    top.colour = np_terminal_colour(STDOUT_FILENO);
    top.columns = np_terminal_columns(STDOUT_FILENO);
    code = show_any(&top, &err);
    if (code < 0)
        np_complain(&err);
    np_json_fini(&top.line);
    return code < 0 ? NP_EXIT_FAILED : NP_EXIT_DONE;
}
