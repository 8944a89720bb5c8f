/* See tuning.h. */
#include "daemon/profile/tuning.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/analysis/model.h"
#include "daemon/analysis/words.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/option.h"
#include "loader/base/yaml.h"

/* --- caps ------------------------------------------------------------------------------------- */

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

/* --- trials ----------------------------------------------------------------------------------- */

#define MAX_FILL_S 12.0 /* longest wait for a cache's first epoch */

struct run {
    struct np_rig *rig;
    struct np_tuning *tuning;
    double seconds, rate; /* rate: of the unchanged run */
};

/* Will the cache's first epoch end within the wait? */
static double fill_seconds(const struct run *run, const struct np_knobs *knobs)
{
    const bool soon = (double)knobs->nr_samples < MAX_FILL_S * run->rate;

    return strcmp(knobs->cache, run->tuning->from.cache) != 0 && soon ? MAX_FILL_S : 0;
}

static int trial(void *context, const struct np_knobs *knobs, double *ret_rate, struct np_err *err)
{
    const struct run *run = context;
    struct np_tuning *tuning = run->tuning;
    char settings[NP_TUNE_KEYS][48];
    struct np_overrides with = {.nr_texts = np_tune_settings(&tuning->from, knobs, settings)};
    const struct np_trial_options options = {.warmup_s = NP_WARMUP_S,
        .fill_s = fill_seconds(run, knobs),
        .seconds = run->seconds,
        .overrides = &with};
    struct np_observation seen;

    for (int i = 0; i < with.nr_texts; i++)
        with.texts[i] = settings[i];
    int code = np_trial_run(run->rig, &options, &seen, err);

    if (code == 0) {
        *ret_rate = seen.images_per_second;
        tuning->fills[tuning->tuned.nr_trials] = run->rig->knobs.cache_fills;
    }
    return code;
}

/* Applies the verdict's advice to the knobs; false: it changes none of these. */
static bool with_advice(const struct np_profile_verdict *verdict, struct np_knobs *knobs)
{
    const struct np_advice *advice = &verdict->advice;
    const struct {
        const char *key;
        int *knob;
    } numbers[] = {{"loader.readers", &knobs->readers}, {"loader.depth", &knobs->depth},
        {"loader.prefetch", &knobs->prefetch}};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (strcmp(advice->key, numbers[i].key) == 0) {
            *numbers[i].knob = atoi(advice->to);
            return true;
        }
    if (strcmp(advice->key, "loader.cache") != 0)
        return false;
    snprintf(knobs->cache, sizeof(knobs->cache), "%s", advice->to);
    return true;
}

int np_tuning_run(struct np_rig *rig, const struct np_profile *profile,
    const struct np_tune_options *caps, double seconds, struct np_tuning *ret_tuning,
    struct np_err *err)
{
    struct run run = {rig, ret_tuning, seconds, profile->model.rate};
    struct np_tune_options options = *caps;

    ret_tuning->from = ret_tuning->advised = profile->knobs;
    ret_tuning->model = &profile->model;
    if (with_advice(&profile->verdict, &ret_tuning->advised))
        options.advised = &ret_tuning->advised;
    options.noise = profile->noise;
    options.trial = trial;
    options.context = &run;
    return np_tune(&profile->model, &options, &ret_tuning->tuned, err);
}

/* --- a config that builds on the one measured --------------------------------------------------- */

static int settings_of(const struct np_tuning *tuning, char settings[NP_TUNE_KEYS][48])
{
    return np_tune_settings(&tuning->from, &tuning->tuned.best, settings);
}

static bool equal(const struct np_knobs *a, const struct np_knobs *b)
{
    char settings[NP_TUNE_KEYS][48];

    return np_tune_settings(a, b, settings) == 0;
}

static bool sets(const char *setting, const char *key)
{
    return strncmp(setting, key, strlen(key)) == 0;
}

