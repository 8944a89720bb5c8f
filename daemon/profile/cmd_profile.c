/* `nnpipe profile CONFIG`: its options, the files it writes and the order of its output. Main
 * thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "build_id.h"
#include "daemon/analysis/trace.h"
#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/profile/profile_ranks.h"
#include "daemon/profile/trial.h"
#include "daemon/profile/tune.h"
#include "daemon/run/processes.h"
#include "daemon/run/run_folder.h"
#include "daemon/ui/progress.h"
#include "daemon/ui/terminal.h"
#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "trainer/comm.h"

#define MIN_TRIAL_S 0.1
#define MAX_TRIAL_S 600.0

struct options {
    const char *config_path, *device, *out, *html, *compare, *trace, *trace_limit;
    const char *max_memory, *max_cores; /* of --tune */
    const char *seconds;                /* of a trial */
    const char *processes;
    bool json, deep, verify, tune;
    struct np_overrides overrides;
};

struct profiling {
    struct options ask;
    double trial_s; /* 0: default */
    struct np_launch launch;
    struct np_tune_options caps;
    struct np_config *config;
    struct np_rig rig;
    struct np_ui ui;
    char *dir;
    char *advised;                   /* --verify: the config with the advice; NULL: none */
    struct np_trace *trace;          /* opened first, so that a wrong path fails at once */
    struct np_profile profile, then; /* then: the older one of --compare */
    struct np_comparison comparison;
    struct np_tuning tuning;
    bool wrong_cap; /* a cap of --tune is too small for the measured run */
};

/* --- measuring ----------------------------------------------------------------------------- */

static void say_so_far(void *context, const struct np_profile *profile, double seconds)
{
    struct profiling *p = context;
    const struct np_profile_verdict *verdict = &profile->verdict;
    const bool limited = verdict->kind == NP_LIMITED;

    if (!p->ask.json)
        np_ui_say(&p->ui, "after %.0f s: %s%s%s; measuring again", seconds,
            np_verdict_names[verdict->kind], limited ? " by " : "",
            limited ? np_stage_names[verdict->limiter] : "");
}

/* In a separate trial, so that no figure contains the cost of spans. */
static int traced(struct profiling *p, struct np_err *err)
{
    const struct np_trial_options options = {
        .warmup_s = NP_WARMUP_S, .seconds = NP_TRIAL_S, .trace = p->trace};
    struct np_trace_end end;
    struct np_observation seen;
    const int code = np_trial_run(&p->rig, &options, &seen, err);

    np_trace_finish(p->trace, &end);
    np_ui_say(&p->ui, "%s", end.text);
    return code;
}

static int measure(struct profiling *p, struct np_err *err)
{
    const struct np_measure_options options = {
        .deep = p->ask.deep, .verify = p->ask.verify, .so_far = say_so_far, .context = p};
    const uint64_t start = np_now_ns();
    int code = np_profile_measure(&p->rig, &options, &p->profile, err);

    if (code == 0 && p->trace)
        code = traced(p, err);
    if (code == 0 && p->ask.tune) {
        code = np_tuning_run(&p->rig, &p->profile, &p->caps, NP_TRIAL_S, &p->tuning, err);
        p->wrong_cap = code == -ERANGE;
    }
    if (code == 0 && p->ask.compare)
        code = np_profile_compare(&p->then, &p->profile, &p->comparison, err);
    p->profile.seconds = (double)(np_now_ns() - start) * 1e-9;
    return code;
}

/* --- the outcome --------------------------------------------------------------------------- */

static int write_files(struct profiling *p, struct np_err *err)
{
    const struct options *ask = &p->ask;
    char *page = ask->html ? np_strdup(ask->html) : np_format("%s/profile.html", p->dir);
    char *file = np_format("%s/profile.json", p->dir);

    snprintf(p->profile.files, sizeof(p->profile.files), "%s  %s%s%s", page, file,
        ask->trace ? "  " : "", ask->trace ? ask->trace : "");
    char *json = np_profile_json(&p->profile, err);
    int code = json ? np_profile_html(json, page, err) : -ENOMEM;

    if (code == 0)
        code = np_write_file(file, json, strlen(json), 0, err);
    np_free(json);
    np_free(file);
    np_free(page);
    return code;
}

