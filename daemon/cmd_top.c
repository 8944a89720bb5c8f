/* `nnpipe top [RUN]`: the runs that go on, a line each, or one with its stages; once a second, or once. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/json.h"
#include "daemon/top.h"
#include "daemon/ui/progress.h"
#include "loader/base/mem.h"

#define MOST_RUNS 256

struct top {
    const char *run, *runs;
    bool once, json, live, colour;
    struct np_json line;
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    ended = number;
}

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

static int columns(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : 100;
}

static void print_head(void)
{
    printf("%-36s %16s %9s %9s  %-20s %-8s %8s %9s\n", "run", "step", "epoch", "img/s", "stall",
        "device", "loss", "ETA");
}

static void print_line(const struct np_top_run *run)
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
    printf("%-36s %16s %9.2f %9s  %-20s %-8s %8s %9s%s\n", run->name, step,
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
    print_head();
    print_line(&run);
    if (!run.seen) {
        puts("nothing of its pipeline is told yet: a line comes every two seconds of training");
        return 0;
    }
    np_top_profile(&run, &profile, missing, sizeof(missing));
    putchar('\n');
    np_profile_screen(&profile, columns(), top->colour, stdout);
    if (*missing)
        printf(" not measured alone: %s; `nnpipe profile` measures it\n", missing);
    return 0;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static int show_all(struct top *top, struct np_err *err)
{
    char *dirs[MOST_RUNS];
    int n = 0, nr_running = 0;
    DIR *folder = opendir(top->runs);

    if (!folder && errno != ENOENT)
        return np_err_set(err, -errno, "%s: cannot be read: %s", top->runs, strerror(errno));
    for (struct dirent *entry; folder && n < MOST_RUNS && (entry = readdir(folder));) {
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
                print_head();
            if (top->json)
                print_json(top, &run);
            else
                print_line(&run);
        }
        np_free(dirs[i]);
    }
    if (!top->json && nr_running == 0)
        printf("no run goes on below %s\n", top->runs);
    return 0;
}

/* RUN as a path, or a name below `runs`. */
static int show(struct top *top, struct np_err *err)
{
    if (!top->run)
        return show_all(top, err);
    char *below = np_format("%s/%s", top->runs, top->run);
    const bool path = strchr(top->run, '/') || !below || access(below, F_OK) != 0;
    const int code = show_one(top, path ? top->run : below, err);
    np_free(below);
    return code;
}

/* --- the terminal ----------------------------------------------------------------------------- */

/* A second passes, or somebody wants to leave. */
static bool wait_for_key(void)
{
    struct pollfd keys = {STDIN_FILENO, POLLIN, 0};
    char key = 0;

    if (poll(&keys, 1, 1000) == 1 && read(STDIN_FILENO, &key, 1) <= 0)
        poll(NULL, 0, 1000); /* no keyboard there */
    return ended || key == 'q' || key == 'Q' || key == 3;
}

static int show_live(struct top *top, struct np_err *err)
{
    const struct sigaction action = {.sa_handler = on_signal};
    struct termios before, raw;
    const bool keyboard = tcgetattr(STDIN_FILENO, &before) == 0;
    int code;

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (keyboard) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout);
    do {
        fputs("\033[H\033[J", stdout);
        code = show(top, err);
        fputs("\nq: end\n", stdout);
    } while (fflush(stdout) == 0 && code == 0 && !wait_for_key());
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (keyboard)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return code;
}

int np_cmd_top(int argc, char **argv)
{
    struct top top = {.runs = "runs"};
    const struct np_flag flags[] = {{"--runs", &top.runs, NULL, NULL},
        {"--once", NULL, &top.once, NULL}, {"--json", NULL, &top.json, NULL},
        {NULL, NULL, NULL, NULL}};
    const char *no_colour = getenv("NO_COLOR");
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
    top.colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
    code = top.live ? show_live(&top, &err) : show(&top, &err);
    if (code < 0)
        np_complain(&err);
    np_json_fini(&top.line);
    return code < 0 ? NP_EXIT_FAILED : NP_EXIT_DONE;
}
