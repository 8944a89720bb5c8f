/* `nnpipe profile CONFIG`: which stage limits the run, by how much, and which key to change. Options, files
 * and what is printed when: the rest is daemon/profile/'s. Main thread. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "build_id.h"
#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/profile/compare.h"
#include "daemon/profile/trial.h"
#include "daemon/analysis/trace.h"
#include "daemon/profile/tuning.h"
#include "daemon/run/run_folder.h"
#include "daemon/ui/progress.h"
#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define MIN_TRIAL_S 0.1
#define MAX_TRIAL_S 600.0

struct profiling {
    const char *config_path, *device, *out, *html, *compare, *trace, *trace_limit;
    const char *max_memory, *max_cores; /* of --tune */
    const char *seconds;                /* a trial's */
    bool json, deep, verify, tune;
    bool wrong_cap; /* of --tune, as the measured run shows */
    struct np_overrides overrides;
    struct np_config *config;
    struct np_rig *rig;
    struct np_ui ui;
    struct np_profile profile;
    char *dir;
    struct np_profile then; /* --compare: the other one */
    struct np_comparison comparison;
    struct np_tune_options caps;
    struct np_tuning tuning;
    struct np_trace *tracing; /* --trace: open from the start: a wrong path is told at once */
};

/* --- measuring -------------------------------------------------------------------------------- */

static void say_so_far(void *context, const struct np_profile *profile, double seconds)
{
    struct profiling *p = context;
    const struct np_profile_verdict *verdict = &profile->verdict;
    const bool limited = verdict->kind == NP_LIMITED;

    if (!p->json)
        np_ui_say(&p->ui, "after %.0f s: %s%s%s; measuring again", seconds,
            np_verdict_names[verdict->kind], limited ? " by " : "",
            limited ? np_stage_names[verdict->limiter] : "");
}

/* A trial of its own, so that what spans cost is in no figure. */
static int traced(struct profiling *p, struct np_err *err)
{
    const struct np_trial_options options = {
        .warmup_s = NP_WARMUP_S, .seconds = NP_TRIAL_S, .trace = p->tracing};
    struct np_trace_end end;
    struct np_observation seen;
    char text[400];
    const int code = np_trial_run(p->rig, &options, &seen, err);

    np_trace_finish(p->tracing, &end);
    np_trace_text(p->tracing, &end, text, sizeof(text));
    np_ui_say(&p->ui, "%s", text);
    return code;
}

static int measure(struct profiling *p, struct np_err *err)
{
    const struct np_measure_options options = {
        .deep = p->deep, .verify = p->verify, .so_far = say_so_far, .context = p};
    const uint64_t start = np_now_ns();
    int code = np_profile_measure(p->rig, &options, &p->profile, err);

    if (code == 0 && p->trace)
        code = traced(p, err);
    if (code == 0 && p->tune) {
        code = np_tuning_run(p->rig, &p->profile, &p->caps, NP_TRIAL_S, &p->tuning, err);
        p->wrong_cap = code == -ERANGE;
    }
    if (code == 0 && p->compare)
        code = np_profile_compare(&p->then, &p->profile, &p->comparison, err);
    p->profile.seconds = (double)(np_now_ns() - start) * 1e-9;
    return code;
}

/* --- telling ---------------------------------------------------------------------------------- */

static int columns(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 60 ? size.ws_col : 80;
}

static int write_file(const char *dir, const char *name, const char *text, struct np_err *err)
{
    char *path = np_format("%s/%s", dir, name);
    FILE *file = path ? fopen(path, "we") : NULL;
    int failed = 0;

    if (!path)
        return np_err_set(err, -ENOMEM, "out of memory");
    if (!file || fputs(text, file) < 0)
        failed = errno;
    if (file && fclose(file) != 0 && !failed)
        failed = errno;
    if (failed)
        np_err_set(err, -failed, "%s: cannot be written: %s", path, strerror(failed));
    np_free(path);
    return -failed;
}