static void print_comparison(struct profiling *p)
{
    const struct np_comparison *comparison = &p->comparison;
    struct np_json *line = &p->ui.object;

    if (!p->ask.json) {
        np_ui_say(&p->ui, "%s", comparison->text);
        return;
    }
    np_json_begin(line, "comparison");
    np_json_real(line, "change", comparison->change);
    np_json_real(line, "least", comparison->least);
    np_json_text(line, "verdict", comparison->regressed ? "slower" : "not slower");
    np_json_text(line, "stage", comparison->regressed ? np_stage_names[comparison->stage] : NULL);
    np_ui_event(&p->ui, np_json_end(line));
}

/* One JSON object per line; `done` is the last. */
static int print_events(struct profiling *p, struct np_err *err)
{
    char *done = np_profile_done(&p->profile, err);

    if (!done)
        return -ENOMEM;
    if (p->ask.compare)
        print_comparison(p);
    if (p->ask.tune)
        np_ui_event(&p->ui, np_tuning_event(&p->tuning, &p->ui.object));
    if (p->advised) {
        np_json_begin(&p->ui.object, "advised");
        np_json_text(&p->ui.object, "file", p->advised);
        np_ui_event(&p->ui, np_json_end(&p->ui.object));
    }
    fputs(done, stdout);
    np_free(done);
    return 0;
}

/* A config that cannot be written is only a warning: its settings are printed anyway. */
static void write_changes(struct profiling *p)
{
    struct np_err tuned = {0}, advised = {0};

    if (p->ask.tune && np_tuning_write(&p->tuning, p->ask.config_path, p->dir, &tuned) < 0)
        np_ui_warn(&p->ui, tuned.text);
    if (np_advice_write(&p->profile, p->ask.config_path, p->dir, &p->advised, &advised) < 0)
        np_ui_warn(&p->ui, advised.text);
}

static void print_text(struct profiling *p)
{
    const int columns = np_terminal_columns(STDOUT_FILENO);

    np_profile_screen(&p->profile, columns >= 60 ? columns : 80, p->ui.colour, stdout);
    if (p->advised)
        printf(" config with the advice: %s\n", p->advised);
    if (p->ask.tune)
        np_tuning_print(&p->tuning, stdout);
    if (p->ask.compare)
        print_comparison(p);
}

static int report(struct profiling *p, struct np_err *err)
{
    if (p->ask.compare)
        p->profile.before = &p->then;
    int code = write_files(p, err);

    if (code < 0)
        return code;
    write_changes(p);
    if (p->ask.json)
        return print_events(p, err);
    print_text(p);
    return 0;
}

/* --- the command --------------------------------------------------------------------------- */

static void name_profile(struct profiling *p)
{
    const time_t now = time(NULL);
    struct tm utc;

    snprintf(p->profile.config, sizeof(p->profile.config), "%s", p->ask.config_path);
    snprintf(p->profile.version, sizeof(p->profile.version), "%s", NP_COMMIT);
    strftime(p->profile.started_at, sizeof(p->profile.started_at), "%Y-%m-%dT%H:%M:%SZ",
        gmtime_r(&now, &utc));
}

/* Can path be written? Changes no file and leaves none. Opens no pipe: its reader would take the
 * close for the end. */
static int check_writable(const char *path, struct np_err *err)
{
    struct stat info;

    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode) &&
        access(path, W_OK) == 0)
        return 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const bool fresh = fd >= 0;

    if (fd < 0 && errno == EEXIST)
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return np_err_set(err, -errno, "%s: cannot be written: %s", path, strerror(errno));
    close(fd);
    if (fresh)
        unlink(path);
    return 0;
}

