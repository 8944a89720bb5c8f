#include "daemon/run/inference.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "loader/base/text.h"
#include "daemon/config/config.h"
#include "daemon/run/compute.h"
#include "daemon/run/run_folder.h"
#include "daemon/run/run_change.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/plan.h"

static void note(const struct np_inference *inference, const char *text)
{
    inference->progress->note(inference->progress->context, text);
}

/* If the config's value of a key differs, prints a note that the run's value is used. Takes
 * ownership of both nodes. */
static void say_other(const struct np_inference *inference, struct np_node *run,
    struct np_node *config, const char *key)
{
    char why[200], text[100];

    snprintf(text, sizeof(text), "loader.%s of the run is used, not the config's", key);
    if (!np_config_same(config, run, false, why, sizeof(why)))
        note(inference, text);
    np_node_free(run);
    np_node_free(config);
}

static int take_chain(struct np_inference *inference, struct np_err *err)
{
    const struct np_node *list = np_node_get(inference->facts, "test_augment");
    struct np_chain *chain = NULL;
    struct np_report report;

    if (!list)
        return 0;
    np_report_init(&report, NULL);
    const int code = np_chain_parse(list, "test_augment", &chain, &report);
    if (code < 0)
        np_err_set(err, code == -ENOMEM ? code : -EBADMSG, "the checkpoint's test chain: %s",
            report.nr_errs ? report.errs[0].text : strerror(-code));
    np_report_fini(&report);
    if (code < 0)
        return err->code;
    say_other(inference, np_chain_node(chain),
        np_chain_node(inference->config->loader.test_augment), "test_augment");
    np_chain_free(inference->config->loader.test_augment);
    inference->config->loader.test_augment = chain;
    return 0;
}

static int take_normalize(struct np_inference *inference, struct np_err *err)
{
    const struct np_node *node = np_node_get(inference->facts, "normalize");
    struct np_loader_options *options = &inference->config->loader;
    struct np_node *config = np_loader_options_node(options);
    struct np_report report;

    if (node) {
        np_report_init(&report, NULL);
        if (np_loader_normalize_parse(node, options, &report) < 0)
            np_err_set(err, -EBADMSG, "the checkpoint's normalize: %s",
                report.nr_errs ? report.errs[0].text : "cannot be read");
        np_report_fini(&report);
    }
    if (node && !err->code) {
        struct np_node *run = np_loader_options_node(options);
        say_other(inference, np_node_copy(np_node_get(run, "normalize")),
            np_node_copy(np_node_get(config, "normalize")), "normalize");
        np_node_free(run);
    }
    np_node_free(config);
    return err->code;
}

/* Uses the pixels rule of the run; older facts have none, and mean Pillow 12. */
static int take_pixels(struct np_inference *inference, struct np_err *err)
{
    const struct np_node *fact = np_node_get(inference->facts, "pixels");
    struct np_loader_options *options = &inference->config->loader;
    enum np_pixels_rule rule = NP_RULE_PILLOW_12;

    if (fact && (!fact->text || np_pixels_find(fact->text, &rule) < 0))
        return np_err_set(err, -EBADMSG, "the checkpoint's pixels: unknown '%.40s'",
            fact->text ? fact->text : "");
    if (np_node_get(inference->config->loader_node, "pixels"))
        say_other(inference, np_node_scalar(np_pixels_names[rule], 0, 0),
            np_node_scalar(np_pixels_names[options->pixels], 0, 0), "pixels");
    options->pixels = rule;
    return 0;
}

/* Older facts have no split: adds it from the run's own config, two folders up. */
static void add_older_facts(const char *checkpoint, struct np_node *facts)
{
    static const char *const keys[] = {
        "split", "split_seed", "split_by"}; /* fold is newer than they */
    char *run = np_format("%s/../..", checkpoint);
    struct np_node *config = NULL;

    if (!np_node_get(facts, "split") && np_folder_config(run, &config, NULL) == 0)
        for (int i = 0; i < 3; i++) {
            const struct np_node *value = np_node_get(np_node_get(config, "data"), keys[i]);
            const char *text = value && value->kind == NP_NODE_SCALAR ? value->text : "0";

            np_node_add(facts, keys[i], np_node_scalar(text, 0, 0));
        }
    np_node_free(config);
    np_free(run);
}

