/* A whole config: defaults, sections, paths, the normal form. Messages: tests/golden. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/config/setup.h"
#include "loader/base/nearest.h"
#include "loader/base/yaml.h"
#include "tests/test.h"

#define MODEL "model: [global_avgpool, flatten, {linear: {out: classes}}]\n"
#define SYNTH "data: {train: {source: synth, samples: 100}}\n"

/* Writes text to FOLDER/name.yaml and loads it. */
static struct np_config *load(const char *text, const char *const *overrides, int nr_overrides)
{
    char folder[] = "/tmp/nnpipe-config-XXXXXX", path[64];
    struct np_config *config = NULL;
    struct np_report report;

    mkdtemp(folder);
    snprintf(path, sizeof(path), "%s/my.net.yaml", folder);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    np_report_init(&report, path);
    np_config_load(path, overrides, nr_overrides, &config, &report);
    for (int i = 0; i < report.nr_errs; i++)
        fprintf(
            stderr, "%d:%d: %s\n", report.errs[i].line, report.errs[i].column, report.errs[i].text);
    np_report_fini(&report);
    unlink(path);
    rmdir(folder);
    return config;
}

static char *normal(const struct np_config *config)
{
    struct np_node *node = np_config_node(config);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    np_node_print(file, node);
    fclose(file);
    np_node_free(node);
    return text;
}

Test(config, the_least_config_has_good_defaults)
{
    struct np_config *config = load(SYNTH MODEL, NULL, 0);

    cr_assert_not_null(config);
    cr_assert_str_eq(config->name, "my");
    cr_assert_str_eq(config->runs, "runs");
    cr_assert_str_eq(config->device, "auto");
    cr_assert(config->seed == 1 && config->precision == -1 && !config->data.has_test);
    cr_assert(config->loader.batch == 128 && config->loader.readers == -1);
    cr_assert(config->loader.nr_mean == 3 && config->loader.mean[2] == 0.5f);
    cr_assert(config->run.epochs == 10 && config->run.steps == 0 && config->run.accumulate == 1);
    cr_assert(config->run.eval_every.epochs == 1 && config->run.deterministic);
    cr_assert(config->checkpoint.every.epochs == 1 && config->checkpoint.keep == 3);
    cr_assert(config->optim.kind == NP_SGD && config->schedule.kind == NP_CONSTANT);
    np_config_free(config);
}

Test(config, periods_and_lengths)
{
    struct np_config *config = load(SYNTH MODEL
        "train: {steps: 70, eval_every: 25 steps, clip_norm: 2}\ncheckpoint: {every: never}\n",
        NULL, 0);

    cr_assert_not_null(config);
    cr_assert(config->run.steps == 70 && config->run.epochs == 0);
    cr_assert(config->run.eval_every.steps == 25 && config->run.eval_every.epochs == 0);
    cr_assert(config->checkpoint.every.steps == 0 && config->checkpoint.every.epochs == 0);
    cr_assert_float_eq(config->optim.clip_norm, 2, 0);
    np_config_free(config);
}

Test(config, loader_options_that_tables_cannot_describe)
{
    struct np_config *config = load(SYNTH MODEL
        "loader:\n  shuffle: {window: 50}\n  cache: {encoded: 2G}\n  bad_samples: {policy: fail, "
        "budget: 2%}\n  channels: 1\n  normalize: {mean: [0.25], std: [2]}\n  io: pread\n",
        NULL, 0);

    cr_assert_not_null(config);
    const struct np_loader_options *loader = &config->loader;
    cr_assert(loader->shuffle == NP_SHUFFLE_WINDOW && loader->window == 50);
    cr_assert(loader->cache == NP_CACHE_ENCODED && loader->cache_bytes == 2ll << 30);
    cr_assert(loader->bad_fail && loader->bad_budget > 0.0199 && loader->bad_budget < 0.0201);
    cr_assert(loader->channels == 1 && loader->nr_mean == 1);
    cr_assert(loader->mean[0] == 0.25f && loader->std[0] == 2.0f);
    char *text = normal(config);
    cr_assert(
        strstr(text, "shuffle: {window: 50}") && strstr(text, "cache: {encoded: 2147483648}"));
    cr_assert(strstr(text, "bad_samples: {policy: fail, budget: 0.02}"));
    cr_assert(strstr(text, "normalize: {mean: [0.25], std: [2]}"));
    free(text);
    np_config_free(config);
}

