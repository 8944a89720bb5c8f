/* `nnpipe profile CONFIG`: measures the run and its parts, and says which stage limits it, by how much,
 * and which key to change. The order of the measurements, and nothing else: what they mean is
 * daemon/profile/'s. Main thread. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "build_id.h"
#include "daemon/cmd.h"
#include "daemon/config.h"
#include "daemon/profile/compare.h"
#include "daemon/profile/profile.h"
#include "daemon/profile/trace.h"
#include "daemon/profile/tuning.h"
#include "daemon/run_folder.h"
#include "daemon/ui/progress.h"
#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define WARMUP_S   0.7
#define TRIAL_S    2.0 /* until the first verdict */
#define AGAIN_S    3.0 /* each of the two that follow */
#define PART_S     1.0
#define NR_TRIALS  3
#define MOST_CURVE 16.0 /* the what-if curve ends where the limiter is so many times faster */

struct profiling {
    const char *config_path, *device, *out, *html, *compare, *trace, *trace_limit;
    const char *max_memory, *max_cores; /* of --tune */
    bool json, deep, verify, tune;
    struct np_overrides overrides;
    struct np_config *config;
    struct np_rig *rig;
    struct np_ui ui;
    struct np_profile profile;
    struct np_observation trials[NR_TRIALS];
    int nr_trials;
    char *dir;
    struct np_profile then; /* --compare: the other one */
    struct np_comparison comparison;
    struct np_tune_options caps;
    struct np_tuning tuning;
};

/* --- measuring -------------------------------------------------------------------------------- */

static int trial(struct profiling *p, double seconds, struct np_err *err)
{
    const struct np_trial_options options = {.warmup_s = WARMUP_S,
        .seconds = seconds,
        .ribbon = p->profile.ribbon,
        .nr_ribbon = &p->profile.nr_ribbon};

    p->profile.nr_ribbon = 0; /* the last trial's is told */
    int code = np_trial_run(p->rig, &options, &p->trials[p->nr_trials], err);

    p->nr_trials += code == 0;
    return code;
}

/* A part that cannot be measured (nothing is read of a drawn set) is left out; the run decides. */
static void part(struct profiling *p, enum np_part part, double *ret_rate)
{
    struct np_err unmeasured = {0};

    if (np_trial_part(p->rig, part, PART_S, ret_rate, &unmeasured) < 0)
        *ret_rate = 0;
}

static int compare_rates(const void *left, const void *right)
{
    const double a = ((const struct np_observation *)left)->images_per_second;
    const double b = ((const struct np_observation *)right)->images_per_second;

    return (a > b) - (a < b);
}

/* The trial in the middle speaks for all; how far the others are from it is the noise. */
static void take_trials(struct profiling *p)
{
    struct np_profile *profile = &p->profile;
    const int n = p->nr_trials;

    qsort(p->trials, (size_t)n, sizeof(*p->trials), compare_rates);
    profile->observation = p->trials[n / 2];
    profile->noise = 0;
    for (int i = 0; i < n; i++)
        profile->noise = fmax(profile->noise,
            fabs(p->trials[i].images_per_second / profile->observation.images_per_second - 1));
    profile->knobs = *np_rig_knobs(p->rig);
}

static void draw_curve(struct np_profile *profile)
{
    double faster[NP_NR_STAGES];

    profile->nr_curve = NP_PROFILE_MOST_CURVE;
    for (int i = 0; i < profile->nr_curve; i++) {
        for (int s = 0; s < NP_NR_STAGES; s++)
            faster[s] = 1;
        faster[profile->verdict.limiter] = pow(MOST_CURVE, (double)i / (profile->nr_curve - 1));
        if (i + 1 == profile->nr_curve)
            faster[profile->verdict.limiter] = INFINITY; /* where the curve ends up */
        profile->curve_faster[i] = faster[profile->verdict.limiter];
        profile->curve_rate[i] = np_model_rate(&profile->model, faster);
    }
}

static void think(struct profiling *p)
{
    struct np_profile *profile = &p->profile;

    take_trials(p);
    np_model_make(&profile->observation, &profile->ceilings, &profile->knobs, &profile->model);
    np_verdict_make(&profile->model, profile->noise, &profile->verdict);
    draw_curve(profile);
}

/* The counters' price: what one count takes here, times how many there were. */
static double overhead(const struct np_observation *observation)
{
    struct np_stat *stat = np_stat_new();
    struct np_block *block = stat ? np_stat_join(stat, "price") : NULL;
    const int n = 200000;
    const uint64_t start = np_now_ns();
    uint64_t items = 0;

    for (int i = 0; i < n; i++)
        np_stat_item(block, NP_STAGE_DECODE, 1, np_now_ns() - start);
    const double each = (double)(np_now_ns() - start) * 1e-9 / n;
    np_stat_free(stat);
    for (int s = 0; s < NP_NR_STAGES; s++)
        items += observation->stages[s].items;
    return each * (double)items / (observation->seconds * observation->nr_readers);
}

