/* A config file -> struct np_config: the top-level option table, and each section handed to
 * the module that owns it. Nothing is read but the file, nothing is written; every mistake
 * goes into one report. YAML itself: loader/base/yaml.h; -o: config_override.c; the way
 * back: config_print.c. */
#include "daemon/config/config.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config_tables.h"
#include "loader/base/path.h"
#include "loader/base/yaml.h"

#define DEFAULT_EPOCHS 10

/* --- tables ---------------------------------------------------------------------------------- */

#define AT(field) offsetof(struct np_config, field)

const struct np_option np_config_table[] = {
    {"base", NP_OPT_NODE, AT(base_node), NULL, 0, 0, NULL,
        "Another config, which this one changes: see below."},
    {"name", NP_OPT_STRING, AT(name), "", 0, 0, NULL,
        "Name of the run, for its folder; default: the file's name."},
    {"seed", NP_OPT_INT, AT(seed), "1", 0, 9e15, NULL,
        "All randomness: order, augmentation, initial weights, dropout."},
    {"device", NP_OPT_NODE, AT(device_node), "auto", 0, 0, NULL,
        "`auto` (a usable GPU, else the CPU, with a warning where there seems to be a GPU), "
        "`cpu`, `gpu` (the first one, in the service's queue any one; `cuda` is the same), "
        "`cuda:0`, or `{sim: {h2d_gbps: 25, step_ms: "
        "20}}`: a simulated one, to test a "
        "pipeline against."},
    {"precision", NP_OPT_WORD, AT(precision), "auto", 0, 0, "auto|f32|bf16|f16",
        "Of activations; weights are kept in f32. `auto` is bf16 on a GPU and on a CPU with "
        "AVX512-BF16, else f32; a run, `eval` and `predict` say which it is."},
    {"data", NP_OPT_NODE, AT(data_node), NULL, 0, 0, NULL, "Required. The sets: see below."},
    {"loader", NP_OPT_NODE, AT(loader_node), NULL, 0, 0, NULL, "How images reach the device."},
    {"model", NP_OPT_NODE, AT(network.model), NULL, 0, 0, NULL,
        "Required. The layers: a list runs in order; `name:` and `from:` make any graph."},
    {"blocks", NP_OPT_NODE, AT(network.blocks), NULL, 0, 0, NULL,
        "Named lists of layers with parameters (`$out`), for `block: {use: NAME}`."},
    {"loss", NP_OPT_NODE, AT(network.loss), "cross_entropy", 0, 0, NULL,
        "`cross_entropy`, or `{cross_entropy: {label_smoothing: 0.1}}`."},
    {"optimizer", NP_OPT_NODE, AT(optim_node), "sgd", 0, 0, NULL,
        "How gradients change the weights: `sgd`, or `{adamw: {lr: 1e-3}}`."},
    {"schedule", NP_OPT_NODE, AT(schedule_node), "constant", 0, 0, NULL,
        "The learning rate over the run, a function of the step and the run's length. It can be "
        "changed when a run is resumed, and so can the length, by `-o`: the new schedule is then "
        "that of the whole run, from its first step on; with `--reset-schedule` it begins again at "
        "the step where the run is resumed."},
    {"train", NP_OPT_NODE, AT(run_node), NULL, 0, 0, NULL, "How long to train, and how."},
    {"checkpoint", NP_OPT_NODE, AT(checkpoint_node), NULL, 0, 0, NULL, "When the run is saved."},
    {"runs", NP_OPT_STRING, AT(runs), "runs", 0, 0, NULL,
        "The folder for run folders; a relative one starts at the working directory. Takes "
        "`${NAME}`."},
    NP_OPTIONS_END,
};