/* profile.html and profile.json into the folder. */
static int write_files(struct profiling *p, struct np_err *err)
{
    char *page = p->html ? np_strdup(p->html) : np_format("%s/profile.html", p->dir);

    snprintf(p->profile.files, sizeof(p->profile.files), "%s  %s/profile.json%s%s",
        page ? page : "", p->dir, p->trace ? "  " : "", p->trace ? p->trace : "");
    char *json = np_profile_json(&p->profile);
    int code = page && json ? np_profile_html(json, page, err)
                            : np_err_set(err, -ENOMEM, "out of memory");

    if (code == 0)
        code = write_file(p->dir, "profile.json", json, err);
    free(json);
    np_free(page);
    return code;
}

static void print_comparison(struct profiling *p)
{
    const struct np_comparison *comparison = &p->comparison;
    struct np_json *line = &p->ui.object;

    if (!p->json) {
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

/* One JSON object a line; `done` is the last. */
static int print_events(struct profiling *p, struct np_err *err)
{
    char *done = np_profile_done(&p->profile);

    if (!done)
        return np_err_set(err, -ENOMEM, "out of memory");
    if (p->compare)
        print_comparison(p);
    if (p->tune)
        np_ui_event(&p->ui, np_tuning_event(&p->tuning, &p->ui.object));
    fputs(done, stdout);
    free(done);
    return 0;
}

/* Without a copy the settings are told all the same. */
static void write_tuned(struct profiling *p)
{
    struct np_err err = {0};

    if (np_tuning_write(&p->tuning, p->config_path, p->dir, &err) < 0)
        np_ui_warn(&p->ui, err.text);
}

static int report(struct profiling *p, struct np_err *err)
{
    if (p->compare)
        p->profile.before = &p->then;
    int code = write_files(p, err);

    if (code == 0 && p->tune)
        write_tuned(p);
    if (code == 0 && !p->json)
        np_profile_screen(&p->profile, columns(), p->ui.colour, stdout);
    if (code == 0 && p->tune && !p->json)
        np_tuning_print(&p->tuning, stdout);
    if (code == 0 && p->json)
        code = print_events(p, err);
    if (code == 0 && p->compare && !p->json)
        print_comparison(p);
    return code;
}

/* --- the command ------------------------------------------------------------------------------ */

static void name_profile(struct profiling *p)
{
    const time_t now = time(NULL);
    struct tm utc;

    snprintf(p->profile.config, sizeof(p->profile.config), "%s", p->config_path);
    snprintf(p->profile.version, sizeof(p->profile.version), "%s", NP_COMMIT);
    strftime(p->profile.started_at, sizeof(p->profile.started_at), "%Y-%m-%dT%H:%M:%SZ",
        gmtime_r(&now, &utc));
}

/* Told at once, not after all the measuring. What is there stays as it is; nothing is left where nothing was. */
static int check_writable(const char *path, struct np_err *err)
{
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

static int profile(struct profiling *p, struct np_err *err)
{
    char *name = np_format("profile-%s", p->config->name);
    int code = name ? 0 : np_err_set(err, -ENOMEM, "out of memory");

    name_profile(p);
    if (code == 0 && p->compare)
        code = np_profile_read(p->compare, &p->then, err);
    if (code == 0 && p->trace)
        code = np_trace_open(p->trace, p->trace_limit, &p->tracing, err);
    if (code == 0 && p->html)
        code = check_writable(p->html, err);
    if (code == 0 && p->out) {
        p->dir = np_strdup(p->out);
        code = np_make_dirs(p->out, err);
    } else if (code == 0) {
        code = np_folder_create(p->config->runs, name, &p->dir, err);
    }
    if (code == 0)
        code = np_rig_open(p->config_path, &p->overrides, p->device, &p->rig, err);
    if (code == 0 && p->seconds)
        np_rig_pace(p->rig, strtod(p->seconds, NULL) / NP_TRIAL_S);
    if (code == 0)
        code = measure(p, err);
    if (code == 0)
        code = report(p, err);
    else if (p->dir)
        rmdir(p->dir); /* nothing is in it */
    np_free(name);
    return code;
}

/* `profile NEW.json --compare OLD.json`: nothing is measured. */
static bool is_stored(const struct profiling *p)
{
    const size_t bytes = strlen(p->config_path);

    return p->compare && bytes > 5 && strcmp(p->config_path + bytes - 5, ".json") == 0;
}

static int compare_stored(struct profiling *p, struct np_err *err)
{
    int code = np_profile_read(p->compare, &p->then, err);

    if (code == 0)
        code = np_profile_read(p->config_path, &p->profile, err);
    if (code == 0)
        code = np_profile_compare(&p->then, &p->profile, &p->comparison, err);
    if (code == 0)
        print_comparison(p);
    return code;
}

static bool is_duration(const char *text)
{
    char *end;
    const double seconds = strtod(text, &end);

    return *text && !*end && seconds >= MIN_TRIAL_S && seconds <= MAX_TRIAL_S;
}

/* Flags that do not go together, or say nothing. nr: operands. 0, or NP_EXIT_USAGE: it is said. */
static int check_usage(struct profiling *p, int nr)
{
    struct np_err caps = {0};

    if (nr != 1)
        fprintf(stderr, "nnpipe profile: expected one CONFIG, not %d\n", nr);
    else if (np_tuning_caps(p->max_memory, p->max_cores, &p->caps, &caps) < 0)
        fprintf(stderr, "nnpipe profile: %s\n", caps.text);
    else if (!p->tune && (p->max_memory || p->max_cores))
        fprintf(stderr, "nnpipe profile: --max-memory and --max-cores go with --tune\n");
    else if (p->trace_limit && !p->trace)
        fprintf(stderr, "nnpipe profile: --trace-limit is the size of the file of --trace FILE\n");
    else if (p->seconds && !is_duration(p->seconds))
        fprintf(stderr, "nnpipe profile: --seconds %s is not a number from %g to %g\n", p->seconds,
            MIN_TRIAL_S, MAX_TRIAL_S);
    else if (strcmp(p->config_path, "-") == 0)
        fprintf(stderr, "nnpipe profile: the config is read for every trial, and must be a file\n");
    else if (is_stored(p) && (p->device || p->out || p->html || p->trace || p->deep || p->verify ||
                                 p->tune || p->seconds || p->overrides.nr_texts > 0))
        fprintf(stderr,
            "nnpipe profile: two stored profiles are compared, and nothing is measured: of the "
            "flags only --json has a meaning\n");
    else
        return 0;
    return NP_EXIT_USAGE;
}

int np_cmd_profile(int argc, char **argv)
{
    struct profiling p = {0};
    const struct np_flag flags[] = {
        {"--device", &p.device, NULL, NULL},
        {"--out", &p.out, NULL, NULL},
        {"--html", &p.html, NULL, NULL},
        {"--compare", &p.compare, NULL, NULL},
        {"--trace", &p.trace, NULL, NULL},
        {"--trace-limit", &p.trace_limit, NULL, NULL},
        {"--deep", NULL, &p.deep, NULL},
        {"--verify", NULL, &p.verify, NULL},
        {"--tune", NULL, &p.tune, NULL},
        {"--max-memory", &p.max_memory, NULL, NULL},
        {"--max-cores", &p.max_cores, NULL, NULL},
        {"--seconds", &p.seconds, NULL, NULL},
        {"--json", NULL, &p.json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, &p.overrides, &nr);

    if (code)
        return code;
    p.config_path = argv[1];
    if ((code = check_usage(&p, nr)) != 0)
        return code;
    const bool stored = is_stored(&p);
    if (!stored)
        code = np_cmd_config(p.config_path, &p.overrides, p.device, &p.config);
    if (code)
        return code;
    np_ui_init(&p.ui, p.json);
    code = stored ? compare_stored(&p, &err) : profile(&p, &err);
    if (code < 0)
        np_ui_error(&p.ui, &err);
    np_rig_close(p.rig);
    np_trace_free(p.tracing);
    if (p.profile.before == &p.then)
        p.profile.before = NULL;
    np_profile_fini(&p.profile);
    np_profile_fini(&p.then);
    np_tuning_fini(&p.tuning);
    np_free(p.dir);
    np_config_free(p.config);
    np_ui_fini(&p.ui);
    return code == -EINTR           ? NP_EXIT_STOPPED
           : p.wrong_cap            ? NP_EXIT_USAGE
           : code < 0               ? NP_EXIT_FAILED
           : p.comparison.regressed ? NP_EXIT_REGRESSED
                                    : NP_EXIT_DONE;
}