/* Uses the share, seed and rule of the run's data.split, so that val samples are those not
 * trained on. */
static void take_split(struct np_inference *inference)
{
    struct np_config *config = inference->config;
    const double share = np_node_number(inference->facts, "split", 0);
    const double seed = np_node_number(inference->facts, "split_seed", 0);

    if (config->data.split <= 0)
        return;
    if (share <= 0) {
        note(inference,
            np_node_get(inference->facts, "split")
                ? "the run set no samples aside: it trained on those of data.split"
                : "the checkpoint does not say which samples its run set aside: it may have "
                  "trained on those of data.split");
        return;
    }
    const int rule = (int)np_split_rule(np_node_get(inference->facts, "split_by"));
    const struct np_node *fold = np_node_get(inference->facts, "fold");
    const struct np_data_options own = config->data;

    config->data.split = share;
    config->data.fold_at = config->data.nr_folds = 0;
    if (fold && fold->kind == NP_NODE_SCALAR)
        np_data_set_fold(&config->data, fold->text);
    if (share != own.split || seed != (double)own.split_seed || rule != own.split_by ||
        own.fold_at != config->data.fold_at || own.nr_folds != config->data.nr_folds)
        note(inference, "data.split and split_seed of the run are used, not the config's");
    config->data.split_by = rule;
    config->data.split_seed = (int64_t)seed;
}

/* Reads the n numbers of a fact; false: it has others, or there is none. */
static bool take_sides(const struct np_node *facts, const char *key, int n, int *sides)
{
    const struct np_node *size = np_node_get(facts, key);
    int64_t side;

    if (!size || size->kind != NP_NODE_LIST || size->nr_items != n)
        return false;
    for (int i = 0; i < n; i++) {
        if (size->items[i]->kind != NP_NODE_SCALAR ||
            !np_text_int(size->items[i]->text, 1, 65500, &side))
            return false;
        sides[i] = (int)side;
    }
    return true;
}

/* Takes classes, size and preprocessing from the facts, which come from a file: checks them. */
static int take_facts(struct np_inference *inference, struct np_err *err)
{
    const struct np_node *classes = np_node_get(inference->facts, "classes");
    struct np_setup *setup = &inference->setup;
    int sides[3];

    if (!classes || classes->kind != NP_NODE_LIST || classes->nr_items < 1 ||
        !take_sides(inference->facts, "size", 3, sides) ||
        (np_node_get(inference->facts, "eval_size") &&
            !take_sides(inference->facts, "eval_size", 2, sides)))
        return np_err_set(err, -EBADMSG, "the checkpoint's facts have no classes or no size");
    for (int i = 0; i < classes->nr_items; i++)
        if (classes->items[i]->kind != NP_NODE_SCALAR)
            return np_err_set(err, -EBADMSG, "the checkpoint's class names are not text");
    if (sides[2] != (int)inference->config->loader.channels)
        return np_err_set(err, -EINVAL,
            "the weights are for images of %d channels, the config has %d", sides[2],
            (int)inference->config->loader.channels);
    const struct np_node *type = np_node_get(inference->facts, "label_type");
    const char *was = type && type->text ? type->text : np_label_types[NP_LABEL_CLASS];
    const char *is = np_label_types[inference->config->data.train.label_type];
    if (strcmp(was, is) != 0)
        return np_err_set(err, -EINVAL,
            "the weights are of a run with `label_type: %.20s`, the config has `%s`", was, is);
    setup->sets.classes = np_node_copy(classes);
    setup->sets.size = (struct np_row_sizes){sides[0], sides[1], sides[0], sides[1]};
    take_split(inference);
    int code = take_chain(inference, err);
    if (code == 0)
        code = take_normalize(inference, err);
    return code < 0 ? code : take_pixels(inference, err);
}

static int open_graph(
    struct np_inference *inference, const struct np_overrides *overrides, struct np_err *err)
{
    enum np_dtype precision = np_compute_precision(inference->config, inference->device);
    const struct np_node *fact = np_node_get(inference->facts, "precision");

    if (fact && fact->text && inference->config->precision < 0)
        np_precision_find(fact->text, &precision);
    if (fact && fact->text && !np_node_is(fact, np_precision_names[precision])) {
        char text[120];
        snprintf(text, sizeof(text), "the run computed in %.20s, this in %s, as the config says",
            fact->text, np_precision_names[precision]);
        note(inference, text);
    }
    inference->precision = precision;
    return np_compute_graph(inference->config, precision, overrides, &inference->setup, err);
}