#undef AT
#define AT(field) offsetof(struct np_train_options, field)
const struct np_option np_train_table[] = {
    {"epochs", NP_OPT_FLOAT, AT(epochs), "10", 0, 1e6, NULL,
        "Times through the training set; give this or `steps`."},
    {"steps", NP_OPT_INT, AT(steps), "0", 0, 1e12, NULL,
        "Batches to train on, instead of `epochs`."},
    {"eval_every", NP_OPT_STRING, AT(eval_every_text), "1 epoch", 0, 0, NULL,
        "Evaluation while training: `1 epoch`, `0.5 epochs`, `500 steps` or `never`; there is "
        "always one at the end."},
    {"threads", NP_OPT_INT, AT(threads), "auto", 1, 1024, "auto",
        "Compute threads of the CPU device; what rounding depends on, so it is kept on resume."},
    {"accumulate", NP_OPT_INT, AT(accumulate), "1", 1, 65536, NULL,
        "Batches whose gradients make one update."},
    {"clip_norm", NP_OPT_FLOAT, AT(clip_norm), "0", 0, 1e9, NULL,
        "Gradients are scaled down to this norm; 0: they are not."},
    {"deterministic", NP_OPT_BOOL, AT(deterministic), "true", 0, 0, NULL,
        "The same run gives the same weights, bit for bit."},
    {"tf32", NP_OPT_BOOL, AT(tf32), "false", 0, 0, NULL,
        "In f32 a GPU may round the factors of products to TF32's 10 bits: faster, less exact."},
    {"history", NP_OPT_BOOL, AT(history), "false", 0, 0, NULL,
        "Keep history.bin: the sample numbers of every step."},
    NP_OPTIONS_END,
};

#undef AT
#define AT(field) offsetof(struct np_checkpoint_options, field)
const struct np_option np_checkpoint_table[] = {
    {"every", NP_OPT_STRING, AT(every_text), "1 epoch", 0, 0, NULL,
        "`1 epoch`, `0.5 epochs`, `500 steps` or `never`; there is always one at the end."},
    {"keep", NP_OPT_INT, AT(keep), "3", 2, 1e6, NULL,
        "How many of the newest are kept; the best one beside. A run's first lines say what they "
        "take."},
    {"optimizer", NP_OPT_WORD, AT(optimizer), "all", 0, 0, "all|newest",
        "`newest`: older checkpoints keep their weights alone, which take a half (SGD) or a third "
        "(AdamW); a run continues only from its newest one then, and not at all if that is "
        "damaged."},
    NP_OPTIONS_END,
};

#undef AT

/* --- sections -------------------------------------------------------------------------------- */

static bool plain_name(const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return *name && *name != '.' && *name != '-' && strlen(name) <= 64 &&
           strspn(name, good) == strlen(name);
}

/* The file's name without folder and ending; what no folder name should hold becomes '-'. */
static char *name_of_file(const char *path)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char *name = np_format("%.*s", (int)(strcspn(base, ".") > 64 ? 64 : strcspn(base, ".")), base);

    for (char *at = name; at && *at; at++)
        if (!(*at == '_' || (*at >= '0' && *at <= '9') || ((*at | 32) >= 'a' && (*at | 32) <= 'z')))
            *at = '-';
    if (!name || !plain_name(name)) {
        np_free(name);
        return np_strdup("run");
    }
    return name;
}

static void check_name(struct np_config *config, struct np_report *report)
{
    const struct np_node *node = np_node_get(config->root, "name");

    if (config->name && config->name[0] == '\0') {
        np_free(config->name);
        config->name = name_of_file(config->path);
    } else if (node && config->name && !plain_name(config->name)) {
        np_report_add(report, node->line, node->column,
            "name: '%.80s' would not make a folder's name; use letters, digits, '.', '_' and '-', "
            "at most 64, not '.' or '-' first",
            config->name);
    }
}

int np_config_set_device(struct np_config *config, const char *name, struct np_report *report)
{
    struct np_node *node = np_node_scalar(name, 0, 0);
    char *new_name = NULL, *flag = np_format("--device %.40s", name);
    const char *file = report->file;

    report->file = flag; /* a mistake is the flag's */
    int code = np_device_parse(node, &new_name, &config->device_options, report);
    report->file = file;
    np_free(flag);
    np_node_free(node);
    if (code == 0) {
        np_free(config->device);
        config->device = new_name;
    }
    return code;
}

