#include "daemon/profile/tune.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/analysis/model.h"
#include "daemon/analysis/words.h"
#include "daemon/ui/page.h"
#include "loader/base/mem.h"
#include "loader/base/option.h"
#include "loader/base/yaml.h"

struct caps {
    int64_t memory, cores;
};
static const struct np_option caps_table[] = {
    {"max-memory", NP_OPT_BYTES, offsetof(struct caps, memory), "0", 0, 1e15, NULL, NULL},
    {"max-cores", NP_OPT_INT, offsetof(struct caps, cores), "0", 0, 1024, NULL, NULL},
    NP_OPTIONS_END,
};

int np_tuning_caps(const char *max_memory, const char *max_cores,
    struct np_tune_options *ret_options, struct np_err *err)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
    struct np_report report;
    struct caps caps = {0};
    int code;

    np_report_init(&report, NULL);
    if (max_memory)
        np_node_add(map, "max-memory", np_node_scalar(max_memory, 0, 0));
    if (max_cores)
        np_node_add(map, "max-cores", np_node_scalar(max_cores, 0, 0));
    code = np_options_parse(caps_table, map, "--tune", NULL, &caps, &report);
    if (code < 0)
        np_err_set(err, code, "--%s", report.nr_errs ? report.errs[0].text : "max");
    else
        *ret_options = (struct np_tune_options){
            .max_memory = (uint64_t)caps.memory, .max_cores = (int)caps.cores};
    np_report_fini(&report);
    np_node_free(map);
    return code;
}

/* --- trials -------------------------------------------------------------------------------- */

struct run {
    struct np_rig *rig;
    struct np_tuning *tuning;
    double seconds, rate; /* rate: of the unchanged run */
};

/* The wait for the first epoch of another kind of cache than the measured one; 0: the default,
 * also if that epoch takes longer than NP_FILL_S. */
static double fill_seconds(const struct run *run, const struct np_knobs *knobs)
{
    const bool soon = (double)knobs->nr_samples < NP_FILL_S * run->rate;

    return strcmp(knobs->cache, run->tuning->from.cache) != 0 && soon ? NP_FILL_S : 0;
}

static int trial(void *context, const struct np_knobs *knobs, double *ret_rate, struct np_err *err)
{
    const struct run *run = context;
    struct np_tuning *tuning = run->tuning;
    struct np_tune_setting settings[NP_TUNE_KEYS];
    struct np_overrides with = {.nr_texts = np_tune_settings(&tuning->from, knobs, settings)};
    const struct np_trial_options options = {.warmup_s = NP_WARMUP_S,
        .fill_s = fill_seconds(run, knobs),
        .seconds = run->seconds,
        .overrides = &with};
    char texts[NP_TUNE_KEYS][48];
    struct np_observation seen;

    for (int i = 0; i < with.nr_texts; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%s=%s", settings[i].key, settings[i].to);
        with.texts[i] = texts[i];
    }
    int code = np_trial_run(run->rig, &options, &seen, err);

    if (code == 0) {
        *ret_rate = seen.images_per_second;
        tuning->fills[tuning->tuned.nr_trials] = run->rig->knobs.cache_fills;
    }
    return code;
}

int np_tuning_run(struct np_rig *rig, const struct np_profile *profile,
    const struct np_tune_options *caps, double seconds, struct np_tuning *ret_tuning,
    struct np_err *err)
{
    struct run run = {rig, ret_tuning, seconds, profile->model.rate};
    struct np_tune_options options = *caps;
    const struct np_advice *advice = &profile->verdict.advice;

    ret_tuning->from = ret_tuning->advised = profile->knobs;
    ret_tuning->model = &profile->model;
    if (np_tune_set(&ret_tuning->advised, advice->key, advice->to))
        options.advised = &ret_tuning->advised;
    options.noise = profile->noise;
    options.trial = trial;
    options.context = &run;
    return np_tune(&profile->model, &options, &ret_tuning->tuned, err);
}

/* --- a config that builds on the one measured ---------------------------------------------- */

struct changed {
    char base[PATH_MAX];
    const char *by;      /* the flag that found the changes */
    double rate, gain;   /* with the changes; relative */
    const char *changes; /* YAML */
};

static void put_config(FILE *out, const void *what)
{
    const struct changed *changed = what;
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
    struct np_node *base = np_node_scalar(changed->base, 0, 0);

    base->quoted = true;
    np_node_add(map, "base", base);
    fprintf(out, "# nnpipe profile %s: %s img/s, %+.1f%% over the unchanged config\n", changed->by,
        np_words_rate(changed->rate).text, 100 * changed->gain);
    np_node_print(out, map);
    fputs(changed->changes, out);
    np_node_free(map);
}