static int stubbed(struct profiling *p, struct np_err *err)
{
    struct np_profile *profile = &p->profile;
    struct np_deep deep = {0};
    int code = 0;

    for (int s = 0; s < NP_NR_STAGES && code == 0; s++) {
        const struct np_trial_options options = {
            .warmup_s = WARMUP_S, .seconds = TRIAL_S, .stubs = 1u << s};
        struct np_observation seen;

        if (profile->observation.stages[s].items == 0 || s == NP_STAGE_CHECKPOINT)
            continue;
        code = np_trial_run(p->rig, &options, &seen, err);
        if (code == 0)
            np_deep_add(&deep, (enum np_stage)s, &seen, &profile->ceilings, &profile->knobs);
        profile->stubbed[s].rate = deep.rate[s];
    }
    profile->deep = code == 0;
    if (code == 0)
        np_deep_judge(&deep, profile->observation.images_per_second, &profile->model,
            profile->noise, &profile->verdict);
    if (code == 0)
        draw_curve(profile);
    return code;
}

/* The advice applied and measured, beside the run as it is: one after the other, twice. */
static int verify(struct profiling *p, struct np_err *err)
{
    const struct np_advice *advice = &p->profile.verdict.advice;
    struct np_overrides with = {.nr_texts = 1};
    char text[128];
    double sum = 0, base = 0;
    int code = 0;

    if (!*advice->key)
        return 0;
    snprintf(text, sizeof(text), "%s=%s", advice->key, advice->to);
    with.texts[0] = text;
    for (int i = 0; i < 4 && code == 0; i++) { /* A B B A */
        const bool applied = i == 1 || i == 2;
        const struct np_trial_options options = {
            .warmup_s = WARMUP_S, .seconds = TRIAL_S, .overrides = applied ? &with : NULL};
        struct np_observation seen;

        code = np_trial_run(p->rig, &options, &seen, err);
        *(applied ? &sum : &base) += code == 0 ? seen.images_per_second : 0;
    }
    p->profile.verified = code == 0;
    if (code == 0 && base > 0)
        p->profile.verified_rate = p->profile.observation.images_per_second * sum / base;
    return code;
}

static void say_so_far(struct profiling *p, double seconds)
{
    const struct np_profile_verdict *verdict = &p->profile.verdict;
    const bool limited = verdict->kind == NP_LIMITED;

    if (!p->json)
        np_ui_say(&p->ui, "after %.0f s: %s%s%s; measuring again", seconds,
            np_verdict_names[verdict->kind], limited ? " by " : "",
            limited ? np_stage_names[verdict->limiter] : "");
}

/* A trial of its own, so that what spans cost is in no figure. */
static int traced(struct profiling *p, struct np_err *err)
{
    struct np_trial_options options = {.warmup_s = WARMUP_S, .seconds = TRIAL_S};
    struct np_trace_end end;
    struct np_observation seen;
    char text[400];
    int code = np_trace_open(p->trace, p->trace_limit, &options.trace, err);

    if (code < 0)
        return code;
    code = np_trial_run(p->rig, &options, &seen, err);
    np_trace_finish(options.trace, &end);
    np_trace_text(options.trace, &end, text, sizeof(text));
    np_trace_free(options.trace);
    np_ui_say(&p->ui, "%s", text);
    return code;
}

static int measure(struct profiling *p, struct np_err *err)
{
    struct np_ceilings *ceilings = &p->profile.ceilings;
    const uint64_t start = np_now_ns();
    p->profile.ribbon = np_alloc_array(NP_PROFILE_MOST_RIBBON, sizeof(*p->profile.ribbon));
    int code =
        p->profile.ribbon ? trial(p, TRIAL_S, err) : np_err_set(err, -ENOMEM, "out of memory");

    if (code < 0)
        return code;
    part(p, NP_PART_READ_WARM, &ceilings->read_warm);
    part(p, NP_PART_LOADER, &ceilings->loader);
    part(p, NP_PART_STEP, &ceilings->step);
    think(p);
    say_so_far(p, (double)(np_now_ns() - start) * 1e-9);
    part(p, NP_PART_READ_COLD, &ceilings->read_cold);
    if (p->profile.verdict.limiter == NP_STAGE_READ)
        part(p, NP_PART_READ_DEEP, &ceilings->read_deep);
    while (p->nr_trials < NR_TRIALS && code == 0)
        code = trial(p, AGAIN_S, err);
    if (code < 0)
        return code;
    think(p);
    p->profile.overhead = overhead(&p->profile.observation);
    if (p->deep)
        code = stubbed(p, err);
    if (code == 0 && p->verify)
        code = verify(p, err);
    if (code == 0 && p->trace)
        code = traced(p, err);
    if (code == 0 && p->tune)
        code = np_tuning_run(p->rig, &p->profile, &p->caps, TRIAL_S, &p->tuning, err);
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
    int code = 0;

    if (!file || fputs(text, file) < 0)
        code = np_err_set(err, -errno, "%s: cannot be written: %s", path, strerror(errno));
    if (file && fclose(file) != 0 && code == 0)
        code = np_err_set(err, -errno, "%s: cannot be written: %s", path, strerror(errno));
    np_free(path);
    return code;
}