static int load(struct np_inference *inference, const char *path, struct np_err *err)
{
    const struct np_graph *graph = inference->setup.graph;
    const struct np_plan_ops *ops = inference->device->plan_ops;
    float *params = np_try_array(graph->nr_params + 1, sizeof(*params), err);
    float *buffers = np_try_array(graph->nr_buffers + 1, sizeof(*buffers), err);
    struct np_weights_table *table = NULL;
    int code = err->code;

    if (code == 0)
        code = np_weights_load(path, graph, params, buffers, &table, err);
    char *misfit = code == 0 ? np_weights_table_misfit(table) : NULL;
    if (misfit)
        code = np_err_set(err, -EINVAL, "%s does not fit this model: %s", path, misfit);
    if (code == 0 && (table->part || table->prefix)) {
        char *source = np_weights_table_source(table);
        note(inference, source);
        np_free(source);
    }
    if (code == 0)
        code = ops->write(inference->plan, NP_ARRAY_PARAMS, params, err);
    if (code == 0)
        code = ops->write(inference->plan, NP_ARRAY_BUFFERS, buffers, err);
    np_free(misfit);
    np_weights_table_free(table);
    np_free(params);
    np_free(buffers);
    return code;
}

static int open_plan(struct np_inference *inference, struct np_err *err)
{
    int threads = np_compute_threads(inference->config);
    int lanes = (int)np_node_number(inference->facts, "lanes", threads);
    /* A GPU's state has engines for training; the CPU's has the kernels that gave correct
     * results. */
    bool cpu = np_state_kind(inference->device) == NP_STATE_CPU;
    const struct np_node *state =
        cpu ? np_node_get(inference->facts, np_state_keys[NP_STATE_CPU]) : NULL;
    if (lanes < 1 || lanes > 65536 || inference->serving)
        lanes = threads;
    inference->lanes =
        lanes < inference->setup.eval_graph->batch ? lanes : inference->setup.eval_graph->batch;
    const struct np_plan_options options = {
        .lanes = lanes,
        .threads = threads,
        .deterministic = true,
        .tf32 = inference->config->run.tf32,
        .skip_masked = inference->serving,
        .state = state ? state->text : NULL,
        .note = inference->progress->note,
        .note_context = inference->progress->context,
    };

    return inference->device->plan_ops->prepare(
        inference->device, NULL, inference->setup.eval_graph, &options, &inference->plan, err);
}

static bool is_there(const char *path, const char *below)
{
    char *file = np_format("%s/%s", path, below);
    const bool is = access(file, F_OK) == 0;

    np_free(file);
    return is;
}

char *np_inference_config(const char *weights)
{
    const char *colon = access(weights, F_OK) < 0 ? strrchr(weights, ':') : NULL,
               *slash = strrchr(weights, '/');
    char *folder =
             np_format("%.*s", (int)(colon ? colon - weights : (long)strlen(weights)), weights),
         *outer = slash ? np_format("%.*s", (int)(slash - weights), weights) : np_strdup(".");
    char *path = NULL;

    if (is_there(folder, "config.yaml"))
        path = np_format("%s/config.yaml", folder);
    else if (is_there(folder, "manifest.json") && is_there(folder, "../../config.yaml"))
        path = np_format("%s/../../config.yaml", folder); /* folder: a checkpoint */
    else if (is_there(outer, "manifest.json") && is_there(outer, "../../config.yaml"))
        path = np_format("%s/../../config.yaml", outer); /* outer: a checkpoint */
    np_free(folder);
    np_free(outer);
    return path;
}

bool np_inference_names_config(const char *operand, const char *weights)
{
    const char *dot = strrchr(operand, '.');

    if (strcmp(operand, "-") == 0 ||
        (dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0)))
        return true;
    char *own = np_inference_config(weights);

    np_free(own);
    return own == NULL;
}