/* Writes dir/NAME.kind.yaml (config_path is NAME.yaml). */
static int write_config(const char *config_path, const char *dir, const char *kind,
    struct changed *changed, char **ret_path, struct np_err *err)
{
    const char *slash = strrchr(config_path, '/'), *name = slash ? slash + 1 : config_path;
    const char *dot = strrchr(name, '.');

    if (!realpath(config_path, changed->base))
        return np_err_set(err, -errno, "%s: %s", config_path, strerror(errno));
    char *path = np_format(
        "%s/%.*s.%s.yaml", dir, (int)(dot ? (size_t)(dot - name) : strlen(name)), name, kind);
    const int code = np_page_write(path, put_config, changed, err);

    if (code == 0)
        *ret_path = path;
    else
        np_free(path);
    return code;
}

/* The gain of one setting beside the others: from a trial without it, else from the model. */
static double worth(
    const struct np_tuning *tuning, const struct np_tune_setting *setting, bool *ret_measured)
{
    const struct np_tuned *tuned = &tuning->tuned;
    struct np_knobs without = tuned->best;
    double rate = 0, best = 0;

    np_tune_set(&without, setting->key, setting->from);
    for (int i = 0; i < tuned->nr_trials; i++) {
        if (np_tune_same(&tuned->trials[i].knobs, &without))
            rate = tuned->trials[i].rate;
        if (np_tune_same(&tuned->trials[i].knobs, &tuned->best))
            best = tuned->trials[i].rate;
    }
    *ret_measured = rate > 0 && best > 0;
    if (!*ret_measured) {
        rate = np_model_rate_with(tuning->model, &without);
        best = np_model_rate_with(tuning->model, &tuned->best);
    }
    return best / rate - 1;
}

int np_tuning_write(
    struct np_tuning *tuning, const char *config_path, const char *dir, struct np_err *err)
{
    const struct np_tuned *tuned = &tuning->tuned;
    struct np_tune_setting settings[NP_TUNE_KEYS];
    const int nr = np_tune_settings(&tuning->from, &tuned->best, settings);
    char text[(NP_TUNE_KEYS + 1) * 128] = "loader:\n";
    struct changed changed = {.by = "--tune",
        .rate = tuned->best_rate,
        .gain = tuned->best_rate / tuned->base_rate - 1,
        .changes = text};

    for (int i = 0; i < nr; i++) {
        const size_t n = strlen(text);
        bool measured;
        const double gain = worth(tuning, &settings[i], &measured);

        snprintf(text + n, sizeof(text) - n, "  %s: %s # not %s: %+.1f%% %s\n",
            strchr(settings[i].key, '.') + 1, settings[i].to, settings[i].from, 100 * gain,
            measured ? "measured" : "predicted");
    }
    return nr ? write_config(config_path, dir, "tuned", &changed, &tuning->file, err) : 0;
}

int np_advice_write(const struct np_profile *profile, const char *config_path, const char *dir,
    char **ret_path, struct np_err *err)
{
    const struct np_advice *advice = &profile->verdict.advice;
    const char *dot = strchr(advice->key, '.');
    const double gain = profile->verified_rate / profile->model.rate - 1;
    struct changed changed = {.by = "--verify", .rate = profile->verified_rate, .gain = gain};

    if (!profile->verified || !dot || !(gain > profile->noise))
        return 0;
    char *text = np_format("%.*s:\n  %s: %s # not %s: %+.1f%% measured\n", (int)(dot - advice->key),
        advice->key, dot + 1, advice->to, advice->from, 100 * gain);
    changed.changes = text;
    const int code = write_config(config_path, dir, "advised", &changed, ret_path, err);

    np_free(text);
    return code;
}

/* --- printing ------------------------------------------------------------------------------ */

static void print_trial(const struct np_tuning *tuning, int i, FILE *out)
{
    const struct np_tuned *tuned = &tuning->tuned;
    const struct np_tune_trial *trial = &tuned->trials[i];
    const struct np_knobs *knobs = &trial->knobs;

    fprintf(out, " %7d %6d %9d  %-8s %-6s", knobs->readers, knobs->depth, knobs->prefetch,
        knobs->cache, knobs->io);
    if (trial->rate > 0)
        fprintf(out, " %9s %+7.1f%% %11s  %s\n", np_words_rate(trial->rate).text,
            100 * (trial->rate / tuned->trials[0].rate - 1), np_words_rate(trial->predicted).text,
            np_tune_same(knobs, &tuned->base)       ? "unchanged"
            : tuning->fills[i]                      ? "its cache still fills"
            : np_tune_same(knobs, &tuning->advised) ? "as advised"
                                                    : "");
    else
        fprintf(out, "    not possible\n");
}