Test(config, normal_form_parses_back_to_itself)
{
    static const char text[] =
        "name: n\nseed: 7\ndevice: {sim: {step_ms: 3}}\nprecision: bf16\n"
        "data: {train: {source: tar, path: a-*.tar, match: \"x/*\"}, test: {source: folder, path: "
        "b}, "
        "split: 0.1, classes: /a/names}\n"
        "loader: {batch: 3, augment: [{random_crop: {size: 32, pad: 4, border: reflect}}, flip], "
        "cache: none, shuffle: none}\n"
        "model:\n  - conv: {name: stem, out: 8, kernel: 3, pad: 1}\n  - block: {use: b, repeat: 2, "
        "out: "
        "8}\n  - add: [stem, b]\n  - global_avgpool\n  - linear: {out: classes}\n"
        "blocks: {b: [{conv: {out: $out, kernel: 1}}, relu]}\n"
        "loss: {cross_entropy: {label_smoothing: 0.1}}\noptimizer: {adamw: {lr: 3e-4}}\n"
        "schedule: {multistep: {milestones: [3, 5.5]}}\ntrain: {steps: 9, eval_every: 2 epochs}\n"
        "checkpoint: {every: 4 steps, keep: 2}\nruns: /tmp/r\n";
    static const char *const overrides[] = {"model.1.block.name=b", "model.1.block.repeat=1"};
    struct np_config *first = load(text, overrides, 2);

    cr_assert_not_null(first);
    cr_assert_str_eq(first->device, "sim");
    char *one = normal(first);
    struct np_config *second = load(one, NULL, 0);
    cr_assert_not_null(second);
    char *two = normal(second);
    cr_assert_str_eq(one, two);
    cr_assert(strstr(one, "label_smoothing: 0.1") && strstr(one, "milestones: [3, 5.5]"));
    cr_assert(strstr(one, "path: /tmp/nnpipe-config-")); /* absolute, from the config's folder */
    free(one);
    free(two);
    np_config_free(first);
    np_config_free(second);
}

Test(config, a_device_of_the_command_line_wins)
{
    struct np_config *config = load(SYNTH MODEL "device: cpu\n", NULL, 0);
    struct np_report report;

    np_report_init(&report, NULL);
    cr_assert_eq(np_config_set_device(config, "sim", &report), 0);
    cr_assert_str_eq(config->device, "sim");
    cr_assert_eq(np_config_set_device(config, "cuda:3", &report), 0);
    cr_assert_eq(config->device_options.ordinal, 3);
    cr_assert(np_config_set_device(config, "tpu", &report) < 0 && report.nr_errs == 1);
    cr_assert_str_eq(config->device, "cuda:3");
    np_report_fini(&report);
    np_config_free(config);
}

Test(config, a_missing_file_is_one_mistake)
{
    struct np_config *config = NULL;
    struct np_report report;

    np_report_init(&report, "/no/such.yaml");
    cr_assert_eq(np_config_load("/no/such.yaml", NULL, 0, &config, &report), -ENOENT);
    cr_assert(!config && report.nr_errs == 1);
    cr_assert_str_eq(report.errs[0].text, "cannot be read: No such file or directory");
    np_report_fini(&report);
    np_config_free(NULL);
}

Test(setup, guesses_size_and_classes_by_the_kind_of_data)
{
    static const struct {
        const char *data;
        int side, classes;
    } cases[] = {{"{source: cifar10, path: x}", 32, 10}, {"{source: idx, path: x}", 28, 10},
        {"{source: synth, size: 48}", 48, 10}, {"{source: folder, path: x}", 224, 1000}};

    for (int i = 0; i < 4; i++) {
        char text[256], guess[NP_GUESS_TEXT];
        struct np_row_sizes size = {0};
        int classes = 0;
        snprintf(text, sizeof(text), "data: {train: %s}\n" MODEL, cases[i].data);
        struct np_config *config = load(text, NULL, 0);
        cr_assert_not_null(config);
        cr_assert(np_network_guess(&config->network, &size, &classes, guess));
        cr_assert(size.height == cases[i].side && size.width == size.height &&
                  classes == cases[i].classes);
        cr_assert(strstr(guess, "are assumed"));
        cr_assert(!np_network_guess(&config->network, &size, &classes, guess));
        np_config_free(config);
    }
}

Test(setup, a_guessed_class_count_makes_no_layer_wrong)
{
    struct np_config *config =
        load(SYNTH "model: [global_avgpool, flatten, {linear: {out: 7}}]\n", NULL, 0);
    const struct np_row_sizes size = {32, 32, 32, 32};
    struct np_report report;

    cr_assert_not_null(config);
    np_report_init(&report, NULL);
    cr_assert_eq(np_network_check(&config->network, &size, 0, &report), 0);
    cr_assert_eq(np_network_check(&config->network, &size, 8, &report), -EINVAL);
    cr_assert(strstr(report.errs[0].text, "there are 8 classes"));
    np_report_fini(&report);
    np_config_free(config);
}