/* Opens all files that the command line names, so that mistakes are found before measuring. */
static int open_all(struct profiling *p, struct np_err *err)
{
    const struct options *ask = &p->ask;
    char *name = np_format("profile-%s", p->config->name);
    int code = ask->compare ? np_profile_read(ask->compare, &p->then, err) : 0;

    name_profile(p);
    if (code == 0 && ask->trace)
        code = np_trace_open(ask->trace, ask->trace_limit, &p->trace, err);
    if (code == 0 && ask->html)
        code = check_writable(ask->html, err);
    if (code == 0 && ask->out) {
        p->dir = np_strdup(ask->out);
        code = np_make_dirs(ask->out, err);
    } else if (code == 0) {
        code = np_folder_create(p->config->runs, name, &p->dir, err);
    }
    np_free(name);
    return code;
}

static void set_rig(struct profiling *p)
{
    p->rig = (struct np_rig){.config_path = p->ask.config_path,
        .device = p->ask.device,
        .overrides = p->ask.overrides,
        .pace = p->trial_s > 0 ? p->trial_s / NP_TRIAL_S : 1};
}

/* --- several processes ---------------------------------------------------------------------- */

static int report_ranks(struct profiling *p, struct np_ranks_profile *profile, struct np_err *err)
{
    char *file = np_format("%s/profile.json", p->dir), *json;
    int code = -ENOMEM;

    snprintf(profile->config, sizeof(profile->config), "%s", p->ask.config_path);
    snprintf(profile->files, sizeof(profile->files), "%.4095s", file);
    if ((json = np_ranks_json(profile, err)))
        code = np_write_file(file, json, strlen(json), 0, err);
    if (code == 0 && p->ask.json)
        fputs(json, stdout);
    else if (code == 0)
        np_ranks_print(profile, stdout);
    np_free(json);
    np_free(file);
    return code;
}

/* In each process; rank 0 reports. */
static int profile_ranks(struct profiling *p, struct np_err *err)
{
    const bool leads = p->launch.rank == 0;
    struct np_ranks_profile profile = {0};
    int code = leads ? open_all(p, err) : 0;

    if (code == 0)
        code = np_ranks_measure(&p->rig, &p->launch, &profile, err);
    if (code < 0 && p->dir)
        rmdir(p->dir);
    if (code == 0 && leads)
        code = report_ranks(p, &profile, err);
    np_ranks_fini(&profile);
    return code;
}

static int profile(struct profiling *p, struct np_err *err)
{
    int code = open_all(p, err);

    if (code == 0)
        code = measure(p, err);
    if (code < 0 && p->dir)
        rmdir(p->dir); /* if empty */
    return code ? code : report(p, err);
}

/* `profile NEW.json --compare OLD.json` measures nothing. */
static bool is_stored(const struct options *ask)
{
    const size_t bytes = strlen(ask->config_path);

    return ask->compare && bytes > 5 && strcmp(ask->config_path + bytes - 5, ".json") == 0;
}

static int compare_stored(struct profiling *p, struct np_err *err)
{
    int code = np_profile_read(p->ask.compare, &p->then, err);

    if (code == 0)
        code = np_profile_read(p->ask.config_path, &p->profile, err);
    if (code == 0)
        code = np_profile_compare(&p->then, &p->profile, &p->comparison, err);
    if (code == 0)
        print_comparison(p);
    return code;
}

static bool measures(const struct options *ask, const struct np_flag *flags)
{
    for (; flags->name; flags++)
        if (flags->text != &ask->compare && flags->set != &ask->json &&
            (flags->text ? *flags->text != NULL : *flags->set))
            return true;
    return ask->overrides.nr_texts > 0;
}