/* profile.html and profile.json into the folder. */
static int write_files(struct profiling *p, struct np_err *err)
{
    char *page = p->html ? np_strdup(p->html) : np_format("%s/profile.html", p->dir);

    snprintf(p->profile.files, sizeof(p->profile.files), "%s  %s/profile.json%s%s",
        page ? page : "", p->dir, p->trace ? "  " : "", p->trace ? p->trace : "");
    char *json = np_profile_json(&p->profile);
    int code = page && json ? np_profile_html(&p->profile, page, err)
                            : np_err_set(err, -ENOMEM, "out of memory");

    if (code == 0)
        code = write_file(p->dir, "profile.json", json, err);
    free(json);
    np_free(page);
    return code;
}

/* One JSON object a line; `done` is the last. */
static int print_events(struct profiling *p, struct np_err *err)
{
    const struct np_comparison *comparison = &p->comparison;
    struct np_json *line = &p->ui.object;
    char *done = np_profile_done(&p->profile);

    if (!done)
        return np_err_set(err, -ENOMEM, "out of memory");
    if (p->compare) {
        np_json_begin(line, "comparison");
        np_json_real(line, "change", comparison->change);
        np_json_real(line, "least", comparison->least);
        np_json_text(line, "verdict", comparison->regressed ? "slower" : "not slower");
        np_json_text(line, "stage", np_stage_names[comparison->stage]);
        np_ui_event(&p->ui, np_json_end(line));
    }
    if (p->tune)
        np_ui_event(&p->ui, np_tuning_event(&p->tuning, line));
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
    if (code == 0 && p->compare)
        np_ui_say(&p->ui, "%s", p->comparison.text);
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

static int profile(struct profiling *p, struct np_err *err)
{
    char *name = np_format("profile-%s", p->config->name);
    int code = name ? 0 : np_err_set(err, -ENOMEM, "out of memory");

    name_profile(p);
    if (code == 0 && p->compare)
        code = np_profile_read(p->compare, &p->then, err);
    if (code == 0 && p->out) {
        p->dir = np_strdup(p->out);
        code = np_make_dirs(p->out, err);
    } else if (code == 0) {
        code = np_folder_create(p->config->runs, name, &p->dir, err);
    }
    if (code == 0)
        code = np_rig_open(p->config_path, &p->overrides, p->device, &p->rig, err);
    if (code == 0)
        code = measure(p, err);
    if (code == 0)
        code = report(p, err);
    np_free(name);
    return code;
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
        {"--json", NULL, &p.json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, &p.overrides, &nr);

    if (code)
        return code;
    if (nr != 1) {
        fprintf(stderr, "nnpipe profile: expected one CONFIG, not %d\n", nr);
        return NP_EXIT_USAGE;
    }
    if (np_tuning_caps(p.max_memory, p.max_cores, &p.caps, &err) < 0 ||
        (!p.tune && (p.max_memory || p.max_cores))) {
        fprintf(stderr, "nnpipe profile: %s\n",
            err.code ? err.text : "--max-memory and --max-cores are of --tune");
        return NP_EXIT_USAGE;
    }
    p.config_path = argv[1];
    code = np_cmd_config(p.config_path, &p.overrides, p.device, &p.config);
    if (code)
        return code;
    np_ui_init(&p.ui, p.json);
    code = profile(&p, &err);
    if (code < 0)
        np_ui_error(&p.ui, &err);
    np_rig_close(p.rig);
    p.profile.before = NULL;
    np_profile_fini(&p.profile);
    np_profile_fini(&p.then);
    np_tuning_fini(&p.tuning);
    np_free(p.dir);
    np_config_free(p.config);
    np_ui_fini(&p.ui);
    return code == -EINTR           ? NP_EXIT_STOPPED
           : code < 0               ? NP_EXIT_FAILED
           : p.comparison.regressed ? NP_EXIT_REGRESSED
                                    : NP_EXIT_DONE;
}