Test(setup, data_gives_classes_size_and_graphs)
{
    struct np_config *config = load(
        "data: {train: {source: synth, samples: 50, size: 24}, test: {source: synth, samples: 20, "
        "size: 24, seed: 2}}\noptimizer: {sgd: {decay_all: false}}\n"
        "model: [{conv: {out: 4, kernel: 3}}, batchnorm, global_avgpool, flatten, {linear: {out: "
        "classes}}]\n",
        NULL, 0);
    const struct np_source_progress progress = {0};
    struct np_setup setup = {0};
    struct np_report report;
    struct np_err err = {0};
    int decayed = 0;

    cr_assert_not_null(config);
    np_report_init(&report, NULL);
    cr_assert_eq(np_sets_open(&config->sets, &progress, &setup.sets, &err), 0);
    cr_assert(setup.sets.classes->nr_items == 8 && setup.sets.size.height == 24 &&
              setup.sets.size.width == 24);
    cr_assert(np_index_samples(setup.sets.test) == 20 && !setup.sets.test_labels);
    cr_assert_eq(np_setup_graph(config, NP_F32, &setup, &report), 0);
    for (int i = 0; i < setup.graph->nr_tensors; i++)
        decayed += setup.graph->tensors[i].role == NP_ROLE_PARAM &&
                   setup.graph->tensors[i].rule.decay != 0;
    cr_assert_eq(decayed, 2); /* the weights of conv and linear */
    cr_assert(setup.graph->nr_nodes > setup.graph->nr_forward);
    cr_assert_eq(setup.eval_graph->nr_nodes, setup.eval_graph->nr_forward);
    np_setup_fini(&setup);
    np_report_fini(&report);
    np_config_free(config);
}

Test(setup, sets_of_other_sizes_are_refused)
{
    struct np_config *config =
        load("data: {train: {source: synth, samples: 50, size: 24}, test: {source: synth, samples: "
             "20, size: 32}}\n" MODEL,
            NULL, 0);
    const struct np_source_progress progress = {0};
    struct np_setup setup = {0};
    struct np_err err = {0};

    cr_assert(np_sets_open(&config->sets, &progress, &setup.sets, &err) < 0);
    cr_assert_str_eq(err.text, "data.test: its images are 32x32, the network is built for 24x24; a "
                               "resize or center_crop in loader.test_augment makes them equal");
    np_setup_fini(&setup);
    np_config_free(config);
}

Test(setup, classes_are_matched_by_name)
{
    struct np_node *classes = np_node_new(NP_NODE_LIST, 0, 0);
    struct np_index *index = np_index_new(NULL);
    const struct np_record record = {.bytes = 1, .inner_bytes = 1};
    struct np_err err = {0};
    int32_t *labels = NULL;

    np_node_add(classes, NULL, np_node_scalar("cat", 0, 0));
    np_node_add(classes, NULL, np_node_scalar("dog", 0, 0));
    np_node_add(classes, NULL, np_node_scalar("owl", 0, 0));
    np_index_add_file(index, "/x.tar", &(struct stat){0}, NULL);
    np_index_add_class(index, "owl", NULL, NULL);
    np_index_add_class(index, "dog", NULL, NULL);
    np_index_add(index, &record, "a", NULL, NULL);
    np_index_finish(index, NULL);
    cr_assert_eq(
        np_match_labels(&(struct np_source_options){0}, classes, index, "data.test", &labels, &err),
        0);
    cr_assert(labels && labels[0] == 1 && labels[1] == 2); /* dog, owl */
    np_free(labels);
    labels = NULL;
    np_node_remove(classes, 1);
    cr_assert(np_match_labels(
                  &(struct np_source_options){0}, classes, index, "data.test", &labels, &err) < 0 &&
              !labels);
    cr_assert_str_eq(err.text, "data.test: the class 'dog' is not among the 2 classes of the "
                               "training set (cat ... owl)");
    np_index_free(index);
    np_node_free(classes);
}

/* --- words of other trainers ------------------------------------------------------------------- */

Test(config, words_of_other_trainers_lead_to_our_keys)
{
    static const char *const words[] = {"batch_size", "num_workers", "learning_rate", "lr",
        "weight-decay", "momentum", "label_smoothing", "epochs", "max_steps", "grad_clip", "seed",
        "precision", "runs", "val_split", "cache", "save_every", "readers", "accumulate"};
    char *keys = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&keys, &bytes);

    cr_assert_not_null(out);
    fputc('\n', out);
    np_config_keys(out);
    fclose(out);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        const char *name = np_alias(words[i], 0);
        char line[100];

        cr_assert_not_null(name, "%s", words[i]);
        snprintf(line, sizeof(line), "\n%s", name);
        const char *at = strstr(keys, line);
        cr_assert(at && strchr(" \n", at[strlen(line)]), "%s: there is no key %s", words[i], name);
    }
    free(keys);
}