/* nr: operands. 0, or -EINVAL for flags that do not fit together. */
static int check_usage(struct profiling *p, const struct np_flag *flags, int nr, struct np_err *err)
{
    const struct options *ask = &p->ask;
    const bool several = ask->processes || p->launch.world > 1;

    if (nr != 1)
        return np_err_set(err, -EINVAL, "expected one CONFIG, not %d", nr);
    if (ask->seconds && !np_text_real(ask->seconds, MIN_TRIAL_S, MAX_TRIAL_S, &p->trial_s))
        return np_err_set(err, -EINVAL, "--seconds %s is not a number from %g to %g", ask->seconds,
            MIN_TRIAL_S, MAX_TRIAL_S);
    const struct {
        bool wrong;
        const char *text;
    } rules[] = {
        {!ask->tune && (ask->max_memory || ask->max_cores),
            "--max-memory and --max-cores need --tune"},
        {ask->trace_limit && !ask->trace, "--trace-limit needs --trace FILE: it limits its size"},
        {several &&
                (ask->html || ask->compare || ask->trace || ask->deep || ask->verify || ask->tune),
            "several processes are compared with each other: of the other flags only --device, "
            "--out, "
            "--seconds, --json and -o are allowed"},
        {strcmp(ask->config_path, "-") == 0, "the config must be a file: every trial reads it"},
        {is_stored(ask) && measures(ask, flags), "two stored profiles are compared without a "
                                                 "measurement: of the other flags only --json "
                                                 "is allowed"},
    };

    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (rules[i].wrong)
            return np_err_set(err, -EINVAL, "%s", rules[i].text);
    return np_tuning_caps(ask->max_memory, ask->max_cores, &p->caps, err);
}

static void close_all(struct profiling *p)
{
    np_trace_free(p->trace);
    if (p->profile.before == &p->then)
        p->profile.before = NULL;
    np_profile_fini(&p->profile);
    np_profile_fini(&p->then);
    np_tuning_fini(&p->tuning);
    np_free(p->dir);
    np_free(p->advised);
    np_config_free(p->config);
    np_ui_fini(&p->ui);
}

int np_cmd_profile(int argc, char **argv)
{
    struct profiling p = {0};
    struct options *ask = &p.ask;
    const struct np_flag flags[] = {
        {"--device", &ask->device, NULL, NULL},
        {"--out", &ask->out, NULL, NULL},
        {"--html", &ask->html, NULL, NULL},
        {"--compare", &ask->compare, NULL, NULL},
        {"--trace", &ask->trace, NULL, NULL},
        {"--trace-limit", &ask->trace_limit, NULL, NULL},
        {"--deep", NULL, &ask->deep, NULL},
        {"--verify", NULL, &ask->verify, NULL},
        {"--tune", NULL, &ask->tune, NULL},
        {"--max-memory", &ask->max_memory, NULL, NULL},
        {"--max-cores", &ask->max_cores, NULL, NULL},
        {"--seconds", &ask->seconds, NULL, NULL},
        {"--processes", &ask->processes, NULL, NULL},
        {"--json", NULL, &ask->json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_err err = {0};
    char **words = np_processes_words(argc, argv); /* the parser moves those of argv */
    int nr, code = np_flags_parse(argc, argv, flags, &ask->overrides, &nr);

    ask->config_path = code == 0 ? argv[1] : NULL;
    if (code == 0 && (np_launch_find(&p.launch, &err) < 0 || check_usage(&p, flags, nr, &err) < 0))
        code = np_usage("profile", "%s", err.text);
    if (code == 0 && ask->processes)
        code =
            np_processes_start("profile", words, &(struct np_several){.processes = ask->processes},
                argv[1], &ask->overrides, ask->device);
    np_free(words);
    if (code || ask->processes)
        return code;
    set_rig(&p);
    const bool stored = is_stored(ask);
    if (!stored)
        code = np_cmd_config(ask->config_path, &ask->overrides, ask->device, &p.config);
    if (code)
        return code;
    np_ui_init(&p.ui, ask->json);
    code = stored               ? compare_stored(&p, &err)
           : p.launch.world > 1 ? profile_ranks(&p, &err)
                                : profile(&p, &err);
    if (code < 0 && p.launch.rank == 0) /* it knows what has ended the others */
        np_ui_error(&p.ui, &err);
    const bool regressed = p.comparison.regressed, usage = p.wrong_cap;
    close_all(&p);
    return code == -EINTR ? NP_EXIT_STOPPED
           : usage        ? NP_EXIT_USAGE
           : code < 0     ? NP_EXIT_FAILED
           : regressed    ? NP_EXIT_REGRESSED
                          : NP_EXIT_DONE;
}