void np_inference_text(const struct np_inference *inference, char *text, size_t text_bytes)
{
    const char *precision = np_precision_names[inference->precision];
    const bool as_run = np_node_is(np_node_get(inference->facts, "precision"), precision);
    const int tta = inference->config->run.tta;
    char views[64] = "";

    if (tta != NP_TTA_NONE)
        snprintf(views, sizeof(views), "; the mean of %d views (train.tta: %s)", np_tta_views(tta),
            np_tta_names[tta]);
    snprintf(text, text_bytes, "in %s on %s, %s%s", precision, inference->device->name,
        as_run                              ? "as the run computed"
        : inference->config->precision >= 0 ? "as the config says"
                                            : "the default of this device",
        views);
}

int np_inference_tta(const char *command, const char *word, struct np_overrides *overrides)
{
    static const char *const texts[] = {"train.tta=none", "train.tta=flip", "train.tta=flip_shift"};

    if (!word)
        return 0;
    for (int i = 0; np_tta_names[i] && overrides->nr_texts < NP_MAX_OVERRIDES; i++)
        if (strcmp(word, np_tta_names[i]) == 0) {
            overrides->texts[overrides->nr_texts++] = texts[i];
            return 0;
        }
    return np_usage(command,
        overrides->nr_texts < NP_MAX_OVERRIDES ? "--tta takes none, flip or flip_shift, not %.40s"
                                               : "there are too many -o for --tta %.40s",
        word);
}

/* Without facts, classes and size are those of the data. Nothing is trained: the network takes rows
 * of the test chain. */
static int open_sets(struct np_inference *inference, struct np_err *err)
{
    struct np_row_sizes *size = &inference->setup.sets.size;
    const int code =
        np_sets_open(&inference->config->sets, inference->progress, &inference->setup.sets, err);

    size->height = size->eval_height;
    size->width = size->eval_width;
    return code;
}

int np_inference_open(struct np_config *config, const char *weights,
    const struct np_overrides *overrides, const struct np_source_progress *progress,
    struct np_inference *inference, struct np_err *err)
{
    char *path = NULL, *checkpoint = NULL;
    int code = np_weights_find(weights, progress, &path, &checkpoint, err);

    inference->config = config;
    inference->progress = progress;
    inference->stat = np_stat_new(err);
    inference->block = np_stat_join(inference->stat, "trainer", err);
    if (code == 0 && !inference->block)
        code = -ENOMEM;
    if (code == 0 && checkpoint)
        code = np_facts_read(checkpoint, &inference->facts, err);
    if (code == 0 && inference->facts)
        add_older_facts(checkpoint, inference->facts);
    if (code == 0 && inference->facts && (code = take_facts(inference, err)) < 0)
        np_err_context(err, "%s", checkpoint);
    if (code == 0 && !inference->facts)
        code = open_sets(inference, err);
    if (code == 0)
        code = np_device_open(config->device, &config->device_options, &inference->device, err);
    if (code == 0 && *inference->device->passed_over)
        note(inference, inference->device->passed_over);
    if (code == 0) {
        inference->device->note = progress->note;
        inference->device->note_context = progress->context;
    }
    if (code == 0)
        code = open_graph(inference, overrides, err);
    if (code == 0)
        code = open_plan(inference, err);
    if (code == 0)
        code = load(inference, path, err);
    np_free(path);
    np_free(checkpoint);
    return code;
}

void np_inference_close(struct np_inference *inference)
{
    if (inference->plan)
        inference->device->plan_ops->free(inference->plan);
    np_setup_fini(&inference->setup);
    np_device_close(inference->device);
    np_node_free(inference->facts);
    np_stat_free(inference->stat);
    memset(inference, 0, sizeof(*inference));
}

/* The maximum is subtracted so that nothing overflows. */
void np_odds(const float *logits, int n, bool sigmoids, double *odds)
{
    double max = -INFINITY, sum = 0;

    if (sigmoids) {
        for (int i = 0; i < n; i++)
            odds[i] = 1 / (1 + exp(-(double)logits[i]));
        return;
    }
    for (int i = 0; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (int i = 0; i < n; i++)
        sum += odds[i] = exp((double)logits[i] - max);
    for (int i = 0; i < n; i++)
        odds[i] /= sum;
}

int np_take_best(const double *odds, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (odds[i] > odds[best])
            best = i;
    return best;
}

void np_odds_classes(struct np_json *json, const struct np_node *classes, const double *odds)
{
    np_json_open(json, "classes", '[');
    for (int i = 0; i < classes->nr_items; i++)
        if (odds[i] > 0.5)
            np_json_text(json, NULL, classes->items[i]->text);
    np_json_close(json, ']');
}