/* "1 epoch", "0.5 epochs", "500 steps", "never". */
static bool parse_period(const char *text, struct np_period *ret_period)
{
    struct np_period period = {0};
    char *end;

    if (strcmp(text, "never") == 0) {
        *ret_period = period;
        return true;
    }
    double number = strtod(text, &end);
    if (end == text || *end != ' ' || !isfinite(number) || number <= 0 || number > 1e12)
        return false;
    end += strspn(end, " ");
    if (strcmp(end, "epoch") == 0 || strcmp(end, "epochs") == 0)
        period.epochs = number;
    else if ((strcmp(end, "step") == 0 || strcmp(end, "steps") == 0) && floor(number) == number)
        period.steps = (int64_t)number;
    else
        return false;
    *ret_period = period;
    return true;
}

static void check_period(const struct np_node *map, const char *key, const char *text,
    struct np_period *ret_period, struct np_report *report)
{
    const struct np_node *node = np_node_get(map, key);

    if (text && !parse_period(text, ret_period))
        np_report_add(report, node ? node->line : 0, node ? node->column : 0,
            "%s: expected '1 epoch', '0.5 epochs', '500 steps' or 'never', not '%.80s'", key, text);
}

static void parse_train(struct np_config *config, struct np_report *report)
{
    struct np_train_options *run = &config->run;
    const struct np_node *node = config->run_node;
    const int before = report->nr_errs + report->nr_dropped;

    np_options_parse(np_train_table, node, "train", NULL, run, report);
    check_period(node, "eval_every", run->eval_every_text, &run->eval_every, report);
    const struct np_node *epochs = np_node_get(node, "epochs"), *steps = np_node_get(node, "steps");
    if (run->steps > 0 && !epochs)
        run->epochs = 0;
    if (run->epochs > 0 && run->steps > 0)
        np_report_add(report, steps->line, steps->column,
            "steps: there is 'epochs' already; give one of the two");
    if (run->epochs == 0 && run->steps == 0) {
        if ((epochs || steps) && report->nr_errs + report->nr_dropped == before)
            np_report_add(report, (epochs ? epochs : steps)->line,
                (epochs ? epochs : steps)->column, "%s: nothing to train; give epochs or steps",
                epochs ? "epochs" : "steps");
        run->epochs = DEFAULT_EPOCHS;
    }
    config->optim.clip_norm = run->clip_norm;
}

static void parse_checkpoint(struct np_config *config, struct np_report *report)
{
    np_options_parse(np_checkpoint_table, config->checkpoint_node, "checkpoint", NULL,
        &config->checkpoint, report);
    check_period(config->checkpoint_node, "every", config->checkpoint.every_text,
        &config->checkpoint.every, report);
}

/* ${NAME} in `runs:`; what is wrong with it stands at its place. */
static void expand_runs(struct np_config *config, struct np_report *report)
{
    const struct np_node *node = np_node_get(config->root, "runs");
    struct np_err err = {0};
    char *runs = np_expand(config->runs, &err);

    if (!runs) {
        np_report_add(report, node ? node->line : 0, node ? node->column : 0, "runs: %s", err.text);
        return;
    }
    np_free(config->runs);
    config->runs = runs;
}

/* What the CPU device does not compute in; a GPU's limits are its plugin's to tell. */
static void check_precision(const struct np_config *config, struct np_report *report)
{
    const struct np_node *node = np_node_get(config->root, "precision");

    if (config->precision == NP_F16 && config->device && strcmp(config->device, "cpu") == 0)
        np_report_add(report, node->line, node->column,
            "precision: f16 needs a GPU; the CPU computes in f32 or bf16");
}

/* The model's mistakes, where the chains say how large the network's input is, or where the config
 * is wrong anyway: with a guessed size a shape could be called wrong that is right. */
static void check_model(struct np_config *config, struct np_report *report)
{
    int height = 0, width = 0;

    config->network.loader = &config->loader;
    config->network.train = &config->data.train;
    config->network.seed = config->seed;
    if (config->network.model &&
        np_loader_row_size(&config->loader, &height, &width, report) == 0 &&
        (height > 0 || report->nr_errs))
        np_network_check(&config->network, height, width, 0, report);
}