/* The gain of one setting beside the others: from a trial without it, else from the model. */
static void print_worth(const struct np_tuning *tuning, const char *setting, FILE *out)
{
    const struct np_tuned *tuned = &tuning->tuned;
    const struct np_knobs *from = &tuning->from;
    struct np_knobs without = tuned->best;
    double rate = 0, best = 0;

    if (sets(setting, "loader.readers="))
        without.readers = from->readers;
    else if (sets(setting, "loader.depth="))
        without.depth = from->depth;
    else if (sets(setting, "loader.prefetch="))
        without.prefetch = from->prefetch;
    else if (sets(setting, "loader.cache="))
        memcpy(without.cache, from->cache, sizeof(without.cache));
    else
        memcpy(without.io, from->io, sizeof(without.io));
    for (int i = 0; i < tuned->nr_trials; i++) {
        if (equal(&tuned->trials[i].knobs, &without))
            rate = tuned->trials[i].rate;
        if (equal(&tuned->trials[i].knobs, &tuned->best))
            best = tuned->trials[i].rate;
    }
    const bool measured = rate > 0 && best > 0;
    if (!measured) {
        rate = np_model_rate_with(tuning->model, &without);
        best = np_model_rate_with(tuning->model, &tuned->best);
    }
    fprintf(out, "%+.1f%% %s", 100 * (best / rate - 1), measured ? "measured" : "predicted");
}

/* Writes dir/NAME.kind.yaml (config_path is NAME.yaml): head, a comment, then the changes, YAML. */
static int write_changes(const char *config_path, const char *dir, const char *kind,
    const char *head, const char *changes, char **ret_path, struct np_err *err)
{
    const char *slash = strrchr(config_path, '/'), *base = slash ? slash + 1 : config_path;
    const char *dot = strrchr(base, '.');
    char whole[PATH_MAX];

    if (!realpath(config_path, whole))
        return np_err_set(err, -errno, "%s: %s", config_path, strerror(errno));
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0), *name = np_node_scalar(whole, 0, 0);

    name->quoted = true;
    np_node_add(map, "base", name);
    char *yaml = np_node_yaml(map, err), *text = NULL;
    if (yaml)
        text = np_format("# %s\n%s%s", head, yaml, changes);
    np_free(yaml);
    np_node_free(map);
    if (!text)
        return -ENOMEM;
    char *path = np_format(
        "%s/%.*s.%s.yaml", dir, (int)(dot ? (size_t)(dot - base) : strlen(base)), base, kind);
    int code = np_io_replace(NULL, path, text, strlen(text), err);

    np_free(text);
    if (code == 0)
        *ret_path = path;
    else
        np_free(path);
    return code;
}

int np_tuning_write(
    struct np_tuning *tuning, const char *config_path, const char *dir, struct np_err *err)
{
    const struct np_tuned *tuned = &tuning->tuned;
    char settings[NP_TUNE_KEYS][48], before[NP_TUNE_KEYS][48];
    const int n = settings_of(tuning, settings);
    char *changes = NULL;
    size_t bytes = 0;

    if (n == 0)
        return 0;
    np_tune_settings(&tuned->best, &tuning->from, before); /* the same keys */
    FILE *out = open_memstream(&changes, &bytes);
    if (!out)
        abort();
    fputs("loader:\n", out);
    for (int i = 0; i < n; i++) {
        const char *value = strchr(settings[i], '=');
        const char *key = settings[i] + strlen("loader.");

        fprintf(out, "  %.*s: %s # not %s: ", (int)(value - key), key, value + 1,
            strchr(before[i], '=') + 1);
        print_worth(tuning, settings[i], out);
        fputc('\n', out);
    }
    fclose(out);
    char *head =
        np_format("nnpipe profile --tune: %s img/s, %+.1f%% in turn with the config as it is",
            np_words_rate(tuned->best_rate).text, 100 * (tuned->best_rate / tuned->base_rate - 1));
    int code = write_changes(config_path, dir, "tuned", head, changes, &tuning->file, err);

    np_free(head);
    free(changes);
    return code;
}

int np_advice_write(const struct np_profile *profile, const char *config_path, const char *dir,
    char **ret_path, struct np_err *err)
{
    const struct np_advice *advice = &profile->verdict.advice;
    const char *dot = strchr(advice->key, '.');
    const double gain = profile->verified_rate / profile->model.rate - 1;

    if (!profile->verified || !dot || !(gain > profile->noise))
        return 0;
    char *changes = np_format("%.*s:\n  %s: %s # not %s: %+.1f%% measured\n",
        (int)(dot - advice->key), advice->key, dot + 1, advice->to, advice->from, 100 * gain);
    char *head =
        np_format("nnpipe profile --verify: %s img/s, %+.1f%% in turn with the config as it is",
            np_words_rate(profile->verified_rate).text, 100 * gain);
    int code = write_changes(config_path, dir, "advised", head, changes, ret_path, err);

    np_free(head);
    np_free(changes);
    return code;
}

