/* See tuning.h. */
#include "daemon/profile/tuning.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/profile/apply.h"
#include "daemon/profile/telling.h"
#include "loader/base/mem.h"
#include "loader/base/option.h"

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

struct run {
    struct np_rig *rig;
    const struct np_knobs *from;
    double seconds;
};

static int trial(void *context, const struct np_knobs *knobs, double *ret_rate, struct np_err *err)
{
    const struct run *run = context;
    char settings[NP_TUNE_KEYS][48];
    struct np_overrides with = {.nr_texts = np_tune_settings(run->from, knobs, settings)};
    const struct np_trial_options options = {
        .warmup_s = NP_WARMUP_S, .seconds = run->seconds, .overrides = &with};
    struct np_observation seen;

    for (int i = 0; i < with.nr_texts; i++)
        with.texts[i] = settings[i];
    int code = np_trial_run(run->rig, &options, &seen, err);

    if (code == 0)
        *ret_rate = seen.images_per_second;
    return code;
}

int np_tuning_run(struct np_rig *rig, const struct np_profile *profile,
    const struct np_tune_options *caps, double seconds, struct np_tuning *ret_tuning,
    struct np_err *err)
{
    struct run run = {rig, &ret_tuning->from, seconds};
    struct np_tune_options options = *caps;

    ret_tuning->from = profile->knobs;
    options.noise = profile->noise;
    options.trial = trial;
    options.context = &run;
    return np_tune(&profile->model, &options, &ret_tuning->tuned, err);
}

/* --- the copy --------------------------------------------------------------------------------- */

static int settings_of(const struct np_tuning *tuning, char settings[NP_TUNE_KEYS][48])
{
    return np_tune_settings(&tuning->from, &tuning->tuned.best, settings);
}

int np_tuning_write(
    struct np_tuning *tuning, const char *config_path, const char *dir, struct np_err *err)
{
    const char *slash = strrchr(config_path, '/'), *base = slash ? slash + 1 : config_path;
    const char *end = strrchr(base, '.');
    char settings[NP_TUNE_KEYS][48];
    const char *texts[NP_TUNE_KEYS];
    const int n = settings_of(tuning, settings);

    if (n == 0)
        return 0;
    for (int i = 0; i < n; i++)
        texts[i] = settings[i];
    char *path = np_format(
        "%s/%.*s.tuned.yaml", dir, (int)(end ? (size_t)(end - base) : strlen(base)), base);
    int code = path ? np_apply_file(config_path, path, texts, n, err)
                    : np_err_set(err, -ENOMEM, "out of memory");
    if (code == 0)
        tuning->file = path;
    else
        np_free(path);
    return code;
}

/* --- telling ---------------------------------------------------------------------------------- */

static void print_trial(const struct np_tune_trial *trial, double base, const char *mark, FILE *out)
{
    char rate[NP_TELLING_BYTES], predicted[NP_TELLING_BYTES];
    const struct np_knobs *knobs = &trial->knobs;

    fprintf(out, " %7d %6d %9d  %-8s %-6s", knobs->readers, knobs->depth, knobs->prefetch,
        knobs->cache, knobs->io);
    if (trial->rate > 0)
        fprintf(out, " %9s %+7.1f%% %11s  %s\n", np_telling_rate(trial->rate, rate),
            100 * (trial->rate / base - 1), np_telling_rate(trial->predicted, predicted), mark);
    else
        fprintf(out, "    cannot be had\n");
}

static bool equal(const struct np_knobs *a, const struct np_knobs *b)
{
    char settings[NP_TUNE_KEYS][48];

    return np_tune_settings(a, b, settings) == 0;
}

void np_tuning_print(const struct np_tuning *tuning, FILE *out)
{
    const struct np_tuned *tuned = &tuning->tuned;
    char settings[NP_TUNE_KEYS][48], rate[NP_TELLING_BYTES];
    const int n = settings_of(tuning, settings);

    fprintf(out, "\n readers  depth  prefetch  cache    io         img/s          predicted\n");
    for (int i = 0; i < tuned->nr_trials; i++)
        print_trial(&tuned->trials[i], tuned->trials[0].rate,
            equal(&tuned->trials[i].knobs, &tuned->base) ? "as it is" : "", out);
    if (tuned->beyond)
        fprintf(out, " as it is breaks a cap: compared with what is left of it within\n");
    if (tuned->better)
        fprintf(out, " TUNED: %s img/s, %+.1f%% in turn with the config as it is\n",
            np_telling_rate(tuned->best_rate, rate),
            100 * (tuned->best_rate / tuned->base_rate - 1));
    else
        fprintf(out, " TUNED: nothing is better beyond noise (%.1f%%)\n", 100 * tuned->least);
    for (int i = 0; i < n; i++)
        fprintf(out, "   -o %s\n", settings[i]);
    if (tuning->file)
        fprintf(out, "   in a copy of the config: %s\n", tuning->file);
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