static void parse_sections(struct np_config *config, struct np_report *report)
{
    np_options_parse(np_config_table, config->root, "the config", NULL, config, report);
    config->precision--; /* the word auto stands first */
    check_name(config, report);
    expand_runs(config, report);
    if (config->root->kind != NP_NODE_MAP)
        return; /* one message is enough */
    if (config->base_node) { /* what it lacks may be there */
        np_report_add(report, config->base_node->line, config->base_node->column,
            "base: only a config's file can name the one that it builds on");
        return;
    }
    np_device_parse(config->device_node, &config->device, &config->device_options, report);
    np_data_options_parse(config->data_node, config->dir, &config->data, report);
    np_loader_options_parse(config->loader_node, &config->loader, report);
    if (!config->network.model)
        np_report_add(report, 1, 1, "model: the key is missing; it lists the layers");
    np_optim_parse(config->optim_node, &config->optim, report);
    np_schedule_parse(config->schedule_node, &config->schedule, report);
    parse_train(config, report); /* after the optimizer: it adds clip_norm to it */
    parse_checkpoint(config, report);
    check_precision(config, report);
    check_model(config, report);
}

/* --- the file -------------------------------------------------------------------------------- */

static bool has_length(const struct np_config *config, const char *key)
{
    return np_node_get(np_node_get(config->root, "train"), key) != NULL;
}

/* Everything behind the reading of the file. Takes config over. */
static int finish(struct np_config *config, const char *const *overrides, int nr_overrides,
    struct np_config **ret_config, struct np_report *report)
{
    config->root = config->file.root;
    if (config->root) {
        const bool epochs = has_length(config, "epochs"), steps = has_length(config, "steps");

        for (int i = 0; i < nr_overrides; i++)
            np_config_override(config->root, overrides[i], i, report);
        config->replaced = epochs && !has_length(config, "epochs") ? "epochs"
                           : steps && !has_length(config, "steps") ? "steps"
                                                                   : NULL;
        parse_sections(config, report);
    }
    if (report->nr_errs) {
        np_report_sort(report);
        report->files = NULL; /* the config's */
        np_config_free(config);
        return -EINVAL;
    }
    *ret_config = config;
    return 0;
}

static struct np_config *begin(const char *path, struct np_report *report)
{
    struct np_config *config = np_alloc(sizeof(*config));

    if (!report->file)
        report->file = path;
    config->path = np_strdup(path);
    config->dir = np_config_folder(path);
    return config;
}

int np_config_load_text(const char *text, size_t bytes, const char *path,
    const char *const *overrides, int nr_overrides, struct np_config **ret_config,
    struct np_report *report)
{
    struct np_config *config = begin(path, report);

    *ret_config = NULL;
    np_yaml_parse(text, bytes, &config->file.root, report);
    return finish(config, overrides, nr_overrides, ret_config, report);
}

int np_config_load(const char *path, const char *const *overrides, int nr_overrides,
    struct np_config **ret_config, struct np_report *report)
{
    struct np_config *config = begin(path, report);

    *ret_config = NULL;
    const int code = np_config_file_read(path, &config->file, report);
    const int finished = finish(config, overrides, nr_overrides, ret_config, report);
    return finished < 0 && code < 0 ? code : finished;
}

void np_config_report(const struct np_config *config, struct np_report *report)
{
    np_report_init(report, config->path);
    report->files = (const char *const *)config->file.bases;
}

void np_config_free(struct np_config *config)
{
    if (!config)
        return;
    np_options_fini(np_config_table, config);
    np_options_fini(np_train_table, &config->run);
    np_options_fini(np_checkpoint_table, &config->checkpoint);
    np_loader_options_fini(&config->loader);
    np_data_options_fini(&config->data);
    np_schedule_fini(&config->schedule);
    np_free(config->device);
    np_free(config->path);
    np_free(config->dir);
    np_config_file_fini(&config->file);
    np_free(config);
}