/* --- printing --------------------------------------------------------------------------------- */

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
            equal(knobs, &tuned->base)       ? "as it is"
            : tuning->fills[i]               ? "its cache still fills"
            : equal(knobs, &tuning->advised) ? "as advised"
                                             : "");
    else
        fprintf(out, "    not possible\n");
}

/* Of the trials that ended before their cache was filled, the one with the highest prediction; -1: none is
 * predicted above the result. */
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
    if (equal(&tuning->from, &tuning->advised))
        return false;
    for (int i = 0; i < tuning->tuned.nr_trials; i++)
        if (tuning->tuned.trials[i].rate > 0 && !tuning->fills[i] &&
            equal(&tuning->tuned.trials[i].knobs, &tuning->advised))
            return true;
    return false;
}

static void print_outcome(const struct np_tuning *tuning, FILE *out)
{
    const struct np_tuned *tuned = &tuning->tuned;
    const int best = untried(tuning);

    if (tuned->better)
        fprintf(out, " TUNED: %s img/s, %+.1f%% in turn with the config as it is\n",
            np_words_rate(tuned->best_rate).text, 100 * (tuned->best_rate / tuned->base_rate - 1));
    else
        fprintf(out, " TUNED: nothing%s is better beyond noise (%.1f%%)%s\n",
            best >= 0 ? " that could be tried" : "", 100 * tuned->least,
            advice_was_tried(tuning) ? ", the advice above among it" : "");
    if (best >= 0)
        fprintf(out,
            " NOT TRIED: loader.cache: %s gains from the second epoch on, which no trial reached; "
            "%s img/s are predicted\n",
            tuned->trials[best].knobs.cache, np_words_rate(tuned->trials[best].predicted).text);
}

void np_tuning_print(const struct np_tuning *tuning, FILE *out)
{
    const struct np_tuned *tuned = &tuning->tuned;
    char settings[NP_TUNE_KEYS][48];
    const int n = settings_of(tuning, settings);

    fprintf(out, "\n readers  depth  prefetch  cache    io         img/s          predicted\n");
    for (int i = 0; i < tuned->nr_trials; i++)
        print_trial(tuning, i, out);
    if (tuned->beyond)
        fprintf(
            out, " the config breaks a cap: compared with the nearest setting within the caps\n");
    print_outcome(tuning, out);
    for (int i = 0; i < n; i++)
        fprintf(out, "   -o %s\n", settings[i]);
    if (tuning->file)
        fprintf(out, "   config with these settings: %s\n", tuning->file);
}

static void add_knobs(struct np_json *json, const struct np_knobs *knobs)
{
    np_json_int(json, "readers", knobs->readers);
    np_json_int(json, "depth", knobs->depth);
    np_json_int(json, "prefetch", knobs->prefetch);
    np_json_text(json, "cache", knobs->cache);
    np_json_text(json, "io", knobs->io);
}

const char *np_tuning_event(const struct np_tuning *tuning, struct np_json *json)
{
    const struct np_tuned *tuned = &tuning->tuned;
    char settings[NP_TUNE_KEYS][48];
    const int n = settings_of(tuning, settings);

    np_json_begin(json, "tuned");
    np_json_bool(json, "better", tuned->better);
    np_json_real(json, "images_per_second", tuned->best_rate);
    np_json_real(json, "as_it_is_images_per_second", tuned->base_rate);
    np_json_real(json, "least_gain", tuned->least);
    np_json_open(json, "settings", '{');
    for (int i = 0; i < n; i++) {
        char *value = strchr(settings[i], '=');

        *value++ = '\0';
        np_json_text(json, settings[i], value);
    }
    np_json_close(json, '}');
    np_json_text(json, "file", tuning->file);
    np_json_open(json, "trials", '[');
    for (int i = 0; i < tuned->nr_trials; i++) {
        np_json_open(json, NULL, '{');
        add_knobs(json, &tuned->trials[i].knobs);
        np_json_real(json, "images_per_second", tuned->trials[i].rate);
        np_json_real(json, "predicted_images_per_second", tuned->trials[i].predicted);
        np_json_bool(json, "cache_fills", tuning->fills[i]);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
    return np_json_end(json);
}

void np_tuning_fini(struct np_tuning *tuning)
{
    np_free(tuning->file);
    tuning->file = NULL;
}