/* Of the trials that ended before their cache was filled, the one with the highest prediction;
 * -1: none is predicted above the result. */
static int untried(const struct np_tuning *tuning)
{
    const struct np_tuned *tuned = &tuning->tuned;
    double most = tuned->best_rate * (1 + tuned->least);
    int found = -1;

    for (int i = 0; i < tuned->nr_trials; i++)
        if (tuning->fills[i] && tuned->trials[i].predicted > most) {
            most = tuned->trials[i].predicted;
            found = i;
        }
    return found;
}

static bool advice_was_tried(const struct np_tuning *tuning)
{
    if (np_tune_same(&tuning->from, &tuning->advised))
        return false;
    for (int i = 0; i < tuning->tuned.nr_trials; i++)
        if (tuning->tuned.trials[i].rate > 0 && !tuning->fills[i] &&
            np_tune_same(&tuning->tuned.trials[i].knobs, &tuning->advised))
            return true;
    return false;
}

static void print_outcome(const struct np_tuning *tuning, FILE *out)
{
    const struct np_tuned *tuned = &tuning->tuned;
    const int best = untried(tuning);

    if (tuned->better)
        fprintf(out, " TUNED: %s img/s, %+.1f%% over the unchanged config\n",
            np_words_rate(tuned->best_rate).text, 100 * (tuned->best_rate / tuned->base_rate - 1));
    else
        fprintf(out, " TUNED: no setting%s is better beyond noise (%.1f%%)%s\n",
            best >= 0 ? " that could be tried" : "", 100 * tuned->least,
            advice_was_tried(tuning) ? ", the advice above included" : "");
    if (best >= 0)
        fprintf(out,
            " NOT TRIED: loader.cache: %s gains from the second epoch on, which no trial reached; "
            "%s img/s are predicted\n",
            tuned->trials[best].knobs.cache, np_words_rate(tuned->trials[best].predicted).text);
}

void np_tuning_print(const struct np_tuning *tuning, FILE *out)
{
    const struct np_tuned *tuned = &tuning->tuned;
    struct np_tune_setting settings[NP_TUNE_KEYS];
    const int n = np_tune_settings(&tuning->from, &tuned->best, settings);

    fprintf(out, "\n readers  depth  prefetch  cache    io         img/s          predicted\n");
    for (int i = 0; i < tuned->nr_trials; i++)
        print_trial(tuning, i, out);
    if (tuned->beyond)
        fprintf(
            out, " the config breaks a cap: compared with the nearest setting within the caps\n");
    print_outcome(tuning, out);
    for (int i = 0; i < n; i++)
        fprintf(out, "   -o %s=%s\n", settings[i].key, settings[i].to);
    if (tuning->file)
        fprintf(out, "   config with these settings: %s\n", tuning->file);
}

static void add_trial(struct np_json *json, const struct np_tune_trial *trial, bool fills)
{
    np_json_open(json, NULL, '{');
    np_json_int(json, "readers", trial->knobs.readers);
    np_json_int(json, "depth", trial->knobs.depth);
    np_json_int(json, "prefetch", trial->knobs.prefetch);
    np_json_text(json, "cache", trial->knobs.cache);
    np_json_text(json, "io", trial->knobs.io);
    np_json_real(json, "images_per_second", trial->rate);
    np_json_real(json, "predicted_images_per_second", trial->predicted);
    np_json_bool(json, "cache_fills", fills);
    np_json_close(json, '}');
}

const char *np_tuning_event(const struct np_tuning *tuning, struct np_json *json)
{
    const struct np_tuned *tuned = &tuning->tuned;
    struct np_tune_setting settings[NP_TUNE_KEYS];
    const int n = np_tune_settings(&tuning->from, &tuned->best, settings);

    np_json_begin(json, "tuned");
    np_json_bool(json, "better", tuned->better);
    np_json_real(json, "images_per_second", tuned->best_rate);
    np_json_real(json, "as_it_is_images_per_second", tuned->base_rate);
    np_json_real(json, "least_gain", tuned->least);
    np_json_open(json, "settings", '{');
    for (int i = 0; i < n; i++)
        np_json_text(json, settings[i].key, settings[i].to);
    np_json_close(json, '}');
    np_json_text(json, "file", tuning->file);
    np_json_open(json, "trials", '[');
    for (int i = 0; i < tuned->nr_trials; i++)
        add_trial(json, &tuned->trials[i], tuning->fills[i]);
    np_json_close(json, ']');
    return np_json_end(json);
}

void np_tuning_fini(struct np_tuning *tuning)
{
    np_free(tuning->file);
    tuning->file = NULL;
}
